/** What there is of CUDA on this machine: libraries with their files and versions, GPUs, and what is missing, in words. */

import { HoldfastError } from "../../errors/index.js";
import { cublasLtFunctions, cudaFunctions, nvrtcFunctions, type Signatures } from "./bindings.js";
import { bindCalls, type Calls } from "./calls.js";
import { type CudaLibrary, Failures } from "./cuda-error.js";
import { type CudaDeviceInfo, listCudaDevices } from "./devices.js";
import { type LibrarySearch, openLibrary } from "./libraries.js";
import { OutBlock } from "./out-block.js";

/** What training needs. */
type NeededLibrary = Extract<CudaLibrary, "cuda" | "nvrtc" | "cublasLt">;

export type CudaLibraryInfo = { readonly library: NeededLibrary } & (
  | {
      /** The file that was loaded. */
      readonly path: string;
      readonly version: string;
    }
  | {
      /** What is wrong, with every place that was looked in. */
      readonly problem: string;
      /** The same in short. */
      readonly summary: string;
    }
);

export interface CudaDescription {
  /** libcuda, NVRTC and cuBLASLt, in this order. libcuda's version is the newest CUDA that the driver knows. */
  readonly libraries: readonly CudaLibraryInfo[];
  /** The GPUs that CUDA shows this process, usable or not. */
  readonly devices: readonly CudaDeviceInfo[];
  /** Why there is none to show. */
  readonly problem: string | undefined;
}

/** Opens what there is of CUDA and tells what is missing, each with the package that brings it. Never throws for that. */
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
    return { libraries, devices: [], problem: messageOf(error) };
  }
}

function describeLibrary<F extends Signatures>(
  library: NeededLibrary,
  search: LibrarySearch & { readonly driverMajor?: number },
  functions: F,
  versionOf: (calls: Calls<F>) => string,
): CudaLibraryInfo {
  try {
    const opened = openLibrary(library, search);
    const calls = bindCalls({ library, functions, opened, failures: new Failures() });
    return { library, path: opened.path, version: versionOf(calls) };
  } catch (error) {
    const problem = messageOf(error);
    return { library, problem, summary: summaryOf(error) ?? problem };
  }
}

/** Of a library that is nowhere: which one, and what brings it. Where a file was found and rejected it takes the whole. */
function summaryOf(error: unknown): string | undefined {
  if (!(error instanceof HoldfastError)) return undefined;
  const { names, packages, rejected } = error.numbers;
  if (rejected !== 0 || names === undefined || packages === undefined) return undefined;
  return `${String(names).replaceAll(" ", " or ")} was not found. ${packages}.`;
}

function cudaVersion(calls: Calls<typeof cudaFunctions>): string {
  return readOut((out) => {
    calls.cuDriverGetVersion(out.address);
    return `${Math.floor(out.i32() / 1000)}.${Math.floor((out.i32() % 1000) / 10)}`;
  });
}

function nvrtcVersion(calls: Calls<typeof nvrtcFunctions>): string {
  return readOut((out) => {
    calls.nvrtcVersion(out.address, out.address + 4);
    return `${out.i32()}.${out.i32(4)}`;
  });
}

/** 130002 is 13.0.2. */
function cublasLtVersion(calls: Calls<typeof cublasLtFunctions>): string {
  const version = calls.cublasLtGetVersion();
  return `${Math.floor(version / 10_000)}.${Math.floor(version / 100) % 100}.${version % 100}`;
}

function readOut(read: (out: OutBlock) => string): string {
  const out = new OutBlock();
  try {
    return read(out);
  } finally {
    out.free();
  }
}

function messageOf(error: unknown): string {
  if (error instanceof HoldfastError) return error.message;
  throw error;
}
