/** What became of a compiled step, for people: each stage from its trace to its capture, then its calls one by one. */

import type { Replayable } from "../../runtime/index.js";
import { formatBytes, formatDuration } from "../../units/index.js";
import { type PassName, type PlannedStep, passNames } from "../compile.js";
import { describeFusions } from "../fusion/vertical/fuse.js";
import { accessesOf, type Call } from "../program/program.js";
import { planRules } from "../verify/verify.js";
import { formatCalls } from "./call-table.js";
import { cutText, formatColumns, reportWidth, wrapText } from "./text-columns.js";

/** One plan of a step. */
export interface ExplainedPlan {
  /** The dtypes and shapes that it is for, as one text. */
  readonly inputs: string;
  readonly planned: PlannedStep;
  /** How it is run; nothing before its first call. */
  readonly replayable?: Replayable | undefined;
}

/** Options of `explain()`. */
export interface ExplainOptions {
  /** Whether the calls are listed, too; default: true. */
  readonly calls?: boolean;
}

/** What each pass does. */
export const purposes: Readonly<Record<Exclude<PassName, "products">, string>> = {
  common: "calls that do the same work on the same values run once",
  copies: "values are read at their source and written to their final place",
  dead: "results that nobody reads are not computed",
  casts: "weights that lie together are converted in one call",
  attention: "on a GPU, attention stores half floats if every reader wants half floats",
  rematerialize: "cheap values are recomputed after the memory peak instead of being kept",
  afresh: "on a GPU, a value that is overwritten after it was read gets a new buffer",
  apart: "on a GPU, small outputs with fewer dependencies are split off and run earlier",
  fuse: "calls that can share a kernel are fused",
  turned: "on some GPUs, TF32 weights are transposed for products that read them along k",
  finish: "on some GPUs, elementwise work on a product's result runs in its epilogue",
  narrow: "on a GPU, bf16 products store bf16 results for later kernels",
  sums: "on a GPU, column sums start in kernels that already hold the rows",
  alike: "on a GPU, copies of the same shape are one launch",
  together: "on a GPU, small products are grouped into one launch",
  reductions: "on a GPU, column reductions are grouped into one launch",
  early: "on a GPU, grouped reductions start before the group's last input is ready",
  beside: "on a GPU, small row kernels share a launch with others",
};

/** So many rows of a list are shown; the rest is counted. */
const [maxFusions, maxHolders] = [12, 5];
const labelWidth = 12;
const textWidth = reportWidth - labelWidth;

/** The text of all plans that a step has. */
export function explainStep(
  name: string,
  plans: readonly ExplainedPlan[],
  options: ExplainOptions = {},
): string {
  if (plans.length === 0)
    return `Compiled ${name} has no plan yet: its first call makes one, and so does memory(...inputs).`;
  const head = `Compiled ${name}: ${count(plans.length, "plan")}.`;
  const texts = plans.map((plan, index) => explainPlan(plan, index + 1, options));
  return [head, ...texts].join("\n\n");
}

function explainPlan(plan: ExplainedPlan, number: number, { calls = true }: ExplainOptions): string {
  const { inputs, planned, replayable } = plan;
  const lines = [
    ...section(`plan ${number}`, [`for ${inputs === "" ? "no inputs" : `inputs ${inputs}`}`]),
    ...section("trace", [explainTrace(planned)]),
    ...explainPasses(planned),
    ...section("products", [explainGemms(planned)]),
    ...section("schedule", [explainSchedule(planned)]),
    ...section("plan", explainMemory(planned)),
    ...section("persistent", explainPersistent(planned)),
    ...section("verify", explainVerification(planned)),
    ...section("capture", [explainCapture(replayable)]),
  ];
  return [...lines, ...(calls ? ["", ...formatCalls(planned.schedule)] : [])].join("\n");
}

const ruleNames = Object.keys(planRules);

function section(label: string, texts: readonly string[]): string[] {
  const lines = texts.flatMap((text) => wrapRow(text));
  return lines.map((line, index) => `${(index === 0 ? label : "").padEnd(labelWidth)}${line}`.trimEnd());
}

/** Rows of a list are indented, and so are already as they should be. */
function wrapRow(text: string): string[] {
  return text.startsWith(" ") ? [cutText(text, textWidth)] : wrapText(text, textWidth);
}

function explainTrace({ ops, stages }: PlannedStep): string {
  const [traced] = stages;
  return `${count(ops, "op")}, ${count(traced?.calls.length ?? 0, "call")}`;
}

function explainPasses({ stages, fallback }: PlannedStep): string[] {
  const width = String(stages[0]?.calls.length ?? 0).length;
  const after = new Map(stages.map((stage, index) => [stage.name, { stage, before: stages[index - 1] }]));
  return passNames.flatMap((name) => {
    if (name === "products") return [];
    const found = after.get(name);
    if (!found?.before) {
      const isRejected = fallback?.leftOut.includes(name);
      return section(name, [isRejected ? rejectedWithIt : "left out, as the settings say"]);
    }
    const [before, left] = [found.before.calls, found.stage.calls];
    const numbers = [before, left].map(({ length }) => String(length).padStart(width)).join(" → ");
    const [effect = "", ...rows] = effectOf(before, left);
    const [first = "", ...more] = wrapText(`${purposes[name]}: ${effect}`, textWidth - numbers.length - 2);
    const indent = " ".repeat(numbers.length + 2);
    return section(name, [`${numbers}  ${first}`, ...[...more, ...rows].map((row) => `${indent}${row}`)]);
  });
}

function explainGemms({ products: report, fallback }: PlannedStep): string {
  if (fallback?.leftOut.includes("products")) return rejectedWithIt;
  if (!report) return "as eager code has them: there is no library to choose for, or the settings say so";
  const { products, changed, measured, beforeUs, afterUs, elapsedMs } = report;
  const gain = changed > 0 ? `, ${beforeUs.toFixed(1)} → ${afterUs.toFixed(1)} µs` : "";
  return (
    `the fastest of the library's algorithms: ${changed} of ${count(products, "product")} changed${gain}; ` +
    `${count(measured, "kind")} measured in ${formatDuration(elapsedMs)}`
  );
}

const rejectedWithIt = "left out: the verifier rejected the plan with it, or with a pass before it";

function explainVerification({ fallback }: PlannedStep): string[] {
  const held = `all ${ruleNames.length} rules hold: ${ruleNames.join(", ")}`;
  if (!fallback) return [held];
  const { leftOut, rejection, report } = fallback;
  return [
    held,
    `the verifier rejected the first plan, so these passes were left out: ${leftOut.toReversed().join(", ")}. ` +
      `Reason: ${rejection.message} Please report it with ${report}`,
  ];
}

/** What a pass has done, in a sentence; then the kernels that it has made of several calls, in rows. */
export function effectOf(before: readonly Call[], after: readonly Call[]): string[] {
  const known = new Set(before);
  const fusions = describeFusions(after.filter((call) => !known.has(call)));
  if (fusions.length > 0) {
    const members = fusions.reduce((sum, { ops }) => sum + ops.length, 0);
    const gone = new Set(fusions.flatMap((fusion) => fusion.gone.filter(({ storage }) => !storage)));
    const bytes = [...gone].reduce((sum, buffer) => sum + buffer.bytes, 0);
    const saved = gone.size > 0 ? `, and ${count(gone.size, "buffer")} of ${formatBytes(bytes)} less` : "";
    const names = tally(fusions.map(({ kernel }) => kernel));
    const rows = most(names, maxFusions, ([name, times]) => `${`×${times}`.padStart(4)}  ${name}`);
    return [`${count(fusions.length, "call")} of ${members}${saved}`, ...rows];
  }
  const counts = new Map(tally(before.map(({ op }) => op)));
  for (const { op } of after) counts.set(op, (counts.get(op) ?? 0) - 1);
  const list = (sign: 1 | -1): string =>
    most(
      [...counts].filter(([, times]) => times * sign > 0),
      maxFusions,
      ([op, times]) => `${op} ×${times * sign}`,
    ).join(", ");
  const [gone, added] = [list(1), list(-1)];
  const changes = [explainRounding(before, after), gone && `${gone} gone`, added && `${added} more`];
  return [changes.filter(Boolean).join("; ") || "no change"];
}

/** How many products more store half floats, and what that saves. */
function explainRounding(before: readonly Call[], after: readonly Call[]): string {
  const isRounded = ({ work }: Call): boolean =>
    (work.kind === "gemm" || work.kind === "gemm-epilogue") && work.problem.resultDtype === "bf16";
  const more = after.filter(isRounded).length - before.filter(isRounded).length;
  const saved = stepBytesOf(before) - stepBytesOf(after);
  return more > 0 ? `${count(more, "product")}, and ${formatBytes(saved)} of buffers less` : "";
}

/** What all buffers of the step take, each by itself. */
function stepBytesOf(calls: readonly Call[]): number {
  const met = new Set(calls.flatMap((call) => accessesOf(call).map(({ slice }) => slice.buffer)));
  return [...met].reduce((sum, { bytes, storage }) => sum + (storage ? 0 : bytes), 0);
}

function explainSchedule({ schedule: { calls } }: PlannedStep): string {
  const streams = new Set(calls.map(({ stream }) => stream)).size;
  const early = calls.filter((one) => one.prefetches).length;
  const pdl = early > 0 ? `; ${early} may begin while the one before them ends` : "";
  return `${count(calls.length, "call")} on ${count(Math.max(1, streams), "stream", "streams")}${pdl}`;
}

function explainMemory({ memory }: PlannedStep): string[] {
  const { peak, lowerBound, at, op, holders } = memory;
  if (peak === 0) return ["no step memory: everything is made where it stays"];
  const ratio = (peak / lowerBound).toFixed(3);
  return [
    `${formatBytes(peak)} of step memory, ${ratio} of the lower bound of ${formatBytes(lowerBound)}; the most is live at call ${at}, ${op}:`,
    ...listHolders(holders.map(({ label, bytes, count: times }) => [label, bytes, `in ${times}`])),
  ];
}

function explainPersistent({ memory: { persistent } }: PlannedStep): string[] {
  const bytes = persistent.reduce((sum, one) => sum + one.bytes, 0);
  return [
    `${formatBytes(bytes)} in ${count(persistent.length, "region")} that it touches`,
    ...listHolders(persistent.map((one) => [one.label, one.bytes, ""])),
  ];
}

/** Labels with their bytes, largest first, and a last line for the rest of them. */
function listHolders(holders: readonly (readonly [label: string, bytes: number, note: string])[]): string[] {
  const rest = holders.slice(maxHolders);
  const restBytes = rest.reduce((sum, [, bytes]) => sum + bytes, 0);
  const shown = holders.slice(0, maxHolders).map(([label, bytes, note]) => [formatBytes(bytes), label, note]);
  const rows = rest.length > 0 ? [...shown, [formatBytes(restBytes), `in ${rest.length} others`, ""]] : shown;
  const columns = [
    { title: "", align: "right" },
    { title: "", align: "left", most: 60 },
    { title: "", align: "left" },
  ] as const;
  return formatColumns(columns, rows)
    .slice(1)
    .map((line) => `  ${line}`);
}

function explainCapture(replayable: Replayable | undefined): string {
  if (!replayable) return "not yet: the first call takes the memory and captures it";
  const { mode, nodes, reason } = replayable;
  if (mode === "direct") return `none, it runs call by call${reason ? `: ${reason}` : ""}`;
  if (!nodes) return "one graph";
  const { kernel, copy, fill } = nodes;
  return `one graph of ${count(kernel + copy + fill, "node")}: ${kernel} kernels, ${copy} copies, ${fill} fills`;
}

/** How often each name stands in the list, the most frequent first. */
function tally(names: readonly string[]): [name: string, times: number][] {
  const counts = new Map<string, number>();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts].sort(([, a], [, b]) => b - a);
}

/** The first so many as text, and how many there are besides. */
function most<T>(list: readonly T[], shown: number, print: (one: T) => string): string[] {
  const texts = list.slice(0, shown).map(print);
  return list.length > shown ? [...texts, `and ${list.length - shown} others`] : texts;
}

function count(number: number, one: string, several = `${one}s`): string {
  return `${number} ${number === 1 ? one : several}`;
}
