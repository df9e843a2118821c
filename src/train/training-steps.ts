/**
 * The steps of a training: each goes over one batch, or over several whose gradients are added up before the optimizer
 * moves. Compiled, there are two functions: one that only adds gradients, and one that adds the last ones and updates.
 */

import { noGrad } from "../autograd/index.js";
import type { ColumnSource } from "../data/index.js";
import { HoldfastError } from "../errors/index.js";
import { dtypes } from "../ir/index.js";
import { clipGradNorm } from "../optim/index.js";
import type { Region } from "../runtime/index.js";
import {
  badIndexError,
  type CompiledStep,
  type Device,
  listenToNumbers,
  type Tensor,
} from "../tensor/index.js";
import type { EpochRows } from "./epoch-rows.js";
import { StepLosses } from "./step-losses.js";
import type { TrainerOptions } from "./trainer.js";

export type TrainingStep = CompiledStep<[Tensor], { readonly loss: Tensor }>;

/** The batches of one step. */
export interface BatchGroup {
  readonly first: number;
  readonly end: number;
  /** Rows in all of them. */
  readonly samples: number;
}

export class TrainingSteps<Sources extends readonly ColumnSource[]> {
  /** Batches in an epoch. */
  readonly batches: number;
  /** The function that updates; undefined where steps run eagerly. */
  readonly update: TrainingStep | undefined;
  /** The function that only adds gradients; undefined where every batch is a step of its own. */
  readonly accumulate: TrainingStep | undefined;
  readonly #options: TrainerOptions<Sources>;
  readonly #groupSize: number;
  readonly #rows: EpochRows<Sources>;
  readonly #weight: LossWeight | undefined;
  readonly #losses = new StepLosses();

  constructor(options: TrainerOptions<Sources>, rows: EpochRows<Sources>) {
    const { device, accumulate = 1, compile = true } = options;
    this.#options = options;
    this.#groupSize = accumulate;
    this.#rows = rows;
    this.batches = rows.batches;
    this.#weight = accumulate > 1 ? new LossWeight(device) : undefined;
    if (!compile) return;
    this.update = device.compile((own: Tensor) => this.#addAndUpdate(own), { name: "train" });
    listenToNumbers(this.update, "loss", (losses) => this.#losses.noteUpdates(losses));
    if (accumulate === 1) return;
    this.accumulate = device.compile((own: Tensor) => this.#addGradients(own), { name: "accumulate" });
    listenToNumbers(this.accumulate, "loss", (losses) => this.#losses.noteAdded(losses));
  }

  /** Steps in an epoch; the last one may have fewer batches. */
  get perEpoch(): number {
    return Math.ceil(this.batches / this.#groupSize);
  }

  /** The batches of the step that begins with one of them. */
  groupAt(first: number): BatchGroup {
    const end = Math.min(first + this.#groupSize, this.batches);
    let samples = 0;
    for (let batch = first; batch < end; batch++) samples += this.#rows.countOf(batch);
    return { first, end, samples };
  }

  /** The batches of a step by its place in the epoch. */
  groupOf(step: number): BatchGroup {
    return this.groupAt(step * this.#groupSize);
  }

  /** How many plans the compiled functions have made. */
  get plans(): number {
    return (this.update?.plans ?? 0) + (this.accumulate?.plans ?? 0);
  }

  /** The losses of steps that have become known since the last call: of each, the mean over all rows of its batches. */
  takeLosses(): readonly number[] {
    return this.#losses.take();
  }

  /** Sends the batches of one step; `between` is called after each but the last. */
  async send(
    epoch: number,
    { first, end, samples }: BatchGroup,
    between: () => Promise<void>,
  ): Promise<void> {
    const shares: number[] = [];
    const eager: number[] = [];
    for (let batch = first; batch < end; batch++) {
      const share = this.#rows.countOf(batch) / samples;
      shares.push(share);
      this.#weight?.set(share);
      const rows = this.#rows.rowsOf(epoch, batch);
      const isLast = batch === end - 1;
      const compiled = isLast ? this.update : this.accumulate;
      if (compiled) compiled(rows);
      else eager.push(this.#runEagerly(rows, isLast));
      if (!isLast) await between();
    }
    this.#losses.sent(shares);
    if (this.update) return;
    this.#losses.noteAdded(eager.slice(0, -1));
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

  /**
   * A bad index or label makes a compiled step's loss NaN. The batches of such a step are computed again, eagerly, which names
   * the index. A NaN from elsewhere is the model's affair.
   */
  rejectBadLabels(epoch: number, { first, end }: BatchGroup): void {
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

  /** Rejects indices that a compiled step was given and could only pass over. */
  rejectBadIndices(): void {
    for (const [name, step] of [
      ["accumulate", this.accumulate],
      ["train", this.update],
    ] as const) {
      const first = step?.badIndices.first;
      if (first) throw badIndexError(name, first);
    }
  }

  close(): void {
    this.accumulate?.close();
    this.update?.close();
    this.#weight?.close();
    this.#rows.close();
  }

  #runEagerly(rows: Tensor, isLast: boolean): number {
    const run = (): Tensor => (isLast ? this.#addAndUpdate(rows) : this.#addGradients(rows)).loss;
    return this.#options.device.step(() => run().item());
  }

  #addGradients(rows: Tensor): { readonly loss: Tensor } {
    const loss = this.#options.loss(...this.#rows.gather(rows));
    loss.backward(this.#weight?.like(loss));
    return { loss };
  }

  #addAndUpdate(rows: Tensor): { readonly loss: Tensor } {
    const { model, optimizer, clipNorm } = this.#options;
    const { loss } = this.#addGradients(rows);
    // With a norm that is not finite a compiled step changes nothing and is counted as skipped; an eager one is rejected.
    if (clipNorm !== undefined) clipGradNorm(model.parameters(), clipNorm);
    optimizer.step();
    optimizer.zeroGrad();
    return { loss };
  }
}

/**
 * The share of a batch in its step, where backward starts from it in place of 1: the gradients of all batches add up to
 * those of one large batch. It lies in persistent memory, so that one plan serves every share.
 */
class LossWeight {
  readonly #device: Device;
  readonly #region: Region;
  readonly #cell: Tensor; // f32 []
  #value = 0;

  constructor(device: Device) {
    this.#device = device;
    const placement = { name: "share of the batch", size: dtypes.f32.bytes };
    this.#region = device.runtime.persistent.place("scalars", "accumulation", [placement]);
    this.#cell = device.fromStorage(this.#region.storages[0], [], "f32", placement.name);
  }

  set(value: number): void {
    if (value === this.#value) return;
    this.#device.write(this.#cell, [value]);
    this.#value = value;
  }

  /** In the form that backward of a loss takes. */
  like({ dtype, shape }: Tensor): Tensor {
    const weight = shape.length === 0 ? this.#cell : this.#cell.reshape(shape);
    return dtype === "f32" ? weight : weight.to(dtype);
  }

  close(): void {
    const { persistent } = this.#device.runtime;
    if (this.#device.isOpen && persistent.regions.includes(this.#region)) persistent.release(this.#region);
  }
}
