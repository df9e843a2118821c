/**
 * Opens CUDA's libraries: from the folder that HOLDFAST_CUDA_PATH names, else by the system's loader, else from the
 * folders of drivers, toolkits and pip's packages. What is missing is told by name, with where it was looked for and the
 * package that brings it.
 */

import { existsSync, readFileSync, realpathSync } from "node:fs";
import { basename, isAbsolute, join } from "node:path";
import type { LibraryHandle } from "koffi";
import { HoldfastError } from "../../errors/index.js";
import { loadKoffi } from "../foreign-functions.js";
import type { CudaLibrary } from "./cuda-error.js";
import { type FolderSearch, listUsualFolders, listWantedFolders, wantedFolder } from "./library-folders.js";

export interface LibrarySearch extends FolderSearch {
  /** Opens a path or a soname, or throws. */
  readonly load?: (name: string) => LibraryHandle;
  /** The CUDA of the driver: a library of a later one does nothing on it. */
  readonly driverMajor?: number;
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
  /** Newest first: libcuda and NVTX have one for all, the other two one for each CUDA. */
  readonly versions: readonly number[];
  readonly packages: string;
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
  nvtx: {
    purpose: "the library through which checking tools hear of memory",
    stem: "libnvtx3interop.so",
    versions: [1],
    packages: "Install pip's nvidia-nvtx, or NVIDIA's package cuda-nvtx",
    pipFolders: ["nvidia/cu13/lib", "nvidia/nvtx/lib"],
  },
};

export function openLibrary(library: CudaLibrary, search: LibrarySearch = {}): OpenedLibrary {
  const { load = loadKoffi().load, driverMajor = Number.POSITIVE_INFINITY } = search;
  const { stem, versions, pipFolders } = facts[library];
  const namesFor = (choose: (version: number) => boolean) =>
    versions.filter(choose).map((version) => `${stem}.${version}`);
  const names = namesFor((version) => library === "cuda" || version <= driverMajor);
  const ahead = listWantedFolders(search);
  let usual: readonly string[] = [];
  /** What to try, in this order. The usual folders are looked through only where the system's loader knows nothing. */
  function* listCandidates(): Generator<string> {
    yield* filesIn(ahead, names);
    yield* names;
    usual = listUsualFolders(search, pipFolders);
    yield* filesIn(usual, names);
  }
  const rejected: string[] = [];
  for (const candidate of listCandidates()) {
    try {
      return { library, handle: load(candidate), path: loadedFile(candidate) };
    } catch (cause) {
      // That the system's loader does not know a name is no news; that a file does not load is.
      if (isAbsolute(candidate)) rejected.push(`${candidate} does not load: ${(cause as Error).message}.`);
    }
  }

  const folders = [...ahead, ...usual];
  const tooNew = library === "cuda" ? [] : namesFor((version) => version > driverMajor);
  for (const path of filesIn(folders, tooNew)) {
    rejected.push(`${path} is for a later driver than this one, of CUDA ${driverMajor}.`);
  }
  if (names.length === 0)
    rejected.push(`The driver is of CUDA ${driverMajor}: one of CUDA 12 or later is needed.`);
  const wanted = wantedFolder(search);
  if (wanted && ahead.length === 0) rejected.push(`HOLDFAST_CUDA_PATH, ${wanted}, does not exist.`);
  throw missing(library, names, folders, rejected);
}

function filesIn(folders: readonly string[], names: readonly string[]): string[] {
  return folders
    .flatMap((folder) => names.map((name) => join(folder, name)))
    .filter((path) => existsSync(path));
}

/** The file behind what was loaded: a soname says nothing of the place, the process's memory map does. */
export function loadedFile(candidate: string): string {
  try {
    if (isAbsolute(candidate)) return realpathSync(candidate);
    const paths = readFileSync("/proc/self/maps", "utf8").match(/\/.*$/gm) ?? [];
    const startingWith = (start: string) => paths.find((path) => basename(path).startsWith(start));
    // libnvrtc.so.13 leads to libnvrtc.so.13.0.88, and libcuda.so.1 to libcuda.so.580.82.07.
    return startingWith(candidate) ?? startingWith(candidate.replace(/\d+$/, "")) ?? candidate;
  } catch {
    return candidate;
  }
}

const maxFolders = 12;

function missing(
  library: CudaLibrary,
  names: readonly string[],
  folders: readonly string[],
  rejected: readonly string[],
): HoldfastError {
  const { stem, purpose, packages } = facts[library];
  const shown = folders.slice(0, maxFolders).join(", ") || "no folder: none of the usual ones exists";
  const rest = folders.length > maxFolders ? ` and ${folders.length - maxFolders} more` : "";
  const sentences = [
    `CUDA can't be used: ${names.join(" or ") || stem}, ${purpose}, was not found.`,
    ...rejected,
    `Looked by the system's loader and in ${shown}${rest}.`,
    `${packages}, or set HOLDFAST_CUDA_PATH to the folder that has it.`,
  ];
  const numbers = {
    library,
    names: names.join(" "),
    folders: folders.length,
    rejected: rejected.length,
    packages,
  };
  return new HoldfastError("NO_CUDA", sentences.join(" "), { numbers });
}
