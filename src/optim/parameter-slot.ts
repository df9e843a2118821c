/** A parameter as its optimizer knows it: where it lies, and where its moments lie, side by side like the parameters. */

import { HoldfastError } from "../errors/index.js";
import { dtypes } from "../ir/index.js";
import { contiguousStrides, type DeviceArray, isFloat } from "../ops/index.js";
import { alignment, type BudgetLabel, type Placement, type Region, type Runtime } from "../runtime/index.js";
import type { Tensor } from "../tensor/index.js";
import { alignUp } from "../units/index.js";
import { type UpdateRule, wideOf } from "./update-rule.js";

export interface Member {
  readonly tensor: Tensor;
  /** Its place among all parameters of the optimizer; its name in the saved state. */
  readonly index: number;
  /** Where it lay when the optimizer was made, and has to stay. */
  readonly values: DeviceArray;
  /** One for each of the rule's moments; none where the parameter has no elements. */
  readonly moments: readonly DeviceArray[];
}

/** The parameters of one group, before their moments have a place. */
export interface Joining {
  readonly tensor: Tensor;
  readonly index: number;
  readonly rule: UpdateRule;
}

/**
 * Places the moments of all parameters: one region a kind, in the parameters' order in memory, zero at first. Where there
 * is no room for all of them, none is left behind.
 */
export function placeMoments(
  runtime: Runtime,
  owner: string,
  joining: readonly Joining[],
): { readonly members: ReadonlyMap<Tensor, Member>; readonly regions: readonly Region[] } {
  const regions: Region[] = [];
  const moments = new Map<Tensor, DeviceArray[]>();
  for (const kind of new Set(joining.flatMap(({ rule }) => rule.moments))) {
    const having = joining.filter(({ tensor, rule }) => tensor.numel > 0 && rule.moments.includes(kind));
    if (having.length === 0) continue;
    const sizes = having.map(({ tensor }) => ({ name: `${tensor.name}.${kind}`, size: momentBytes(tensor) }));
    const region = placeOrRelease(runtime, regions, "moments", `${owner} ${kind}s`, sizes);
    regions.push(region);
    // Padding is updated along with what it lies between, and has to be zero for that.
    runtime.fill(region.whole, 0);
    for (const [place, { tensor }] of having.entries()) {
      const { shape, dtype } = tensor;
      const storage = region.storages[place];
      const array = { shape, strides: contiguousStrides(shape), dtype: wideOf(dtype), storage };
      moments.set(tensor, [...(moments.get(tensor) ?? []), array]);
    }
  }
  const members = new Map(
    joining.map(({ tensor, index }) => [
      tensor,
      { tensor, index, values: tensor.array, moments: moments.get(tensor) ?? [] },
    ]),
  );
  return { members, regions };
}

/** Places one more region, or gives those before it back. */
export function placeOrRelease(
  runtime: Runtime,
  before: readonly Region[],
  label: BudgetLabel,
  name: string,
  sizes: readonly Placement[],
): Region {
  try {
    return runtime.persistent.place(label, name, sizes);
  } catch (rejection) {
    releaseRegions(runtime, before);
    throw rejection;
  }
}

/** Harmless for regions that are gone already. */
export function releaseRegions({ persistent }: Runtime, regions: readonly Region[]): void {
  const placed = new Set(persistent.regions);
  for (const region of regions) if (placed.has(region)) persistent.release(region);
}

/** As many elements as the parameter has with its padding, so that both lie alike however wide they are. */
function momentBytes({ numel, dtype }: Tensor): number {
  const [own, wide] = [dtypes[dtype].bytes, dtypes[wideOf(dtype)].bytes];
  return own === wide ? numel * own : (alignUp(numel * own, alignment) / own) * wide;
}

/** Rejects what can't be trained: other devices, whole numbers, results of ops, and the same tensor twice. */
export function requireTrainable(owner: string, tensors: readonly Tensor[]): void {
  const [first] = tensors;
  if (!first) throw new HoldfastError("BAD_ARGUMENT", `${owner} was given no parameters.`);
  const seen = new Set<Tensor>();
  for (const tensor of tensors) {
    const { name, dtype, device } = tensor;
    if (device !== first.device) {
      throw new HoldfastError(
        "OTHER_DEVICE",
        `${owner}: "${name}" lives on another device than "${first.name}". Make an optimizer for each device.`,
      );
    }
    if (!isFloat(dtype)) throw rejection("BAD_DTYPE", `is ${dtype}, and only floats can be trained`);
    if (!tensor.isLeaf) throw rejection("BAD_ARGUMENT", "was made by an op; train what it was made of");
    if (seen.has(tensor)) throw rejection("BAD_ARGUMENT", "is given twice; give every parameter once");
    seen.add(tensor);

    function rejection(code: "BAD_DTYPE" | "BAD_ARGUMENT", why: string): HoldfastError {
      return new HoldfastError(code, `${owner}: "${name}" ${why}.`, { numbers: { parameter: name } });
    }
  }
}

/** Rejects a parameter whose memory is not where it was when its moments were placed beside it. */
export function requireUnmoved(owner: string, { tensor, values }: Member): void {
  if (tensor.array.storage === values.storage) return;
  throw new HoldfastError(
    "BAD_STATE",
    `${owner}: "${tensor.name}" has been moved since the optimizer was made. Make the optimizer after model.to().`,
    { numbers: { parameter: tensor.name } },
  );
}

/** An array's own bytes, without padding behind them; for reading and writing. */
export function withoutPadding(runtime: Runtime, array: DeviceArray): DeviceArray {
  const { storage, shape, dtype } = array;
  const size = shape.reduce((product, one) => product * one, dtypes[dtype].bytes);
  return storage && storage.span.size > size ? { ...array, storage: runtime.view(storage, 0, size) } : array;
}
