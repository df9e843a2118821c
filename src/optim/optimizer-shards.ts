/**
 * An optimizer that is split over ranks (ZeRO-1): each rank has the moments of its part of the parameters, updates that part, and gets the
 * other parts from their ranks. An element's update does not depend on the rank that computes it.
 */

import { noGrad } from "../autograd/index.js";
import type { World } from "../distributed/index.js";
import { HoldfastError } from "../errors/index.js";
import { type Dtype, dtypes } from "../ir/index.js";
import { allGather, type DeviceArray, isContiguous } from "../ops/index.js";
import type { Runtime } from "../runtime/index.js";
import { cat, type Device, type Tensor, zeros } from "../tensor/index.js";
import type { ElementRange, ParameterSlot } from "./parameter-slot.js";
import { flattenSpans } from "./spans.js";
import type { UpdateRule } from "./update-rule.js";

/** Parts start at a multiple of it, so that vectors of 16 bytes stay aligned. */
const cutElements = 32;

/** The parts of the parameters of one dtype. */
interface Exchange {
  readonly dtype: Dtype;
  /** Elements that each rank sends: the largest part. */
  readonly length: number;
  /** The parts of each rank, as contiguous spans. */
  readonly spans: readonly (readonly DeviceArray[])[];
}

export class OptimizerShards {
  readonly world: World;
  readonly #device: Device;
  /** The elements of each parameter that each rank updates. */
  readonly #ranges = new Map<Tensor, readonly ElementRange[]>();
  #exchanges: readonly Exchange[] | undefined;

  constructor(world: World, device: Device) {
    this.world = world;
    this.#device = device;
  }

  /** Cuts more parameters into parts of about the same size. The ranks' parts follow each other in memory. */
  add(tensors: readonly Tensor[]): void {
    const { size } = this.world;
    const sorted = tensors.toSorted((a, b) => addressOf(a.array) - addressOf(b.array));
    const all = sorted.reduce((sum, { numel }) => sum + numel, 0);
    let first = 0;
    for (const tensor of sorted) {
      const { numel } = tensor;
      const cut = (rank: number): number => {
        const index = Math.max(0, Math.floor((rank * all) / size) - first);
        return Math.min(numel, Math.ceil(index / cutElements) * cutElements);
      };
      this.#ranges.set(
        tensor,
        Array.from({ length: size }, (_, rank) => ({ start: cut(rank), end: cut(rank + 1) })),
      );
      first += numel;
    }
    this.#exchanges = undefined;
  }

  /** The elements that this rank updates. */
  ownRange(tensor: Tensor): ElementRange {
    return this.#ranges.get(tensor)?.[this.world.rank] ?? { start: 0, end: 0 };
  }

  /** Sends this rank's part of the parameters to all ranks, and writes theirs. */
  gather(): void {
    const { communicator, rank } = this.world;
    if (!communicator) return;
    const device = this.#device;
    this.#exchanges ??= this.#plan();
    const exchanges = this.#exchanges;
    const run = (): void =>
      noGrad(() => {
        for (const { dtype, length, spans } of exchanges) {
          const tensors = spans.map((list) =>
            list.map(({ storage, shape }) => device.fromStorage(storage, shape, dtype, "part of a rank")),
          );
          const own = tensors[rank] ?? [];
          const missing = length - own.reduce((sum, { numel }) => sum + numel, 0);
          const padded = missing > 0 ? [...own, zeros([missing], { dtype, device })] : own;
          const all = device.apply(allGather, [cat(padded)], { communicator }); // [ranks, length]
          for (const [from, list] of tensors.entries()) {
            if (from === rank) continue;
            const received = all.select(0, from);
            let start = 0;
            for (const part of list) {
              part.copy_(received.narrow(0, start, part.numel));
              start += part.numel;
            }
          }
        }
      });
    if (device.runtime.hasOpenStep) run();
    else device.runtime.step(run);
  }

  #plan(): readonly Exchange[] {
    const { runtime } = this.#device;
    const tensors = [...this.#ranges.keys()];
    return [...new Set(tensors.map(({ dtype }) => dtype))].map((dtype) => {
      const ofDtype = tensors.filter((tensor) => tensor.dtype === dtype);
      const spans = Array.from({ length: this.world.size }, (_, rank) => {
        const parts = ofDtype.flatMap((tensor): DeviceArray[][] => {
          const part = partOf(runtime, tensor.array, this.#ranges.get(tensor)?.[rank]);
          return part ? [[part]] : [];
        });
        return flattenSpans(runtime, parts).flat();
      });
      const lengths = spans.map((list) => list.reduce((sum, { shape: [length = 0] }) => sum + length, 0));
      return { dtype, spans, length: Math.max(...lengths) };
    });
  }
}

/** Throws for a rule whose update of an element depends on other elements. */
export function requireShardable(owner: string, { isSparse, direction, keepsParameter }: UpdateRule): void {
  if (!isSparse && !direction && !keepsParameter) return;
  rejectShards(owner);
}

export function rejectShards(owner: string): never {
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `${owner} can't be split over ranks: its update of an element depends on others. Make it outside of shardOptimizer.`,
  );
}

/** The arrays of a parameter's update on this rank; undefined if it updates none of its elements. */
export function ownArrays(
  runtime: Runtime,
  { values, moments, own }: ParameterSlot,
  gradient: DeviceArray,
): readonly DeviceArray[] | undefined {
  if (!own) return [values, gradient, ...moments];
  const [part, partGradient] = [partOf(runtime, values, own), partOf(runtime, gradient, own)];
  return part && partGradient && [part, partGradient, ...moments];
}

/** Elements of an array as a vector; undefined if there are none. All elements keep their storage, so that neighbours can be merged. */
function partOf(
  runtime: Runtime,
  array: DeviceArray,
  { start, end }: ElementRange = { start: 0, end: 0 },
): DeviceArray | undefined {
  const { storage, dtype, shape } = array;
  const length = end - start;
  if (length === 0 || !storage) return undefined;
  if (!isContiguous(array))
    throw new HoldfastError("BAD_STATE", "A parameter that is split over ranks must be contiguous.");
  const isWhole = length === shape.reduce((product, size) => product * size, 1);
  const { bytes } = dtypes[dtype];
  const part = isWhole ? storage : runtime.view(storage, start * bytes, length * bytes, storage.label);
  return { storage: part, dtype, shape: [length], strides: [1] };
}

function addressOf({ storage }: DeviceArray): number {
  return storage?.span.address ?? 0;
}
