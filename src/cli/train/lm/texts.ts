/** The events of a training of a language model, and its results, as text. */

import type { Evaluation, JobEvent, JobResults } from "../../../lm/index.js";
import { formatBytes, formatDuration } from "../../../units/index.js";
import { type EventText, skippedText, stepLine, throughputText } from "../reporters.js";
import { type CurvePoint, epochPoint } from "../tensorboard.js";
import type { SavedFolders } from "./save-result.js";

/** An event of the command: of the job, or after it. */
export type LmEvent = JobEvent | ({ readonly kind: "saved" } & SavedFolders);

export function describeLmEvent(event: LmEvent): EventText {
  if (event.kind === "step") {
    const { epoch, epochs, tokensPerSecond } = event;
    const text = stepLine([`epoch ${epoch + 1}/${epochs}`], event, throughputText(tokensPerSecond, "tokens"));
    return { kind: "step", figures: event, text };
  }
  if (event.kind === "phase") return { kind: "phase", text: event.phase };
  const text = lineOf(event);
  return text === undefined ? undefined : { kind: "line", text };
}

const count = (value: number): string => value.toLocaleString("en");

/** Undefined for events that only the JSON output shows. */
function lineOf(event: Exclude<LmEvent, { kind: "step" | "phase" }>): string | undefined {
  switch (event.kind) {
    case "device":
      return `device   ${event.name}, budget ${formatBytes(event.budgetBytes)}`;
    case "data": {
      const { rows, tokens, countedTokens, evaluationRows } = event;
      const counted = countedTokens < tokens - rows ? `, ${count(countedTokens)} count in the loss` : "";
      const held = evaluationRows > 0 ? `; ${count(evaluationRows)} rows to evaluate on` : "";
      return `data     ${count(tokens)} tokens in ${count(rows)} rows${counted}${held}`;
    }
    case "model": {
      const { name, parameters, trainedParameters } = event;
      const trained = trainedParameters < parameters ? `, ${count(trainedParameters)} are trained` : "";
      return `model    ${name}, ${count(parameters)} parameters${trained}`;
    }
    case "epoch": {
      const { epochs, record, tokensPerSecond } = event;
      const { epoch, loss, seconds, skipped } = record;
      return (
        `epoch ${epoch + 1}/${epochs}  loss ${loss.toFixed(4)}  ${throughputText(tokensPerSecond, "tokens")}  ` +
        `${formatDuration(1000 * seconds)}${skippedText(skipped)}`
      );
    }
    case "evaluation":
      return `step ${count(event.step)}  evaluation: loss ${event.loss.toFixed(4)}, perplexity ${perplexityText(event)}`;
    case "samples":
      return event.texts
        .map(({ prompt, text }) => `step ${count(event.step)}  sample: ${oneLine(prompt)}▸${oneLine(text)}`)
        .join("\n");
    case "resumed":
      return `resumed at step ${count(event.step)} from ${event.file}`;
    case "checkpoint":
    case "end":
    case "saved":
      return undefined;
  }
}

/** A model must not control the terminal. */
function oneLine(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these characters are replaced.
  return text.replaceAll(/\r?\n/g, "⏎").replaceAll(/[\u0000-\u001f\u007f-\u009f]/g, "\ufffd");
}

function perplexityText({ perplexity }: Evaluation): string {
  return perplexity < 1e6 ? perplexity.toPrecision(4) : perplexity.toExponential(2);
}

/** The evaluations before and after, and how to use the result. */
export function lmSummary(
  { steps, evaluations, parameters, trainedParameters }: JobResults,
  { model, adapter }: SavedFolders,
  base: string | undefined,
): string {
  const [before, after] = [evaluations[0], evaluations.at(-1)];
  const trained = trainedParameters < parameters ? `${count(trainedParameters)} of ` : "";
  const lines = [`${count(steps)} steps, ${trained}${count(parameters)} parameters`];
  if (before && after && before !== after) {
    lines.push(
      `perplexity on ${count(after.tokens)} held-out tokens: ${perplexityText(before)} before, ${perplexityText(after)} after`,
    );
  }
  if (adapter !== undefined) lines.push(`adapter  ${adapter}`);
  if (model !== undefined) lines.push(`model    ${model}`);
  const from = model === undefined ? `--model ${base} --adapter ${adapter}` : `--model ${model}`;
  return `${lines.join("\n")}\n\nTo write a text: holdfast generate ${from} --prompt "…"`;
}

/** The points of an event's curves for TensorBoard. */
export function curveOfLm(event: LmEvent): CurvePoint | undefined {
  if (event.kind === "step") return event;
  if (event.kind === "epoch") {
    const { step, record, tokensPerSecond } = event;
    return epochPoint(step, record, { tokensPerSecond });
  }
  if (event.kind !== "evaluation") return undefined;
  const { kind: _, step, ...evaluation } = event;
  return { kind: "metrics", step, metrics: { step, evaluation } };
}
