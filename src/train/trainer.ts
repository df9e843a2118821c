/**
 * Trains a module: epochs over data that lies on the device, compiled steps, and figures for each epoch. It knows nothing of
 * what is trained. Its position is a plain record, so that another process can resume from there.
 */

import { setImmediate } from "node:timers/promises";
import type { Batch, ColumnSource, TensorDataset } from "../data/index.js";
import { HoldfastError } from "../errors/index.js";
import type { Seed } from "../kernels/index.js";
import type { Module } from "../nn/index.js";
import type { Optimizer, Schedule } from "../optim/index.js";
import { currentSeed, type Device, type Tensor } from "../tensor/index.js";
import { divergenceOf } from "./divergence.js";
import { EarlyStopping, type EarlyStoppingOptions } from "./early-stopping.js";
import { EpochRows } from "./epoch-rows.js";
import { requirePosition, type TrainerPosition } from "./position.js";
import { Throughput } from "./throughput.js";
import { type TrainingStep, TrainingSteps } from "./training-steps.js";

/** What is told of an epoch that has ended. */
export interface EpochRecord {
  readonly epoch: number;
  readonly steps: number;
  /** The mean over all rows, of the losses as they were when each batch had its turn. */
  readonly loss: number;
  readonly lr: number;
  /** While it trained, without the calls that made a plan; undefined where every step made one. */
  readonly samplesPerSecond: number | undefined;
  readonly seconds: number;
  /** Steps that the device has skipped since the start because a gradient was not finite. */
  readonly skipped: number;
  /** What the evaluation gave. */
  readonly figures: Readonly<Record<string, number>>;
  /** Why the training has diverged; undefined where it has not. */
  readonly diverged?: string | undefined;
}

/** Options of a `Trainer`. */
export interface TrainerOptions<Sources extends readonly ColumnSource[]> {
  readonly device: Device;
  readonly model: Module;
  readonly optimizer: Optimizer;
  readonly data: TensorDataset<Sources>;
  /** The loss of a batch: one number. */
  readonly loss: (...batch: Batch<Sources>) => Tensor;
  readonly batchSize: number;
  /**
   * Batches whose gradients are added up before the optimizer moves; default: 1. They count as one batch of all their rows:
   * clipping, the optimizer, the schedule and `onStep` come once for all of them. The last step of an epoch may have fewer.
   */
  readonly accumulate?: number;
  readonly epochs: number;
  /** What the order of the rows follows from; the seed of everything unless given. */
  readonly seed?: Seed;
  /** A new order in every epoch; so unless this is false. */
  readonly shuffle?: boolean;
  /** The largest norm of all gradients together; they are left as they are unless given. */
  readonly clipNorm?: number;
  /** Goes on after each step, or after each epoch. */
  readonly schedule?: { readonly of: Schedule; readonly after: "step" | "epoch" };
  /** Called when an epoch has ended, the model set to evaluation; what it gives stands in the epoch's record. */
  readonly evaluate?: (epoch: number) => Readonly<Record<string, number>>;
  readonly earlyStopping?: EarlyStoppingOptions;
  /** False runs the step eagerly. */
  readonly compile?: boolean;
  /** Where to begin; at the start unless given. */
  readonly from?: TrainerPosition;
  /** After each step was sent; nothing here may wait for the device unless it means to. */
  readonly onStep?: (trainer: Trainer<Sources>) => void | Promise<void>;
  readonly onEpoch?: (record: EpochRecord, trainer: Trainer<Sources>) => void | Promise<void>;
  /** Is told of every step, for those who keep a record. */
  readonly watcher?: TrainingWatcher;
  /** Ends the training after the present step. `stopOnSignals` makes one of Ctrl-C, SIGTERM and SIGHUP. */
  readonly signal?: AbortSignal;
}

/** A step as it was sent. */
export interface SentStep {
  /** Counted from 1. */
  readonly step: number;
  readonly epoch: number;
  /** Rows of its batches. */
  readonly samples: number;
  readonly lr: number;
  /** How long the host was busy with it, in milliseconds. */
  readonly hostMs: number;
}

/** Who is told what a training does, as it does it; it is on the path of every step. */
export interface TrainingWatcher {
  sent(step: SentStep): void;
  /** A loss has come to the host: that of the earliest step that was sent and had none yet. */
  known(loss: number): void;
  /** A compiled step has made a plan, or runs one in another way than before. */
  planned(compiled: TrainingStep): void;
}

/** The result of `Trainer.run()`. */
export interface TrainingSummary {
  /**
   * "stopped": the signal has ended it; "early": nothing had become better for long enough; "diverged": in the last epoch most steps
   * were skipped, or a loss was not finite, and more training would not help.
   */
  readonly state: "finished" | "stopped" | "early" | "diverged";
  readonly steps: number;
  /** Why it has diverged. */
  readonly reason?: string | undefined;
  /** Of the epochs that ended in this run. */
  readonly epochs: readonly EpochRecord[];
}

/** Signals and timers get their turn at least so often, in milliseconds. */
const longestTurn = 50;
/** The latest loss is sent for so often, in milliseconds: as often as a person can read it. */
const lossEveryMs = 100;

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
  /** Batches in an epoch. */
  readonly batches: number;
  /** Steps in an epoch: as many as batches, or fewer where gradients are accumulated. */
  readonly stepsPerEpoch: number;
  readonly #steps: TrainingSteps<Sources>;
  readonly #stopping: EarlyStopping | undefined;
  #epoch: number;
  #batch: number;
  #step: number;
  /** Of the present epoch's steps, as far as they are known. */
  #losses: number[];
  #latestLoss: number | undefined;
  /** Skipped steps: before this trainer began, and before the present epoch. */
  readonly #skippedBefore: number;
  #skippedBeforeEpoch: number;
  /** Steps, by the sizes of their batches, that plans were made for. */
  readonly #planned = new Set<string>();
  readonly #throughput = new Throughput();
  /** When signals and timers last had their turn. */
  #turnMs = performance.now();
  /** When losses were last sent for. */
  #askedMs = Number.NEGATIVE_INFINITY;

  constructor(options: TrainerOptions<Sources>) {
    const { device, data, batchSize, epochs, seed = currentSeed(), shuffle = true } = options;
    requireCount("batchSize", batchSize, "rows");
    requireCount("accumulate", options.accumulate ?? 1, "batches");
    requireCount("epochs", epochs, "epochs");
    this.options = options;
    this.#stopping = options.earlyStopping && new EarlyStopping(options.earlyStopping);
    const { from } = options;
    const layout = { batches: Math.ceil(data.rows / batchSize), accumulate: options.accumulate ?? 1 };
    if (from) requirePosition(from, layout);
    this.#skippedBefore = from?.skipped ?? 0;
    this.#skippedBeforeEpoch = this.#skippedBefore - (from?.skippedInEpoch ?? 0);
    [this.#epoch, this.#batch, this.#step] = [from?.epoch ?? 0, from?.batch ?? 0, from?.step ?? 0];
    this.#losses = [...(from?.losses ?? [])];
    this.#latestLoss = this.#losses.at(-1);
    if (from?.earlyStopping) this.#stopping?.loadStateDict(from.earlyStopping);
    const rows = new EpochRows(device, data, batchSize, shuffle ? seed : undefined);
    this.#steps = new TrainingSteps(options, rows);
    this.batches = this.#steps.batches;
    this.stepsPerEpoch = this.#steps.perEpoch;
  }

  /**
   * What comes next, for `from` of another trainer. Waits for the device, because the losses so far are a part of it.
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
    const losses = [...this.#losses];
    const stopping = this.#stopping && { earlyStopping: this.#stopping.stateDict() };
    const skipped = this.#skipped;
    const skips = { skipped, skippedInEpoch: skipped - this.#skippedBeforeEpoch };
    return { epoch: this.#epoch, batch: this.#batch, step: this.#step, losses, ...skips, ...stopping };
  }

  /**
   * Steps since the start, and the epoch and its batch that come next. Waits for nothing.
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
    return { epoch: this.#epoch, batch: this.#batch, step: this.#step };
  }

  /**
   * The loss that came to the host last; it may be some steps old, and nothing waits for it.
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
    return this.#latestLoss;
  }

  /**
   * Samples a second of the present epoch so far, measured as the epochs' records are. Until the epoch has lasted a second it is
   * the last epoch's figure; undefined before anything was measured.
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
   * The compiled step that updates, where there is one: for `explain()` and `memory()`.
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
   * Trains until the last epoch has ended, or the signal or early stopping ends it before, or an epoch shows that it has diverged.
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
    const { epochs, signal, onEpoch, model } = this.options;
    const records: EpochRecord[] = [];
    const summary = (state: TrainingSummary["state"], reason?: string): TrainingSummary => ({
      ...{ state, steps: this.#step, epochs: records, ...(reason !== undefined && { reason }) },
    });
    while (this.#epoch < epochs) {
      model.train();
      const record = await this.#runEpoch();
      if (!record) return summary("stopped");
      records.push(record);
      await onEpoch?.(record, this);
      const { epoch, loss, figures, diverged } = record;
      if (diverged !== undefined) return summary("diverged", `epoch ${epoch}: ${diverged}`);
      if (this.#stopping?.note(epoch, { loss, ...figures })) return summary("early");
      if (signal?.aborted && this.#epoch < epochs) return summary("stopped");
    }
    return summary("finished");
  }

  /**
   * Gives its memory on the device back; the model, the optimizer and the data set stay.
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
   * const before = cpu.runtime.budget.usedBy("data set");
   * trainer.close();
   * console.log(cpu.runtime.budget.usedBy("data set") < before); // → true
   * cpu.close();
   * ```
   */
  close(): void {
    this.#steps.close();
  }

  /** The rest of the present epoch; nothing where the signal ended it. */
  async #runEpoch(): Promise<EpochRecord | undefined> {
    const { optimizer, schedule, signal, onStep, device, evaluate, model, watcher } = this.options;
    const epoch = this.#epoch;
    const startedMs = performance.now();
    this.#throughput.beginEpoch(startedMs);
    while (this.#batch < this.batches) {
      if (signal?.aborted) {
        this.#steps.flush();
        this.#takeLosses();
        return undefined;
      }
      const group = this.#steps.groupAt(this.#batch);
      const { lr } = optimizer;
      const { samples } = group;
      // Batches of other sizes make a plan. What was sent before is no part of that time.
      const sizes = `${group.end - group.first} of ${samples}`;
      if (this.compiled && !this.#planned.has(sizes)) device.runtime.synchronize();
      const [sentMs, plans] = [performance.now(), this.#steps.plans];
      await this.#steps.send(epoch, group, () => this.#takeTurn());
      this.#refresh();
      watcher?.sent({ step: this.#step + 1, epoch, samples, lr, hostMs: performance.now() - sentMs });
      if (this.#steps.plans === plans) this.#throughput.add(samples);
      else {
        // A call that makes a plan takes longer than a step does.
        device.runtime.synchronize();
        this.#planned.add(sizes);
        this.#tellPlans();
        this.#throughput.exclude(performance.now() - sentMs);
      }
      this.#takeLosses();
      this.#batch = group.end;
      this.#step++;
      if (schedule?.after === "step") schedule.of.step();
      await onStep?.(this);
      await this.#takeTurn();
    }
    this.#steps.flush();
    device.runtime.synchronize();
    const endedMs = performance.now();
    const samplesPerSecond = this.#throughput.endEpoch(endedMs);
    this.#takeLosses();
    model.eval();
    this.#rejectBadIndices();
    const { lr } = optimizer;
    const [loss, losses, skipped] = [this.#meanLoss(), this.#losses, this.#skipped];
    const skippedInEpoch = skipped - this.#skippedBeforeEpoch;
    if (schedule?.after === "epoch") schedule.of.step();
    [this.#epoch, this.#batch, this.#losses] = [epoch + 1, 0, []];
    this.#skippedBeforeEpoch = skipped;
    const figures = evaluate?.(epoch) ?? {};
    const diverged = divergenceOf({ losses, skipped: skippedInEpoch, figures });
    return {
      ...{ epoch, steps: this.stepsPerEpoch, loss, lr, figures, skipped },
      ...(diverged !== undefined && { diverged }),
      samplesPerSecond,
      seconds: (endedMs - startedMs) / 1000,
    };
  }

  /** Steps skipped since the start. Waits for the device. */
  get #skipped(): number {
    return this.#skippedBefore + (this.compiled?.skipped ?? 0);
  }

  /** Lets signals and timers have their turn. Kept over epochs: many are shorter than a turn. */
  async #takeTurn(): Promise<void> {
    if (performance.now() - this.#turnMs <= longestTurn) return;
    await giveTurn();
    this.#turnMs = performance.now();
  }

  /** Sends for losses, as often as a person can read them. */
  #refresh(): void {
    if (!this.compiled) return;
    const nowMs = performance.now();
    if (this.latestLoss !== undefined && nowMs - this.#askedMs < lossEveryMs) return;
    this.#askedMs = nowMs;
    this.#steps.refresh();
  }

  /** Those of a loss that is NaN are named with their batch. */
  #rejectBadIndices(): void {
    if (!this.compiled) return;
    const step = this.#losses.findIndex((loss) => Number.isNaN(loss));
    if (step >= 0) this.#steps.rejectBadLabels(this.#epoch, this.#steps.groupOf(step));
    this.#steps.rejectBadIndices();
  }

  /** Takes losses that have come to the host, and tells the watcher. */
  #takeLosses(): void {
    const { watcher } = this.options;
    for (const loss of this.#steps.takeLosses()) {
      this.#losses.push(loss);
      this.#latestLoss = loss;
      watcher?.known(loss);
    }
  }

  #tellPlans(): void {
    const { watcher } = this.options;
    for (const compiled of [this.#steps.accumulate, this.#steps.update])
      if (compiled) watcher?.planned(compiled);
  }

  #meanLoss(): number {
    let sum = 0;
    let rows = 0;
    for (const [step, loss] of this.#losses.entries()) {
      const { samples } = this.#steps.groupOf(step);
      sum += loss * samples;
      rows += samples;
    }
    return sum / rows;
  }
}

/** Lets signals and timers run. The first immediate may come before the loop looks at them: the second comes behind. */
async function giveTurn(): Promise<void> {
  await setImmediate();
  await setImmediate();
}

function requireCount(name: string, value: number, what: string): void {
  if (Number.isSafeInteger(value) && value >= 1) return;
  throw new HoldfastError("BAD_ARGUMENT", `${name} is ${value}; give a whole number of ${what}, 1 or more.`, {
    numbers: { value },
  });
}
