/** The records of a run are read back unchanged. Damaged records give messages, and the rest is read. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { appendFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { effort } from "../../../test/support/effort.js";
import { makeFolder } from "../../../test/support/folders.js";
import { samplePlan } from "../../../test/support/sample-plan.js";
import { sampleIncidents, writeSampleRun } from "../../../test/support/sample-run.js";
import type { PlanRecord } from "../../records/index.js";
import { InspectionReader, readInspection } from "./read-inspection.js";

test("plans, memory and incidents are read back unchanged", () => {
  const [plans, incidents] = [
    [samplePlan(), samplePlan({ name: "test step", layers: 2 })],
    sampleIncidents(),
  ];
  const run = writeSampleRun(makeFolder(), "a", { plans, incidents });
  const reading = readInspection(run.path);
  assert.deepEqual(JSON.stringify(reading.plans), JSON.stringify(plans));
  assert.deepEqual(JSON.stringify(reading.incidents), JSON.stringify(incidents));
  assert.equal(reading.memory.length, 2);
  assert.deepEqual(reading.messages, []);
});

test("of two records of one plan, the later one is used at the first one's position", () => {
  const [first, second] = [samplePlan(), samplePlan({ name: "test step" })];
  const run = writeSampleRun(makeFolder(), "a", { plans: [first, second, { ...first, step: 7 }] });
  const plans = readInspection(run.path).plans.map(({ name, step }) => [name, step]);
  assert.deepEqual(plans, [
    [first.name, 7],
    [second.name, 0],
  ]);
});

test("a folder without these files is empty and gives no message", () => {
  assert.deepEqual(readInspection(makeFolder()), { plans: [], memory: [], incidents: [], messages: [] });
});

test("a line that is not JSON, or has a field of another kind, is ignored, and a message names its line and field", () => {
  const run = writeSampleRun(makeFolder(), "a");
  const path = join(run.path, "plans.jsonl");
  const bad = { ...samplePlan(), calls: [{ ...samplePlan().calls[0], readBytes: "many" }] };
  appendFileSync(path, `{"name":\n${JSON.stringify(bad)}\n${JSON.stringify(samplePlan({ name: "next" }))}\n`);
  const { plans, messages } = readInspection(run.path);
  assert.deepEqual(
    plans.map(({ name }) => name),
    ["train step", "next"],
  );
  assert.deepEqual(messages, [
    "Line 2 of plans.jsonl is ignored: it is not JSON.",
    "Line 3 of plans.jsonl is ignored: calls[0].readBytes is not a number from 0.",
  ]);
});

test("any missing field is detected", () => {
  const plan = samplePlan();
  const { memory } = plan;
  const without = <Of extends object>(record: Of): fc.Arbitrary<Of> =>
    fc.constantFrom(...Object.keys(record)).map((name) => ({ ...record, [name]: null }));
  const damaged: fc.Arbitrary<PlanRecord> = fc.oneof(
    without(plan),
    without(memory).map((changed) => ({ ...plan, memory: changed })),
    without(memory.tensors[0]!).map((changed) => ({ ...plan, memory: { ...memory, tensors: [changed] } })),
    without(plan.calls[0]!).map((changed) => ({ ...plan, calls: [changed] })),
    without(plan.stages[0]!).map((changed) => ({ ...plan, stages: [changed] })),
  );
  const path = makeFolder();
  fc.assert(
    fc.property(damaged, (record) => {
      writeFileSync(join(path, "plans.jsonl"), `${JSON.stringify(record)}\n`);
      const { plans, messages } = readInspection(path);
      assert.deepEqual([plans.length, messages.length], [0, 1]);
    }),
    { numRuns: effort({ quick: 60, thorough: 200 }) },
  );
});

test("hundreds of damaged lines give three messages and a count", () => {
  const path = makeFolder();
  writeFileSync(join(path, "incidents.jsonl"), "x\n".repeat(900));
  const { messages } = readInspection(path);
  assert.equal(messages.length, 4);
  assert.equal(messages[3], "897 more lines of incidents.jsonl can't be read and are ignored.");
});

test("after a thousand damaged lines a file is abandoned, until it is replaced", () => {
  const path = makeFolder();
  const incidents = JSON.stringify(sampleIncidents()[0]);
  const names = ["incidents.jsonl", "plans.jsonl", "memory.jsonl"];
  const emptyLines = "\n".repeat(effort({ quick: 2 ** 16, thorough: 2 ** 21 }));
  for (const name of names) writeFileSync(join(path, name), `${emptyLines}${incidents}\n`);
  const reader = new InspectionReader(path);
  for (let look = 0; look < 2; look++) {
    const { messages, incidents } = reader.read();
    assert.deepEqual(incidents, []);
    for (const name of names) {
      assert.ok(messages.includes(`997 more lines of ${name} can't be read and are ignored.`), name);
      assert.ok(messages.includes(`The rest of ${name} is not read.`), name);
    }
  }
  writeFileSync(join(path, "incidents.jsonl"), `${incidents}\n`);
  assert.equal(reader.read().incidents.length, 1);
});

test("a long file is read in chunks, with other work between them", () => {
  const path = makeFolder();
  const line = JSON.stringify({ ...sampleIncidents()[0], message: "x".repeat(2000) });
  writeFileSync(join(path, "incidents.jsonl"), `${line}\n`.repeat(5000));
  const reader = new InspectionReader(path);
  let chunks = 1;
  while (reader.advance()) chunks++;
  assert.equal(chunks, 3);
  assert.equal(reader.read().incidents.length, 5000);
});

test("a pipe instead of a file gives a message, and no read blocks", () => {
  const run = writeSampleRun(makeFolder(), "a");
  const names = ["memory.jsonl", "holdfast-stall-1-20260101T000000Z.json"];
  for (const name of names) {
    rmSync(join(run.path, name), { force: true });
    execFileSync("mkfifo", [join(run.path, name)]);
  }
  const { messages, plans } = readInspection(run.path);
  assert.equal(plans.length, 1);
  for (const name of names)
    assert.ok(
      messages.some((message) => message.includes(name) && message.includes("a pipe")),
      name,
    );
});

test("a last line that is being written is not read before its end", () => {
  const run = writeSampleRun(makeFolder(), "a", { plans: [] });
  const path = join(run.path, "plans.jsonl");
  const line = `${JSON.stringify(samplePlan())}\n`;
  const reader = new InspectionReader(run.path);
  for (const chunk of [line.slice(0, 100), line.slice(100, -1)]) {
    appendFileSync(path, chunk);
    assert.deepEqual([reader.read().plans.length, reader.read().messages.length], [0, 0]);
  }
  appendFileSync(path, "\n");
  assert.equal(reader.read().plans.length, 1);
});

test("a reader continues where it stopped, and starts again if the file was cut, replaced or overwritten", () => {
  const run = writeSampleRun(makeFolder(), "a", { plans: [] });
  const path = join(run.path, "plans.jsonl");
  const lineOf = (name: string): string => `${JSON.stringify(samplePlan({ name, layers: 1 }))}\n`;
  const reader = new InspectionReader(run.path);
  const names = (): readonly string[] => reader.read().plans.map(({ name }) => name);
  writeFileSync(path, lineOf("one") + lineOf("two"));
  assert.deepEqual(names(), ["one", "two"]);
  appendFileSync(path, lineOf("three"));
  assert.deepEqual(names(), ["one", "two", "three"]);
  truncateSync(path, lineOf("one").length);
  assert.deepEqual(names(), ["one"]);
  // Truncated, and longer again before the next read.
  writeFileSync(path, lineOf("one") + lineOf("zwei") + lineOf("drei"));
  assert.deepEqual(names(), ["one", "zwei", "drei"]);
});

test("lines longer than a chunk are read, and so are their neighbours", () => {
  const path = makeFolder();
  const plan = samplePlan({ layers: 1 });
  const long = { ...plan, name: "long", text: "x".repeat(effort({ quick: 9, thorough: 20 }) * 2 ** 20) };
  const lines = [{ ...plan, name: "before" }, long, { ...plan, name: "after" }];
  writeFileSync(join(path, "plans.jsonl"), lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
  const { plans, messages } = readInspection(path);
  assert.deepEqual(
    plans.map(({ name }) => name),
    ["before", "long", "after"],
  );
  assert.deepEqual(messages, []);
});

test("of too many memory samples, the largest and the last are kept", () => {
  const run = writeSampleRun(makeFolder(), "a", { steps: 1 });
  const [sample] = readInspection(run.path).memory;
  const [count, later] = effort({ quick: [25_000, 21_338], thorough: [50_000, 31_338] });
  const peaks = new Map([
    [777, 900],
    [later, 1000],
  ]);
  const lines = Array.from({ length: count }, (_, time) =>
    JSON.stringify({ ...sample, time, used: peaks.get(time) ?? time % 7 }),
  );
  writeFileSync(join(run.path, "memory.jsonl"), `${lines.join("\n")}\n`);
  const { memory } = readInspection(run.path);
  assert.ok(memory.length <= 20_000 && memory.length > 10_000, `${memory.length} are kept`);
  const times = memory.map(({ time }) => time);
  for (const time of [...peaks.keys(), count - 1]) assert.ok(times.includes(time), `${time} is kept`);
  assert.deepEqual(
    times,
    [...times].sort((one, other) => one - other),
  );
});

test("a folder instead of a file gives a message", () => {
  const run = writeSampleRun(makeFolder(), "a");
  writeSampleRun(run.path, "incidents.jsonl", { steps: 1 });
  const { messages, plans } = readInspection(run.path);
  assert.equal(plans.length, 1);
  assert.match(messages.join(), /incidents\.jsonl is a folder, a pipe or a device/);
});
