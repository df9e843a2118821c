/** What the training of a language model writes into its metrics: evaluations, samples of text, and counts of tokens. */

import type { JsonRecord } from "../wire.js";

export interface EvaluationPoint {
  readonly step: number;
  readonly loss: number | undefined;
  readonly perplexity: number;
}

export interface SampleText {
  readonly step: number;
  readonly prompt: string;
  readonly text: string;
}

export interface LanguageFigures {
  /** In order of their steps. */
  readonly evaluations: readonly EvaluationPoint[];
  /** Those of the newest step first. */
  readonly samples: readonly SampleText[];
  /** Tokens of a row, without padding. Undefined if the beginning of the metrics was not read. */
  readonly tokensPerSample: number | undefined;
}

/** The figures of a language model; undefined for another job. */
export function languageOf(metrics: readonly JsonRecord[]): LanguageFigures | undefined {
  const evaluations: EvaluationPoint[] = [];
  const samples: SampleText[][] = [];
  let tokensPerSample: number | undefined;
  let isLanguage = false;
  for (const record of metrics) {
    const step = numberOf(record["step"]);
    if (step === undefined) continue;
    const evaluation = recordOf(record["evaluation"]);
    const perplexity = numberOf(evaluation?.["perplexity"]);
    if (perplexity !== undefined)
      evaluations.push({ step, perplexity, loss: numberOf(evaluation?.["loss"]) });
    const texts = Array.isArray(record["texts"]) ? record["texts"] : [];
    samples.push(
      texts.flatMap((entry: unknown) => {
        const { prompt, text } = recordOf(entry) ?? {};
        return typeof prompt === "string" && typeof text === "string" ? [{ step, prompt, text }] : [];
      }),
    );
    const data = recordOf(record["data"]);
    const [tokens, rows] = [numberOf(data?.["tokens"]), numberOf(data?.["rows"])];
    if (tokens !== undefined && rows) tokensPerSample = tokens / rows;
    // Every epoch has a speed in tokens, also if the beginning of long metrics was not read.
    const [rate, samplesRate] = [numberOf(record["tokensPerSecond"]), numberOf(record["samplesPerSecond"])];
    if (rate !== undefined && samplesRate) tokensPerSample ??= rate / samplesRate;
    isLanguage ||= perplexity !== undefined || texts.length > 0 || tokens !== undefined || rate !== undefined;
  }
  if (!isLanguage) return undefined;
  return { evaluations, samples: samples.reverse().flat(), tokensPerSample };
}

function recordOf(value: unknown): JsonRecord | undefined {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as JsonRecord)
    : undefined;
}

function numberOf(value: unknown): number | undefined {
  return typeof value === "number" && Number.isFinite(value) ? value : undefined;
}
