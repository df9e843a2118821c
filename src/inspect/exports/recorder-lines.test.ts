/** Reading the recorder's log: nested phases, also after a kill and in a log without its start. */

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { makeFolder } from "../../../test/support/folders.js";
import { readRecorder } from "./recorder-lines.js";
import type { TraceSpan } from "./trace-events.js";

const start = Date.UTC(2026, 0, 5, 12);
const at = (ms: number, text: string): string => `${new Date(start + ms).toISOString()}  ${text}`;

function read(lines: readonly string[], most = 1000): ReturnType<typeof readRecorder> {
  const folder = makeFolder();
  writeFileSync(join(folder, "recorder.log"), lines.map((line) => `${line}\n`).join(""));
  return readRecorder(folder, most);
}

/** `name start+duration note [nested spans]` */
function draw(spans: readonly TraceSpan[]): string {
  return spans
    .map(({ name, startMs, durationMs, args, inner = [] }) => {
      const note = args?.["note"] === undefined ? "" : ` (${args["note"]})`;
      return `${name} ${startMs - start}+${durationMs}${note}${inner.length > 0 ? ` [${draw(inner)}]` : ""}`;
    })
    .join(", ");
}

test("a phase ends with its exit and contains the phases meanwhile, and a folded phase has its recorded duration", () => {
  const { phases, instants } = read([
    at(0, "phase-enter  compile (train)"),
    at(1, "phase        plan  1.5ms  step 3"),
    at(2, "charge       step arena  64 MiB  step 3"),
    at(3, "phase-enter  capture"),
    at(7, "phase-exit   capture"),
    at(9, "phase-exit   compile (train)"),
    at(10, "phase        read-back (loss) ×12  0.3s"),
  ]);
  assert.equal(draw(phases), "compile (train) 0+9 [plan 1+1.5, capture 3+4], read-back (loss) ×12 10+300");
  assert.deepEqual(
    instants.map(({ name, cat, atMs, args }) => [name, cat, atMs - start, args]),
    [["charge step arena", "charge", 2, { step: 3, details: "64 MiB, step 3" }]],
  );
  assert.deepEqual(
    phases.map(({ cat }) => cat),
    ["phase", "copy"],
  );
});

test("open phases of a killed process end when the next process opens its device", () => {
  const { phases } = read([
    at(0, "phase-enter  step  step 8"),
    at(5, "phase        upload  1ms"),
    at(100, "phase-enter  init"),
    at(104, "phase-exit   init"),
    at(105, "phase-enter  step  step 7"),
    at(106, "capture      train step"),
  ]);
  assert.equal(
    draw(phases),
    "step 0+6 (end not recorded) [upload 5+1], init 100+4, step 105+1 (still running at the end of the log)",
  );
});

test("an exit without its start, and invalid lines, are ignored", () => {
  const { phases } = read([
    "3 events came too fast and were lost",
    at(1, "phase-exit   compile"),
    at(2, "phase        plan  0ms"),
    "",
  ]);
  assert.equal(draw(phases), "plan 2+0");
});

test("the older log comes first, the last lines are read, and an incomplete line is not", () => {
  const folder = makeFolder();
  writeFileSync(join(folder, "recorder.old.log"), `${at(0, "phase  a  1ms")}\n${at(1, "phase  b  1ms")}\n`);
  writeFileSync(join(folder, "recorder.log"), `${at(2, "phase  c  1ms")}\n${at(3, "phase  d")}`);
  const { phases, omitted } = readRecorder(folder, 2);
  assert.equal(draw(phases), "b 1+1, c 2+1");
  assert.equal(omitted, 1);
  assert.deepEqual(readRecorder(makeFolder(), 2), { phases: [], instants: [], omitted: 0 });
});
