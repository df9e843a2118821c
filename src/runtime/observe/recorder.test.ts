/** The recorder's ring and the label table, read from one thread and from another. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "../../units/index.js";
import { LabelTable } from "./label-table.js";
import { Recorder } from "./recorder.js";

test("events come back in order with their label, step and numbers", () => {
  const clock = new FakeClock();
  const recorder = new Recorder({ clock });
  recorder.record("allocate", "matmul", 4096, 512);
  clock.advance(5);
  recorder.step = 3;
  recorder.record("free", "matmul", 4096, 512);
  assert.deepEqual(recorder.recent(), [
    { serial: 0, atMs: 0, kind: "allocate", label: "matmul", step: 0, address: 4096, size: 512 },
    { serial: 1, atMs: 5, kind: "free", label: "matmul", step: 3, address: 4096, size: 512 },
  ]);
});

test("the ring keeps the last events and counts them all", () => {
  const recorder = new Recorder({ capacity: 4 });
  for (let index = 0; index < 11; index++) recorder.record("allocate", "op", index, 1);
  assert.equal(recorder.recorded, 11);
  assert.deepEqual(
    recorder.recent().map((event) => event.address),
    [7, 8, 9, 10],
  );
  assert.deepEqual(
    recorder.recent(2).map((event) => event.serial),
    [9, 10],
  );
});

test("a second reader of the same memory sees the same events and texts", () => {
  const recorder = new Recorder({ capacity: 8 });
  recorder.record("reset", "step 12");
  const labels = new LabelTable(recorder.labels.memory);
  const reader = new Recorder({ memory: recorder.memory, labels });
  assert.deepEqual(reader.recent(), recorder.recent());
  assert.equal(reader.recent()[0]?.label, "step 12");
});

test("a full table accepts new labels under one common name", () => {
  const labels = new LabelTable();
  const ids = Array.from({ length: 10_000 }, (_, index) => labels.idOf(`label ${index}`));
  assert.equal(labels.textOf(ids[17]!), "label 17");
  assert.equal(labels.textOf(ids.at(-1)!), "(other)");
  assert.equal(labels.idOf("label 17"), ids[17]);
});

test("a long label is truncated, not lost", () => {
  const labels = new LabelTable();
  assert.equal(labels.textOf(labels.idOf("ä".repeat(100))), "ä".repeat(48));
});
