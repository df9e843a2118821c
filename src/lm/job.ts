/** Trains a language model on texts: all of its weights or LoRA adapters, with evaluations, samples of text, and exact resume. */

import { HoldfastError } from "../errors/index.js";
import { applyLora, type LanguageModel } from "../models/index.js";
import { AdamW, LambdaSchedule } from "../optim/index.js";
import type { DataParallel } from "../parallel/index.js";
import { type Device, manualSeed, type Tensor } from "../tensor/index.js";
import type { TextColumns, Tokenizer } from "../text/index.js";
import { type EpochRecord, isStopped, StepProgress, Trainer } from "../train/index.js";
import { Evaluator } from "./evaluator.js";
import type { DataFigures, Evaluation, JobListener, JobResults } from "./events.js";
import type { JobRun } from "./job-run.js";
import { encodePrompts, type SampleOptions, Sampler } from "./sampler.js";
import { type JobSettings, lrShare, requireSettings } from "./settings.js";
import { countLabels, countTokens, lossOf, requireFit, type TextBatch, type TextRows } from "./text-rows.js";

/** Options of `runJob`. */
export interface JobOptions {
  readonly device: Device;
  /**
   * The model, on the device: it is trained in place. With `settings.lora` it gets adapters, and its weights are frozen; then load it with
   * `frozen: true`, so that they need no memory for gradients.
   */
  readonly model: LanguageModel;
  readonly settings: JobSettings;
  /** Rows of `loadTextData`. */
  readonly train: TextRows;
  /** Rows to evaluate on: before the first step, after every epoch or `settings.evalEvery` steps, and at the end. */
  readonly evaluation?: TextRows | undefined;
  /** For samples. */
  readonly tokenizer?: Tokenizer;
  readonly samples?: SampleOptions;
  readonly listen?: JobListener;
  /** Ends the training after the current step. */
  readonly signal?: AbortSignal;
  /** The run folder to write to; default: none. */
  readonly run?: JobRun;
  /** Trains on all ranks of a run, which have the same options. */
  readonly parallel?: DataParallel | undefined;
  /** Splits the moments over the ranks; default: false. */
  readonly shardOptimizer?: boolean | undefined;
  /** At the end, measure the time of each call of the step, for the run's records; default: false. */
  readonly profile?: boolean;
}

/** Max. interval between two checkpoints, in milliseconds. One is also saved after each epoch. */
const checkpointMs = 300_000;
/** Steps between two questions to rank 0 whether a checkpoint is due. */
const askEvery = 20;

/**
 * Trains a language model, or continues the training of a resumed run. Afterwards the model has the trained weights or adapters:
 * `savePretrained` or `saveLora` writes them. Returns undefined if the signal ended it. Throws DIVERGED if the training diverges.
 *
 * @example
 * ```ts
 * import { mkdtempSync, writeFileSync } from "node:fs";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import { ByteTokenizer, device, lm, loadTextData, manualSeed, modelFromConfig } from "holdfast";
 * const file = join(mkdtempSync(join(tmpdir(), "texts-")), "rhyme.txt");
 * writeFileSync(file, "One for sorrow, two for joy.\n".repeat(40));
 * const tokenizer = new ByteTokenizer({ eosToken: "</s>" });
 * const { train, heldOut } = await loadTextData(file, { tokenizer, length: 32, heldOut: 0.2, seed: 1 });
 * const cpu = await device("cpu");
 * manualSeed(1);
 * const sizes = { vocab_size: 257, n_positions: 32, n_embd: 16, n_layer: 1, n_head: 2 };
 * const model = modelFromConfig({ model_type: "gpt2", ...sizes }).to(cpu);
 * const settings = { ...lm.defaultSettings, epochs: 3, lr: 1e-2 };
 * const results = await lm.runJob({ device: cpu, model, settings, train, evaluation: heldOut });
 * const [before, ...after] = results?.evaluations ?? [];
 * console.log(after.length, (after.at(-1)?.perplexity ?? 999) < (before?.perplexity ?? 0)); // → 3 true
 * cpu.close();
 * ```
 */
export async function runJob(options: JobOptions): Promise<JobResults | undefined> {
  const { model, settings, run } = options;
  checkJob(options);
  const listen: JobListener = (event) => {
    run?.note(event);
    options.listen?.(event);
  };
  manualSeed(settings.seed);
  if (settings.lora) applyLora(model, settings.lora);
  model.gradientCheckpointing = settings.checkpoint;
  model.train();
  const training = new Training(options, listen);
  try {
    training.describe();
    const { state, reason } = await training.run();
    if (state === "diverged") throw divergence(reason ?? "a loss was not finite", settings);
    if (state === "stopped" || training.isInterrupted) {
      training.save();
      return undefined;
    }
    if (options.profile && training.trainer.compiled)
      run?.notePlans(training.trainer.compiled, { times: true });
    const { results } = training;
    listen({ kind: "end", results });
    return results;
  } finally {
    training.close();
    model.eval();
  }
}

/**
 * Throws if settings are invalid, or if texts or prompts do not fit the model. `runJob` checks this too; call it before a run's folder is
 * made.
 *
 * @example
 * ```ts
 * import { HoldfastError, lm, modelFromConfig, TensorDataset } from "holdfast";
 * const sizes = { vocab_size: 20, n_positions: 4, n_embd: 8, n_layer: 1, n_head: 2 };
 * const model = modelFromConfig({ model_type: "gpt2", ...sizes });
 * const row = { values: new Int32Array([1, 2, 3, 4, 5]), shape: [1, 5] };
 * try {
 *   lm.checkJob({ model, settings: lm.defaultSettings, train: new TensorDataset(row, row) });
 * } catch (error) {
 *   if (error instanceof HoldfastError) console.log(error.message.slice(0, 75)); // → The rows of the training texts have 5 tokens, and the model has 4 positions
 * }
 * ```
 */
export function checkJob({
  model,
  settings,
  train,
  evaluation,
  samples,
  tokenizer,
}: Pick<JobOptions, "model" | "settings" | "train" | "evaluation" | "samples" | "tokenizer">): void {
  requireSettings(settings);
  requireFit("the training texts", train, model);
  if (evaluation) requireFit("the evaluation texts", evaluation, model);
  if (samples?.prompts.length) encodePrompts(model, requireTokenizer(tokenizer), samples);
}

/** One training with its parts on the device. */
class Training {
  readonly trainer: Trainer<TextColumns>;
  readonly #options: JobOptions;
  readonly #listen: JobListener;
  readonly #optimizer: AdamW;
  readonly #progress: StepProgress;
  readonly #evaluator: Evaluator | undefined;
  readonly #sampler: Sampler | undefined;
  readonly #data: DataFigures;
  readonly #steps: number;
  readonly #evalEvery: number;
  readonly #epochs: EpochRecord[];
  readonly #evaluations: Evaluation[];
  #sampledStep: number;
  #isInterrupted = false;
  #savedMs = performance.now();

  constructor(options: JobOptions, listen: JobListener) {
    const { device, model, settings, train, evaluation, tokenizer, samples, signal, run } = options;
    const { batch, accumulate, epochs, seed, clip, lr, maxSteps } = settings;
    const resumed = run?.resumed;
    this.#options = options;
    this.#listen = listen;
    const perEpoch = Math.ceil(Math.ceil(train.rows / batch) / accumulate);
    this.#steps = Math.min(epochs * perEpoch, maxSteps ?? Number.POSITIVE_INFINITY);
    this.#evalEvery = settings.evalEvery ?? perEpoch;
    this.#epochs = [...(resumed?.epochs ?? [])];
    this.#evaluations = [...(resumed?.evaluations ?? [])];
    this.#sampledStep = resumed?.sampledStep ?? -1;
    this.#progress = new StepProgress([this.#steps], resumed?.step ?? 0);
    const rowWeights = countLabels(train);
    this.#data = dataFigures(train, rowWeights, evaluation);
    options.parallel?.broadcast(model);
    const { parallel, shardOptimizer = false } = options;
    const makeOptimizer = (): AdamW => new AdamW(parameterGroups(model, settings), { lr });
    this.#optimizer = parallel && shardOptimizer ? parallel.shardOptimizer(makeOptimizer) : makeOptimizer();
    const schedule = new LambdaSchedule(this.#optimizer, {
      lrLambda: (step) => lrShare(step, this.#steps, settings),
    });
    if (resumed) {
      resumed.restore(model, this.#optimizer);
      // The optimizer's rates are those of the step; the schedule starts from the highest.
      schedule.loadStateDict({
        steps: resumed.position.step,
        baseLrs: this.#optimizer.groups.map(() => lr),
      });
    }
    this.#evaluator = evaluation && new Evaluator(device, model, evaluation, batch);
    this.#sampler = samples?.prompts.length
      ? new Sampler(model, requireTokenizer(tokenizer), samples, seed)
      : undefined;
    this.trainer = new Trainer<TextColumns>({
      ...{ device, model, optimizer: this.#optimizer, data: train, batchSize: batch, epochs, seed },
      ...{ accumulate, rowWeights, schedule: { of: schedule, after: "step" } },
      ...(maxSteps !== undefined && { maxSteps }),
      ...(clip < Number.POSITIVE_INFINITY && { clipNorm: clip }),
      ...(signal && { signal }),
      ...(resumed && { from: resumed.position }),
      ...(run && { watcher: run.watch() }),
      ...(parallel && { parallel }),
      loss: (...columns: Tensor[]) => lossOf(model, columns as unknown as TextBatch),
      onStep: () => this.#completeStep(),
      onEpoch: (record) => this.#completeEpoch(record),
    });
  }

  /** True if the signal has ended an evaluation or samples, which may be the last ones. */
  get isInterrupted(): boolean {
    return this.#isInterrupted;
  }

  get results(): JobResults {
    const { trained, all } = countParameters(this.#options.model);
    return {
      ...{ steps: this.trainer.progress.step, epochs: this.#epochs, evaluations: this.#evaluations },
      ...{ parameters: all, trainedParameters: trained },
    };
  }

  /** Reports the device, the data, the model, and where a resumed run continues. */
  describe(): void {
    const { device, model, run } = this.#options;
    const { runtime } = device;
    this.#listen({ kind: "device", name: runtime.device.name, budgetBytes: runtime.budget.limit });
    this.#listen({ kind: "data", ...this.#data });
    const { trained: trainedParameters, all: parameters } = countParameters(model);
    this.#listen({ kind: "model", name: model.constructor.name, parameters, trainedParameters });
    if (!run?.resumed) return;
    const { step, file, position } = run.resumed;
    const epoch = Math.min(position.epoch, this.#options.settings.epochs - 1);
    this.#listen({ kind: "resumed", file, step, steps: this.#steps, epoch });
  }

  async run(): Promise<Awaited<ReturnType<Trainer["run"]>>> {
    // Also after a resume, if the work of the checkpoint's step was not done.
    this.#options.model.eval();
    await this.#betweenSteps(this.trainer.progress.step);
    // The first step includes the compilation.
    this.#listen({ kind: "phase", phase: "compiling" });
    return this.trainer.run();
  }

  async #completeStep(): Promise<void> {
    const { trainer } = this;
    const { device, settings } = this.#options;
    const { epoch, batch, step } = trainer.progress;
    const first = Math.floor((batch - 1) / settings.accumulate) * settings.accumulate;
    const samples = Math.min(batch * settings.batch, this.#data.rows) - first * settings.batch;
    const figures = this.#progress.completeStep(0, trainer, samples);
    this.#listen({
      ...{ kind: "step", ...figures, epoch, epochs: settings.epochs },
      ...{ usedBytes: device.runtime.budget.used, tokensPerSecond: this.#tokensPerSecond(figures) },
    });
    // The rest follows at the end of the epoch, after its record.
    if (batch === trainer.batches || step === this.#steps) return;
    const isDue = this.#isDue(step, this.#evalEvery) || this.#isDue(step, this.#sampleEvery);
    if (isDue) await trainer.pause(() => this.#betweenSteps(step));
    if (this.#isCheckpointDue(step)) this.save();
  }

  async #completeEpoch(record: EpochRecord): Promise<void> {
    const { step } = this.trainer.progress;
    this.#epochs.push(record);
    this.#listen({
      ...{ kind: "epoch", epochs: this.#options.settings.epochs, step, record },
      tokensPerSecond: this.#tokensPerSecond(record),
    });
    // No checkpoint is saved here if it has diverged: the earlier ones are the useful ones.
    if (record.diverged !== undefined) return;
    await this.#betweenSteps(step);
    this.save();
  }

  /** Evaluates and samples if it is due and not done yet. The model is in evaluation mode. */
  async #betweenSteps(step: number): Promise<void> {
    const { run, signal, settings, parallel } = this.#options;
    if (
      this.#evaluator &&
      this.#isDue(step, this.#evalEvery) &&
      (this.#evaluations.at(-1)?.step ?? -1) < step
    ) {
      this.#listen({ kind: "phase", phase: "evaluating" });
      const evaluation = await this.#evaluator.run(step, {
        onBatch: () => run?.beat(),
        isStopped: () => isStopped(signal, parallel),
      });
      if (!evaluation) {
        this.#isInterrupted = true;
        return;
      }
      this.#evaluations.push(evaluation);
      this.#listen({ kind: "evaluation", ...evaluation });
      if (!Number.isFinite(evaluation.loss))
        throw divergence(`the loss of the evaluation after step ${step} is ${evaluation.loss}`, settings);
    }
    if (this.#sampler && this.#isDue(step, this.#sampleEvery) && this.#sampledStep < step) {
      this.#listen({ kind: "phase", phase: "writing samples" });
      // Ranks must not stop at different texts.
      const texts = await this.#sampler.run(parallel ? undefined : signal);
      if (!texts || (parallel && isStopped(signal, parallel))) {
        this.#isInterrupted = true;
        return;
      }
      this.#sampledStep = step;
      this.#listen({ kind: "samples", step, texts });
    }
  }

  get #sampleEvery(): number {
    return this.#options.samples?.every ?? this.#evalEvery;
  }

  #isDue(step: number, every: number): boolean {
    return step % every === 0 || step === this.#steps;
  }

  /** The clocks of ranks differ, and all must save a split optimizer. */
  #isCheckpointDue(step: number): boolean {
    const { parallel, shardOptimizer = false } = this.#options;
    const isOwn = performance.now() - this.#savedMs > checkpointMs;
    if (!parallel || !shardOptimizer) return isOwn;
    return step % askEvery === 0 && parallel.world.exchange("whether a checkpoint is due", isOwn)[0] === true;
  }

  /** Saves a checkpoint in the run's folder. */
  save(): void {
    const { run, model } = this.#options;
    if (!run) return;
    const file = run.save(model, this.#optimizer, () => ({
      ...{ position: this.trainer.position, epochs: this.#epochs, evaluations: this.#evaluations },
      sampledStep: this.#sampledStep,
    }));
    this.#savedMs = performance.now();
    if (file === undefined) return;
    this.#listen({ kind: "checkpoint", step: this.trainer.progress.step, file });
  }

  #tokensPerSecond({ samplesPerSecond }: Pick<EpochRecord, "samplesPerSecond">): number | undefined {
    return samplesPerSecond && (samplesPerSecond * this.#data.tokens) / this.#data.rows;
  }

  /** Releases the device memory, but not that of the model. */
  close(): void {
    this.#sampler?.close();
    this.#evaluator?.close();
    this.trainer.close();
    this.#options.train.release(this.#options.device);
    this.#optimizer.release();
  }
}

/** Matrices and embeddings have weight decay; biases and norms have none. */
function parameterGroups(model: LanguageModel, { weightDecay }: JobSettings) {
  const trained = model.parameters().filter(({ requiresGrad }) => requiresGrad);
  const isMatrix = ({ shape }: Tensor): boolean => shape.length > 1;
  const groups = [
    { params: trained.filter(isMatrix), weightDecay },
    { params: trained.filter((parameter) => !isMatrix(parameter)), weightDecay: 0 },
  ];
  return groups.filter(({ params }) => params.length > 0);
}

function countParameters(model: LanguageModel): { readonly all: number; readonly trained: number } {
  const sum = (parameters: readonly Tensor[]): number =>
    parameters.reduce((total, { numel }) => total + numel, 0);
  const parameters = model.parameters();
  return { all: sum(parameters), trained: sum(parameters.filter(({ requiresGrad }) => requiresGrad)) };
}

function dataFigures(train: TextRows, counts: Uint32Array, evaluation: TextRows | undefined): DataFigures {
  return {
    rows: train.rows,
    tokens: countTokens(train),
    countedTokens: counts.reduce((sum, count) => sum + count, 0),
    evaluationRows: evaluation?.rows ?? 0,
  };
}

function requireTokenizer(tokenizer: Tokenizer | undefined): Tokenizer {
  if (tokenizer) return tokenizer;
  throw new HoldfastError("BAD_ARGUMENT", "lm.runJob: samples need a tokenizer. Pass that of the model.");
}

function divergence(reason: string, { lr }: JobSettings): HoldfastError {
  return new HoldfastError(
    "DIVERGED",
    `The training diverged: ${reason}. The learning rate is ${lr}: start a new run with a smaller one, in another folder.`,
    { numbers: { lr } },
  );
}
