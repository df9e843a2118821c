/** The text of a stall report on stderr: the summary, the figures, and what to do. */

import { exitCodes } from "../../../errors/index.js";
import { fileWorks, formatBytes, formatDuration } from "../../../units/index.js";
import type { ThreadState } from "./process-state.js";
import type { Ending, StallReport } from "./report.js";

const maxEvents = 8;

/** The arena's most useful byte figures; the file has all. */
const shownArenaFigures = ["capacity", "committed", "offset", "highWater", "live", "pinned"] as const;

const stateWords: Readonly<Record<string, string>> = {
  R: "running",
  S: "sleeping",
  D: "inside the kernel",
  T: "stopped",
  t: "stopped by a debugger",
  Z: "ended",
};

const endings: Readonly<Record<Ending, string>> = {
  exit: `the run ends now, with exit code ${exitCodes.stalled.code}`,
  kill: "the run ends now, by SIGKILL",
  none: "the process keeps running; to end it on a stall, start it with HOLDFAST_ON_STALL=end",
};

const programContinues =
  "the process keeps running: the watchdog never ends it because of the program's own code";

/** `where` is the path of the JSON file, or why there is none. */
export function stallReportText(report: StallReport, where: string): string {
  const { what } = report;
  const rows: [string, string][] = [
    [
      "open phases",
      what.phases.map(({ title, openMs }) => `${title} (${formatDuration(openMs)})`).join(" > "),
    ],
    ["budget", budgetText(report)],
    ["arena", arenaText(report)],
    ["memory", memoryText(report)],
    ...threadRows(report),
    ...eventRows(report),
    ...report.notes.map((note): [string, string] => ["note", note]),
    ["look at", advice(report)],
    ["report", where],
    ["ending", what.kind === "program" ? programContinues : endings[report.ending]],
    [
      "to change",
      `if the run is slow but not stuck, start it with a larger HOLDFAST_STALL_AFTER (now ${formatDuration(what.limitMs)})`,
    ],
  ];
  const body = rows.filter(([, text]) => text !== "").map(([name, text]) => `  ${name.padEnd(14)}${text}`);
  return `holdfast: stalled: ${stallSentence(report)}\n${body.join("\n")}\n`;
}

function stallSentence({ what, pid }: StallReport): string {
  const phase = what.phases.at(-1)?.title;
  const op = what.op === null ? "" : ` (last op ${what.op})`;
  const limit = `${formatDuration(what.elapsedMs)} (limit ${formatDuration(what.limitMs)})`;
  if (what.kind === "silence") {
    const call = what.call === null ? "" : `, driver call ${what.call}`;
    return `process ${pid} has sent no heartbeat for ${limit}; the last one was in ${phase ?? "no phase"}${call}${op}`;
  }
  if (what.kind === "program") return `the program's own code has blocked the event loop for ${limit}${op}`;
  if (what.call === null) return `${phase}${op} has made no progress for ${limit}`;
  return `${phase === undefined ? "" : `${phase}, `}driver call ${what.call}${op} has not returned for ${limit}`;
}

function budgetText({ budget }: StallReport): string {
  if (budget === null) return "";
  const holders = Object.entries(budget.used).filter(([, size]) => size > 0);
  const used = holders.reduce((sum, [, size]) => sum + size, 0);
  const table = holders.sort(([, a], [, b]) => b - a).map(([label, size]) => `${label} ${formatBytes(size)}`);
  return [`${formatBytes(used)} of ${formatBytes(budget.limit)}`, ...table].join(", ");
}

function arenaText({ arena }: StallReport): string {
  if (arena === null || arena.capacity === 0) return "";
  const sizes = shownArenaFigures.map((figure) => `${figure} ${formatBytes(arena[figure])}`);
  return `${sizes.join(", ")}, ${arena.pins} pins, generation ${arena.generation}`;
}

function memoryText({ process: { residentBytes, availableBytes, memoryPressure } }: StallReport): string {
  const texts = [
    residentBytes === undefined ? "" : `resident ${formatBytes(residentBytes)}`,
    availableBytes === undefined ? "" : `available ${formatBytes(availableBytes)}`,
    memoryPressure === undefined ? "" : `pressure ${memoryPressure.map(lastTenSeconds).join(", ")}`,
  ];
  return texts.filter((text) => text !== "").join(", ");
}

/** The first two fields of `some avg10=0.12 avg60=…`: some or all tasks, and their share of the last ten seconds. */
function lastTenSeconds(line: string): string {
  return line.replace(/^(\w+) avg10=(\S+).*/, "$1 $2%");
}

/** Threads with the same state share a row: a process has dozens. */
function threadRows({ process: { threads }, pid }: StallReport): [string, string][] {
  const groups = new Map<string, ThreadState[]>();
  for (const thread of threads) {
    const name = thread.id === pid ? `${thread.name} (main)` : thread.name;
    const where = thread.waitChannel === undefined ? "" : ` in ${thread.waitChannel}`;
    const call = thread.systemCall === undefined ? "" : `, system call ${thread.systemCall}`;
    const text = `${name}: ${thread.state} ${stateWords[thread.state] ?? ""}${where}${call}`;
    groups.set(text, [...(groups.get(text) ?? []), thread]);
  }
  return [...groups].map(([text, { length }]) => [
    "thread",
    length > 1 ? `${text} (${length} threads)` : text,
  ]);
}

function eventRows({ events }: StallReport): [string, string][] {
  const lastMs = events.at(-1)?.atMs ?? 0;
  return events.slice(-maxEvents).map(({ atMs, kind, label, step, size }) => {
    const before = atMs === lastMs ? "last" : `${formatDuration(lastMs - atMs)} before`;
    return ["event", `${before}: step ${step}, ${kind} ${label}${size > 0 ? ` ${formatBytes(size)}` : ""}`];
  });
}

function advice({ what, process: { threads } }: StallReport): string {
  if (fileWorks.some((work) => work === what.phase))
    return "the disk: a read, write or fsync of a file has not returned; see dmesg, df and mount";
  if (what.kind === "program")
    return "the program's own code between two steps, such as its data loading or its callbacks: a loop, or a call that blocks";
  if (threads.some(({ state }) => state === "D")) {
    return "the thread in state D: it waits inside a kernel driver; see dmesg, and nvidia-smi for the GPU";
  }
  if (what.kind === "silence")
    return "the thread states: T is stopped by a signal, D waits inside the kernel";
  if (what.call === null) return "the code of that phase: no driver call is open, so the host loops or waits";
  return "that call and the work before it on its stream; nvidia-smi shows whether the GPU is busy";
}
