/** Event files: complete records with checksums, readable during writing, with the curves of a run. */

import assert from "node:assert/strict";
import { appendFileSync, readdirSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { effort } from "../../../test/support/effort.js";
import { type ReadEvent, readEventFile } from "../../../test/support/event-file.js";
import { makeFolder } from "../../../test/support/folders.js";
import { writeSampleRun } from "../../../test/support/sample-run.js";
import { StepLog } from "../../train/index.js";
import { addMetrics, EventFileWriter, exportTensorBoard } from "./index.js";

const read = (path: string): ReadEvent[] => readEventFile(readFileSync(path));

test("a file starts with its version, and every point is read back with its tag, step, value and time", () => {
  const folder = makeFolder();
  let pid = 0;
  fc.assert(
    fc.property(
      fc.array(
        fc.record({
          tag: fc.string({ unit: "grapheme", maxLength: 200 }),
          step: fc.maxSafeNat(),
          value: fc.float(),
          timeMs: fc.nat(2 ** 31),
        }),
        { maxLength: 20 },
      ),
      (points) => {
        const writer = new EventFileWriter(folder, { startMs: 1_700_000_000_500, host: "box", pid: ++pid });
        assert.equal(basename(writer.path), `events.out.tfevents.1700000000.box.${pid}`);
        for (const { tag, step, value, timeMs } of points) writer.scalar(tag, step, value, timeMs);
        writer.close();
        const [first, ...rest] = read(writer.path);
        assert.deepEqual(first, { wallTime: 1_700_000_000.5, step: 0, fileVersion: "brain.Event:2" });
        assert.deepEqual(
          rest,
          points.map(({ tag, step, value, timeMs }) => ({ wallTime: timeMs / 1000, step, tag, value })),
        );
      },
    ),
    { numRuns: effort({ quick: 30, thorough: 100 }) },
  );
});

test("flushed records can be read during writing, and a closed file accepts no more", () => {
  const writer = new EventFileWriter(join(makeFolder(), "new", "folder"));
  writer.scalar("loss", 1, 0.5, 0);
  assert.equal(read(writer.path).length, 1);
  writer.flush();
  assert.equal(read(writer.path).length, 2);
  writer.scalar("loss", 2, 0.25, 0);
  writer.close();
  writer.close();
  assert.equal(read(writer.path).length, 3);
  assert.throws(() => writer.scalar("loss", 3, 1, 0), /is closed/);
});

test("a host name with a path does not lead out of the folder", () => {
  const folder = makeFolder();
  const writer = new EventFileWriter(folder, { startMs: 0, host: "../../etc/x", pid: 1 });
  writer.close();
  assert.deepEqual(readdirSync(folder), ["events.out.tfevents.0000000000..._.._etc_x.1"]);
});

test("many points are written without an explicit flush", () => {
  const writer = new EventFileWriter(makeFolder());
  for (let step = 0; step < 10_000; step++) writer.scalar("loss", step, step, step);
  assert.ok(read(writer.path).length > 1000);
  writer.close();
  assert.equal(read(writer.path).length, 10_001);
});

test("a step that is not a whole number is rejected", () => {
  const writer = new EventFileWriter(makeFolder());
  for (const step of [-1, 0.5, Number.NaN])
    assert.throws(() => writer.scalar("loss", step, 1, 0), /whole number/);
  writer.close();
});

test("the reader detects a flipped bit", () => {
  const writer = new EventFileWriter(makeFolder());
  writer.scalar("loss", 1, 0.5, 0);
  writer.close();
  const bytes = readFileSync(writer.path);
  for (let at = 0; at < bytes.length; at += 7) {
    const turned = Buffer.from(bytes);
    turned[at]! ^= 1;
    assert.throws(() => readEventFile(turned));
  }
});

/** By tag. */
function curvesOf(events: readonly ReadEvent[]): Map<string, ReadEvent[]> {
  const curves = new Map<string, ReadEvent[]>();
  for (const event of events) {
    if (event.tag !== undefined) curves.set(event.tag, curves.get(event.tag) ?? []);
    curves.get(event.tag ?? "")?.push(event);
  }
  return curves;
}

test("loss, learning rate and samples/s are plotted by step, epochs by epoch and fold, tests by fold", () => {
  const run = writeSampleRun(makeFolder(), "first", { steps: 60, folds: 2, epochs: 3 });
  run.close();
  const out = makeFolder();
  const { path, points, messages } = exportTensorBoard(run.path, out);
  assert.deepEqual(messages, []);
  assert.deepEqual(readdirSync(out), ["first"]);
  const events = read(path);
  assert.equal(points, events.length - 1);
  const curves = curvesOf(events);
  const loss = curves.get("train/loss")!;
  assert.equal(loss.length, 60);
  for (const { step, value, wallTime } of loss) {
    const row = run.rowOf(step);
    assert.deepEqual([value, wallTime], [Math.fround(row.loss), row.time / 1000]);
  }
  assert.equal(curves.get("train/lr")?.length, 60);
  // The first has no earlier step to measure from.
  assert.equal(curves.get("train/samples_per_second")?.length, 59);
  assert.equal(curves.get("train/samples_per_second")?.at(-1)?.value, 1600);
  for (const fold of [0, 1]) {
    const epochs = curves.get(`epoch/loss/fold_${fold}`)!;
    assert.deepEqual(
      epochs.map(({ step, value }) => [step, value]),
      [
        [0, 1],
        [1, 0.5],
        [2, Math.fround(1 / 3)],
      ],
    );
  }
  const accuracy = curves.get("test/accuracy")!;
  assert.deepEqual(
    accuracy.map(({ step, value, wallTime }) => [step, value, wallTime]),
    [0, 1].map((fold) => [fold, Math.fround(0.55 + fold / 100), run.rowOf(30 * (fold + 1)).time / 1000]),
  );
});

test("a second export replaces the first", () => {
  const run = writeSampleRun(makeFolder(), "first", { steps: 6 });
  run.close();
  const out = makeFolder();
  const first = exportTensorBoard(run.path, out);
  const second = exportTensorBoard(run.path, out);
  assert.equal(first.path, second.path);
  assert.equal(readdirSync(join(out, "first")).length, 1);
});

test("a long run has at most ten thousand points per curve, with the extremes of each group", () => {
  const run = writeSampleRun(makeFolder(), "long", {
    ...{ steps: 10_001, stepMs: 1, folds: 1, epochs: 1 },
    lossAt: (step) => (step === 5346 ? 99 : undefined),
  });
  run.close();
  const { path, messages } = exportTensorBoard(run.path, makeFolder());
  const curves = curvesOf(read(path));
  for (const [tag, points] of curves) assert.ok(points.length <= 10_000, tag);
  assert.match(messages.join(), /10001 steps are 5001 points of 2 steps/);
  const most = curves.get("train/loss_max")!.find(({ value }) => value === 99);
  assert.ok(most && most.step >= 5346 && most.step < 5348);
});

test("a row without values has no point, and a row without a time is at the start of the run", () => {
  const run = writeSampleRun(makeFolder(), "first", { steps: 2 });
  run.close();
  const log = new StepLog(join(run.path, "steps.bin"));
  const row = { step: 3, time: Number.NaN, loss: 7, lr: 1, fold: 0, epoch: 0, samples: 1, hostMs: 1 };
  log.append(row);
  log.append({ ...row, step: Number.NaN });
  log.close();
  const loss = curvesOf(read(exportTensorBoard(run.path, makeFolder()).path)).get("train/loss");
  assert.deepEqual(
    loss?.map(({ step }) => step),
    [1, 2, 3],
  );
  assert.equal(loss?.at(-1)?.wallTime, Date.UTC(2026, 0, 5, 12) / 1000);
});

test("a damaged run is exported as far as it can be read, with messages", () => {
  const run = writeSampleRun(makeFolder(), "torn", { steps: 12 });
  run.close();
  appendFileSync(
    join(run.path, "metrics.jsonl"),
    '{"fold": -1, "epoch": "x", "step": null}\n{"test": 5}\n{"lo',
  );
  const { path, messages } = exportTensorBoard(run.path, makeFolder());
  assert.equal(curvesOf(read(path)).get("train/loss")?.length, 12);
  assert.match(messages.join(), /incomplete/);
  assert.match(exportTensorBoard(makeFolder(), makeFolder()).messages.join(), /no step log/);
});

test("evaluations of a language model are curves by step", () => {
  const points: (readonly [string, number, number | undefined])[] = [];
  const record = { step: 40, evaluation: { loss: 2, perplexity: 7.39, tokens: 90 } };
  addMetrics((tag, step, value) => points.push([tag, step, value]), record, 0);
  assert.deepEqual(points, [
    ["evaluation/loss", 40, 2],
    ["evaluation/perplexity", 40, 7.39],
    ["evaluation/tokens", 40, 90],
  ]);
});
