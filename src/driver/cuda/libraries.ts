/**
 * Where CUDA's three libraries are found: in the folder that HOLDFAST_CUDA_PATH names, then by the system's loader, then
 * in the folders of drivers and toolkits, and last in the packages that pip brings. What is missing is told by name, with
 * where it was looked for and the package that brings it.
 */

import { existsSync, readdirSync, readFileSync, realpathSync } from "node:fs";
import { homedir } from "node:os";
import { basename, isAbsolute, join } from "node:path";
import type { LibraryHandle } from "koffi";
import { HoldfastError } from "../../errors/index.js";
import { loadKoffi } from "../foreign-functions.js";
import type { CudaLibrary } from "./cuda-error.js";

export interface LibrarySearch {
  readonly environment?: Readonly<Record<string, string | undefined>>;
  /** Stands before every path, so that a test can bring its own file system. */
  readonly root?: string;
  readonly architecture?: string;
  /** Opens a path or a soname, or throws. */
  readonly load?: (name: string) => LibraryHandle;
}

export interface OpenedLibrary {
  readonly library: CudaLibrary;
  readonly handle: LibraryHandle;
  /** The file that was really loaded. */
  readonly path: string;
}

interface LibraryFacts {
  readonly purpose: string;
  readonly stem: string;
  /** Newest first: libcuda has one for all, the other two one for each CUDA. */
  readonly versions: readonly number[];
  readonly packages: string;
  /** Where pip's packages have it, below site-packages. */
  readonly pipFolders: readonly string[];
}

const facts: Readonly<Record<CudaLibrary, LibraryFacts>> = {
  cuda: {
    purpose: "the NVIDIA driver's library",
    stem: "libcuda.so",
    versions: [1],
    packages: "Install the NVIDIA driver (Debian's packages nvidia-driver and libcuda1)",
    pipFolders: [],
  },
  nvrtc: {
    purpose: "the compiler of kernels",
    stem: "libnvrtc.so",
    versions: [13, 12],
    packages: "Install pip's nvidia-cuda-nvrtc (for CUDA 12 nvidia-cuda-nvrtc-cu12) or Debian's libnvrtc12",
    pipFolders: ["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"],
  },
  cublasLt: {
    purpose: "the library of matrix products",
    stem: "libcublasLt.so",
    versions: [13, 12],
    packages: "Install pip's nvidia-cublas (for CUDA 12 nvidia-cublas-cu12) or Debian's libcublaslt12",
    pipFolders: ["nvidia/cu13/lib", "nvidia/cublas/lib"],
  },
};

/** The driver's version limits the others: a library of CUDA 13 does nothing on a driver of CUDA 12. */
export function openLibrary(
  library: CudaLibrary,
  search: LibrarySearch & { readonly driverMajor?: number } = {},
): OpenedLibrary {
  const { load = loadKoffi().load, driverMajor = Number.POSITIVE_INFINITY } = search;
  const { stem, versions } = facts[library];
  const isUsable = (version: number) => library === "cuda" || version <= driverMajor;
  const names = versions.filter(isUsable).map((version) => `${stem}.${version}`);
  const folders = listFolders(library, search);
  const refused: string[] = [];
  for (const candidate of listCandidates(names, folders)) {
    try {
      return { library, handle: load(candidate), path: loadedFile(candidate) };
    } catch (cause) {
      // That the system's loader does not know a name is no news; that a file does not load is.
      if (isAbsolute(candidate)) refused.push(`${candidate} does not load: ${(cause as Error).message}`);
    }
  }
  const tooNew = versions.filter((version) => !isUsable(version)).map((version) => `${stem}.${version}`);
  for (const path of existing(tooNew, [...folders.first, ...folders.last])) {
    refused.push(`${path} needs a newer driver than this one of CUDA ${driverMajor}`);
  }
  throw missing(library, [...names, ...tooNew], folders, refused);
}

/** Which files and sonames are tried, in this order. */
function listCandidates(names: readonly string[], { first, last }: Folders): string[] {
  return [...existing(names, first), ...names, ...existing(names, last)];
}

function existing(names: readonly string[], folders: readonly string[]): string[] {
  return folders
    .flatMap((folder) => names.map((name) => join(folder, name)))
    .filter((path) => existsSync(path));
}

/** Folders that are tried before the system's loader, and those behind it. */
interface Folders {
  readonly first: readonly string[];
  readonly last: readonly string[];
}

function listFolders(library: CudaLibrary, search: LibrarySearch): Folders {
  const { environment = process.env, root = "/", architecture = process.arch } = search;
  const expand = (pattern: string) => expandStars(root, pattern);
  const { targets, triplet } = namesOf(architecture);
  const parts = ["", "lib64", "lib", ...targets.map((target) => `targets/${target}/lib`)];
  const insideToolkit = (folder: string | undefined) =>
    folder ? parts.flatMap((part) => expand(join(folder, part))) : [];

  const { HOLDFAST_CUDA_PATH, CUDA_HOME, CUDA_PATH, VIRTUAL_ENV, CONDA_PREFIX } = environment;
  const home = environment["HOME"] || homedir();
  const toolkits = [CUDA_HOME, CUDA_PATH, "/usr/local/cuda", "/usr/local/cuda-*", "/opt/cuda", CONDA_PREFIX];
  const system = [
    `/usr/lib/${triplet}`,
    `/usr/lib/${triplet}/nvidia/current`,
    "/usr/lib64",
    "/usr/lib/wsl/lib",
  ];
  const pythons = [
    ...[VIRTUAL_ENV, CONDA_PREFIX].flatMap((prefix) => prefix ?? []),
    join(home, ".local"),
    "/usr/local",
    "/usr",
    "/opt/*",
    "/opt/*/.venv",
  ];
  const sitePackages = pythons.flatMap((prefix) =>
    ["site-packages", "dist-packages"].flatMap((name) => expand(join(prefix, "lib/python3*", name))),
  );
  const pip = sitePackages.flatMap((site) => facts[library].pipFolders.map((folder) => join(site, folder)));
  return {
    first: insideToolkit(HOLDFAST_CUDA_PATH),
    last: [
      ...toolkits.flatMap(insideToolkit),
      ...system.flatMap(expand),
      ...pip.filter((path) => existsSync(path)),
    ],
  };
}

/** What NVIDIA and Debian call a processor in the names of folders. */
function namesOf(architecture: string): { readonly targets: readonly string[]; readonly triplet: string } {
  return architecture === "arm64"
    ? { targets: ["sbsa-linux", "aarch64-linux"], triplet: "aarch64-linux-gnu" }
    : { targets: ["x86_64-linux"], triplet: "x86_64-linux-gnu" };
}

/** The folders that a path stands for; a star is any part of a name. Of several versions the newest comes first. */
function expandStars(root: string, pattern: string): string[] {
  let folders = [root];
  for (const part of pattern.split("/").filter((one) => one !== "")) {
    folders = folders.flatMap((folder) => matching(folder, part).map((name) => join(folder, name)));
  }
  return folders.filter((folder) => existsSync(folder));
}

function matching(folder: string, part: string): string[] {
  if (!part.includes("*")) return [part];
  const [start = "", end = ""] = part.split("*");
  try {
    return readdirSync(folder)
      .filter((name) => name.startsWith(start) && name.endsWith(end))
      .sort((a, b) => b.localeCompare(a, "en", { numeric: true }));
  } catch {
    return [];
  }
}

/** The file behind what was loaded: a soname says nothing of the place, the process's memory map does. */
function loadedFile(candidate: string): string {
  try {
    if (isAbsolute(candidate)) return realpathSync(candidate);
    const paths = readFileSync("/proc/self/maps", "utf8").match(/\/.*$/gm) ?? [];
    return paths.find((path) => basename(path).startsWith(stemOf(candidate))) ?? candidate;
  } catch {
    return candidate;
  }
}

/** "libcuda.so.1" is the link to "libcuda.so.580.82.07". */
function stemOf(soname: string): string {
  return soname.replace(/\.\d+$/, ".");
}

const mostFolders = 12;

function missing(
  library: CudaLibrary,
  names: readonly string[],
  { first, last }: Folders,
  refused: readonly string[],
): HoldfastError {
  const { purpose, packages } = facts[library];
  const folders = [...new Set([...first, ...last])];
  const shown = folders.slice(0, mostFolders).join(", ");
  const places = folders.length > mostFolders ? `${shown} and ${folders.length - mostFolders} more` : shown;
  const sentences = [
    `CUDA can't be used: ${names.join(" or ")}, ${purpose}, was not found.`,
    ...refused.map((reason) => `${reason}.`),
    `Looked by the system's loader${places && ` and in ${places}`}.`,
    `${packages}, or set HOLDFAST_CUDA_PATH to the folder that has it.`,
  ];
  const numbers = { library, names: names.join(" "), folders: folders.length };
  return new HoldfastError("NO_CUDA", sentences.join(" "), { numbers });
}
