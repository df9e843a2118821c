/** The CrossAsset job: makes samples from bars, and trains and tests a model per fold. */

import { storeTensor } from "../../data/index.js";
import { HoldfastError } from "../../errors/index.js";
import type { LoadableState } from "../../nn/index.js";
import type { DataParallel } from "../../parallel/index.js";
import { type Device, manualSeed } from "../../tensor/index.js";
import { type EpochRecord, StepProgress } from "../../train/index.js";
import { beat } from "../../units/index.js";
import type { Bars } from "../bars/index.js";
import { CrossAsset } from "../model.js";
import { cachedSamples, type Samples, shuffleLabels, walkForward } from "../samples/index.js";
import type { JobListener, JobPosition } from "./events.js";
import { FoldTraining, lengthOf } from "./fold-training.js";
import type { JobRun } from "./job-run.js";
import { type FoldResult, type JobResults, resultsOf } from "./results.js";
import { requireLayout } from "./saved-state.js";
import { definedSizes, type JobSettings, requireSettings } from "./settings.js";

/** Options of `runJob`. */
export interface JobOptions {
  readonly device: Device;
  readonly settings: JobSettings;
  readonly bars: Bars;
  /** The origin of the bars, as text. */
  readonly source: string;
  /** The feature cache. */
  readonly cacheFolder: string | "off";
  readonly listen: JobListener;
  /** Ends the job after the current step. */
  readonly signal?: AbortSignal;
  /** The run folder to write to; default: none. */
  readonly run?: JobRun;
  /** After each fold, measure the time of each call of its step, for the run's records; default: false. */
  readonly profile?: boolean;
  /** Also test after every epoch, for a curve; default: false. It does not affect the training. */
  readonly testsEpochs?: boolean;
  /** Trains on all ranks of a run, which have the same options. */
  readonly parallel?: DataParallel | undefined;
  /** Splits the moments over the ranks; default: false. */
  readonly shardOptimizer?: boolean | undefined;
}

/** Max. interval between two checkpoints, in milliseconds. One is also saved after each epoch. */
const checkpointMs = 300_000;
/** Steps between two questions to rank 0 whether a checkpoint is due. */
const askEvery = 20;

/**
 * Trains and tests CrossAsset fold by fold: all folds, or the remaining folds of a resumed run. Returns undefined if the signal ended
 * it. Throws DIVERGED if the training diverges.
 *
 * @example
 * ```ts
 * import { crossasset, device } from "holdfast";
 * const cpu = await device("cpu");
 * const results = await crossasset.runJob({
 *   device: cpu,
 *   settings: { ...crossasset.defaultSettings, folds: 1, epochs: 1, batch: 32, width: 16, layers: 1 },
 *   bars: crossasset.generateBars({ bars: 12_000, seed: 42 }),
 *   source: "the generator",
 *   cacheFolder: "off",
 *   listen: ({ kind }) => kind === "epoch" && console.log("an epoch has ended"), // → an epoch has ended
 * });
 * console.log(results?.folds.length, (results?.wf_mean ?? 0) > 0); // → 1 true
 * cpu.close();
 * ```
 */
export async function runJob(options: JobOptions): Promise<JobResults | undefined> {
  const { device, settings, signal, run, parallel, shardOptimizer = false } = options;
  requireSettings(settings);
  /** The clocks of ranks differ, and all must save a split optimizer. */
  const isDue = (step: number, elapsedMs: number): boolean => {
    const isOwn = elapsedMs > checkpointMs;
    if (!parallel || !shardOptimizer) return isOwn;
    return step % askEvery === 0 && parallel.world.exchange("whether a checkpoint is due", isOwn)[0] === true;
  };
  const listen: JobListener = (event) => {
    run?.note(event);
    options.listen(event);
  };
  listen({ kind: "device", name: device.runtime.device.name, budgetBytes: device.runtime.budget.limit });
  listen({ kind: "phase", phase: "preparing features" });
  const samples = prepare(options);
  const folds = walkForward(samples, settings.folds);
  const resumed = run?.resumed;
  const { epochs } = settings;
  const stepsPerEpoch = folds.map(({ train }) => Math.ceil(lengthOf(train) / settings.batch));
  if (resumed) requireLayout(resumed, { stepsPerEpoch, epochs });
  const progress = new StepProgress(
    stepsPerEpoch.map((steps) => epochs * steps),
    resumed?.step ?? 0,
  );
  manualSeed(settings.seed);
  const { dropout, qkNorm, width, layers } = settings;
  const model = new CrossAsset({ dropout, qkNorm, ...definedSizes({ width, layers }) }).to(device);
  parallel?.broadcast(model);
  const initialWeights = copyWeights(model);

  if (resumed) {
    const { step, file, fold, position } = resumed;
    const epoch = Math.min(position.epoch, epochs - 1);
    listen({ kind: "resumed", file, fold, folds: folds.length, epoch, epochs, step, steps: progress.total });
  }
  const results = [...(resumed?.results ?? [])];
  for (const [index, fold] of folds.entries()) {
    if (index < results.length) continue;
    const [trainSamples, testSamples] = [lengthOf(fold.train), lengthOf(fold.test)];
    listen({ kind: "fold", fold: index, folds: folds.length, trainSamples, testSamples });
    listen({ kind: "phase", phase: "preparing a fold" });
    // Every fold starts with the same weights and random state, so that it can be repeated on its own.
    model.loadStateDict(initialWeights);
    manualSeed(settings.seed);
    const positionAt = (epoch: number): JobPosition => ({
      ...{ fold: index, folds: folds.length, epoch, epochs },
    });
    const from = resumed?.fold === index ? resumed : undefined;
    let savedMs = performance.now();
    const save = (): void => {
      if (!run) return;
      const file = run.save(progress.done, index, model, training, results);
      savedMs = performance.now();
      if (file === undefined) return;
      listen({ kind: "checkpoint", step: progress.done, file });
    };
    const training: FoldTraining = new FoldTraining({
      ...{ device, model, settings, samples, fold, ...(signal && { signal }) },
      ...{ testsEpochs: options.testsEpochs, parallel, shardOptimizer },
      ...(from && { from: from.position, normaliser: from.normaliser, epochs: from.epochs }),
      ...(run && { watcher: run.watch(index, progress.stepsBefore(index)) }),
      onStep: (trainer) => {
        // An epoch's last batch may be smaller.
        const { batch } = trainer.progress;
        const samples = Math.min(settings.batch, trainSamples - (batch - 1) * settings.batch);
        const figures = progress.completeStep(index, trainer, samples);
        const usedBytes = device.runtime.budget.used;
        listen({ kind: "step", ...positionAt(figures.epoch), ...figures, usedBytes });
        if (isDue(progress.done, performance.now() - savedMs)) save();
      },
      onEpoch: (record) => {
        const { secondsLeft, done: step } = progress;
        listen({ kind: "epoch", ...positionAt(record.epoch), step, record, secondsLeft });
        // No checkpoint is saved here: the earlier ones are the useful ones.
        if (record.diverged === undefined) save();
      },
    });
    try {
      from?.restore(model, training);
      // The first step includes the compilation.
      listen({ kind: "phase", phase: "compiling" });
      const { state, epochs: records } = await training.trainer.run();
      if (state === "diverged") throw divergence(index, records.at(-1), settings);
      if (state === "stopped") {
        save();
        return undefined;
      }
      if (options.profile && training.trainer.compiled)
        run?.notePlans(training.trainer.compiled, { times: true });
      listen({ kind: "phase", phase: "testing" });
      const tested = await training.test(() => run?.beat());
      // The last epoch's checkpoint exists: a resumed run repeats the test.
      if (!tested) return undefined;
      if (!Number.isFinite(tested.test.loss)) throw divergence(index, undefined, settings, tested.test.loss);
      const result: FoldResult = { fold: index, trainSamples, epochs: training.epochs, ...tested };
      results.push(result);
      listen({ kind: "fold end", step: progress.done, result });
    } finally {
      training.close();
    }
  }
  const jobResults = resultsOf(results);
  listen({ kind: "end", results: jobResults });
  return jobResults;
}

/** Without an epoch's record, the fold's test found the divergence. */
function divergence(
  fold: number,
  record: EpochRecord | undefined,
  { lr }: JobSettings,
  testLoss = Number.NaN,
): HoldfastError {
  const reason = record ? `epoch ${record.epoch + 1}: ${record.diverged}` : `its test loss is ${testLoss}`;
  return new HoldfastError(
    "DIVERGED",
    `Fold ${fold + 1}, ${reason}. The learning rate is ${lr}: start a new run with a smaller one, in another folder.`,
    { numbers: { fold, lr, ...(record && { epoch: record.epoch, skipped: record.skipped }) } },
  );
}

function prepare({ bars, source, settings, cacheFolder, listen, run }: JobOptions): Samples {
  const startedMs = performance.now();
  const onProgress = (): void => {
    beat();
    run?.beat();
  };
  const { samples, fromCache } = cachedSamples(bars, { stride: settings.stride, onProgress }, cacheFolder);
  const seconds = (performance.now() - startedMs) / 1000;
  const figures = { bars: bars.time.length, samples: samples.count, isCached: fromCache, seconds };
  listen({ kind: "data", source, ...figures });
  return settings.shuffledLabels ? shuffleLabels(samples, settings.seed) : samples;
}

/** A copy of the weights on the host. */
function copyWeights(model: CrossAsset): LoadableState {
  return Object.fromEntries(
    [...model.namedParameters()].map(([name, parameter]) => [name, storeTensor(name, parameter)]),
  );
}
