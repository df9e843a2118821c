/** The options of a generation, and their checks. */

import { checkOptions, HoldfastError, type OptionNames } from "../errors/index.js";
import type { Seed } from "../kernels/index.js";

/** Options of a generation. */
export interface GenerateOptions {
  /** Maximum number of new tokens. Default: 128. The model's maximum length limits it too. */
  readonly maxNewTokens?: number;
  /** Divides the logits. 0 selects the likeliest token each time. Default: 0. */
  readonly temperature?: number;
  /** Draws among the k likeliest tokens only. Default: 0, all tokens. */
  readonly topK?: number;
  /** Draws among the likeliest tokens whose probabilities add up to this. Default: 1, all tokens. */
  readonly topP?: number;
  /** Divides the logits of tokens that the text has, or multiplies them if they are negative. Default: 1. */
  readonly repetitionPenalty?: number;
  /** Ends before the first of these strings. Needs a tokenizer. */
  readonly stop?: string | readonly string[];
  /** Ends at these ids. Default: those of the generator. */
  readonly stopIds?: readonly number[];
  /** The same seed gives the same text, whatever else is generated at the same time. Default: random. */
  readonly seed?: Seed;
  /** Ends the generation when it aborts. */
  readonly signal?: AbortSignal;
}

/** Options with all defaults. */
export interface ResolvedOptions {
  readonly maxNewTokens: number;
  readonly temperature: number;
  readonly topK: number;
  readonly topP: number;
  readonly repetitionPenalty: number;
  readonly stop: readonly string[];
  readonly stopIds: ReadonlySet<number>;
  readonly seed: Seed;
  readonly signal: AbortSignal | undefined;
}

export const generateOptionNames: OptionNames<GenerateOptions> = {
  maxNewTokens: true,
  temperature: true,
  topK: true,
  topP: true,
  repetitionPenalty: true,
  stop: true,
  stopIds: true,
  seed: true,
  signal: true,
};

export const defaultMaxNewTokens = 128;
const maxStops = 64;

/** Checks options and adds the defaults. */
export function resolveOptions(options: GenerateOptions, stopIds: readonly number[]): ResolvedOptions {
  const {
    maxNewTokens = defaultMaxNewTokens,
    temperature = 0,
    topK = 0,
    topP = 1,
    repetitionPenalty = 1,
    stop = [],
    seed = Math.floor(Math.random() * 2 ** 32),
    signal,
  } = checkOptions("generate", options, generateOptionNames);
  requireNumber(
    "maxNewTokens",
    maxNewTokens,
    Number.isSafeInteger(maxNewTokens) && maxNewTokens >= 1,
    whole(1),
  );
  requireNumber(
    "temperature",
    temperature,
    temperature >= 0 && temperature <= 1000,
    "a number from 0 to 1000",
  );
  requireNumber("topK", topK, Number.isSafeInteger(topK) && topK >= 0, whole(0));
  requireNumber("topP", topP, topP > 0 && topP <= 1, "a number above 0, up to 1");
  const isPenalty = repetitionPenalty > 0 && Number.isFinite(repetitionPenalty);
  requireNumber("repetitionPenalty", repetitionPenalty, isPenalty, "a number above 0");
  const stops = typeof stop === "string" ? [stop] : [...stop];
  if (stops.length > maxStops || stops.some((text) => typeof text !== "string" || text === "")) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `generate: stop has ${stops.length} entries; pass up to ${maxStops} strings with at least one character.`,
    );
  }
  return {
    ...{ maxNewTokens, temperature, topK, topP, repetitionPenalty, seed, signal },
    stop: stops,
    stopIds: new Set(options.stopIds ?? stopIds),
  };
}

const whole = (min: number): string => `a whole number, ${min} or more`;

function requireNumber(name: string, value: unknown, isValid: boolean, expected: string): void {
  if (typeof value === "number" && isValid) return;
  throw new HoldfastError("BAD_ARGUMENT", `generate: ${name} is ${value}; pass ${expected}.`, {
    numbers: { [name]: String(value) },
  });
}
