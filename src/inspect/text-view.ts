/** A run as text for a terminal: a short form of the page. */

import type { MemorySample, PlanRecord } from "../records/index.js";
import { formatBytes, formatDuration } from "../units/index.js";
import type { RunDetail, RunLine } from "./page/wire.js";
import { rankTable } from "./rank-table.js";
import type { RunView } from "./run-view.js";
import type { StepPoints } from "./step-table.js";
import { fitLine, progressBar, shadeOf, sparkline, stackedBar, tableLines } from "./text-marks.js";

export interface TextOptions {
  /** Columns of the terminal; default: 80. */
  readonly columns?: number;
  /** Milliseconds since 1970; default: the system's clock. */
  readonly now?: number;
}

/** The width of the labels on the left. */
const margin = 10;
const maxEpochs = 8;
const maxHolders = 6;
const maxIncidents = 4;
const maxNotes = 4;
const maxEvaluations = 5;
const maxSamples = 4;

/** Max. ranks with a line each: the slowest. */
const maxRanks = 8;

/** The list of runs, one line each. */
export function describeRuns(lines: readonly RunLine[], { columns = 80 }: TextOptions = {}): string {
  if (lines.length === 0) return "This folder has no runs.\n";
  const rows = lines.map(({ name, state, step, of, started, note }) => [
    name,
    state,
    step === null ? "" : of === null ? count(step) : `${count(step)}/${count(of)}`,
    minuteOf(started),
    note ?? "",
  ]);
  const table = tableLines([["run", "state", "step", "started", ""], ...rows], [0, 1, 4]);
  return `${table.map((line) => fitLine(line, columns)).join("\n")}\n`;
}

/** One run. */
export function describeRun(
  line: RunLine,
  view: RunView,
  { columns = 80, now = Date.now() }: TextOptions = {},
): string {
  const detail = view.detail();
  const { plans, memory } = view.inspection();
  const width = columns - margin;
  const notes = [...detail.messages];
  let points: StepPoints | undefined;
  try {
    view.steps.refresh();
    points = view.steps.points({ points: Math.max(1, width) });
  } catch {
    // The detail already has the message.
  }
  const sections: readonly (readonly [string, readonly string[]])[] = [
    ["run", headLines(line, detail, now)],
    ["settings", settingLines(detail, width)],
    ["loss", points ? lossLines(points) : []],
    ["speed", points ? speedLines(points, detail) : []],
    ["ranks", rankLines(view)],
    ["epochs", epochLines(detail)],
    ["tests", testLines(detail)],
    ["evaluated", evaluationLines(detail)],
    ["samples", sampleLines(detail)],
    ["memory", memoryLines(memory.at(-1), width)],
    ["plans", largestOf(plans).flatMap(planLines)],
    ["incidents", incidentLines(detail)],
    ["notes", notes.slice(0, maxNotes)],
  ];
  const lines = sections.flatMap(([word, texts]) =>
    texts.map((text, index) => (index === 0 ? word : "").padEnd(margin) + text),
  );
  return `${lines.map((text) => fitLine(text, columns).trimEnd()).join("\n")}\n`;
}

function headLines(line: RunLine, { status }: RunDetail, now: number): string[] {
  const { name, state, step, of, device, started, updated, isLive, note } = line;
  const isCounted = step !== null && of !== null && of > 0;
  const at =
    step === null ? "" : isCounted ? `, step ${count(step)} of ${count(of)}` : `, step ${count(step)}`;
  const heartbeat =
    isLive && updated !== null
      ? `last heartbeat ${formatDuration(Math.max(0, now - Date.parse(updated)))} ago`
      : `last heartbeat ${minuteOf(updated)}`;
  const reason = status?.reason ?? note;
  return [
    `${name}: ${state}${at}`,
    ...(isCounted ? [`${progressBar(step / of, 40)} ${percent(step / of)}`] : []),
    device ?? "an unknown device",
    `started ${minuteOf(started)}, ${heartbeat}`,
    ...(reason === undefined || reason === null ? [] : [reason]),
  ];
}

function settingLines({ run }: RunDetail, width: number): string[] {
  const settings: unknown = run?.settings;
  if (typeof settings !== "object" || settings === null) return [];
  const texts = Object.entries(settings).map(([name, value]) => `${name} ${shortText(value)}`);
  return wrap(texts, width).slice(0, 4);
}

function rankLines(view: RunView): string[] {
  const { ranks } = rankTable(view.ranks().ranks, view.inspection().plans);
  const ms = (value: number | null): string => (value === null ? "–" : formatDuration(value));
  const slowest = [...ranks].sort((a, b) => (b.ownMs ?? 0) - (a.ownMs ?? 0)).slice(0, maxRanks);
  const rows = slowest.map(({ rank, host, stepMs, ownMs, sentBytes, isSlow }) => [
    ...[String(rank), host, ms(stepMs), ms(ownMs)],
    ...[
      sentBytes === null ? "–" : formatBytes(Math.round(sentBytes)),
      isSlow ? "the others wait for it" : "",
    ],
  ]);
  if (rows.length === 0) return [];
  const more = ranks.length - rows.length;
  return [
    ...tableLines([["rank", "host", "step", "own work", "sent", ""], ...rows], [1, 5]),
    ...(more > 0 ? [`${more} more, which work less`] : []),
  ];
}

function lossLines({ rows, columns }: StepPoints): string[] {
  const { loss, lossMin, lossMax, notFinite, step } = columns;
  if (rows === 0) return [];
  const finite = Array.from(loss).filter(Number.isFinite);
  const min = Array.from(lossMin)
    .filter(Number.isFinite)
    .reduce((a, b) => Math.min(a, b), Infinity);
  const max = Array.from(lossMax)
    .filter(Number.isFinite)
    .reduce((a, b) => Math.max(a, b), -Infinity);
  const notFiniteRows = notFinite.reduce((sum, a) => sum + a, 0);
  const figures =
    finite.length === 0
      ? "unknown yet"
      : `now ${figure(finite.at(-1))}, first ${figure(finite[0])}, min ${figure(min)}, max ${figure(max)}`;
  return [
    sparkline(loss),
    figures,
    `${count(rows)} steps, up to step ${count(step.at(-1) ?? 0)}`,
    ...(notFiniteRows > 0 ? [`${count(notFiniteRows)} steps have a loss that is not finite or unknown`] : []),
  ];
}

function speedLines({ rows, columns }: StepPoints, { status, metrics }: RunDetail): string[] {
  if (rows === 0) return [];
  const { hostMs, lr } = columns;
  // The trainer's figure: times of single steps say little, because the host runs ahead of the device.
  const rates = (name: "samplesPerSecond" | "tokensPerSecond"): number | undefined =>
    [status?.figures?.[name], ...metrics.map((a) => a[name]).reverse()].find((a) => typeof a === "number");
  const [tokens, samples] = [rates("tokensPerSecond"), rates("samplesPerSecond")];
  const throughput =
    tokens !== undefined
      ? `${count(Math.round(tokens))} tokens/s, `
      : samples !== undefined
        ? `${count(Math.round(samples))} samples/s, `
        : "";
  return [
    `${throughput}host ${formatDuration(hostMs.at(-1) ?? 0)} per step; learning rate ${figure(lr.at(-1))}`,
  ];
}

function epochLines({ metrics }: RunDetail): string[] {
  const epochs = metrics.filter((record) => typeof record["epoch"] === "number");
  if (epochs.length === 0) return [];
  const rows = epochs
    .slice(-maxEpochs)
    .map(({ fold, epoch, loss, lr, samplesPerSecond, seconds }) => [
      ...[fold, epoch].map((index) => (typeof index === "number" ? String(index + 1) : "")),
      ...[figure(loss), figure(lr)],
      ...[typeof samplesPerSecond === "number" ? count(Math.round(samplesPerSecond)) : ""],
      ...[typeof seconds === "number" ? formatDuration(1000 * seconds) : ""],
    ]);
  const left = epochs.length - rows.length;
  return [
    ...(left > 0 ? [`${count(left)} earlier`] : []),
    ...tableLines([["fold", "epoch", "loss", "rate", "samples/s", "time"], ...rows], []),
  ];
}

function testLines({ metrics }: RunDetail): string[] {
  return metrics.flatMap(({ fold, test }) => {
    if (typeof test !== "object" || test === null) return [];
    const { loss, accuracy, majority } = test as Readonly<Record<string, unknown>>;
    const share = (value: unknown): string => (typeof value === "number" ? percent(value) : "unknown");
    return [
      `fold ${Number(fold) + 1}: loss ${figure(loss)}, accuracy ${share(accuracy)}, most frequent class ${share(majority)}`,
    ];
  });
}

/** The first and the last evaluations of a language model. */
function evaluationLines({ metrics }: RunDetail): string[] {
  const lines = metrics.flatMap(({ step, evaluation }) => {
    if (typeof evaluation !== "object" || evaluation === null || typeof step !== "number") return [];
    const { loss, perplexity } = evaluation as Readonly<Record<string, unknown>>;
    return [`step ${count(step)}: perplexity ${figure(perplexity)}, loss ${figure(loss)}`];
  });
  const [first, ...rest] = lines;
  if (first === undefined) return [];
  const left = rest.length - (maxEvaluations - 1);
  return [first, ...(left > 0 ? [`${count(left)} others`] : []), ...rest.slice(1 - maxEvaluations)];
}

/** The newest texts of a language model. */
function sampleLines({ metrics }: RunDetail): string[] {
  const texts = metrics.findLast((record) => Array.isArray(record["texts"]))?.["texts"];
  if (!Array.isArray(texts)) return [];
  return texts.slice(0, maxSamples).flatMap((entry: unknown) => {
    const { prompt, text } = (entry ?? {}) as Readonly<Record<string, unknown>>;
    if (typeof prompt !== "string" || typeof text !== "string") return [];
    return [`${prompt}▸${text}`.replaceAll(/\s+/g, " ")];
  });
}

function memoryLines(sample: MemorySample | undefined, width: number): string[] {
  if (!sample) return [];
  const { used, limit, arena, step } = sample;
  const holders = [...sample.holders].sort((a, b) => b.bytes - a.bytes);
  const named = holders
    .slice(0, maxHolders)
    .map(({ label, bytes }, index) => `${shadeOf(index)} ${label} ${formatBytes(bytes)}`);
  return [
    `${formatBytes(used)} of ${formatBytes(limit)}, ${percent(used / Math.max(limit, 1))}, at step ${count(step)}; by holder:`,
    stackedBar(
      holders.map(({ bytes }) => bytes),
      used,
      Math.min(60, width),
    ),
    ...wrap(named, width),
    `arena ${formatBytes(arena.committed)} committed, at most ${formatBytes(arena.highWater)} used, ${count(arena.pins)} pins`,
  ];
}

function planLines({ name, inputs, mode, calls, memory }: PlanRecord): string[] {
  const { peak, peakAt, tensors } = memory;
  const live = tensors
    .filter(({ birth, death }) => birth <= peakAt && peakAt <= death)
    .sort((a, b) => b.bytes - a.bytes);
  return [
    `${name}: ${mode ?? "not run yet"}, ${count(calls.length)} calls, step memory ${formatBytes(peak)}`,
    `  for ${inputs}`,
    ...(live.length > 0 ? [`  ${live.length} live at the peak, call ${peakAt}; the largest:`] : []),
    ...live.slice(0, 3).map(({ label, type = "scratch", bytes, isSaved }) => {
      return `    ${formatBytes(bytes).padStart(10)}  ${label}  ${type}${isSaved ? "  saved for backward" : ""}`;
    }),
  ];
}

function incidentLines({ incidents }: RunDetail): string[] {
  const lines = incidents
    .slice(-maxIncidents)
    .flatMap(({ kind, step, message, phases }) => [
      `${kind} at step ${count(step)}: ${message}`,
      ...(phases.length > 0 ? [`  after ${phases.slice(-3).join(", ")}`] : []),
    ]);
  const left = incidents.length - maxIncidents;
  return left > 0 ? [`${count(left)} earlier`, ...lines] : lines;
}

function count(value: number): string {
  return value.toLocaleString("en");
}

function figure(value: unknown): string {
  if (typeof value !== "number" || !Number.isFinite(value)) return "unknown";
  return Number(value.toPrecision(4)).toString();
}

function percent(share: number): string {
  return `${(100 * share).toFixed(1)} %`;
}

function minuteOf(iso: string | null): string {
  const time = Date.parse(iso ?? "");
  return Number.isNaN(time)
    ? "unknown"
    : `${new Date(time).toISOString().slice(0, 16).replace("T", " ")} UTC`;
}

function shortText(value: unknown): string {
  return typeof value === "string" ? value : (JSON.stringify(value) ?? "none");
}

/** Texts joined by commas and wrapped. */
function wrap(texts: readonly string[], width: number): string[] {
  const lines: string[] = [];
  for (const [index, text] of texts.entries()) {
    const word = index < texts.length - 1 ? `${text},` : text;
    const last = lines.at(-1);
    if (last !== undefined && last.length + 1 + word.length <= width)
      lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(word);
  }
  return lines;
}

/** The plans with the most memory: those of full batches. */
function largestOf(plans: readonly PlanRecord[]): readonly PlanRecord[] {
  return plans.toSorted((a, b) => b.memory.peak - a.memory.peak).slice(0, 2);
}
