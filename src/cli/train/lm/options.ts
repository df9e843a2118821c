/** The options of `holdfast train lm`, and the settings of its job that follow from them. */

import { HoldfastError } from "../../../errors/index.js";
import { defaultSettings, type JobSettings, type LrSchedule, type SampleOptions } from "../../../lm/index.js";
import type { LoraOptions } from "../../../models/index.js";
import type { JsonRecord } from "../../../records/index.js";
import type { RunOptions } from "../run-options.js";

/** Dtypes of weights in files and in memory. */
export const weightDtypes = ["f32", "f16", "bf16"] as const;
export type WeightDtype = (typeof weightDtypes)[number];

/** The options as commander passes them. */
export interface LmOptions extends RunOptions {
  readonly model?: string;
  readonly config?: string;
  readonly tokenizer?: string;
  readonly data: readonly string[];
  readonly evalData?: readonly string[];
  readonly heldOut?: number;
  readonly length?: number;
  readonly packing: boolean;
  readonly longTexts?: "split" | "truncate" | "drop";
  readonly lossOn: "answers" | "all";
  readonly template?: string;
  readonly epochs?: number;
  readonly steps?: number;
  readonly batch: number;
  readonly accumulate: number;
  readonly lr?: number;
  readonly schedule: LrSchedule;
  readonly warmup: number;
  readonly weightDecay: number;
  readonly clip: number;
  readonly seed: number;
  readonly evalEvery?: number;
  readonly checkpoint?: boolean;
  readonly lora?: boolean;
  readonly loraRank?: number;
  readonly loraAlpha?: number;
  readonly loraDropout?: number;
  readonly loraTargets?: readonly string[];
  readonly baseDtype?: WeightDtype;
  readonly merge?: boolean;
  readonly saveDtype?: WeightDtype;
  readonly sample?: readonly string[];
  readonly sampleChat?: boolean;
  readonly sampleEvery?: number;
  readonly sampleTokens?: number;
  readonly sampleTemperature?: number;
}

export const loraDefaults = { rank: 16, dropout: 0 } as const;
/** Learning rates for LoRA, for the weights of a trained model, and for random weights. */
export const learningRates = { lora: 2e-4, model: defaultSettings.lr, config: 1e-3 } as const;
/** The share of the texts that is held out if there are no files to evaluate on. */
export const usualHeldOut = 0.05;

/** Throws if options contradict each other. */
export function requireConsistent(options: LmOptions): void {
  const { model, config, lora = false } = options;
  if (model === undefined && config === undefined)
    throw badOption(
      "--model or --config is missing. Pass the folder of a model to fine-tune, or a config.json to train a new model.",
    );
  if (model !== undefined && config !== undefined)
    throw badOption("--model and --config exclude each other: a folder has its own config.json. Omit one.");
  if (lora && config !== undefined)
    throw badOption("--lora needs --model: random weights have nothing to keep. Omit --lora.");
  const needs = (needed: boolean, name: string, names: readonly (readonly [string, unknown])[]): void => {
    const [found] = names.find(([, value]) => value !== undefined) ?? [];
    if (found !== undefined && !needed)
      throw badOption(`${found} has no effect without ${name}. Add ${name}.`);
  };
  needs(lora, "--lora", [
    ["--lora-rank", options.loraRank],
    ["--lora-alpha", options.loraAlpha],
    ["--lora-dropout", options.loraDropout],
    ["--lora-targets", options.loraTargets],
    ["--base-dtype", options.baseDtype],
    ["--merge", options.merge],
  ]);
  if (lora && !options.merge && options.saveDtype !== undefined)
    throw badOption("--save-dtype is for models, and an adapter is saved in f32. Add --merge, or omit it.");
  needs(options.sample !== undefined, "--sample", [
    ["--sample-chat", options.sampleChat],
    ["--sample-every", options.sampleEvery],
    ["--sample-tokens", options.sampleTokens],
    ["--sample-temperature", options.sampleTemperature],
  ]);
  if (options.heldOut !== undefined && options.evalData !== undefined)
    throw badOption("--held-out and --eval-data exclude each other. Omit one.");
}

function badOption(message: string): HoldfastError {
  return new HoldfastError("BAD_ARGUMENT", message);
}

/** The settings of LoRA; undefined if all weights are trained. */
export function loraOf(options: LmOptions): LoraOptions | undefined {
  if (!options.lora) return undefined;
  const { loraRank: rank = loraDefaults.rank, loraDropout: dropout = loraDefaults.dropout } = options;
  const { loraAlpha: alpha = 2 * rank, loraTargets } = options;
  const isAll = loraTargets?.length === 1 && loraTargets[0] === "all-linear";
  return {
    ...{ rank, alpha, dropout },
    ...(loraTargets && { targets: isAll ? ("all-linear" as const) : loraTargets }),
  };
}

/** The settings of the job. An epoch has `perEpoch` steps. */
export function settingsOf(options: LmOptions, perEpoch: number): JobSettings {
  const { steps, batch, accumulate, schedule, warmup, weightDecay, clip, seed, evalEvery } = options;
  const lora = loraOf(options);
  return {
    epochs: options.epochs ?? (steps === undefined ? defaultSettings.epochs : Math.ceil(steps / perEpoch)),
    ...(steps !== undefined && { maxSteps: steps }),
    ...{ batch, accumulate, lr: lrOf(options), schedule, warmup, weightDecay, clip, seed },
    ...(evalEvery !== undefined && { evalEvery }),
    checkpoint: options.checkpoint ?? false,
    ...(lora && { lora }),
  };
}

function lrOf({ lr, lora, config }: LmOptions): number {
  return lr ?? learningRates[lora ? "lora" : config === undefined ? "model" : "config"];
}

/** The samples of texts; undefined without prompts. */
export function samplesOf(options: LmOptions): SampleOptions | undefined {
  const { sample: prompts, sampleChat, sampleEvery, sampleTokens, sampleTemperature } = options;
  if (!prompts) return undefined;
  return {
    prompts,
    ...(sampleChat && { isChat: true }),
    ...(sampleEvery !== undefined && { every: sampleEvery }),
    ...(sampleTokens !== undefined && { maxTokens: sampleTokens }),
    ...(sampleTemperature !== undefined && { temperature: sampleTemperature }),
  };
}

/** The dtype of frozen weights with LoRA. */
export function baseDtypeOf({ baseDtype = "bf16" }: LmOptions): WeightDtype {
  return baseDtype;
}

/** All options that change the result, for run.json. Options without a value are left out. */
export function recordedSettings(options: LmOptions): JsonRecord {
  const { model, config, tokenizer, data, evalData, heldOut, length, packing, longTexts, lossOn } = options;
  const { template, epochs, steps, batch, accumulate, schedule, warmup, weightDecay, clip, seed } = options;
  const { evalEvery, checkpoint } = options;
  const lora = loraOf(options);
  const entries = Object.entries({
    ...{ model, config, tokenizer, data, evalData, heldOut, length, packing, longTexts, lossOn, template },
    ...{ epochs, steps, batch, accumulate, lr: lrOf(options), schedule, warmup, weightDecay, clip, seed },
    ...{ evalEvery, checkpoint, lora, baseDtype: lora && baseDtypeOf(options), samples: samplesOf(options) },
  });
  return Object.fromEntries(entries.filter(([, value]) => value !== undefined));
}
