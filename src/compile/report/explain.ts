/** The text of explain(): each stage of a compiled step from its trace to its capture, then its calls one by one. */

import type { Replayable } from "../../runtime/index.js";
import { formatBytes, formatDuration } from "../../units/index.js";
import { describeFusions } from "../fusion/vertical/fuse.js";
import {
  gemmAlgorithms,
  type PassName,
  type PhaseName,
  passNames,
  passOf,
  phaseNames,
  purposeOf,
} from "../pipeline.js";
import type { PlannedStep } from "../planned-step.js";
import { accessesOf, type Call } from "../program/program.js";
import { planRules } from "../verify/verify.js";
import { formatCalls } from "./call-table.js";
import { cutText, formatColumns, reportWidth, wrapText } from "./text-columns.js";

/** One plan of a step. */
export interface ExplainedPlan {
  /** The dtypes and shapes of its inputs, as one text. */
  readonly inputs: string;
  readonly planned: PlannedStep;
  /** How it runs; undefined before its first call. */
  readonly replayable?: Replayable | undefined;
}

/** Options of `explain()`. */
export interface ExplainOptions {
  /** List the calls too. Default: true. */
  readonly calls?: boolean;
}

/** Longer lists are cut; the rest is counted. */
const [maxFusions, maxHolders] = [12, 5];
const labelWidth = 18;
const textWidth = reportWidth - labelWidth;

/** The text of all plans that a step has. */
export function explainStep(
  name: string,
  plans: readonly ExplainedPlan[],
  options: ExplainOptions = {},
): string {
  if (plans.length === 0)
    return `Compiled ${name} has no plan yet: its first call creates one, and so does memory(...inputs).`;
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

/** Rows of a list are indented and are cut instead of wrapped. */
function wrapRow(text: string): string[] {
  return text.startsWith(" ") ? [cutText(text, textWidth)] : wrapText(text, textWidth);
}

function explainTrace({ ops, stages }: PlannedStep): string {
  const [traced] = stages;
  return `${count(ops, "op")}, ${count(traced?.calls.length ?? 0, "call")}`;
}

/** A section for each pass, with a row for each of its phases. */
function explainPasses(planned: PlannedStep): string[] {
  return passNames.flatMap((pass) => {
    const phases = phaseNames.filter((name) => passOf(name) === pass);
    const rows = phases.flatMap((name) => explainPhase(planned, name, phases.length === 1));
    const isSkipped = phases.length > 1 && phases.every((name) => isSkippedBySettings(planned, name));
    return section(pass, [
      ...(isSkipped ? [skippedBySettings] : rows),
      ...(pass === schedulePass ? [explainSchedule(planned)] : []),
    ]);
  });
}

const schedulePass: PassName = "schedule";
const skippedBySettings = "left out, as the settings say";

function isSkippedBySettings({ stages, fallback }: PlannedStep, name: PhaseName): boolean {
  return !stages.some((stage) => stage.name === name) && !fallback?.leftOut.includes(name);
}

/** The calls before and after a phase and what changed, then a row for each fused kernel. */
function explainPhase(planned: PlannedStep, name: PhaseName, isWholePass: boolean): string[] {
  const { stages, fallback } = planned;
  const prefix = isWholePass ? "" : `${name}: `;
  if (fallback?.leftOut.includes(name)) return [`${prefix}${rejectedWithIt}`];
  if (name === gemmAlgorithms.name) return [`${prefix}${explainGemms(planned)}`];
  const index = stages.findIndex((stage) => stage.name === name);
  const [before, after] = [stages[index - 1]?.calls, stages[index]?.calls];
  if (!before || !after) return [`${prefix}${skippedBySettings}`];
  const width = String(stages[0]?.calls.length ?? 0).length;
  const numbers = [before, after].map(({ length }) => String(length).padStart(width)).join(" → ");
  const [effect = "", ...rows] = effectOf(before, after);
  const purpose = isWholePass ? purposeOf(name) : `${name}, ${purposeOf(name)}`;
  const [first = "", ...more] = wrapText(`${purpose}: ${effect}`, textWidth - numbers.length - 2);
  const indent = " ".repeat(numbers.length + 2);
  return [`${numbers}  ${first}`, ...[...more, ...rows].map((row) => `${indent}${row}`)];
}

function explainGemms({ gemms: report }: PlannedStep): string {
  if (!report) return "not tuned (no cuBLASLt, or disabled)";
  const { gemms, changed, measured, beforeUs, afterUs, elapsedMs } = report;
  const gain = changed > 0 ? `, ${beforeUs.toFixed(1)} → ${afterUs.toFixed(1)} µs` : "";
  return (
    `${gemmAlgorithms.purpose}; ${changed} of ${count(gemms, "GEMM")} changed${gain}; ` +
    `${count(measured, "kind")} measured in ${formatDuration(elapsedMs)}`
  );
}

const rejectedWithIt = "left out: the verifier rejected the plan with it, or with an earlier phase";

function explainVerification({ fallback }: PlannedStep): string[] {
  const allRulesHold = `all ${ruleNames.length} rules hold: ${ruleNames.join(", ")}`;
  if (!fallback) return [allRulesHold];
  const { leftOut, rejection, report } = fallback;
  return [
    allRulesHold,
    `the verifier rejected the first plan, so these phases were left out: ${leftOut.toReversed().join(", ")}. ` +
      `Reason: ${rejection.message} Please report it with ${report}`,
  ];
}

/** The effect of a phase as a sentence, then a row for each kind of fused kernel. */
export function effectOf(before: readonly Call[], after: readonly Call[]): string[] {
  const earlier = new Set(before);
  const fusions = describeFusions(after.filter((call) => !earlier.has(call)));
  if (fusions.length > 0) {
    const members = fusions.reduce((sum, { ops }) => sum + ops.length, 0);
    const gone = new Set(fusions.flatMap((fusion) => fusion.gone.filter(({ storage }) => !storage)));
    const bytes = [...gone].reduce((sum, buffer) => sum + buffer.bytes, 0);
    const saved = gone.size > 0 ? `; ${count(gone.size, "buffer")} (${formatBytes(bytes)}) gone` : "";
    const names = tally(fusions.map(({ kernel }) => kernel));
    const rows = firstOf(names, maxFusions, ([name, times]) => `${`×${times}`.padStart(4)}  ${name}`);
    return [`${members} calls become ${fusions.length}${saved}`, ...rows];
  }
  const counts = new Map(tally(before.map(({ op }) => op)));
  for (const { op } of after) counts.set(op, (counts.get(op) ?? 0) - 1);
  const list = (sign: 1 | -1): string =>
    firstOf(
      [...counts].filter(([, times]) => times * sign > 0),
      maxFusions,
      ([op, times]) => `${op} ×${times * sign}`,
    ).join(", ");
  const [gone, added] = [list(1), list(-1)];
  const changes = [explainRounding(before, after), gone && `${gone} gone`, added && `${added} more`];
  return [changes.filter(Boolean).join("; ") || "no change"];
}

/** The number of calls that newly store half floats, and the bytes that this saves. */
function explainRounding(before: readonly Call[], after: readonly Call[]): string {
  const isRounded = ({ work }: Call): boolean => {
    if (work.kind === "attention") return work.shape.resultDtype === "bf16";
    return (work.kind === "gemm" || work.kind === "gemm-epilogue") && work.problem.resultDtype === "bf16";
  };
  const more = after.filter(isRounded).length - before.filter(isRounded).length;
  if (more <= 0) return "";
  const saved = stepBytesOf(before) - stepBytesOf(after);
  return `${count(more, "call")} more store bf16; ${formatBytes(saved)} of buffers gone`;
}

/** The sum of all step buffers, as if none shared memory. */
function stepBytesOf(calls: readonly Call[]): number {
  const buffers = new Set(calls.flatMap((call) => accessesOf(call).map(({ slice }) => slice.buffer)));
  return [...buffers].reduce((sum, { bytes, storage }) => sum + (storage ? 0 : bytes), 0);
}

function explainSchedule({ schedule: { calls } }: PlannedStep): string {
  const streams = new Set(calls.map(({ stream }) => stream)).size;
  const overlapped = calls.filter(({ prefetches }) => prefetches).length;
  const pdl = overlapped > 0 ? `; ${overlapped} with programmatic dependent launch` : "";
  return `${count(calls.length, "call")} on ${count(Math.max(1, streams), "stream")}${pdl}`;
}

function explainMemory({ memory }: PlannedStep): string[] {
  const { peak, lowerBound, at, op, holders } = memory;
  if (peak === 0) return ["no step memory: every result is persistent"];
  const ratio = (peak / lowerBound).toFixed(3);
  return [
    `${formatBytes(peak)} of step memory, ${ratio} of the lower bound of ${formatBytes(lowerBound)}; the peak is at call ${at}, ${op}:`,
    ...listHolders(holders.map(({ label, bytes, count: times }) => [label, bytes, `in ${times}`])),
  ];
}

function explainPersistent({ memory: { persistent } }: PlannedStep): string[] {
  const bytes = persistent.reduce((sum, region) => sum + region.bytes, 0);
  return [
    `${formatBytes(bytes)} in ${count(persistent.length, "region")} that it touches`,
    ...listHolders(persistent.map(({ label, bytes: size }) => [label, size, ""])),
  ];
}

/** Labels with their bytes, largest first, then one line for the rest. */
function listHolders(holders: readonly (readonly [label: string, bytes: number, note: string])[]): string[] {
  const rest = holders.slice(maxHolders);
  const restBytes = rest.reduce((sum, [, bytes]) => sum + bytes, 0);
  const shown = holders.slice(0, maxHolders).map(([label, bytes, note]) => [formatBytes(bytes), label, note]);
  const rows =
    rest.length > 0 ? [...shown, [formatBytes(restBytes), `in ${count(rest.length, "other")}`, ""]] : shown;
  const columns = [
    { title: "", align: "right" },
    { title: "", align: "left", max: 60 },
    { title: "", align: "left" },
  ] as const;
  return formatColumns(columns, rows)
    .slice(1)
    .map((line) => `  ${line}`);
}

function explainCapture(replayable: Replayable | undefined): string {
  if (!replayable) return "not yet: the first call allocates the memory and captures";
  const { mode, nodes, reason, launches = 1 } = replayable;
  if (mode === "direct") return `none, it runs call by call${reason ? `: ${reason}` : ""}`;
  if (!nodes) return "one graph";
  const { kernel, copy, fill } = nodes;
  const graphs =
    launches === 1 ? "one graph of" : `${launches} launches, graphs and collectives in turn, with`;
  return `${graphs} ${count(kernel + copy + fill, "node")}: ${kernel} kernels, ${copy} copies, ${fill} fills`;
}

/** The count of each name, the most frequent first. */
function tally(names: readonly string[]): [name: string, times: number][] {
  const counts = new Map<string, number>();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts].sort(([, a], [, b]) => b - a);
}

/** The first `shown` items as text, then the number of the others. */
function firstOf<T>(list: readonly T[], shown: number, print: (item: T) => string): string[] {
  const texts = list.slice(0, shown).map(print);
  return list.length > shown ? [...texts, `and ${count(list.length - shown, "other")}`] : texts;
}

function count(number: number, noun: string, plural = `${noun}s`): string {
  return `${number} ${number === 1 ? noun : plural}`;
}
