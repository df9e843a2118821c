/**
 * Trains a module: epochs over data that lies on the device, one compiled step for each shape of batch, and figures for each
 * epoch. It knows nothing of what is trained; where it stands is a plain record, so that another process can go on from there.
 */

import { setImmediate } from "node:timers/promises";
import { noGrad } from "../autograd/index.js";
import type { Batch, ColumnSource, TensorDataset } from "../data/index.js";
import { HoldfastError } from "../errors/index.js";
import type { Seed } from "../kernels/index.js";
import type { Module } from "../nn/index.js";
import { clipGradNorm, type Optimizer, type Schedule } from "../optim/index.js";
import { type CompiledStep, currentSeed, type Device, type Tensor } from "../tensor/index.js";
import { EarlyStopping, type EarlyStoppingOptions, type EarlyStoppingState } from "./early-stopping.js";
import { EpochRows } from "./epoch-rows.js";

/** Where a training stands: what comes next, and what of the present epoch is done. */
export interface TrainerPosition {
  /** Counted from 0. */
  readonly epoch: number;
  readonly batch: number;
  /** Steps since the start. */
  readonly step: number;
  /** The losses of the present epoch's batches so far. */
  readonly losses: readonly number[];
  readonly earlyStopping?: EarlyStoppingState;
}

/** What is told of an epoch that has ended. */
export interface EpochRecord {
  readonly epoch: number;
  readonly steps: number;
  /** The mean over all rows, of the losses as they were when each batch had its turn. */
  readonly loss: number;
  readonly lr: number;
  /** Without the calls that made a plan. */
  readonly samplesPerSecond: number;
  readonly seconds: number;
  /** Steps that the device has skipped so far because a gradient was not finite. */
  readonly skipped: number;
  /** What the evaluation gave. */
  readonly figures: Readonly<Record<string, number>>;
}

export interface TrainerOptions<Sources extends readonly ColumnSource[]> {
  readonly device: Device;
  readonly model: Module;
  readonly optimizer: Optimizer;
  readonly data: TensorDataset<Sources>;
  /** The loss of a batch: one number. */
  readonly loss: (...batch: Batch<Sources>) => Tensor;
  readonly batchSize: number;
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
  /** Ends the training after the present step. */
  readonly signal?: AbortSignal;
}

/** A step as it was sent. */
export interface SentStep {
  /** Counted from 1. */
  readonly step: number;
  readonly epoch: number;
  /** Rows of its batch. */
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
  /** The compiled step has made a plan, or runs one in another way than before. */
  planned(compiled: CompiledStep<[Tensor], { readonly loss: Tensor }>): void;
}

export interface TrainingSummary {
  /** "stopped": the signal has ended it; "early": nothing had become better for long enough. */
  readonly state: "finished" | "stopped" | "early";
  readonly steps: number;
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
  readonly #rows: EpochRows<Sources>;
  readonly #compiled: CompiledStep<[Tensor], { readonly loss: Tensor }> | undefined;
  readonly #stopping: EarlyStopping | undefined;
  #epoch: number;
  #batch: number;
  #step: number;
  /** Losses of the present epoch that were known at the start of this run. */
  #before: readonly number[];
  /** Losses that an eager run has read in the present epoch. */
  #read: number[] = [];
  /** How many losses the compiled step's history had when the epoch, or this run of it, began. */
  #historyAt = 0;
  /** Sizes of batches that the compiled step has a plan for. */
  readonly #planned = new Set<number>();
  /** How many losses of the compiled step's history the watcher was told. */
  #told = 0;
  /** When signals and timers last had their turn. */
  #turnMs = performance.now();
  /** When losses were last sent for. */
  #askedMs = Number.NEGATIVE_INFINITY;

  constructor(options: TrainerOptions<Sources>) {
    const { device, data, batchSize, epochs, seed = currentSeed(), shuffle = true, compile = true } = options;
    requireCount("batchSize", batchSize, "rows");
    requireCount("epochs", epochs, "epochs");
    this.options = options;
    this.#stopping = options.earlyStopping && new EarlyStopping(options.earlyStopping);
    const { from } = options;
    [this.#epoch, this.#batch, this.#step] = [from?.epoch ?? 0, from?.batch ?? 0, from?.step ?? 0];
    this.#before = from?.losses ?? [];
    if (from?.earlyStopping) this.#stopping?.loadStateDict(from.earlyStopping);
    this.#rows = new EpochRows(device, data, batchSize, shuffle ? seed : undefined);
    this.batches = this.#rows.batches;
    this.#compiled = compile
      ? device.compile((rows: Tensor) => this.#train(rows), { name: "train" })
      : undefined;
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
    this.#compiled?.flush();
    const losses = this.#losses();
    const stopping = this.#stopping && { earlyStopping: this.#stopping.stateDict() };
    return { epoch: this.#epoch, batch: this.#batch, step: this.#step, losses, ...stopping };
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
    return this.#history.at(-1) ?? this.#read.at(-1) ?? this.#before.at(-1);
  }

  /**
   * The compiled step, where there is one: for `explain()` and `memory()`.
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
  get compiled(): CompiledStep<[Tensor], { readonly loss: Tensor }> | undefined {
    return this.#compiled;
  }

  /**
   * Trains until the last epoch has ended, or the signal or early stopping ends it before.
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
    const summary = (state: TrainingSummary["state"]): TrainingSummary => ({
      ...{ state, steps: this.#step, epochs: records },
    });
    while (this.#epoch < epochs) {
      model.train();
      const record = await this.#runEpoch();
      if (!record) return summary("stopped");
      records.push(record);
      await onEpoch?.(record, this);
      const { epoch, loss, figures } = record;
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
    this.#compiled?.close();
    this.#rows.close();
  }

  /** The rest of the present epoch; nothing where the signal ended it. */
  async #runEpoch(): Promise<EpochRecord | undefined> {
    const { optimizer, schedule, signal, onStep, device, evaluate, model, watcher } = this.options;
    const epoch = this.#epoch;
    const startedMs = performance.now();
    const pace = { rows: 0, preparingMs: 0 };
    while (this.#batch < this.batches) {
      if (signal?.aborted) {
        this.#compiled?.flush();
        this.#tellLosses();
        return undefined;
      }
      const [samples, { lr }] = [this.#rows.countOf(this.#batch), optimizer];
      // A batch of another size makes a plan. What was sent before is no part of that time.
      if (this.#compiled && !this.#planned.has(samples)) device.runtime.synchronize();
      const [sentMs, plans] = [performance.now(), this.#compiled?.plans];
      this.#send(this.#rows.rowsOf(epoch, this.#batch));
      watcher?.sent({ step: this.#step + 1, epoch, samples, lr, hostMs: performance.now() - sentMs });
      if (this.#compiled?.plans === plans) pace.rows += samples;
      else {
        // A call that makes a plan takes longer than a step does.
        device.runtime.synchronize();
        this.#planned.add(samples);
        if (this.#compiled) watcher?.planned(this.#compiled);
        pace.preparingMs += performance.now() - sentMs;
      }
      this.#tellLosses();
      this.#batch++;
      this.#step++;
      if (schedule?.after === "step") schedule.of.step();
      await onStep?.(this);
      // Kept over epochs: many are shorter than a turn.
      if (performance.now() - this.#turnMs > longestTurn) {
        await setImmediate();
        this.#turnMs = performance.now();
      }
    }
    this.#compiled?.flush();
    device.runtime.synchronize();
    const endedMs = performance.now();
    this.#tellLosses();
    model.eval();
    this.#refuseBadLabels();
    const { lr } = optimizer;
    const loss = this.#meanLoss();
    if (schedule?.after === "epoch") schedule.of.step();
    [this.#epoch, this.#batch, this.#before, this.#read] = [epoch + 1, 0, [], []];
    this.#historyAt = this.#history.length;
    if (!this.#compiled) this.#told = 0;
    const figures = evaluate?.(epoch) ?? {};
    return {
      ...{ epoch, steps: this.batches, loss, lr, figures, skipped: this.#compiled?.skipped ?? 0 },
      samplesPerSecond: (1000 * pace.rows) / (endedMs - startedMs - pace.preparingMs),
      seconds: (endedMs - startedMs) / 1000,
    };
  }

  #send(rows: Tensor): void {
    if (!this.#compiled) {
      this.#read.push(this.options.device.step(() => this.#train(rows).loss.item()));
      return;
    }
    this.#compiled(rows);
    const nowMs = performance.now();
    if (this.latestLoss !== undefined && nowMs - this.#askedMs < lossEveryMs) return;
    this.#askedMs = nowMs;
    this.#compiled.refresh();
  }

  #train(rows: Tensor): { readonly loss: Tensor } {
    const { model, optimizer, loss: lossOf, clipNorm } = this.options;
    const loss = lossOf(...this.#rows.gather(rows));
    loss.backward();
    // With a norm that is not finite a compiled step changes nothing and is counted as skipped; an eager one is refused.
    if (clipNorm !== undefined) clipGradNorm(model.parameters(), clipNorm);
    optimizer.step();
    optimizer.zeroGrad();
    return { loss };
  }

  /**
   * A label that is no class makes a compiled step's loss NaN, and nothing there can say so. The first batch with such a loss is
   * asked for it again, eagerly, which names the label. A NaN from elsewhere is the model's affair.
   */
  #refuseBadLabels(): void {
    if (!this.#compiled) return;
    const batch = this.#losses().findIndex((loss) => Number.isNaN(loss));
    if (batch < 0) return;
    const { device, loss: lossOf } = this.options;
    const rows = this.#rows.rowsOf(this.#epoch, batch);
    try {
      device.step(() => noGrad(() => void lossOf(...this.#rows.gather(rows))));
    } catch (error) {
      if (!(error instanceof HoldfastError && error.code === "BAD_INDEX")) return;
      const { message: cause, numbers } = error;
      throw new HoldfastError(error.code, `Batch ${batch} of epoch ${this.#epoch}: ${cause}`, {
        ...{ numbers: { ...numbers, batch, epoch: this.#epoch }, cause: error },
      });
    }
  }

  /** Of the present epoch's batches, as far as they are known. */
  #losses(): readonly number[] {
    return [...this.#before, ...this.#read, ...this.#history.slice(this.#historyAt)];
  }

  /** Tells the watcher of losses that have come to the host. */
  #tellLosses(): void {
    const { watcher } = this.options;
    if (!watcher) return;
    const known = this.#compiled ? this.#history : this.#read;
    for (; this.#told < known.length; this.#told++) watcher.known(known[this.#told] ?? Number.NaN);
  }

  /** All losses that the compiled step has brought to the host. */
  get #history(): readonly number[] {
    const { loss = [] } = this.#compiled?.history ?? {};
    return loss;
  }

  #meanLoss(): number {
    let sum = 0;
    let rows = 0;
    for (const [batch, loss] of this.#losses().entries()) {
      const count = this.#rows.countOf(batch);
      sum += loss * count;
      rows += count;
    }
    return sum / rows;
  }
}

function requireCount(name: string, value: number, what: string): void {
  if (Number.isSafeInteger(value) && value >= 1) return;
  throw new HoldfastError("BAD_ARGUMENT", `${name} is ${value}; give a whole number of ${what}, 1 or more.`, {
    numbers: { value },
  });
}
