/** Data parallelism: the batch is cut into shards, and the gradients of all shards are averaged. */

import { createHash } from "node:crypto";
import { noGrad } from "../autograd/index.js";
import type { World } from "../distributed/index.js";
import { checkOptions, HoldfastError } from "../errors/index.js";
import type { Module } from "../nn/index.js";
import { allGather, allToAll, broadcast } from "../ops/index.js";
import { autograd, cat, type Device, stack, type Tensor, zeros } from "../tensor/index.js";
import { PackedLayout } from "./packed.js";
import { enterShard, leaveShards } from "./shard-draws.js";
import { ShardSums } from "./shard-sums.js";
import { treeSum } from "./tree-sum.js";

/** Options of `DataParallel`. */
export interface DataParallelOptions {
  /**
   * Into how many shards the whole batch is cut: a multiple of the number of ranks. Each rank computes its shards one after the other, and
   * all gradients are summed in one order. So the results have the same bits for every number of ranks. Default: a shard for each rank.
   */
  readonly shards?: number;
}

/** Options of `DataParallel.backward`. */
export interface ParallelBackwardOptions {
  /**
   * Exchange nothing: the gradients are added to sums in persistent memory, one for each shard of this rank. The next `backward` without
   * this option adds them, so that its loss and gradients are sums over these batches. So several batches count as one, with one exchange.
   * The result is the mean loss of this rank's rows. Default: false.
   */
  readonly noSync?: boolean;
}

interface BackwardShardsOptions extends ParallelBackwardOptions {
  /** The weight of the batch in a step of several batches. */
  readonly weight?: ((loss: Tensor) => Tensor) | undefined;
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
  static #ranksOfNewOptimizer: World | undefined;
  readonly world: World;
  readonly shards: number;
  #sums: ShardSums | undefined;

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
    for (const { runtime } of devices) this.world.attach(runtime);
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

  /**
   * Makes an optimizer that is split over the ranks (ZeRO-1): each rank keeps the moments of its part of the parameters, updates that part,
   * and receives the other parts. So the moments need less memory on each rank, and the weights have the same bits. All ranks must make the
   * same optimizer, and step it together. Optimizers whose updates are not elementwise can't be split: Muon, LBFGS, SparseAdam.
   *
   * @example
   * ```ts
   * import { device, distributed, nn, optim } from "holdfast";
   * const world = distributed.init();
   * const cpu = await device("cpu");
   * const model = new nn.Linear(4, 1).to(cpu);
   * const parallel = new distributed.DataParallel(world);
   * const optimizer = parallel.shardOptimizer(() => new optim.AdamW(model.parameters(), { lr: 1e-3 }));
   * console.log(optimizer.lr); // → 0.001
   * world.close();
   * cpu.close();
   * ```
   */
  shardOptimizer<Optimizer>(make: () => Optimizer): Optimizer {
    const before = DataParallel.#ranksOfNewOptimizer;
    DataParallel.#ranksOfNewOptimizer = this.world.size > 1 ? this.world : undefined;
    try {
      return make();
    } finally {
      DataParallel.#ranksOfNewOptimizer = before;
    }
  }

  /**
   * The ranks over which an optimizer that is made now is split; undefined if it is not.
   *
   * @internal
   */
  static get ranksOfNewOptimizer(): World | undefined {
    return DataParallel.#ranksOfNewOptimizer;
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
    options: ParallelBackwardOptions = {},
  ): Tensor {
    const { noSync = false } = checkOptions("DataParallel.backward", options, { noSync: true });
    const own = this.shards / this.world.size;
    return this.backwardShards(
      parameters,
      Array.from({ length: own }, (_, shard) => {
        const parts = inputs.map((input) => shardOf(input, shard, own)) as {
          [Index in keyof Inputs]: Tensor;
        };
        return { share: 1 / this.shards, loss: () => lossOf(...parts) };
      }),
      { noSync },
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
    { noSync = false, weight }: BackwardShardsOptions = {},
  ): Tensor {
    const trained = parameters.filter(({ requiresGrad }) => requiresGrad);
    const layout = new PackedLayout([...trained, { shape: [], dtype: "f32" }]);
    const { device } = parameters[0] ?? noParameters();
    if (noSync || weight) this.#prepareSums(device, layout, shards.length);
    const sums = this.#sums;
    device.runtime.traceSink?.addGuard(() => this.#sums === sums);
    const draws = device.randomState.clone();
    const [alone] = shards;
    if (alone && this.shards === 1 && !noSync && !weight && !sums) {
      enterShard(device, draws, 0);
      const loss = alone.loss();
      // There is nothing to add, and nobody to exchange with.
      loss.backward();
      leaveShards(device, draws);
      return noGrad(() => {
        const unused = trained.filter(({ grad }) => !grad);
        if (unused.length > 0)
          autograd.backward(
            unused,
            unused.map(({ shape, dtype }) => zeros(shape, { dtype, device })),
          );
        return loss.detach();
      });
    }
    const first = this.world.rank * shards.length;
    const losses: Tensor[] = [];
    const terms = shards.map(({ share, loss: lossOf }, index) => {
      if (share === 0) return layout.pack([], device);
      enterShard(device, draws, first + index);
      const loss = lossOf();
      const gradients = autograd.grad(loss, trained, { allowUnused: true });
      return noGrad(() => {
        losses.push(loss.detach().mul(share));
        const term = layout.pack([...gradients, loss.detach()], device);
        if (weight) return term.mul(weight(lossIn(term)).mul(share));
        return share === 1 ? term : term.mul(share);
      });
    });
    leaveShards(device, draws);
    if (noSync) {
      sums?.add(terms);
      const ownShare = shards.reduce((sum, { share }) => sum + share, 0);
      return noGrad(() => (losses.length === 0 ? zeros([], { device }) : stack(losses).sum().div(ownShare)));
    }
    return noGrad(() => {
      const total = this.#sum(sums?.take(terms) ?? terms);
      autograd.backward(trained, layout.unpack(total).slice(0, -1));
      return lossIn(total);
    });
  }

  /**
   * Releases the memory for several batches in a step.
   *
   * @example
   * ```ts
   * import { device, distributed, nn, ones } from "holdfast";
   * const world = distributed.init();
   * const cpu = await device("cpu");
   * const model = new nn.Linear(2, 1, { bias: false }).to(cpu);
   * const parallel = new distributed.DataParallel(world, { shards: 2 });
   * const backward = (noSync: boolean) =>
   *   parallel.backward(model.parameters(), [ones([4, 2])], (x) => model.forward(x).mean().div(2), { noSync });
   * cpu.step(() => {
   *   backward(true);
   *   console.log(model.weight.grad); // → null
   *   backward(false);
   *   console.log(model.weight.grad?.tolist()); // → [ [ 1, 1 ] ]
   * });
   * parallel.release();
   * world.close();
   * cpu.close();
   * ```
   */
  release(): void {
    this.#sums?.release();
    this.#sums = undefined;
  }

  #prepareSums(device: Device, layout: PackedLayout, shards: number): void {
    if (this.#sums?.device === device && this.#sums.layout.equals(layout)) return;
    this.release();
    this.#sums = new ShardSums(device, layout, shards);
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

/** The loss is the last element. */
function lossIn(packed: Tensor): Tensor {
  return packed.narrow(0, packed.numel - 1, 1).reshape([]);
}

function noParameters(): never {
  throw new HoldfastError("BAD_ARGUMENT", "DataParallel: there are no parameters to train.");
}
