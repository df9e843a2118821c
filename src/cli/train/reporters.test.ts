/** Progress output: on a terminal, in a file, as JSON, and quiet. */

import assert from "node:assert/strict";
import { test } from "node:test";
import type { FoldResult, JobEvent } from "../../crossasset/index.js";
import { FakeClock } from "../../units/index.js";
import { describeJobEvent } from "./crossasset-texts.js";
import { makeReporter, type ReporterName } from "./reporters.js";
import { summaryText } from "./summary.js";

const position = { fold: 0, folds: 2, epoch: 1, epochs: 3 };

const stepOf = (batch: number): JobEvent => ({
  ...{ kind: "step", ...position, batch, batches: 100, step: 100 + batch, steps: 600 },
  ...{ loss: 0.98765, samples: 6400, samplesPerSecond: 12_345.6, usedBytes: 3 * 2 ** 20, secondsLeft: 75 },
});

const epoch: JobEvent = {
  ...{ kind: "epoch", ...position, step: 200, secondsLeft: 60 },
  record: {
    ...{ epoch: 1, steps: 100, loss: 0.9, lr: 1e-3, samplesPerSecond: 12_000, seconds: 2, skipped: 1 },
    figures: {},
  },
};

function report(name: ReporterName, events: readonly JobEvent[], columns = 200, betweenMs = 50): string {
  let text = "";
  const clock = new FakeClock();
  const reporter = makeReporter(
    name,
    { write: (chunk) => (text += chunk), clock, columns },
    describeJobEvent,
  );
  for (const event of events) {
    reporter.listen(event);
    clock.advance(betweenMs);
  }
  reporter.end();
  return text;
}

test("a terminal has one updated line, which gives way to permanent lines", () => {
  const text = report("live", [stepOf(1), stepOf(2), stepOf(3), epoch]);
  const lines = text.split("\r").filter((line) => line.includes("100  loss"));
  assert.equal(lines.length, 2, "a step every 100 ms");
  assert.match(
    text,
    /\rfold 1\/2 {2}epoch 2\/3 {2}─+ 1\/100 {2}loss 0\.9877 {2}12,346 samples\/s {2}3 MiB {2}.* left/,
  );
  const last = text.slice(text.lastIndexOf("\r\u001b[K") + 4);
  assert.match(last, /^fold 1\/2 {2}epoch 2\/3 {2}loss 0\.9000 {2}12,000 samples\/s.*1 step skipped/);
  assert.ok(text.endsWith("\n"));
});

test("a phase is shown on a terminal and in JSON, but not in plain output", () => {
  const phase: JobEvent = { kind: "phase", phase: "compiling" };
  assert.equal(report("live", [phase]), "\rcompiling …\u001b[K\r\u001b[K");
  assert.equal(report("plain", [phase]), "");
  assert.equal(report("json", [phase]), '{"kind":"phase","phase":"compiling"}\n');
});

test("a line is never longer than the terminal", () => {
  const [line = ""] = report("live", [stepOf(50)], 40)
    .split("\u001b")
    .slice(0, 1);
  assert.equal(line.replace("\r", "").length, 39);
});

test("plain output has complete lines, some steps and every epoch", () => {
  const text = report("plain", [stepOf(1), stepOf(2), stepOf(100), epoch]);
  assert.equal(text.includes("\r") || text.includes("\u001b"), false);
  assert.deepEqual(
    text
      .trimEnd()
      .split("\n")
      .map((line) => /\d+\/100|loss 0\.9000/.exec(line)?.[0]),
    ["1/100", "100/100", "loss 0.9000"],
  );
});

test("a plain line waits for the first loss, or for the epoch's last step", () => {
  const early = (batch: number): JobEvent => ({ ...(stepOf(batch) as object), loss: undefined }) as JobEvent;
  assert.deepEqual(
    report("plain", [early(1), early(2), stepOf(3), early(100)]).match(/\d+\/100 {2}loss \S+/g),
    ["3/100  loss 0.9877", "100/100  loss …"],
  );
  assert.match(report("live", [early(1), stepOf(3)], 200, 100), /1\/100 {2}loss ….*3\/100 {2}loss 0\.9877/s);
});

test("a speed that is not measured yet is not shown as 0", () => {
  const unmeasured = (event: JobEvent, record?: object): JobEvent =>
    ({ ...event, samplesPerSecond: undefined, ...(record && { record }) }) as JobEvent;
  const { record } = epoch as Extract<JobEvent, { kind: "epoch" }>;
  const text = report("plain", [
    unmeasured(stepOf(100)),
    unmeasured(epoch, { ...record, samplesPerSecond: undefined }),
  ]);
  assert.equal(text.match(/ {2}… samples\/s {2}/g)?.length, 2, text);
});

test("JSON output has one object per line, and quiet output is empty", () => {
  const lines = report("json", [stepOf(1), stepOf(2), epoch])
    .trimEnd()
    .split("\n");
  assert.deepEqual(
    lines.map((line) => JSON.parse(line).kind),
    ["step", "epoch"],
  );
  assert.equal(report("quiet", [stepOf(1), epoch]), "");
});

test("the summary has every fold, their mean, every scale and the confusion matrix", () => {
  const figures = {
    loss: 1.05,
    accuracy: 0.5,
    majority: 0.4,
    confusion: [
      [5, 1, 2],
      [3, 6, 1],
      [0, 0, 1000],
    ],
  };
  const fold: FoldResult = {
    ...{ fold: 0, trainSamples: 8204, testSamples: 8201, epochs: [], test: figures },
    perScale: [
      { minutes: 1, ...figures },
      { minutes: 233, ...figures, accuracy: 0.25 },
    ],
  };
  const text = summaryText({ folds: [fold], wf_mean: 0.5, majority_mean: 0.4 });
  assert.match(text, /^fold 1 +8,204 +8,201 +1\.0500 +50\.0 % +40\.0 %$/m);
  assert.match(text, /^mean +50\.0 % +40\.0 %$/m);
  assert.match(text, /^ +1 +233\nfold 1 +50\.0 +25\.0$/m);
  assert.match(text, /^flat +0 +0 +1,000$/m);
});
