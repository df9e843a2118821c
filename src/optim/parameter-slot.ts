/** An optimizer's record of a parameter: its storage and its moments, laid out like the parameters. */

import { HoldfastError } from "../errors/index.js";
import { dtypes } from "../ir/index.js";
import { contiguousStrides, type DeviceArray, isFloat } from "../ops/index.js";
import { alignment, type BudgetLabel, type Placement, type Region, type Runtime } from "../runtime/index.js";
import type { Tensor } from "../tensor/index.js";
import { alignUp } from "../units/index.js";
import { momentDtype, type UpdateRule } from "./update-rule.js";

/** Elements of a tensor, in memory order. */
export interface ElementRange {
  readonly start: number;
  readonly end: number;
}

export interface ParameterSlot {
  readonly tensor: Tensor;
  /** Its index among all parameters of the optimizer; its name in the saved state. */
  readonly index: number;
  /** Its storage when the optimizer was created; it must not move. */
  readonly values: DeviceArray;
  /** One per moment of the rule; none if the parameter has no elements here. */
  readonly moments: readonly DeviceArray[];
  /** The elements that this rank updates, if the optimizer is split over ranks: its moments are of these. */
  readonly own: ElementRange | undefined;
}

/** A parameter before its moments are placed. */
export interface UnplacedParameter {
  readonly tensor: Tensor;
  readonly index: number;
  readonly rule: UpdateRule;
  readonly own?: ElementRange | undefined;
}

/**
 * Places the moments of all parameters: one region per kind, in the parameters' memory order, zero-initialized. If not
 * all fit, none stays allocated.
 */
export function placeMoments(
  runtime: Runtime,
  owner: string,
  parameters: readonly UnplacedParameter[],
): { readonly slots: ReadonlyMap<Tensor, ParameterSlot>; readonly regions: readonly Region[] } {
  const regions: Region[] = [];
  const moments = new Map<Tensor, DeviceArray[]>();
  for (const kind of new Set(parameters.flatMap(({ rule }) => rule.moments))) {
    const parametersOfKind = parameters.filter(
      (parameter) => lengthOf(parameter) > 0 && parameter.rule.moments.includes(kind),
    );
    if (parametersOfKind.length === 0) continue;
    const sizes = parametersOfKind.map((parameter) => ({
      name: `${parameter.tensor.name}.${kind}`,
      size: momentBytes(parameter),
    }));
    const region = placeOrRelease(runtime, regions, "moments", `${owner} ${kind}s`, sizes);
    regions.push(region);
    // Padding is updated along with its neighbours, and must be zero for that.
    runtime.fill(region.whole, 0);
    for (const [position, parameter] of parametersOfKind.entries()) {
      const { tensor, own } = parameter;
      const { dtype } = tensor;
      const shape = own ? [lengthOf(parameter)] : tensor.shape;
      const storage = region.storages[position];
      const array = { shape, strides: contiguousStrides(shape), dtype: momentDtype(dtype), storage };
      moments.set(tensor, [...(moments.get(tensor) ?? []), array]);
    }
  }
  const slots = new Map(
    parameters.map(({ tensor, index, own }) => [
      tensor,
      { tensor, index, own, values: tensor.array, moments: moments.get(tensor) ?? [] },
    ]),
  );
  return { slots, regions };
}

/** Places one more region, or releases the earlier ones. */
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

/** Skips regions that are already released. */
export function releaseRegions({ persistent }: Runtime, regions: readonly Region[]): void {
  const placed = new Set(persistent.regions);
  for (const region of regions) if (placed.has(region)) persistent.release(region);
}

/**
 * As many elements as the parameter with its padding, so that both have the same layout even if their element sizes
 * differ.
 */
function momentBytes(parameter: UnplacedParameter): number {
  const { dtype, numel } = parameter.tensor;
  const length = lengthOf(parameter);
  if (length < numel) return length * dtypes[momentDtype(dtype)].bytes;
  const [elementBytes, momentElementBytes] = [dtypes[dtype].bytes, dtypes[momentDtype(dtype)].bytes];
  return elementBytes === momentElementBytes
    ? numel * elementBytes
    : (alignUp(numel * elementBytes, alignment) / elementBytes) * momentElementBytes;
}

/** The elements that have moments. */
function lengthOf({ tensor, own }: UnplacedParameter): number {
  return own ? own.end - own.start : tensor.numel;
}

/** Rejects tensors that cannot be trained: on other devices, integers, results of ops, and duplicates. */
export function requireTrainable(owner: string, tensors: readonly Tensor[]): void {
  const [first] = tensors;
  if (!first) throw new HoldfastError("BAD_ARGUMENT", `${owner} got no parameters. Pass at least one.`);
  const checked = new Set<Tensor>();
  for (const tensor of tensors) {
    const { name, dtype, device } = tensor;
    if (device !== first.device) {
      throw new HoldfastError(
        "OTHER_DEVICE",
        `${owner}: "${name}" is on another device than "${first.name}". Create one optimizer per device.`,
      );
    }
    if (!isFloat(dtype)) throw rejection("BAD_DTYPE", `is ${dtype}; only float tensors can be trained`);
    if (!tensor.isLeaf) throw rejection("BAD_ARGUMENT", "is the result of an op; train its inputs");
    if (checked.has(tensor)) throw rejection("BAD_ARGUMENT", "is a duplicate; pass every parameter once");
    checked.add(tensor);

    function rejection(code: "BAD_DTYPE" | "BAD_ARGUMENT", why: string): HoldfastError {
      return new HoldfastError(code, `${owner}: "${name}" ${why}.`, { numbers: { parameter: name } });
    }
  }
}

/** Rejects a parameter whose memory has moved since its moments were placed. */
export function requireUnmoved(owner: string, { tensor, values }: ParameterSlot): void {
  if (tensor.array.storage === values.storage) return;
  throw new HoldfastError(
    "BAD_STATE",
    `${owner}: "${tensor.name}" has moved since the optimizer was created. Create the optimizer after model.to().`,
    { numbers: { parameter: tensor.name } },
  );
}

/** An array's bytes without the padding after them, for reading and writing. */
export function withoutPadding(runtime: Runtime, array: DeviceArray): DeviceArray {
  const { storage, shape, dtype } = array;
  const size = shape.reduce((product, size) => product * size, dtypes[dtype].bytes);
  return storage && storage.span.size > size ? { ...array, storage: runtime.view(storage, 0, size) } : array;
}
