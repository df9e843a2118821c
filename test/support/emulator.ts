/**
 * Emulators of libcuda, NVRTC, cuBLASLt, NVTX and NCCL, built from test/emulator on demand: the CUDA driver runs on
 * them, with its kernels, on a machine without a GPU. They are for tests: a kernel runs on one core.
 */

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  accessSync,
  constants,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, delimiter, join } from "node:path";
import type { CudaDriver, KernelSource } from "holdfast/internals";
import { loadKoffi } from "../../src/driver/foreign-functions.js";
import { withLock } from "./lock.js";
import { filesBelow, repositoryRoot } from "./repository.js";

/** The settings of a test; their defaults are in test/emulator/cuda/control.cpp. */
export type EmulatorSetting =
  | "devices"
  | "computeMajor"
  | "computeMinor"
  | "multiprocessors"
  | "integrated"
  | "driverVersion"
  /** 0: the device reports no virtual memory API. */
  | "virtualMemory"
  /** 0: the device reports the API, and rejects to map. */
  | "canMap"
  | "totalMemory"
  /** Bytes that another process holds. */
  | "foreignMemory"
  /** 1: work waits in its stream until a call synchronizes, queries or waits for it. */
  | "deferred"
  /** 1: a failing launch returns the error itself, instead of the next call. */
  | "blocking"
  /** 1: blocks and threads run from the last to the first, and copies and products complete as late as possible. */
  | "reversed"
  /** 1: before its wait, a PDL launch reads memory from before the preceding kernel. */
  | "early"
  /** If not 0, all calls that need a context return this, as after a fault. */
  | "stickyError"
  /** 1: cuBLASLt has no algorithm. */
  | "gemmsRejected"
  /** Workspace bytes of an algorithm of cuBLASLt; at most as many as the caller allows. */
  | "gemmWorkspace"
  /** The number of nodes of a GEMM in a graph. */
  | "gemmNodes"
  /** The number of algorithms of cuBLASLt; each needs 1 KiB of workspace more than the one before. */
  | "gemmAlgorithms"
  /** 130002 is 13.0.2. */
  | "cublasLtVersion"
  /** 1: the n-th algorithm splits K by n, so that its bits differ from the others'. */
  | "gemmsDiffer"
  /** The algorithm that is listed with a status that forbids its use; -1: none. */
  | "gemmUnsound"
  /** 22809 is 2.28.9. */
  | "ncclVersion"
  /** How often a call of NCCL is in progress. */
  | "ncclPolls"
  /** The time by which every collective of this process is late. */
  | "ncclDelayUs"
  /** The number of the collective in which this process hangs; 0: none. */
  | "ncclHangAt"
  /** The number of the collective that fails after its call; 0: none. */
  | "ncclErrorAt"
  /** 0: a collective can't be captured. */
  | "ncclCaptures";

/** The emulator's figures: held resources, and how many captures began in each mode. */
export type EmulatorFigure =
  | "usedMemory"
  | "reservations"
  | "allocations"
  | "hostAllocations"
  | "streams"
  | "events"
  | "graphs"
  | "executables"
  | "modules"
  | "captures.threadLocal"
  | "captures.global"
  | "captures.relaxed"
  | "priority of the latest stream"
  | "flags of the latest executable";

export interface Emulator {
  /** For HOLDFAST_CUDA_PATH. */
  readonly folder: string;
  set(key: EmulatorSetting, value: number): void;
  get(key: EmulatorSetting | EmulatorFigure): number;
  /** How often a function was called since the last reset; `cuMemAlloc` means `cuMemAlloc_v2` too. */
  calls(name: string): number;
  /** Injects a status as a function's result: after this many good calls, this many times. */
  fail(name: string, status: number, when?: { readonly after?: number; readonly times?: number }): void;
  /** Adds a node of a kind to a stream's capture. */
  inject(stream: number, nodeType: number): void;
  /** The text of the last fault of a kernel. */
  lastFault(): string;
  /** Resets settings, injected failures, counts, faults and captures; held resources stay. */
  reset(): void;
}

const sourceFolder = "test/emulator";
const flags = [
  ...["-std=c++17", "-shared", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-ffp-contract=off"],
  ...["-Wall", "-Wextra", "-Werror"],
];

interface LibraryPlan {
  readonly name: string;
  readonly sources: string;
  /** Fast to compile, and fast enough to run. */
  readonly optimization: "-O1" | "-O3";
  readonly links: readonly string[];
}

/** The others ask libcuda for injected failures, and submit work to it. */
const linkLibcuda = ["-l:libcuda.so.1", "-Wl,-rpath,$ORIGIN"];
const libraries: readonly LibraryPlan[] = [
  { name: "libcuda.so.1", sources: "cuda", optimization: "-O1", links: ["-ldl"] },
  { name: "libnvrtc.so.13", sources: "nvrtc", optimization: "-O1", links: [...linkLibcuda, "-ldl"] },
  { name: "libcublasLt.so.13", sources: "cublaslt", optimization: "-O3", links: [...linkLibcuda, "-lm"] },
  { name: "libnvtx3interop.so.1", sources: "nvtx", optimization: "-O1", links: linkLibcuda },
  { name: "libnccl.so.2", sources: "nccl", optimization: "-O1", links: linkLibcuda },
];
/** Compiled kernels, of all versions of the emulator: test/emulator/kernel-folder.h has this name too. */
const kernelFolder = "holdfast-emulator-kernels";
/** The files that the kernel compiler reads. */
const headers = ["nvrtc/emulation.h", "kernel-table.h"];

/** Why the emulator is not available here, for a test's `skip`. */
export const emulatorMissing: string | false = hasCompiler()
  ? false
  : "there is no g++ to build the emulator with";

let folder: string | undefined;

/** The folder with the libraries. They are built once for each version of their sources. */
export function buildEmulator(): string {
  folder ??= build();
  return folder;
}

let opened: Emulator | undefined;

/** The emulator's control functions, of the library that this process has loaded or will load. */
export function openEmulator(): Emulator {
  opened ??= open(buildEmulator());
  return opened;
}

let compileSources: ((count: number, names: readonly string[], codes: readonly string[]) => void) | undefined;

/**
 * Compiles kernels in few calls of g++, before NVRTC is asked for one after the other: g++ takes half of its time for a small kernel to
 * start, and for the headers and the linker. What is compiled already, or fails, is left to NVRTC.
 */
export function compileTogether(sources: Iterable<KernelSource>): void {
  const kernels = [...sources].flatMap(({ name, gemm, cuda }) =>
    cuda && !gemm ? [{ name: `${name}.cu`, code: cuda.code }] : [],
  );
  if (kernels.length < 2) return;
  compileSources ??= loadKoffi()
    .load(join(buildEmulator(), "libnvrtc.so.13"))
    .func("void emulator_compile(int count, const char **names, const char **codes)");
  compileSources(
    kernels.length,
    kernels.map(({ name }) => name),
    kernels.map(({ code }) => code),
  );
}

/** The driver of the emulator, which compiles kernels together where it is asked for several. */
export function compilingTogether(driver: CudaDriver): CudaDriver {
  const { compileKernels } = driver;
  driver.compileKernels = (sources) => {
    compileTogether(sources);
    compileKernels?.call(driver, sources);
  };
  return driver;
}

/** Looked up and not run, because every file of the device suites asks. */
function hasCompiler(): boolean {
  const folders = (process.env["PATH"] ?? "").split(delimiter);
  return folders.some((path) => {
    try {
      accessSync(join(path, "g++"), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

function build(): string {
  const sources = [...filesBelow(sourceFolder, ".cpp"), ...filesBelow(sourceFolder, ".h")];
  const hash = createHash("sha256").update([process.arch, ...flags, JSON.stringify(libraries)].join(" "));
  for (const path of sources) hash.update(path).update(readFileSync(join(repositoryRoot, path)));
  const target = join(tmpdir(), `holdfast-emulator-${hash.digest("hex").slice(0, 16)}`);
  makePrivateFolder(target);
  makePrivateFolder(join(tmpdir(), kernelFolder));
  const files = [...libraries.map(({ name }) => name), ...headers.map((path) => basename(path))];
  const isBuilt = (): boolean => files.every((name) => existsSync(join(target, name)));
  if (!isBuilt())
    withLock(join(target, "lock"), () => {
      if (!isBuilt()) buildIn(target, files);
    });
  return target;
}

function buildIn(target: string, files: readonly string[]): void {
  const scratch = mkdtempSync(`${target}/part-`);
  try {
    compileLibraries(scratch);
    for (const library of libraries) linkLibrary(library, scratch);
    for (const path of headers)
      copyFileSync(join(repositoryRoot, sourceFolder, path), join(scratch, basename(path)));
    // Without the lock, a concurrent build creates the same files: each appears whole or not at all.
    for (const name of files) renameSync(join(scratch, name), join(target, name));
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

/** Files in these folders are executed, so other users must not write there. */
function makePrivateFolder(path: string): void {
  mkdirSync(path, { recursive: true, mode: 0o700 });
  if (statSync(path).uid !== process.getuid?.())
    throw new Error(`${path} belongs to another user: remove it.`);
}

/** All files of a library at once, because much of the time goes into the system's headers; and all libraries at once. */
function compileLibraries(target: string): void {
  const commands = libraries.map(({ name, sources, optimization }) => {
    const paths = filesBelow(`${sourceFolder}/${sources}`, ".cpp").map((path) => join(repositoryRoot, path));
    const source = join(target, `${name}.cpp`);
    writeFileSync(source, paths.map((path) => `#include "${path}"\n`).join(""));
    return ["g++", ...flags, optimization, "-c", source, "-o", join(target, `${name}.o`)]
      .map(quote)
      .join(" ");
  });
  const waits = commands.map((_, index) => `wait $pid${index}`).join(" && ");
  const script = `${commands.map((command, index) => `${command} & pid${index}=$!`).join("\n")}\n${waits}`;
  execFileSync("sh", ["-c", script], { stdio: ["ignore", "inherit", "inherit"] });
}

function linkLibrary({ name, links }: LibraryPlan, target: string): void {
  const soname = ["-Wl,-soname", name].join(",");
  const output = ["-o", join(target, name), soname, "-Wl,--no-undefined", `-L${target}`, ...links];
  execFileSync("g++", [...flags, join(target, `${name}.o`), ...output], { stdio: "inherit" });
}

function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function open(path: string): Emulator {
  const library = loadKoffi().load(join(path, "libcuda.so.1"));
  const set = library.func("int emulator_set(const char *key, int64_t value)");
  const get = library.func("int64_t emulator_get(const char *key)");
  const calls = library.func("int64_t emulator_calls(const char *function)");
  const fail = library.func("void emulator_fail(const char *function, int status, int after, int times)");
  const inject = library.func("int emulator_inject(uint64_t stream, int nodeType)");
  const fault = library.func("const char *emulator_fault()");
  const reset = library.func("void emulator_reset()");
  return {
    folder: path,
    set(key, value) {
      if (set(key, value) !== 0) throw new Error(`The emulator has no setting "${key}".`);
    },
    get: (key) => Number(get(key)),
    calls: (name) => Number(calls(name)),
    fail: (name, status, { after = 0, times = -1 } = {}) => fail(name, status, after, times),
    inject(stream, nodeType) {
      if (inject(stream, nodeType) !== 0) throw new Error(`Stream ${stream} is not in a capture.`);
    },
    lastFault: () => String(fault()),
    reset: () => reset(),
  };
}
