/** The view for terminals: it shows the run's data, fits its columns, and removes control characters from files. */

import assert from "node:assert/strict";
import { appendFileSync, mkdirSync, readdirSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { effort } from "../../test/support/effort.js";
import { makeFolder } from "../../test/support/folders.js";
import { sampleIncidents, writeSampleRun } from "../../test/support/sample-run.js";
import { sparkline, stackedBar } from "./text-marks.js";
import { viewAsText } from "./view-as-text.js";

function proveFits(text: string, columns: number): void {
  for (const line of text.split("\n")) assert.ok(line.length <= columns, `${line.length}: ${line}`);
}

test("a run's state, settings, loss, epochs, tests, memory, plans and incidents are shown in 80 columns", () => {
  const run = writeSampleRun(makeFolder(), "first", { incidents: sampleIncidents() });
  const text = viewAsText(run.path).print();
  proveFits(text, 80);
  for (const pattern of [
    /^run +first: finished, step 200 of 200$/m,
    /^settings +folds 2, epochs 3, batch 32, seed 42, lr 0\.001$/m,
    /^loss +█[▁-█]{69}$/m,
    /now 0\.\d+, first 1\.\d+, min 0\.\d+, max 1\.\d+/,
    /^speed +1,602 samples\/s, host 2\.\d+ms per step/m,
    /^ +2 +3 +0\.3333 +0\.000\d+ +1,602 +1\.5s$/m,
    /^tests +fold 1: loss 0\.98, accuracy 55\.0 %/m,
    /^memory +96 MiB of 512 MiB, 18\.8 %, at step 200; by holder:\n +█{40}▓{10}▒{5}░{5}$/m,
    /█ step arena 64 MiB/,
    /^plans +train step: graph, 9 calls, step memory/m,
    /live at the peak, call \d/,
    /steps not finite at step 30: 3 steps had a loss/,
  ])
    assert.match(text, pattern);
});

test("the ranks of a distributed run are listed, the slowest first", () => {
  const run = writeSampleRun(makeFolder(), "ranks");
  run.writeRanks([8, 8, 8, 14, 8, 8, 8, 8, 7]);
  const text = viewAsText(run.path).print();
  proveFits(text, 80);
  assert.match(text, /^ranks +rank {2}host {3}step {2}own work +sent$/m);
  assert.match(text, /sent\n +3 {2}node1 {2}20ms +1[34][.\d]*ms {2}7\.63 MiB {2}the others wait for it\n/);
  assert.match(text, /\n +1 more, which work less\n/);
});

test("a run of a language model shows tokens per second, its evaluations and the newest samples", () => {
  const run = writeSampleRun(makeFolder(), "texts", { steps: 10 });
  const evaluations = [0, 1, 2, 3, 4, 5, 6, 7].map((step) => ({
    step,
    evaluation: { loss: 2, perplexity: 100 - step, tokens: 9 },
  }));
  const lines = [
    { step: 0, texts: [{ prompt: "One", text: "?" }] },
    ...evaluations,
    { step: 7, epoch: 0, loss: 2, samplesPerSecond: 10, tokensPerSecond: 1234.4 },
    { step: 7, texts: [{ prompt: "One", text: " for\nsorrow\u001b[2J" }, { prompt: 7 }] },
  ];
  writeFileSync(join(run.path, "metrics.jsonl"), lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
  const text = viewAsText(run.path).print();
  proveFits(text, 80);
  assert.match(text, /^speed +1,234 tokens\/s, host/m);
  assert.match(
    text,
    /^evaluated +step 0: perplexity 100, loss 2\n +3 others\n +step 4: perplexity 96, [\s\S]*step 7: perplexity 93, loss 2$/m,
  );
  assert.match(text, /^samples +One▸ for sorrow/m);
  assert.ok(!text.includes("\u001b"), "no control characters");
});

test("the speed is the trainer's measurement, not the clock difference between two steps", () => {
  const run = writeSampleRun(makeFolder(), "a", { state: "running", steps: 20, stepMs: 5000 });
  const view = viewAsText(run.path);
  assert.match(view.print(), /^speed +1,602 samples\/s, /m, "the last epoch's");
  run.writeStatus("running", { samplesPerSecond: 1234.4 });
  assert.match(view.print(), /^speed +1,234 samples\/s, /m);
});

test("a running run shows its last heartbeat, and a run whose process is gone says so", () => {
  const run = writeSampleRun(makeFolder(), "a", { state: "running", steps: 50 });
  const view = viewAsText(run.path);
  assert.match(view.print(), /a: running, step 50 of 50[\s\S]*last heartbeat \S+ ago/);
  assert.equal(view.isLive, true);
  run.writeStatus("running", { pid: 2 ** 22 + 1 });
  assert.match(view.print(), /a: failed[\s\S]*Process 4194305 ended without a message/);
  assert.equal(view.isLive, false);
});

test("a folder of several runs is a list with their problems, and a folder of one run is that run", () => {
  const root = makeFolder();
  writeSampleRun(root, "one", { steps: 10 });
  assert.match(viewAsText(root).print(), /^run +one: finished/);
  mkdirSync(join(root, "two", "checkpoints"), { recursive: true });
  const text = viewAsText(root).print();
  proveFits(text, 80);
  assert.match(text, /^one +finished +10\/10/m);
  assert.match(text, /^two +broken/m);
  assert.equal(viewAsText(makeFolder()).print(), "This folder has no runs.\n");
});

test("a run with any contents of its files is described within the columns, without control characters", () => {
  const names = readdirSync(writeSampleRun(makeFolder(), "a", { steps: 5 }).path).filter((name) =>
    name.includes("."),
  );
  const damage = fc.oneof(
    fc.constant(""),
    fc.constant('{"state":"\u001b[2J"}\n'),
    fc.constant('{"settings":{"x":"\u001b]0;title\u0007"},"device":7}\n'),
    fc.json().map((text) => `${text}\n`),
    fc.string(),
  );
  fc.assert(
    fc.property(
      fc.constantFrom(...names),
      damage,
      fc.integer({ min: 40, max: 120 }),
      (name, text, columns) => {
        const { path } = writeSampleRun(makeFolder(), "a", { steps: 5 });
        writeFileSync(join(path, name), text);
        const printed = viewAsText(path).print({ columns });
        proveFits(printed, columns);
        // biome-ignore lint/suspicious/noControlCharactersInRegex: these characters must be removed.
        assert.doesNotMatch(printed, /[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/);
      },
    ),
    { numRuns: effort({ quick: 16, thorough: 80 }) },
  );
});

test("damage is reported: a truncated step log is read up to its last complete row, and an invalid one has a message", () => {
  const { path } = writeSampleRun(makeFolder(), "a", { steps: 20 });
  truncateSync(join(path, "steps.bin"), 512 + 10 * 64 + 7);
  appendFileSync(join(path, "incidents.jsonl"), "{\n");
  const text = viewAsText(path).print();
  assert.match(text, /10 steps, up to step 10/);
  assert.match(text, /Line 1 of incidents\.jsonl is ignored/);
  writeFileSync(join(path, "steps.bin"), "x".repeat(600));
  assert.match(viewAsText(path).print({ columns: 200 }), /^ +.*steps\.bin is not a step log/m);
});

test("a sparkline spans min. to max., with a dot for an unknown value", () => {
  assert.equal(sparkline([0, 1, Number.NaN, 7]), "▁▂·█");
  assert.equal(sparkline([5, 5]), "▁▁");
  assert.equal(sparkline([]), "");
});

test("a stacked bar has the requested width, and its rest is empty", () => {
  assert.equal(stackedBar([50, 25], 100, 8), "████▓▓··");
  assert.equal(stackedBar([300], 100, 4), "████");
  assert.equal(stackedBar([], 0, 3), "···");
});
