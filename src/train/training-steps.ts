/**
 * The steps of a training. A step uses one batch, or accumulates the gradients of several batches before the optimizer's update.
 * There are two compiled functions: one only accumulates gradients, the other accumulates the last ones and updates.
 */

import { noGrad } from "../autograd/index.js";
import type { Batch, ColumnSource } from "../data/index.js";
import { HoldfastError } from "../errors/index.js";
import type { Module } from "../nn/index.js";
import { clipGradNorm, type Optimizer } from "../optim/index.js";
import type { DataParallel } from "../parallel/index.js";
import {
  badIndexError,
  type CompiledStep,
  type Device,
  listenToNumbers,
  type Tensor,
} from "../tensor/index.js";
import type { EpochRows } from "./epoch-rows.js";
import { LossWeight } from "./loss-weight.js";
import { StepLosses } from "./step-losses.js";

export type TrainingStep = CompiledStep<[Tensor], { readonly loss: Tensor }>;

/** The options of a single step. */
export interface StepOptions<Sources extends readonly ColumnSource[]> {
  readonly device: Device;
  readonly model: Module;
  readonly optimizer: Optimizer;
  /** The loss of a batch: one number. */
  readonly loss: (...batch: Batch<Sources>) => Tensor;
  /**
   * Batches whose gradients are added before the optimizer's update; default: 1. They count as one batch of all their rows:
   * clipping, the optimizer, the schedule and `onStep` run once per step. The last step of an epoch may have fewer batches.
   */
  readonly accumulate?: number;
  /** Max. norm of all gradients together; default: no clipping. */
  readonly clipNorm?: number;
  /**
   * Trains on all ranks of a run: each computes its shards of every batch, and their gradients are averaged. All ranks pass the same data,
   * seed and options. Each gets the weights of rank 0, if `parallel.broadcast(model)` was not called before.
   */
  readonly parallel?: DataParallel;
  /** False runs the step eagerly; default: true. */
  readonly compile?: boolean;
}

/** The batches of one step. */
export interface BatchGroup {
  readonly first: number;
  readonly end: number;
  /** The rows of all batches. */
  readonly samples: number;
}

export class TrainingSteps<Sources extends readonly ColumnSource[]> {
  /** Batches per epoch. */
  readonly batches: number;
  /** The function that updates; undefined if steps run eagerly. */
  readonly update: TrainingStep | undefined;
  /** The function that only accumulates gradients; undefined if every batch is a step. */
  readonly accumulate: TrainingStep | undefined;
  readonly #options: StepOptions<Sources>;
  readonly #groupSize: number;
  readonly #rows: EpochRows<Sources>;
  readonly #weight: LossWeight | undefined;
  readonly #losses = new StepLosses();

  constructor(options: StepOptions<Sources>, rows: EpochRows<Sources>) {
    const { device, accumulate = 1, compile = true } = options;
    this.#options = options;
    this.#groupSize = accumulate;
    this.#rows = rows;
    this.batches = rows.batches;
    this.#weight = accumulate > 1 ? new LossWeight(device) : undefined;
    if (!compile) return;
    this.update = device.compile((rows: Tensor) => this.#addAndUpdate(rows), { name: "train" });
    listenToNumbers(this.update, "loss", (losses) => this.#losses.noteUpdates(losses));
    if (accumulate === 1) return;
    this.accumulate = device.compile((rows: Tensor) => this.#addGradients(rows, { noSync: true }), {
      name: "accumulate",
    });
    if (!options.parallel)
      listenToNumbers(this.accumulate, "loss", (losses) => this.#losses.noteAdded(losses));
  }

  /** Steps per epoch. The last one may have fewer batches. */
  get perEpoch(): number {
    return Math.ceil(this.batches / this.#groupSize);
  }

  /** The batches of the step that starts with batch `first`. */
  groupAt(first: number): BatchGroup {
    const end = Math.min(first + this.#groupSize, this.batches);
    let samples = 0;
    for (let batch = first; batch < end; batch++) samples += this.#rows.countOf(batch);
    return { first, end, samples };
  }

  /** The batches of a step by its index in the epoch. */
  groupOf(step: number): BatchGroup {
    return this.groupAt(step * this.#groupSize);
  }

  /** The number of plans of the compiled functions. */
  get plans(): number {
    return (this.update?.plans ?? 0) + (this.accumulate?.plans ?? 0);
  }

  /** The new losses of steps since the last call. A step's loss is the mean over the rows of its batches, by their weights. */
  takeLosses(): readonly number[] {
    return this.#losses.take();
  }

  /** Sends the batches of one step. `between` is called after each batch but the last. */
  async send(epoch: number, { first, end }: BatchGroup, between: () => Promise<void>): Promise<void> {
    const shares: number[] = [];
    const eager: number[] = [];
    const total = this.#weightOf(epoch, { first, end });
    for (let batch = first; batch < end; batch++) {
      const share = this.#rows.weightOf(epoch, batch) / total;
      shares.push(share);
      this.#weight?.set(share);
      const rows = this.#rows.rowsOf(epoch, batch);
      const isLast = batch === end - 1;
      const compiled = isLast ? this.update : this.accumulate;
      if (compiled) compiled(rows);
      else eager.push(this.#runEagerly(rows, isLast));
      if (!isLast) await between();
    }
    // The ranks exchange one loss: that of all batches of the step.
    const { parallel } = this.#options;
    this.#losses.sent(parallel ? [1] : shares);
    if (this.update) return;
    if (!parallel) this.#losses.noteAdded(eager.slice(0, -1));
    this.#losses.noteUpdates(eager.slice(-1));
  }

  refresh(): void {
    this.accumulate?.refresh();
    this.update?.refresh();
  }

  flush(): void {
    this.accumulate?.flush();
    this.update?.flush();
  }

  /** The mean loss over the rows of an epoch, by their weights, from the losses of its steps. */
  meanLoss(epoch: number, losses: readonly number[]): number {
    let sum = 0;
    let total = 0;
    for (const [step, loss] of losses.entries()) {
      const weight = this.#weightOf(epoch, this.groupOf(step));
      sum += loss * weight;
      total += weight;
    }
    return sum / total;
  }

  /** Throws for bad indices of an epoch that compiled steps had to ignore. If a loss is NaN, the error names the batch. */
  rejectBadIndices(epoch: number, losses: readonly number[]): void {
    if (!this.update) return;
    const step = losses.findIndex((loss) => Number.isNaN(loss));
    if (step >= 0) this.#rejectBadLabels(epoch, this.groupOf(step));
    for (const [name, compiled] of [
      ["accumulate", this.accumulate],
      ["train", this.update],
    ] as const) {
      const first = compiled?.badIndices.first;
      if (first) throw badIndexError(name, first);
    }
  }

  close(): void {
    this.accumulate?.close();
    this.update?.close();
    this.#weight?.close();
    this.#options.parallel?.release();
    this.#rows.close();
  }

  #weightOf(epoch: number, { first, end }: Pick<BatchGroup, "first" | "end">): number {
    let sum = 0;
    for (let batch = first; batch < end; batch++) sum += this.#rows.weightOf(epoch, batch);
    return sum;
  }

  /**
   * A bad index or label makes a compiled step's loss NaN. Its batches are computed again, eagerly, and the eager error names the
   * index. A NaN with another cause is ignored here.
   */
  #rejectBadLabels(epoch: number, { first, end }: BatchGroup): void {
    const { device, loss: lossOf } = this.#options;
    for (let batch = first; batch < end; batch++) {
      const rows = this.#rows.rowsOf(epoch, batch);
      try {
        device.step(() => noGrad(() => void lossOf(...this.#rows.gather(rows))));
      } catch (error) {
        if (!(error instanceof HoldfastError && error.code === "BAD_INDEX")) return;
        const { message: cause, numbers } = error;
        throw new HoldfastError(error.code, `Batch ${batch} of epoch ${epoch}: ${cause}`, {
          ...{ numbers: { ...numbers, batch, epoch }, cause: error },
        });
      }
    }
  }

  #runEagerly(rows: Tensor, isLast: boolean): number {
    const run = (): Tensor =>
      (isLast ? this.#addAndUpdate(rows) : this.#addGradients(rows, { noSync: true })).loss;
    return this.#options.device.step(() => run().item());
  }

  /** Ranks exchange the gradients of a step once, after its last batch: `noSync` is true for the others. */
  #addGradients(rows: Tensor, { noSync = false } = {}): { readonly loss: Tensor } {
    const { parallel, model, loss: lossOf } = this.#options;
    if (parallel) {
      const [count = 0] = rows.shape;
      const shards = parallel.ownRanges(count).map(({ start, end }) => ({
        share: (end - start) / count,
        loss: () => lossOf(...this.#rows.gather(rows.narrow(0, start, end - start))),
      }));
      const of = this.#weight;
      const weight = of && ((loss: Tensor) => of.like(loss));
      const isEven = count % parallel.shards === 0;
      return { loss: parallel.backwardShards(model.parameters(), shards, { noSync, weight, isEven }) };
    }
    const loss = lossOf(...this.#rows.gather(rows));
    loss.backward(this.#weight?.like(loss));
    return { loss };
  }

  #addAndUpdate(rows: Tensor): { readonly loss: Tensor } {
    const { model, optimizer, clipNorm } = this.#options;
    const { loss } = this.#addGradients(rows);
    // If the norm is not finite, a compiled step is skipped and counted; an eager step throws.
    if (clipNorm !== undefined) clipGradNorm(model.parameters(), clipNorm);
    optimizer.step();
    optimizer.zeroGrad();
    return { loss };
  }
}
