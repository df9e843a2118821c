/** The CUDA libraries and GPUs of this machine, with each GPU's actual free memory. */

import {
  type CudaDeviceInfo,
  type CudaLibraryInfo,
  describeCuda,
  openCudaDriver,
  readHostMemory,
} from "../../driver/index.js";
import { HoldfastError } from "../../errors/index.js";
import { readFreeMemory, type Settings, type Watch } from "../../runtime/index.js";
import type { Environment } from "./machine.js";

export interface CudaFacts {
  readonly libraries: readonly CudaLibraryInfo[];
  readonly gpus: readonly GpuFacts[];
  /** Why there is no usable GPU; otherwise null. */
  readonly problem: string | null;
  /** The folder of compiled kernels, or "off". */
  readonly kernelCache: string;
}

export interface GpuFacts {
  readonly index: number;
  readonly name: string;
  readonly computeCapability: string;
  readonly memory: "unified" | "discrete";
  readonly multiprocessors: number;
  readonly totalBytes: number;
  /** Facts that need an open GPU, or why it can't be opened. */
  readonly opened: OpenedFacts | { readonly problem: string };
}

export interface OpenedFacts {
  readonly freeBytes: number;
  /** The default budget. */
  readonly budgetBytes: number;
  /** How the default was computed, as text. */
  readonly reason: string;
  /** "virtual": memory is mapped in chunks by the virtual memory API. "plain": it is allocated at once. */
  readonly allocation: "virtual" | "plain";
}

/** Queries CUDA. The watchdog guards each query, because a hung driver never answers. */
export function readCuda(settings: Settings, environment: Environment, watch: Watch): CudaFacts {
  const folder = settings.cudaPath === "auto" ? undefined : settings.cudaPath;
  const searched = { ...environment, HOLDFAST_CUDA_PATH: folder };
  const { libraries, devices, problem } = watch.run("CUDA's libraries", () =>
    describeCuda({ environment: searched }),
  );
  const gpus = devices.map((device) =>
    watch.run("a GPU's memory", () => readGpu(device, searched, settings.cache)),
  );
  return { libraries, gpus, problem: problem ?? null, kernelCache: settings.cache };
}

function readGpu(info: CudaDeviceInfo, environment: Environment, cacheFolder: string): GpuFacts {
  const { index, name, computeCapability, isIntegrated, multiprocessors, totalBytes } = info;
  return {
    index,
    name,
    computeCapability,
    memory: isIntegrated ? "unified" : "discrete",
    multiprocessors,
    totalBytes,
    opened: openGpu(index, environment, cacheFolder),
  };
}

function openGpu(index: number, environment: Environment, cacheFolder: string): GpuFacts["opened"] {
  try {
    const driver = openCudaDriver({ index, cacheFolder, environment });
    try {
      const device = driver.describe();
      const { free, available, reason } = readFreeMemory(device, driver, readHostMemory);
      const allocation = device.canCommitInParts ? "virtual" : "plain";
      return { freeBytes: free, budgetBytes: available, reason, allocation };
    } finally {
      driver.close();
    }
  } catch (error) {
    if (error instanceof HoldfastError) return { problem: `${error.code}: ${error.message}` };
    throw error;
  }
}
