/**
 * Opens the CUDA libraries, and NCCL: from the folder of HOLDFAST_CUDA_PATH, else by the system's loader, else from the folders
 * of drivers, toolkits and pip packages. A missing library is named, with the folders searched and the package that
 * provides it.
 */

import { existsSync, readFileSync, realpathSync } from "node:fs";
import { basename, isAbsolute, join } from "node:path";
import type { LibraryHandle } from "koffi";
import { HoldfastError } from "../../errors/index.js";
import { loadKoffi } from "../foreign-functions.js";
import type { CudaLibrary } from "./cuda-error.js";
import {
  configuredFolder,
  type FolderSearch,
  listConfiguredFolders,
  listDefaultFolders,
} from "./library-folders.js";

export interface LibrarySearch extends FolderSearch {
  /** Loads a path or a soname, or throws. */
  readonly load?: (name: string) => LibraryHandle;
  /** The CUDA major version of the driver: a newer library does not work with it. */
  readonly driverMajor?: number;
  /** The file to load, instead of a search. */
  readonly path?: string | undefined;
}

export interface OpenedLibrary {
  readonly library: CudaLibrary;
  readonly handle: LibraryHandle;
  /** The file that was actually loaded. */
  readonly path: string;
}

interface LibraryFacts {
  readonly purpose: string;
  readonly stem: string;
  /** Newest first. libcuda, NVTX and NCCL have one for all CUDA versions, the other two one each. */
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
    purpose: "the kernel compiler",
    stem: "libnvrtc.so",
    versions: [13, 12],
    packages: "Install pip's nvidia-cuda-nvrtc (for CUDA 12 nvidia-cuda-nvrtc-cu12) or Debian's libnvrtc12",
    pipFolders: ["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"],
  },
  cublasLt: {
    purpose: "the GEMM library",
    stem: "libcublasLt.so",
    versions: [13, 12],
    packages: "Install pip's nvidia-cublas (for CUDA 12 nvidia-cublas-cu12) or Debian's libcublaslt12",
    pipFolders: ["nvidia/cu13/lib", "nvidia/cublas/lib"],
  },
  nvtx: {
    purpose: "the library that reports memory to checking tools",
    stem: "libnvtx3interop.so",
    versions: [1],
    packages: "Install pip's nvidia-nvtx, or NVIDIA's package cuda-nvtx",
    pipFolders: ["nvidia/cu13/lib", "nvidia/nvtx/lib"],
  },
  nccl: {
    purpose: "the library of collectives",
    stem: "libnccl.so",
    versions: [2],
    packages: "Install pip's nvidia-nccl-cu13 (for CUDA 12 nvidia-nccl-cu12) or NVIDIA's package libnccl2",
    pipFolders: ["nvidia/nccl/lib"],
  },
};

export function openLibrary(library: CudaLibrary, search: LibrarySearch = {}): OpenedLibrary {
  const { load = loadKoffi().load, driverMajor = Number.POSITIVE_INFINITY, path } = search;
  if (path !== undefined) return openFile(library, path, load);
  const { stem, versions, pipFolders } = facts[library];
  const selectNames = (isIncluded: (version: number) => boolean) =>
    versions.filter(isIncluded).map((version) => `${stem}.${version}`);
  const names = selectNames((version) => library === "cuda" || version <= driverMajor);
  const configured = listConfiguredFolders(search);
  let defaults: readonly string[] = [];
  /** Candidates in order. The default folders are searched only if the system's loader finds nothing. */
  function* listCandidates(): Generator<string> {
    yield* listFiles(configured, names);
    yield* names;
    defaults = listDefaultFolders(search, pipFolders);
    yield* listFiles(defaults, names);
  }
  const rejected: string[] = [];
  for (const candidate of listCandidates()) {
    try {
      return { library, handle: load(candidate), path: loadedFile(candidate) };
    } catch (cause) {
      // An unknown soname is normal; a file that fails to load is reported.
      if (isAbsolute(candidate)) rejected.push(`${candidate} does not load: ${(cause as Error).message}.`);
    }
  }

  const folders = [...configured, ...defaults];
  const tooNew = library === "cuda" ? [] : selectNames((version) => version > driverMajor);
  for (const path of listFiles(folders, tooNew)) {
    rejected.push(`${path} needs a newer driver than this one (CUDA ${driverMajor}).`);
  }
  if (names.length === 0)
    rejected.push(`The driver supports CUDA ${driverMajor}; Holdfast needs CUDA 12 or later.`);
  const folder = configuredFolder(search);
  if (folder && configured.length === 0) rejected.push(`HOLDFAST_CUDA_PATH, ${folder}, does not exist.`);
  throw missing(library, names, folders, rejected);
}

function openFile(
  library: CudaLibrary,
  path: string,
  load: NonNullable<LibrarySearch["load"]>,
): OpenedLibrary {
  try {
    return { library, handle: load(path), path: loadedFile(path) };
  } catch (cause) {
    throw new HoldfastError(
      "NO_CUDA",
      `${path} does not load: ${(cause as Error).message}. Pass the path of ${facts[library].stem}.`,
      {
        numbers: { path },
        cause,
      },
    );
  }
}

function listFiles(folders: readonly string[], names: readonly string[]): string[] {
  return folders
    .flatMap((folder) => names.map((name) => join(folder, name)))
    .filter((path) => existsSync(path));
}

/** The file that was loaded: a soname does not show the folder, but the process's memory map does. */
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
  const searched =
    folders.slice(0, maxFolders).join(", ") || "no folder (none of the default folders exists)";
  const rest = folders.length > maxFolders ? ` and ${folders.length - maxFolders} more` : "";
  const sentences = [
    `${library === "nccl" ? "NCCL" : "CUDA"} is not available: ${names.join(" or ") || stem}, ${purpose}, was not found.`,
    ...rejected,
    `Searched with the system's loader and in ${searched}${rest}.`,
    `${packages}, or set HOLDFAST_CUDA_PATH to the folder that contains it.`,
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
