/** Data parallelism: the batch is cut into shards, and the gradients of all shards are averaged. */

import { createHash } from "node:crypto";
import { noGrad } from "../autograd/index.js";
import type { World } from "../distributed/index.js";
import { checkOptions, HoldfastError } from "../errors/index.js";
import type { Module } from "../nn/index.js";
import { allGather, allToAll, broadcast, sizeOf } from "../ops/index.js";
import { autograd, cat, type Tensor, zeros } from "../tensor/index.js";
import { enterShard, leaveShards } from "./shard-draws.js";
import { treeSum } from "./tree-sum.js";

/** Options of `DataParallel`. */
export interface DataParallelOptions {
  /**
   * Into how many shards the whole batch is cut: a multiple of the number of ranks. Each rank computes its shards one after the other, and
   * all gradients are summed in one order. So the results have the same bits for every number of ranks. Default: a shard for each rank.
   */
  readonly shards?: number;
}

/**
 * Averages gradients over the ranks of a run.
 *
 * @example
 * ```ts
 * import { device, distributed, nn, optim, randn } from "holdfast";
 * const world = distributed.init(); // this process is alone, or one of those that mpirun has started
 * const cpu = await device("cpu");
 * const model = new nn.Linear(4, 1).to(cpu);
 * const parallel = new distributed.DataParallel(world, { shards: 8 });
 * parallel.broadcast(model);
 * const optimizer = new optim.SGD(model.parameters(), { lr: 0.1 });
 * const step = cpu.compile((x) => {
 *   const loss = parallel.backward(model.parameters(), [x], (part) => model.forward(part).square().mean());
 *   optimizer.step();
 *   optimizer.zeroGrad();
 *   return { loss };
 * });
 * const rows = 64 / world.size; // of this rank
 * console.log(step(randn([rows, 4])).loss.shape); // → []
 * world.close();
 * cpu.close();
 * ```
 */
export class DataParallel {
  readonly world: World;
  readonly shards: number;

  constructor(world: World, options: DataParallelOptions = {}) {
    const { shards = world.size } = checkOptions("DataParallel", options, { shards: true });
    if (!Number.isInteger(shards) || shards < world.size || shards % world.size !== 0)
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `${shards} shards on ${world.size} ranks: pass a multiple of the number of ranks.`,
        { numbers: { shards, ranks: world.size } },
      );
    this.world = world;
    this.shards = shards;
  }

  /**
   * Gives every rank the parameters, the buffers and the random state of rank 0, and compares them. Call it before the first step: each rank has drawn its own
   * initial values, unless all have the same seed.
   *
   * @example
   * ```ts
   * import { device, distributed, nn } from "holdfast";
   * const world = distributed.init();
   * const cpu = await device("cpu");
   * const model = new nn.Linear(4, 1).to(cpu);
   * new distributed.DataParallel(world).broadcast(model);
   * world.close();
   * cpu.close();
   * ```
   */
  broadcast(module: Module): void {
    const { communicator } = this.world;
    if (!communicator) return;
    const hash = createHash("sha256");
    const state = Object.entries(module.stateDict());
    const devices = [...new Set(state.map(([, { device }]) => device))];
    for (const { runtime } of devices) this.world.watch(runtime.sharedStatus);
    const random = devices.map(({ randomState }): [string, Tensor] => ["the random state", randomState]);
    for (const [name, tensor] of [...state, ...random]) {
      noGrad(() =>
        tensor.device.step(
          () => void tensor.copy_(tensor.device.apply(broadcast, [tensor], { communicator, root: 0 })),
        ),
      );
      hash.update(name).update(tensor.dtype).update(tensor.shape.join()).update(bytesOf(tensor));
    }
    this.#requireEqual("weights", hash.digest("hex"));
  }

  /** Throws if the value is not the same on every rank. */
  #requireEqual(what: string, value: string): void {
    const values = this.world.exchange(`the checksum of the ${what}`, value);
    const other = values.findIndex((found) => found !== values[0]);
    if (other < 0) return;
    throw new HoldfastError(
      "RANKS_DIFFER",
      `The ${what} of rank ${other} differ from those of rank 0, though they were sent to it. Do all ranks make the same model?`,
      { numbers: { rank: other } },
    );
  }

  /**
   * Computes the loss of each shard of this rank's rows, and adds the average gradient over all shards of all ranks to the parameters'
   * `grad`. `lossOf` returns the mean over the rows of a shard. Returns the mean over all shards, the same on every rank.
   *
   * @example
   * ```ts
   * import { device, distributed, nn, ones } from "holdfast";
   * const world = distributed.init();
   * const cpu = await device("cpu");
   * const model = new nn.Linear(2, 1, { bias: false }).to(cpu);
   * const parallel = new distributed.DataParallel(world, { shards: 2 });
   * cpu.step(() => {
   *   parallel.backward(model.parameters(), [ones([4, 2])], (rows) => model.forward(rows).mean());
   *   console.log(model.weight.grad?.tolist()); // → [ [ 1, 1 ] ]
   * });
   * world.close();
   * cpu.close();
   * ```
   */
  backward<const Inputs extends readonly Tensor[]>(
    parameters: readonly Tensor[],
    inputs: Inputs,
    lossOf: (...inputs: { -readonly [Index in keyof Inputs]: Tensor }) => Tensor,
  ): Tensor {
    const own = this.shards / this.world.size;
    return this.backwardShards(
      parameters,
      Array.from({ length: own }, (_, shard) => {
        const parts = inputs.map((input) => shardOf(input, shard, own)) as {
          [Index in keyof Inputs]: Tensor;
        };
        return { share: 1 / this.shards, loss: () => lossOf(...parts) };
      }),
    );
  }

  /**
   * The same for the shards of this rank, which may have different sizes.
   *
   * @internal
   */
  backwardShards(
    parameters: readonly Tensor[],
    shards: readonly Shard[],
    scale?: (loss: Tensor) => Tensor,
  ): Tensor {
    const trained = parameters.filter(({ requiresGrad }) => requiresGrad);
    const isEven = shards.every(({ share }) => share === 1 / this.shards);
    const slots: readonly Slot[] = [...trained, { shape: [], dtype: "f32" }];
    const { device } = parameters[0] ?? noParameters();
    const draws = device.randomState.clone();
    const first = this.world.rank * shards.length;
    const sums = shards.map(({ share, loss: lossOf }, index) => {
      if (share === 0) return pack([], slots, parameters);
      enterShard(device, draws, first + index);
      const loss = lossOf();
      const gradients = autograd.grad(loss, trained, { allowUnused: true });
      const packed = noGrad(() => pack([...gradients, loss.detach()], slots, parameters));
      return isEven ? packed : noGrad(() => packed.mul(share));
    });
    leaveShards(device, draws);
    return noGrad(() => {
      const sum = this.#sum(sums);
      const total = isEven ? sum.mul(1 / this.shards) : sum;
      const loss = total.narrow(0, total.numel - 1, 1).reshape([]);
      const averages = unpack(scale ? total.mul(scale(loss)) : total, slots);
      autograd.backward(trained, averages.slice(0, -1));
      return loss;
    });
  }

  /**
   * The rows of this rank's shards, of a batch that all ranks have. Shards differ by at most one row.
   *
   * @internal
   */
  ownRanges(rows: number): readonly { readonly start: number; readonly end: number }[] {
    const own = this.shards / this.world.size;
    const boundary = (shard: number): number => Math.floor((shard * rows) / this.shards);
    return Array.from({ length: own }, (_, index) => {
      const shard = this.world.rank * own + index;
      return { start: boundary(shard), end: boundary(shard + 1) };
    });
  }

  /** The sum of the tensors of all ranks, in the order of the shards. */
  #sum(own: readonly Tensor[]): Tensor {
    const { communicator, size } = this.world;
    const add = (a: Tensor, b: Tensor): Tensor => a.add(b);
    if (!communicator) return treeSum(own, add);
    // The sum of a power of two of neighbours is a node of the tree; other counts are exchanged whole.
    const isNode = Number.isInteger(Math.log2(own.length));
    const terms = isNode ? [treeSum(own, add)] : own;
    const [{ shape: [length = 0] = [] } = {}] = terms;
    const columns = Math.ceil(length / size);
    const padded = terms.map((term) => {
      const rest = zeros([columns * size - length], { dtype: term.dtype, device: term.device });
      return (rest.numel === 0 ? term : cat([term, rest])).reshape([size, 1, columns]);
    });
    const sent = padded.length === 1 ? (padded[0] as Tensor) : cat(padded, 1); // [ranks, terms, columns]
    const received = sent.device.apply(allToAll, [sent], { communicator });
    const rows = Array.from({ length: size * padded.length }, (_, row) =>
      received.select(0, Math.floor(row / padded.length)).select(0, row % padded.length),
    );
    const summed = treeSum(rows, add); // columns of all ranks
    const gathered = summed.device.apply(allGather, [summed], { communicator });
    return gathered.reshape([size * columns]).narrow(0, 0, length);
  }
}

/** The rows of a shard. */
function shardOf(input: Tensor, shard: number, count: number): Tensor {
  const [rows = 0] = input.shape;
  if (input.ndim === 0 || rows % count !== 0)
    throw new HoldfastError(
      "BAD_SHAPE",
      `DataParallel: ${rows} rows of this rank can't be cut into ${count} shards of equal size.`,
      { numbers: { rows, shards: count } },
    );
  return count === 1 ? input : input.narrow(0, (shard * rows) / count, rows / count);
}

/** A part of the batch. */
export interface Shard {
  /** Of all rows of the batch. Without rows it is 0, and the loss is not computed. */
  readonly share: number;
  readonly loss: () => Tensor;
}

function bytesOf(tensor: Tensor): Uint8Array {
  const { buffer, byteOffset, byteLength } = tensor.detach().dataSync() as Float32Array;
  return new Uint8Array(buffer, byteOffset, byteLength);
}

function noParameters(): never {
  throw new HoldfastError("BAD_ARGUMENT", "DataParallel: there are no parameters to train.");
}

interface Slot {
  readonly shape: readonly number[];
  readonly dtype: Tensor["dtype"];
}

/** All tensors in one, as float32 or float64: sums of 16-bit gradients would lose digits. Zeros for those that are missing. */
function pack(
  tensors: readonly (Tensor | null)[],
  slots: readonly Slot[],
  [first]: readonly Tensor[],
): Tensor {
  const dtype = slots.some((slot) => slot.dtype === "f64") ? "f64" : "f32";
  const options = { dtype, ...(first && { device: first.device }) } as const;
  return cat(
    slots.map(({ shape }, index) => {
      const flat = [sizeOf(shape)];
      return tensors[index]?.to(dtype).reshape(flat) ?? zeros(flat, options);
    }),
  );
}

function unpack(packed: Tensor, slots: readonly Slot[]): Tensor[] {
  let start = 0;
  return slots.map(({ shape, dtype }) => {
    const length = sizeOf(shape);
    const part = packed.narrow(0, start, length);
    start += length;
    return part.reshape([...shape]).to(dtype);
  });
}
