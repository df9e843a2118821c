/** A module's weights on disk: a safetensors file with the parameters and persistent buffers under their paths. */

import { checkOptions, HoldfastError } from "../errors/index.js";
import { type LoadResult, Module } from "../nn/index.js";
import type { Tensor } from "../tensor/index.js";
import {
  loadSafetensors,
  type MetadataToWrite,
  type ReadOptions,
  type StoredTensor,
  saveSafetensors,
} from "./safetensors/index.js";

/** The result of `loadWeights`. */
export interface LoadedWeights extends LoadResult {
  /** The saved metadata. */
  readonly metadata: ReadonlyMap<string, string>;
}

/** Options of `loadWeights`. */
export interface LoadWeightsOptions extends ReadOptions {
  /** Require every name in both the file and the module. Default: true. */
  readonly strict?: boolean;
}

/**
 * Saves a module's parameters and persistent buffers atomically, bit for bit and in their dtypes.
 *
 * @example
 * ```ts
 * import { mkdtempSync } from "node:fs";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import { device, loadSafetensors, nn, saveWeights } from "holdfast";
 * const cpu = await device("cpu");
 * const path = join(mkdtempSync(join(tmpdir(), "weights-")), "model.safetensors");
 * saveWeights(path, new nn.Linear(3, 2).to(cpu), new Map([["epoch", "3"]]));
 * console.log([...loadSafetensors(path).tensors.keys()].join()); // → bias,weight
 * cpu.close();
 * ```
 */
export function saveWeights(path: string, module: Module, metadata?: MetadataToWrite): void {
  requireModule("saveWeights", module);
  const tensors = Object.entries(module.stateDict()).map(([name, tensor]) => storeTensor(name, tensor));
  saveSafetensors(path, tensors, metadata);
}

/** Reads a tensor's elements back from its device, in file format. */
export function storeTensor(name: string, tensor: Tensor): StoredTensor {
  const { shape, dtype, numel, array, device } = tensor;
  // An empty tensor has no memory to read.
  const bytes = numel > 0 && array.storage ? device.runtime.read(array.storage) : new Uint8Array(0);
  return { name, dtype, shape, bytes };
}

/**
 * Loads a file's tensors into a module's parameters and buffers. With `strict`, every name must be in both. Otherwise names in both
 * are loaded, and the others are returned. A different shape is always an error, and nothing is written then. `skip`
 * leaves tensors out, as if the file did not have them. Each tensor is converted to the dtype of its parameter or buffer, with
 * rounding.
 *
 * @example
 * ```ts
 * import { mkdtempSync } from "node:fs";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import { device, loadWeights, nn, saveWeights } from "holdfast";
 * const cpu = await device("cpu");
 * const path = join(mkdtempSync(join(tmpdir(), "weights-")), "model.safetensors");
 * const [trained, fresh] = [new nn.Linear(3, 2).to(cpu), new nn.Linear(3, 2).to(cpu)];
 * saveWeights(path, trained);
 * loadWeights(path, fresh);
 * console.log(String(fresh.weight.tolist()) === String(trained.weight.tolist())); // → true
 * cpu.close();
 * ```
 */
export function loadWeights(path: string, module: Module, options: LoadWeightsOptions = {}): LoadedWeights {
  const { strict = true, ...reading } = checkOptions("loadWeights", options, { strict: true, skip: true });
  requireModule("loadWeights", module);
  const { tensors, metadata } = loadSafetensors(path, reading);
  try {
    return { ...module.loadStateDict(Object.fromEntries(tensors), { strict }), metadata };
  } catch (error) {
    if (!(error instanceof HoldfastError) || !["BAD_STATE", "BAD_DTYPE"].includes(error.code)) throw error;
    throw new HoldfastError(error.code, `${path}: ${error.message}`, {
      cause: error,
      numbers: error.numbers,
    });
  }
}

function requireModule(call: string, module: unknown): void {
  if (module instanceof Module) return;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `${call} takes a path and a module; the second argument is not a module.`,
  );
}
