/** Data parallelism: the batch is cut into shards, and the gradients of all shards are averaged. */

import { createHash } from "node:crypto";
import { type Leaf, noGrad, tracing, type Value } from "../autograd/index.js";
import type { World } from "../distributed/index.js";
import { checkOptions, HoldfastError } from "../errors/index.js";
import type { Module } from "../nn/index.js";
import { broadcast, noteRanks } from "../ops/index.js";
import {
  type Device,
  type GradientDelivery,
  type StepParallelism,
  stack,
  type Tensor,
  zeros,
} from "../tensor/index.js";
import { type Bucket, BucketPacker, cutBuckets, defaultBucketBytes } from "./buckets.js";
import { enterShard, leaveShards } from "./shard-draws.js";
import { ShardSums } from "./shard-sums.js";
import { type Summation, sumOverRanks } from "./sum-over-ranks.js";

/** Options of `DataParallel`. */
export interface DataParallelOptions {
  /**
   * Into how many shards the whole batch is cut: a multiple of the number of ranks. Each rank computes its shards one after the other, and
   * all gradients are summed in one order. So the results have the same bits for every number of ranks. Default: a shard for each rank, and
   * MPI or NCCL sums the gradients in an order of its own.
   */
  readonly shards?: number;
  /**
   * Gradients are exchanged in buckets of at most so many bytes, while backward computes the next ones. The first bucket has at most a
   * mebibyte. Default: 25 MiB.
   */
  readonly bucketBytes?: number;
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
  /** True if all shards of all ranks have as many rows. Default: true. */
  readonly isEven?: boolean;
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
export class DataParallel implements StepParallelism {
  static #ranksOfNewOptimizer: World | undefined;
  readonly world: World;
  readonly shards: number;
  readonly #bucketBytes: number;
  readonly #summation: Summation;
  /** The parameters that all ranks have, by what takes their gradients, and their places in that order. */
  readonly #shared = new WeakMap<Leaf, { readonly parameter: Tensor; readonly index: number }>();
  #sharedCount = 0;
  #sums: ShardSums | undefined;
  #isNoSync = false;

  constructor(world: World, options: DataParallelOptions = {}) {
    const checked = checkOptions("DataParallel", options, { shards: true, bucketBytes: true });
    const { shards = world.size, bucketBytes = defaultBucketBytes } = checked;
    if (!Number.isSafeInteger(bucketBytes) || bucketBytes < 1)
      throw new HoldfastError(
        "BAD_SIZE",
        `bucketBytes is ${bucketBytes}: pass a number of bytes, 1 or more.`,
      );
    if (!Number.isInteger(shards) || shards < world.size || shards % world.size !== 0)
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `${shards} shards on ${world.size} ranks: pass a multiple of the number of ranks.`,
        { numbers: { shards, ranks: world.size } },
      );
    this.world = world;
    this.shards = shards;
    this.#bucketBytes = bucketBytes;
    this.#summation = checked.shards === undefined ? "by the library" : "in the order of shards";
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
    for (const parameter of module.parameters()) {
      const leaf = parameter.accumulator();
      if (!this.#shared.has(leaf)) this.#shared.set(leaf, { parameter, index: this.#sharedCount++ });
    }
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

  /**
   * True if all ranks have the parameters of a module, where they are now.
   *
   * @internal
   */
  shares(module: Module): boolean {
    return module.parameters().every((parameter) => this.#shared.has(parameter.accumulator()));
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
    { noSync = false, weight, isEven = true }: BackwardShardsOptions = {},
  ): Tensor {
    const trained = parameters.filter(({ requiresGrad }) => requiresGrad);
    const { device } = parameters[0] ?? noParameters();
    if (this.world.communicator) {
      for (const parameter of trained) this.#requireShared(parameter.accumulator());
      noteRanks(device.runtime, isEven);
    }
    // Backward reaches the last layers first. The loss is there before all gradients.
    const expected = trained.toReversed();
    const buckets = cutBuckets([lossSlot, ...expected], this.#bucketBytes);
    if (noSync || weight) this.#prepareSums(device, buckets, shards.length);
    const sums = this.#sums;
    device.runtime.traceSink?.addGuard(() => this.#sums === sums);
    const [alone] = shards;
    if (alone && this.shards === 1 && !this.world.communicator && !noSync && !weight && !sums) {
      // There is nothing to add, nobody to exchange with, and nobody who has to draw the same numbers.
      const loss = alone.loss();
      loss.backward();
      return noGrad(() => {
        for (const parameter of trained)
          if (!parameter.grad) {
            const { shape, dtype } = parameter;
            parameter.accumulator().accumulate(zeros(shape, { dtype, device }).array);
          }
        return loss.detach();
      });
    }
    const draws = device.randomState.clone();
    const first = this.world.rank * shards.length;
    const losses: Tensor[] = [];
    const terms: Tensor[][] = buckets.map(() => []);
    const totals: Tensor[] = [];
    for (const [shard, { share, loss: lossOf }] of shards.entries()) {
      let scale: Tensor | number = share;
      const packer = new BucketPacker(device, buckets, (bucket, packed) =>
        noGrad(() => {
          const term = scale === 1 || share === 0 ? packed : packed.mul(scale);
          terms[bucket]?.push(term);
          if (noSync) sums?.add(bucket, shard, term);
          else if (shard === shards.length - 1)
            totals[bucket] = sumOverRanks(
              this.world,
              sums?.take(bucket, terms[bucket] ?? []) ?? terms[bucket] ?? [],
              this.#summation,
            );
        }),
      );
      if (share > 0) {
        enterShard(device, draws, first + shard);
        const loss = lossOf();
        const value = loss.detach();
        noGrad(() => {
          losses.push(value.mul(share));
          if (weight) scale = weight(value).mul(share);
          packer.put(0, value);
        });
        const receivers = expected.map(
          (parameter, index) =>
            [parameter.accumulator(), (gradient: Tensor) => packer.put(1 + index, gradient)] as const,
        );
        device.deliverGradients(loss, new Map(receivers));
      }
      packer.finish();
    }
    leaveShards(device, draws);
    return noGrad(() => {
      if (noSync) {
        const ownShare = shards.reduce((sum, { share }) => sum + share, 0);
        return losses.length === 0 ? zeros([], { device }) : stack(losses).sum().div(ownShare);
      }
      const [loss, ...gradients] = unpack(buckets, totals);
      for (const [index, gradient] of gradients.entries())
        expected[index]?.accumulator().accumulate(gradient.array);
      return loss ?? zeros([], { device });
    });
  }

  /**
   * Runs the function of a compiled step as that of one rank: gradients that `backward()` brings to parameters are averaged over the ranks.
   *
   * @internal
   */
  runStep<T>(device: Device, body: () => T): T {
    const { communicator, rank, size } = this.world;
    if (this.shards !== size)
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `compile: the function of a step can't be cut into ${this.shards} shards on ${size} ranks, because it runs once. Leave out the option ` +
          "shards, or compute the loss in parallel.backward().",
        { numbers: { shards: this.shards, ranks: size } },
      );
    if (!communicator) return body();
    noteRanks(device.runtime, true);
    const draws = device.randomState.clone();
    const outer = device.gradientExchange;
    enterShard(device, draws, rank);
    device.gradientExchange = {
      begin: (leaves) => (this.#isNoSync ? undefined : this.#beginDelivery(device, leaves)),
    };
    try {
      const result = body();
      leaveShards(device, draws);
      return result;
    } finally {
      device.gradientExchange = outer;
    }
  }

  /**
   * Runs a function whose backward passes exchange nothing, in a step that is compiled with the option `parallel`: the next pass averages the
   * sums of gradients. The same function in every call of the step; compile another one for the last batch.
   *
   * @example
   * ```ts
   * import { device, distributed, nn, ones } from "holdfast";
   * const world = distributed.init();
   * const cpu = await device("cpu");
   * const model = new nn.Linear(2, 1).to(cpu);
   * const parallel = new distributed.DataParallel(world);
   * parallel.broadcast(model);
   * const add = cpu.compile((x) => parallel.noSync(() => model.forward(x).mean().backward()), { parallel });
   * add(ones([4, 2]));
   * console.log(model.bias?.grad?.tolist()); // → [ 1 ]
   * world.close();
   * cpu.close();
   * ```
   */
  noSync<T>(body: () => T): T {
    const outer = this.#isNoSync;
    this.#isNoSync = true;
    try {
      return body();
    } finally {
      this.#isNoSync = outer;
    }
  }

  #beginDelivery(device: Device, leaves: readonly Leaf[]): GradientDelivery {
    // Gradients of the step's own tensors stay on this rank.
    const shared = leaves
      .flatMap((leaf) => (tracing.guards?.hasCreated(leaf) ? [] : [{ leaf, ...this.#requireShared(leaf) }]))
      .toSorted((a, b) => b.index - a.index);
    const buckets = cutBuckets(
      shared.map(({ parameter }) => parameter),
      this.#bucketBytes,
    );
    const totals: Tensor[] = [];
    const packer = new BucketPacker(device, buckets, (_, packed) =>
      noGrad(
        () => void totals.push(sumOverRanks(this.world, [packed.mul(1 / this.shards)], this.#summation)),
      ),
    );
    const receivers = shared.map(({ leaf, parameter }, slot) => {
      const receive = (value: Value): void =>
        noGrad(() => {
          const gradient = device.wrap(value);
          packer.put(slot, parameter.grad?.add(gradient) ?? gradient);
        });
      return [leaf, receive] as const;
    });
    return {
      receivers: new Map(receivers),
      finish: () =>
        noGrad(() => {
          packer.finish();
          for (const [slot, gradient] of unpack(buckets, totals).entries()) {
            shared[slot]?.parameter.zeroGrad();
            shared[slot]?.leaf.accumulate(gradient.array);
          }
        }),
    };
  }

  #requireShared(leaf: Leaf): { readonly parameter: Tensor; readonly index: number } {
    const shared = this.#shared.get(leaf);
    if (shared) return shared;
    throw new HoldfastError(
      "BAD_ARGUMENT",
      "A parameter gets a gradient in a step of several ranks, but its values may differ between them. Call parallel.broadcast(model) on all ranks " +
        "before the step, after model.to(device), for each model that the step trains.",
    );
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

  #prepareSums(device: Device, buckets: readonly Bucket[], shards: number): void {
    if (this.#sums?.device === device && this.#sums.fits(buckets)) return;
    this.release();
    this.#sums = new ShardSums(device, buckets, shards);
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

const lossSlot = { shape: [], dtype: "f32" } as const;

/** The tensors of all buckets, in order. */
function unpack(buckets: readonly Bucket[], packed: readonly Tensor[]): readonly Tensor[] {
  return buckets.flatMap(({ layout }, index) => {
    const whole = packed[index];
    return whole ? layout.unpack(whole) : [];
  });
}

function noParameters(): never {
  throw new HoldfastError("BAD_ARGUMENT", "DataParallel: there are no parameters to train.");
}
