/**
 * CUDA C++ under NVIDIA's compiler, if it is installed: it needs no GPU, and reports a kernel's registers and
 * memory.
 */

import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { KernelSource } from "holdfast/internals";
import { nvccVersion, resultFor } from "./nvcc-results.js";

/** The assembler's report of a kernel. */
export interface KernelCost {
  readonly registers: number;
  /** Local memory: not 0 if registers did not suffice or an array was indexed by a variable. */
  readonly stackBytes: number;
  readonly spillBytes: number;
  readonly sharedBytes: number;
  /** True if consecutive wgmma instructions are serialized. */
  readonly isSerialized: boolean;
}

/** Why a test that compiles is skipped here, or false. */
export function noCompiler(): string | false {
  return nvccVersion() === "" ? "nvcc is not installed" : false;
}

/** nvcc accepts a lambda like this in device code, and NVRTC does not. */
const genericLambda = /\[[^[\]]*\]\s*\([^()]*\bauto\b/;

/**
 * Compiles the kernels with the driver's NVRTC options and warnings as errors, all in one file and for one
 * architecture such as "sm_80"; returns the report of each, in order.
 */
export function compileWithNvcc(kernels: readonly KernelSource[], architecture: string): KernelCost[] {
  const sources = kernels.map(({ name, cuda }, index) => {
    if (!cuda) throw new Error(`kernel ${index} has no CUDA code`);
    if (genericLambda.test(cuda.code))
      throw new Error(
        `kernel "${name}" has a lambda with an "auto" parameter: NVRTC takes it for a host function`,
      );
    // Kernels share local names such as `threads`; only the entries are global to the file.
    const code = withOwnSwizzledMemory(cuda.code).replace(new RegExp(`\\b${cuda.entry}\\b`), entryOf(index));
    return `namespace code${index} {\n${code}\n}\n`;
  });
  const strict = ["-std=c++17", "--fmad=false", "-Werror", "all-warnings"];
  const flags = [...strict, "-Xptxas", "-v", "-cubin", `-arch=${architecture}`];
  const { report } = compile(sources.join("\n"), flags);
  return kernels.map((_, index) => costOf(entryOf(index), report));
}

/**
 * An entry has C linkage, and so has the shared memory that it declares: kernels of several namespaces share it by name. Those that
 * align it for swizzled tiles get another name than the others, because nvcc rejects two alignments of one array.
 */
function withOwnSwizzledMemory(code: string): string {
  const name = code.match(/^ *swizzledSharedMemory\((\w+),/m)?.[1];
  return name === undefined ? code : code.replaceAll(new RegExp(`\\b${name}\\b`, "g"), `swizzled_${name}`);
}

/** The PTX of a kernel, for reading. */
export function ptxWithNvcc({ name, cuda }: KernelSource, architecture: string): string {
  if (!cuda) throw new Error(`kernel "${name}" has no CUDA code`);
  return compile(cuda.code, ["-std=c++17", "--fmad=false", "-ptx", `-arch=${architecture}`]).ptx;
}

interface Compiled {
  /** All that the compiler printed. */
  readonly report: string;
  /** Empty unless PTX was requested. */
  readonly ptx: string;
}

/** Throws the compiler's report if it does not accept the source. */
function compile(source: string, flags: readonly string[]): Compiled {
  const result = resultFor(...flags, source);
  if (result.text !== undefined) return JSON.parse(result.text) as Compiled;
  const folder = mkdtempSync(join(tmpdir(), "holdfast-nvcc-"));
  try {
    const [path, output] = [join(folder, "kernels.cu"), join(folder, "output")];
    writeFileSync(path, source);
    const { status, stderr } = spawnSync("nvcc", [...flags, path, "-o", output], { encoding: "utf8" });
    if (status !== 0) throw new Error(`nvcc ${flags.join(" ")} says:\n${stderr}`);
    const ptx = flags.includes("-ptx") ? readFileSync(output, "utf8") : "";
    const compiled: Compiled = { report: stderr, ptx };
    result.keep(JSON.stringify(compiled));
    return compiled;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function entryOf(index: number): string {
  return `kernel_${index}_entry`;
}

function costOf(entry: string, report: string): KernelCost {
  const section = report
    .split("Compiling entry function '")
    .find((candidate) => candidate.startsWith(`${entry}'`));
  const figure = (pattern: RegExp): number => Number(section?.match(pattern)?.[1] ?? 0);
  if (section === undefined) throw new Error(`nvcc reports nothing for ${entry}:\n${report}`);
  return {
    registers: figure(/Used (\d+) registers/),
    stackBytes: figure(/(\d+) bytes stack frame/),
    spillBytes: figure(/(\d+) bytes spill stores/) + figure(/(\d+) bytes spill loads/),
    sharedBytes: figure(/(\d+) bytes smem/),
    isSerialized: new RegExp(`serialized due to .* (?:in|for) the function '${entry}'`).test(report),
  };
}
