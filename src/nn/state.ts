/** State dicts: whether a state fits a module, and how it is loaded. */

import { noteWrite } from "../autograd/index.js";
import { HoldfastError } from "../errors/index.js";
import type { UploadItem } from "../runtime/index.js";
import { type Device, elementsAs, misfitOf, type StoredElements, type Tensor } from "../tensor/index.js";
import type { ModuleTensor } from "./module-tensor.js";

export type { StoredElements } from "../tensor/index.js";

/** All parameters and persistent buffers by name, as `stateDict()` returns them. */
export type StateDict = Readonly<Record<string, Tensor>>;

/** A state to load: tensors, or elements in file format. */
export type LoadableState = Readonly<Record<string, Tensor | StoredElements>>;

/** The names that a loaded state lacks, and those that the module lacks. */
export interface LoadResult {
  /** In the module but not in the state. */
  readonly missing: readonly string[];
  /** In the state but not in the module. */
  readonly unexpected: readonly string[];
}

/** Compares a state with the module's tensors; rejects all of it if it does not fit. */
export function matchState(
  module: string,
  tensors: ReadonlyMap<string, ModuleTensor>,
  state: LoadableState,
  strict: boolean,
): LoadResult {
  const missing = [...tensors.keys()].filter((name) => !Object.hasOwn(state, name));
  const unexpected = Object.keys(state).filter((name) => !tensors.has(name));
  const misshapen = Object.entries(state).flatMap(([name, value]) => {
    const tensor = tensors.get(name);
    const misfit = tensor && misfitOf(tensor, value, "in the module");
    return misfit ? [`${name} ${misfit}`] : [];
  });
  const faults = [
    ...(strict && missing.length > 0 ? [`missing in the state: ${missing.join(", ")}`] : []),
    ...(strict && unexpected.length > 0 ? [`not in the module: ${unexpected.join(", ")}`] : []),
    ...misshapen,
  ];
  if (faults.length === 0) return { missing, unexpected };
  throw new HoldfastError(
    "BAD_STATE",
    `The state does not fit ${module}: ${faults.join("; ")}.` +
      (strict && misshapen.length === 0 ? " Pass strict: false to load the tensors that fit." : ""),
    { numbers: { missing: missing.length, unexpected: unexpected.length, misshapen: misshapen.length } },
  );
}

/** Writes values to the module's tensors; adjacent ones are uploaded in one copy. */
export function writeState(tensors: ReadonlyMap<string, ModuleTensor>, state: LoadableState): void {
  const uploads = new Map<Device, UploadItem[]>();
  for (const [name, tensor] of tensors) {
    const value = Object.hasOwn(state, name) ? state[name] : undefined;
    if (!value || tensor.numel === 0) continue;
    const { device, dtype, array } = tensor;
    const items = uploads.get(device) ?? [];
    uploads.set(device, items);
    if (array.storage) items.push({ source: elementsAs(value, dtype), target: array.storage });
  }
  for (const [device, items] of uploads) {
    device.runtime.upload(items);
    for (const { target } of items) noteWrite(target);
  }
}
