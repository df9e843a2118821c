/**
 * Trains a module: epochs over data on the device, compiled steps, and figures for each epoch. It is independent of the model and
 * the data. Its position is a plain record, so that another process can resume from there.
 */

import type { ColumnSource, TensorDataset } from "../data/index.js";
import { HoldfastError } from "../errors/index.js";
import type { Seed } from "../kernels/index.js";

import type { Schedule } from "../optim/index.js";
import { currentSeed } from "../tensor/index.js";
import { divergenceOf } from "./divergence.js";
import { EarlyStopping, type EarlyStoppingOptions } from "./early-stopping.js";
import { EpochRows } from "./epoch-rows.js";
import { EventLoopTurns } from "./event-loop-turns.js";
import { requirePosition, type TrainerPosition } from "./position.js";
import { isStopped } from "./stopping/is-stopped.js";
import { Throughput } from "./throughput.js";
import { TrainingProgress } from "./training-progress.js";
import { type StepOptions, type TrainingStep, TrainingSteps } from "./training-steps.js";
import type { EpochRecord, TrainingSummary } from "./training-summary.js";
import type { TrainingWatcher } from "./training-watcher.js";

/** Options of a `Trainer`. */
export interface TrainerOptions<Sources extends readonly ColumnSource[]> extends StepOptions<Sources> {
  readonly data: TensorDataset<Sources>;
  readonly batchSize: number;
  readonly epochs: number;
  /** Ends the training after so many steps, if the epochs have more. The epoch of the last step then has fewer. */
  readonly maxSteps?: number;
  /**
   * The weight of each row in the mean over several batches: in the gradients of a step that accumulates batches, and in the loss of an
   * epoch. Pass it if `loss` is a mean over other things than rows: for texts, the tokens of each row that count. Default: 1 for all.
   */
  readonly rowWeights?: ArrayLike<number>;
  /** The seed of the row order; default: the global seed. */
  readonly seed?: Seed;
  /** Shuffle the rows in every epoch; default: true. */
  readonly shuffle?: boolean;

  /** Advances after each step, or after each epoch. */
  readonly schedule?: { readonly of: Schedule; readonly after: "step" | "epoch" };
  /** Called after each epoch, with the model in evaluation mode. Its figures go into the epoch's record. */
  readonly evaluate?: (epoch: number) => Readonly<Record<string, number>>;
  readonly earlyStopping?: EarlyStoppingOptions;

  /** The position to resume from; default: the start. */
  readonly from?: TrainerPosition;
  /** Called after each step is sent to the device. Waiting for the device here slows down training. */
  readonly onStep?: (trainer: Trainer<Sources>) => void | Promise<void>;
  readonly onEpoch?: (record: EpochRecord, trainer: Trainer<Sources>) => void | Promise<void>;
  /** Receives every step, for recorders. */
  readonly watcher?: TrainingWatcher;
  /** Ends the training after the current step. `stopOnSignals` makes a signal for Ctrl-C, SIGTERM and SIGHUP. */
  readonly signal?: AbortSignal;
}

/** The interval between two requests for the latest loss, in milliseconds. */
const lossIntervalMs = 100;

/**
 * Trains a module on a data set.
 *
 * @example
 * ```ts
 * import { device, manualSeed, nn, optim, TensorDataset, Trainer } from "holdfast";
 * const cpu = await device("cpu");
 * manualSeed(1);
 * const model = new nn.Linear(1, 1).to(cpu);
 * const data = new TensorDataset([[0], [1], [2], [3]], [[1], [3], [5], [7]]);
 * const trainer = new Trainer({
 *   ...{ device: cpu, model, data, batchSize: 2, epochs: 100 },
 *   optimizer: new optim.SGD(model.parameters(), { lr: 0.1 }),
 *   loss: (x, y) => model.forward(x).sub(y).square().mean(),
 * });
 * const { state, epochs } = await trainer.run();
 * console.log(state, epochs.length, (epochs.at(-1)?.loss ?? 1) < 1e-3); // → finished 100 true
 * trainer.close();
 * cpu.close();
 * ```
 */
export class Trainer<Sources extends readonly ColumnSource[] = readonly ColumnSource[]> {
  readonly options: TrainerOptions<Sources>;
  /** Batches per epoch. */
  readonly batches: number;
  /** Steps per epoch: one per batch, or fewer with gradient accumulation. */
  readonly stepsPerEpoch: number;
  readonly #steps: TrainingSteps<Sources>;
  readonly #stopping: EarlyStopping | undefined;
  readonly #progress: TrainingProgress;
  /** The sizes of batch groups that have plans. */
  readonly #plannedSizes = new Set<string>();
  readonly #throughput = new Throughput();
  readonly #turns = new EventLoopTurns();
  /** The last request for losses. */
  #requestedMs = Number.NEGATIVE_INFINITY;
  /** Time of the current epoch in `pause`. */
  #pausedMs = 0;

  constructor(options: TrainerOptions<Sources>) {
    const { device, data, batchSize, epochs, seed = currentSeed(), shuffle = true } = options;
    requireCount("batchSize", batchSize, "rows");
    requireCount("accumulate", options.accumulate ?? 1, "batches");
    requireCount("epochs", epochs, "epochs");
    if (options.maxSteps !== undefined) requireCount("maxSteps", options.maxSteps, "steps");
    requireWeights(options.rowWeights, data.rows);
    this.options = options;
    this.#stopping = options.earlyStopping && new EarlyStopping(options.earlyStopping);
    const { from } = options;
    const layout = { batches: Math.ceil(data.rows / batchSize), accumulate: options.accumulate ?? 1 };
    if (from) requirePosition(from, layout);
    this.#progress = new TrainingProgress(from);
    if (from?.earlyStopping) this.#stopping?.loadStateDict(from.earlyStopping);
    if (options.parallel?.shares(options.model) === false) options.parallel.broadcast(options.model);
    const rows = new EpochRows(device, data, batchSize, shuffle ? seed : undefined, options.rowWeights);
    this.#steps = new TrainingSteps(options, rows);
    this.batches = this.#steps.batches;
    this.stepsPerEpoch = this.#steps.perEpoch;
  }

  /**
   * The position to resume from, for `from` of another trainer. Waits for the device, because it includes the losses so far.
   *
   * @example
   * ```ts
   * import { device, nn, optim, TensorDataset, Trainer } from "holdfast";
   * const cpu = await device("cpu");
   * const model = new nn.Linear(1, 1).to(cpu);
   * const trainer = new Trainer({
   *   ...{ device: cpu, model, data: new TensorDataset([[0], [1], [2]]), batchSize: 2, epochs: 3 },
   *   optimizer: new optim.SGD(model.parameters(), { lr: 0.1 }),
   *   loss: (x) => model.forward(x).square().mean(),
   * });
   * await trainer.run();
   * const { epoch, batch, step } = trainer.position;
   * console.log(epoch, batch, step); // → 3 0 6
   * trainer.close();
   * cpu.close();
   * ```
   */
  get position(): TrainerPosition {
    this.#steps.flush();
    this.#takeLosses();
    const stopping = this.#stopping && { earlyStopping: this.#stopping.stateDict() };
    return { ...this.#progress.position(this.#skipped), ...stopping };
  }

  /**
   * The completed steps, the current epoch and its next batch. Does not wait for the device.
   *
   * @example
   * ```ts
   * import { device, nn, optim, TensorDataset, Trainer } from "holdfast";
   * const cpu = await device("cpu");
   * const model = new nn.Linear(1, 1).to(cpu);
   * const trainer = new Trainer({
   *   ...{ device: cpu, model, data: new TensorDataset([[0], [1], [2]]), batchSize: 2, epochs: 3 },
   *   optimizer: new optim.SGD(model.parameters(), { lr: 0.1 }),
   *   loss: (x) => model.forward(x).square().mean(),
   * });
   * console.log(trainer.progress); // → { epoch: 0, batch: 0, step: 0 }
   * trainer.close();
   * cpu.close();
   * ```
   */
  get progress(): { readonly epoch: number; readonly batch: number; readonly step: number } {
    const { epoch, batch, step } = this.#progress;
    return { epoch, batch, step };
  }

  /**
   * The latest loss that the host has read. It may be some steps old; this does not wait for the device.
   *
   * @example
   * ```ts
   * import { device, nn, optim, TensorDataset, Trainer } from "holdfast";
   * const cpu = await device("cpu");
   * const model = new nn.Linear(1, 1).to(cpu);
   * const trainer = new Trainer({
   *   ...{ device: cpu, model, data: new TensorDataset([[0], [1], [2]]), batchSize: 2, epochs: 3 },
   *   optimizer: new optim.SGD(model.parameters(), { lr: 0.1 }),
   *   loss: (x) => model.forward(x).square().mean(),
   * });
   * console.log(trainer.latestLoss); // → undefined
   * trainer.close();
   * cpu.close();
   * ```
   */
  get latestLoss(): number | undefined {
    return this.#progress.latestLoss;
  }

  /**
   * Samples per second of the current epoch so far, measured as in the epochs' records. In the first second of an epoch it is the
   * last epoch's figure; undefined before the first measurement.
   *
   * @example
   * ```ts
   * import { device, nn, optim, TensorDataset, Trainer } from "holdfast";
   * const cpu = await device("cpu");
   * const model = new nn.Linear(1, 1).to(cpu);
   * const trainer = new Trainer({
   *   ...{ device: cpu, model, data: new TensorDataset([[0], [1], [2]]), batchSize: 2, epochs: 3 },
   *   optimizer: new optim.SGD(model.parameters(), { lr: 0.1 }),
   *   loss: (x) => model.forward(x).square().mean(),
   * });
   * const { epochs } = await trainer.run();
   * console.log(trainer.samplesPerSecond === epochs.at(-1)?.samplesPerSecond); // → true
   * trainer.close();
   * cpu.close();
   * ```
   */
  get samplesPerSecond(): number | undefined {
    return this.#throughput.rate(performance.now());
  }

  /**
   * The compiled update step, for `explain()` and `memory()`; undefined if steps run eagerly.
   *
   * @example
   * ```ts
   * import { device, nn, optim, TensorDataset, Trainer } from "holdfast";
   * const cpu = await device("cpu");
   * const model = new nn.Linear(1, 1).to(cpu);
   * const trainer = new Trainer({
   *   ...{ device: cpu, model, data: new TensorDataset([[0], [1], [2]]), batchSize: 2, epochs: 3 },
   *   optimizer: new optim.SGD(model.parameters(), { lr: 0.1 }),
   *   loss: (x) => model.forward(x).square().mean(),
   * });
   * await trainer.run();
   * console.log(trainer.compiled?.plans); // → 2
   * trainer.close();
   * cpu.close();
   * ```
   */
  get compiled(): TrainingStep | undefined {
    return this.#steps.update;
  }

  /**
   * Trains until the last epoch, the last step, the signal, early stopping or divergence ends it.
   *
   * @example
   * ```ts
   * import { device, nn, optim, TensorDataset, Trainer } from "holdfast";
   * const cpu = await device("cpu");
   * const model = new nn.Linear(1, 1).to(cpu);
   * const trainer = new Trainer({
   *   ...{ device: cpu, model, data: new TensorDataset([[0], [1], [2]]), batchSize: 2, epochs: 3 },
   *   optimizer: new optim.SGD(model.parameters(), { lr: 0.1 }),
   *   loss: (x) => model.forward(x).square().mean(),
   * });
   * const { state, steps } = await trainer.run();
   * console.log(state, steps); // → finished 6
   * trainer.close();
   * cpu.close();
   * ```
   */
  async run(): Promise<TrainingSummary> {
    const { onEpoch, model } = this.options;
    const records: EpochRecord[] = [];
    const summary = (state: TrainingSummary["state"], reason?: string): TrainingSummary => ({
      ...{ state, steps: this.#progress.step, epochs: records, ...(reason !== undefined && { reason }) },
    });
    while (this.#hasSteps) {
      model.train();
      const record = await this.#runEpoch();
      if (!record) return summary("stopped");
      records.push(record);
      await onEpoch?.(record, this);
      const { epoch, loss, figures, diverged } = record;
      if (diverged !== undefined) return summary("diverged", `epoch ${epoch}: ${diverged}`);
      if (this.#stopping?.note(epoch, { loss, ...figures })) return summary("early");
      if (this.#hasSteps && this.#isStopped) return summary("stopped");
    }
    return summary("finished");
  }

  /**
   * Runs other work on the device between two steps, such as an evaluation: call it in `onStep`. The device has finished all steps, and
   * the model is in evaluation mode. The time is not part of `samplesPerSecond`.
   *
   * @example
   * ```ts
   * import { device, nn, optim, TensorDataset, Trainer } from "holdfast";
   * const cpu = await device("cpu");
   * const model = new nn.Linear(1, 1).to(cpu);
   * const trainer = new Trainer({
   *   ...{ device: cpu, model, data: new TensorDataset([[0], [1], [2]]), batchSize: 2, epochs: 1 },
   *   optimizer: new optim.SGD(model.parameters(), { lr: 0.1 }),
   *   loss: (x) => model.forward(x).square().mean(),
   *   onStep: (trainer) => trainer.pause(() => console.log(trainer.progress.step, model.isTraining)),
   * });
   * await trainer.run();
   * // → 1 false
   * // → 2 false
   * trainer.close();
   * cpu.close();
   * ```
   */
  async pause<Result>(body: () => Result | Promise<Result>): Promise<Result> {
    const { device, model } = this.options;
    this.#steps.flush();
    device.runtime.synchronize();
    this.#takeLosses();
    const startedMs = performance.now();
    const { isTraining } = model;
    model.eval();
    try {
      return await body();
    } finally {
      model.train(isTraining);
      const elapsedMs = performance.now() - startedMs;
      this.#throughput.exclude(elapsedMs);
      this.#pausedMs += elapsedMs;
    }
  }

  /**
   * Releases its device memory. The model, the optimizer and the data set stay.
   *
   * @example
   * ```ts
   * import { device, nn, optim, TensorDataset, Trainer } from "holdfast";
   * const cpu = await device("cpu");
   * const model = new nn.Linear(1, 1).to(cpu);
   * const trainer = new Trainer({
   *   ...{ device: cpu, model, data: new TensorDataset([[0], [1], [2]]), batchSize: 2, epochs: 3 },
   *   optimizer: new optim.SGD(model.parameters(), { lr: 0.1 }),
   *   loss: (x) => model.forward(x).square().mean(),
   * });
   * const before = cpu.diagnostics().budget.usedByLabel["data set"];
   * trainer.close();
   * console.log(cpu.diagnostics().budget.usedByLabel["data set"] < before); // → true
   * cpu.close();
   * ```
   */
  close(): void {
    this.#steps.close();
  }

  /** Runs the rest of the current epoch. Returns undefined if the signal ended it. */
  async #runEpoch(): Promise<EpochRecord | undefined> {
    const { optimizer, schedule, onStep, device, evaluate, model, watcher } = this.options;
    const epoch = this.#progress.epoch;
    const startedMs = performance.now();
    this.#throughput.beginEpoch(startedMs);
    this.#pausedMs = 0;
    while (this.#progress.batch < this.batches && this.#hasSteps) {
      if (this.#isStopped) {
        this.#steps.flush();
        this.#takeLosses();
        return undefined;
      }
      const group = this.#steps.groupAt(this.#progress.batch);
      const { lr } = optimizer;
      const { samples } = group;
      // A new batch size needs a new plan. Earlier work must not count as compilation time.
      const sizes = `${group.end - group.first} of ${samples}`;
      if (this.compiled && !this.#plannedSizes.has(sizes)) device.runtime.synchronize();
      const [sentMs, plans] = [performance.now(), this.#steps.plans];
      await this.#steps.send(epoch, group, () => this.#turns.takeIfDue());
      this.#refresh();
      watcher?.sent({
        step: this.#progress.step + 1,
        epoch,
        samples,
        lr,
        hostMs: performance.now() - sentMs,
      });
      if (this.#steps.plans === plans) this.#throughput.add(samples);
      else {
        // A call with a compilation takes longer than a step.
        device.runtime.synchronize();
        this.#plannedSizes.add(sizes);
        this.#reportPlans();
        this.#throughput.exclude(performance.now() - sentMs);
      }
      this.#takeLosses();
      this.#progress.completeStep(group.end);
      if (schedule?.after === "step") schedule.of.step();
      await onStep?.(this);
      await this.#turns.takeIfDue();
    }
    this.#steps.flush();
    device.runtime.synchronize();
    const endedMs = performance.now();
    const samplesPerSecond = this.#throughput.endEpoch(endedMs);
    this.#takeLosses();
    model.eval();
    this.#steps.rejectBadIndices(epoch, this.#progress.losses);
    const { lr } = optimizer;
    const [loss, skipped] = [this.#steps.meanLoss(epoch, this.#progress.losses), this.#skipped];
    const { losses, skippedInEpoch } = this.#progress.position(skipped);
    if (schedule?.after === "epoch") schedule.of.step();
    this.#progress.endEpoch(skipped);
    const figures = evaluate?.(epoch) ?? {};
    const diverged = divergenceOf({ losses, skipped: skippedInEpoch, figures });
    return {
      ...{ epoch, steps: losses.length, loss, lr, figures, skipped },
      ...(diverged !== undefined && { diverged }),
      samplesPerSecond,
      seconds: (endedMs - startedMs - this.#pausedMs) / 1000,
    };
  }

  get #isStopped(): boolean {
    const { signal, parallel } = this.options;
    return isStopped(signal, parallel);
  }

  get #hasSteps(): boolean {
    const { epochs, maxSteps = Number.POSITIVE_INFINITY } = this.options;
    return this.#progress.epoch < epochs && this.#progress.step < maxSteps;
  }

  /** Steps skipped since the start. Waits for the device. */
  get #skipped(): number {
    return this.#progress.skippedBefore + (this.compiled?.skipped ?? 0);
  }

  /** Requests the latest losses from the device if it is due. */
  #refresh(): void {
    if (!this.compiled) return;
    const nowMs = performance.now();
    if (this.latestLoss !== undefined && nowMs - this.#requestedMs < lossIntervalMs) return;
    this.#requestedMs = nowMs;
    this.#steps.refresh();
  }

  /** Moves new losses to the epoch and to the watcher. */
  #takeLosses(): void {
    const { watcher } = this.options;
    for (const loss of this.#steps.takeLosses()) {
      this.#progress.addLoss(loss);
      watcher?.lossRead(loss);
    }
  }

  #reportPlans(): void {
    const { watcher } = this.options;
    for (const compiled of [this.#steps.accumulate, this.#steps.update])
      if (compiled) watcher?.planned(compiled);
  }
}

function requireCount(name: string, value: number, unit: string): void {
  if (Number.isSafeInteger(value) && value >= 1) return;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `${name} is ${value}. It must be a whole number of ${unit}, 1 or more.`,
    {
      numbers: { value },
    },
  );
}

function requireWeights(weights: ArrayLike<number> | undefined, rows: number): void {
  if (!weights) return;
  if (weights.length !== rows) {
    throw new HoldfastError(
      "BAD_SHAPE",
      `rowWeights has ${weights.length} numbers for ${rows} rows. Pass one for each row.`,
      { numbers: { weights: weights.length, rows } },
    );
  }
  const row = Array.prototype.findIndex.call(weights, (weight: number) => !(weight > 0 && weight < Infinity));
  if (row < 0) return;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `rowWeights is ${weights[row]} for row ${row}. It must be a number above 0; leave out rows that do not count.`,
    { numbers: { row } },
  );
}
