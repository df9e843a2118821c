/** Describes CUDA on this machine: libraries with their files and versions, GPUs, and what is missing. */

import { HoldfastError } from "../../errors/index.js";
import { cublasLtFunctions, cudaFunctions, nvrtcFunctions, type Signatures } from "./bindings.js";
import { type Calls, openCalls } from "./calls.js";
import type { CudaLibrary } from "./cuda-error.js";
import { type CudaDeviceInfo, listCudaDevices } from "./devices.js";
import type { LibrarySearch } from "./libraries.js";
import { cublasLtVersion, cudaVersion, nvrtcVersion } from "./library-versions.js";

/** The libraries that training needs. */
type NeededLibrary = Extract<CudaLibrary, "cuda" | "nvrtc" | "cublasLt">;

export type CudaLibraryInfo = { readonly library: NeededLibrary } & (
  | {
      /** The loaded file. */
      readonly path: string;
      readonly version: string;
    }
  | {
      /** The full problem, with every folder searched. */
      readonly problem: string;
      /** The problem in short. */
      readonly summary: string;
    }
);

export interface CudaDescription {
  /** libcuda, NVRTC and cuBLASLt, in this order. libcuda's version is the newest CUDA that the driver supports. */
  readonly libraries: readonly CudaLibraryInfo[];
  /** The GPUs visible to this process, usable or not. */
  readonly devices: readonly CudaDeviceInfo[];
  /** Why no device is listed. */
  readonly problem: string | undefined;
}

/**
 * Opens the CUDA libraries and reports which are missing, each with the package that provides it. Does not throw for a
 * missing one.
 */
export function describeCuda(search: LibrarySearch = {}): CudaDescription {
  const driver = describeLibrary("cuda", search, cudaFunctions, cudaVersion);
  const driverMajor = "version" in driver ? Number.parseInt(driver.version, 10) : undefined;
  const limited = { ...search, ...(driverMajor !== undefined && { driverMajor }) };
  const libraries = [
    driver,
    describeLibrary("nvrtc", limited, nvrtcFunctions, nvrtcVersion),
    describeLibrary("cublasLt", limited, cublasLtFunctions, cublasLtVersion),
  ];
  if ("problem" in driver) return { libraries, devices: [], problem: driver.problem };
  try {
    return { libraries, devices: listCudaDevices(search.environment), problem: undefined };
  } catch (error) {
    return { libraries, devices: [], problem: errorMessage(error) };
  }
}

function describeLibrary<F extends Signatures>(
  library: NeededLibrary,
  search: LibrarySearch & { readonly driverMajor?: number },
  functions: F,
  readVersion: (calls: Calls<F>) => string,
): CudaLibraryInfo {
  try {
    const { calls, path } = openCalls(library, functions, search);
    return { library, path, version: readVersion(calls) };
  } catch (error) {
    const problem = errorMessage(error);
    return { library, problem, summary: summarize(error) ?? problem };
  }
}

/**
 * For a missing library: its name and its package. A file that was found but could not be loaded needs the full text.
 */
function summarize(error: unknown): string | undefined {
  if (!(error instanceof HoldfastError)) return undefined;
  const { names, packages, rejected } = error.numbers;
  if (rejected !== 0 || names === undefined || packages === undefined) return undefined;
  return `${String(names).replaceAll(" ", " or ")} was not found. ${packages}.`;
}

function errorMessage(error: unknown): string {
  if (error instanceof HoldfastError) return error.message;
  throw error;
}
