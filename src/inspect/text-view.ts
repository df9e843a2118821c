/** A run for a terminal: what the page shows, as short as it can be said. */

import type { MemorySample, PlanRecord } from "../records/index.js";
import { formatBytes, formatDuration } from "../units/index.js";
import type { RunDetail, RunLine } from "./page/wire.js";
import type { RunView } from "./run-view.js";
import type { StepPoints } from "./step-table.js";
import { fitLine, phasesBar, progressBar, shadeOf, sparkline, tableLines } from "./text-marks.js";

export interface TextOptions {
  /** Columns of the terminal; 80 unless given. */
  readonly columns?: number;
  /** Milliseconds since 1970; the system's clock unless given. */
  readonly now?: number;
}

/** The words at the left, and the room they take. */
const margin = 10;
const maxEpochs = 8;
const maxHolders = 6;
const maxIncidents = 4;
const maxNotes = 4;

/** The list of runs, a line each. */
export function describeRuns(lines: readonly RunLine[], { columns = 80 }: TextOptions = {}): string {
  if (lines.length === 0) return "There are no runs here.\n";
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
    // Its message stands in the detail already.
  }
  const parts: readonly (readonly [string, readonly string[]])[] = [
    ["run", headLines(line, detail, now)],
    ["settings", settingLines(detail, width)],
    ["loss", points ? lossLines(points) : []],
    ["speed", points ? speedLines(points, detail) : []],
    ["epochs", epochLines(detail)],
    ["tests", testLines(detail)],
    ["memory", memoryLines(memory.at(-1), width)],
    ["plans", largestOf(plans).flatMap(planLines)],
    ["incidents", incidentLines(detail)],
    ["notes", notes.slice(0, maxNotes)],
  ];
  const lines = parts.flatMap(([word, texts]) =>
    texts.map((text, index) => (index === 0 ? word : "").padEnd(margin) + text),
  );
  return `${lines.map((text) => fitLine(text, columns).trimEnd()).join("\n")}\n`;
}

function headLines(line: RunLine, { status }: RunDetail, now: number): string[] {
  const { name, state, step, of, device, started, updated, isLive, note } = line;
  const isCounted = step !== null && of !== null && of > 0;
  const at =
    step === null ? "" : isCounted ? `, step ${count(step)} of ${count(of)}` : `, step ${count(step)}`;
  const heard =
    isLive && updated !== null
      ? `heard of ${formatDuration(Math.max(0, now - Date.parse(updated)))} ago`
      : `last heard of ${minuteOf(updated)}`;
  const reason = status?.reason ?? note;
  return [
    `${name}: ${state}${at}`,
    ...(isCounted ? [`${progressBar(step / of, 40)} ${percent(step / of)}`] : []),
    device ?? "an unknown device",
    `started ${minuteOf(started)}, ${heard}`,
    ...(reason === undefined || reason === null ? [] : [reason]),
  ];
}

function settingLines({ run }: RunDetail, width: number): string[] {
  const settings: unknown = run?.settings;
  if (typeof settings !== "object" || settings === null) return [];
  const texts = Object.entries(settings).map(([name, value]) => `${name} ${shortText(value)}`);
  return wrap(texts, width).slice(0, 4);
}

function lossLines({ rows, columns }: StepPoints): string[] {
  const { loss, lossMin, lossMax, notFinite, step } = columns;
  if (rows === 0) return [];
  const known = Array.from(loss).filter(Number.isFinite);
  const least = Array.from(lossMin)
    .filter(Number.isFinite)
    .reduce((one, other) => Math.min(one, other), Infinity);
  const most = Array.from(lossMax)
    .filter(Number.isFinite)
    .reduce((one, other) => Math.max(one, other), -Infinity);
  const lost = notFinite.reduce((sum, one) => sum + one, 0);
  const figures =
    known.length === 0
      ? "not known yet"
      : `now ${figure(known.at(-1))}, at first ${figure(known[0])}, least ${figure(least)}, most ${figure(most)}`;
  return [
    sparkline(loss),
    figures,
    `${count(rows)} steps, up to step ${count(step.at(-1) ?? 0)}`,
    ...(lost > 0 ? [`${count(lost)} steps have a loss that is not finite or not known`] : []),
  ];
}

function speedLines({ rows, columns }: StepPoints, { status, metrics }: RunDetail): string[] {
  if (rows === 0) return [];
  const { hostMs, lr } = columns;
  // As the trainer measures it: the times of single steps say little, because steps are sent ahead of the device.
  const told = [
    status?.figures?.samplesPerSecond,
    ...metrics.map((one) => one["samplesPerSecond"]).reverse(),
  ];
  const rate = told.find((one) => typeof one === "number");
  const said = rate === undefined ? "" : `${count(Math.round(rate))} samples/s, `;
  return [`${said}host ${formatDuration(hostMs.at(-1) ?? 0)} a step; learning rate ${figure(lr.at(-1))}`];
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
    ...(left > 0 ? [`${count(left)} before these`] : []),
    ...tableLines([["fold", "epoch", "loss", "rate", "samples/s", "time"], ...rows], []),
  ];
}

function testLines({ metrics }: RunDetail): string[] {
  return metrics.flatMap(({ fold, test }) => {
    if (typeof test !== "object" || test === null) return [];
    const { loss, accuracy, majority } = test as Readonly<Record<string, unknown>>;
    const share = (value: unknown): string => (typeof value === "number" ? percent(value) : "unknown");
    return [
      `fold ${Number(fold) + 1}: loss ${figure(loss)}, accuracy ${share(accuracy)}, commonest class ${share(majority)}`,
    ];
  });
}

function memoryLines(sample: MemorySample | undefined, width: number): string[] {
  if (!sample) return [];
  const { used, limit, arena, step } = sample;
  const holders = [...sample.holders].sort((one, other) => other.bytes - one.bytes);
  const named = holders
    .slice(0, maxHolders)
    .map(({ label, bytes }, index) => `${shadeOf(index)} ${label} ${formatBytes(bytes)}`);
  return [
    `${formatBytes(used)} of ${formatBytes(limit)}, ${percent(used / Math.max(limit, 1))}, at step ${count(step)}; of these:`,
    phasesBar(
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
  const alive = tensors
    .filter(({ birth, death }) => birth <= peakAt && peakAt <= death)
    .sort((one, other) => other.bytes - one.bytes);
  return [
    `${name}: ${mode ?? "not run yet"}, ${count(calls.length)} calls, step memory ${formatBytes(peak)}`,
    `  for ${inputs}`,
    ...(alive.length > 0 ? [`  ${alive.length} alive at the peak, call ${peakAt}; the largest:`] : []),
    ...alive.slice(0, 3).map(({ label, type = "scratch", bytes, isSaved }) => {
      return `    ${formatBytes(bytes).padStart(10)}  ${label}  ${type}${isSaved ? "  saved for backward" : ""}`;
    }),
  ];
}

function incidentLines({ incidents }: RunDetail): string[] {
  const told = incidents
    .slice(-maxIncidents)
    .flatMap(({ kind, step, message, phases }) => [
      `${kind} at step ${count(step)}: ${message}`,
      ...(phases.length > 0 ? [`  after ${phases.slice(-3).join(", ")}`] : []),
    ]);
  const left = incidents.length - maxIncidents;
  return left > 0 ? [`${count(left)} before these`, ...told] : told;
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

/** Texts with commas between them, in as few lines as they take. */
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

/** The plans that matter: those of whole batches need the most memory. */
function largestOf(plans: readonly PlanRecord[]): readonly PlanRecord[] {
  return plans.toSorted((a, b) => b.memory.peak - a.memory.peak).slice(0, 2);
}
