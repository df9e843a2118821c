/** The doctor on a healthy machine: its report, as text and as JSON. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { tinySizes } from "../../../test/support/crossasset-runs.js";
import { effort, isThorough } from "../../../test/support/effort.js";
import { smallDoctor } from "../../../test/support/faulty-machine.js";
import { withIdleThreads } from "../../../test/support/idle-threads.js";
import { openCpuDriver, strict } from "../../driver/index.js";
import { exitCodes } from "../../errors/index.js";
import { readSettings } from "../../runtime/index.js";
import { bytes, MiB } from "../../units/index.js";
import { withWatchdog } from "./doctor.js";
import { type DoctorOptions, type DoctorReport, runDoctor } from "./index.js";
import { phaseNames } from "./phase-log.js";

function runSmall(options: DoctorOptions, json: boolean): { readonly code: number; readonly text: string } {
  let text = "";
  const write = (chunk: string): void => {
    text += chunk;
  };
  const run = (): number =>
    runDoctor({ ...smallDoctor, ...options }, { version: "1.2.3", columns: 112, json, write });
  // The watchdogs of a healthy machine only wait, and starting them takes half of the time.
  const code = isThorough ? run() : withIdleThreads(run);
  return { code, text };
}

/** A model, and its figures in the report. */
const { model, uploaded, gradients, weights } = effort({
  quick: { model: tinySizes, uploaded: "339 tensors, 567.86 KiB", gradients: 38, weights: "87,171" },
  thorough: { model: {}, uploaded: "351 tensors, 8.52 MiB", gradients: 50, weights: "2,174,211" },
});

describe("on the CPU", () => {
  test("every phase passes, with CUDA's rules enforced and dead memory poisoned, and the text has all results", () => {
    const machine = openCpuDriver({ threads: 2 });
    const driver = strict(machine);
    const { code, text } = runSmall({ driver, model, environment: { HOLDFAST_POISON: "on" } }, false);
    machine.close();
    assert.equal(code, exitCodes.ok.code, text);
    for (const line of [
      /^holdfast 1\.2\.3\n\nmachine\n {2}system {8}\w+ [\d.]+/,
      /\n {2}processor {5}.*\d threads?\n {2}memory {8}[\d.]+ [KMGT]iB, [\d.]+ [KMGT]iB available\n/,
      /\n {2}control group (no limit|limit .* in use.*|[\d.]+ CPUs)\n {2}settings {6}HOLDFAST_POISON=on\n/,
      /\nCUDA\n {2}driver .*\n.* {2}NVRTC .* {2}cuBLASLt .* {2}kernel cache {2}\/[^\n]*holdfast\n/s,
      /\nseveral processes\n {2}MPI {11}not tried\n {2}NCCL {10}no GPU to try it on\n/,
      /\n {2}open {10}passed +[\d.]+m?s of 20s {2}CPU \(2 threads/,
      new RegExp(`\n {2}upload {8}passed .* ${uploaded}, in [1-9] copies; read back, equal\n`),
      /\n {2}forward {7}passed .* loss \d\.\d{4}; random guessing has 1\.0986\n/,
      new RegExp(`\n {2}backward {6}passed .* ${gradients} gradients, norm [\\d.]+; measured slope is `),
      /; measured slope is (1\.0|0\.99)\d+ of the predicted\s+one\n/,
      new RegExp(`\n {2}update {8}passed .* ${weights} of ${weights} weights changed\n`),
      /\n {2}eager {9}passed .* 3 steps, [\d.]+m?s each; loss [\d.]+ to [\d.]+\n/,
      /\n {2}capture {7}passed .* one graph of \d+ launches.*; its replay equals the direct\s+run\n/,
      /\n {2}replay {8}passed .* 3 replays, [\d.]+m?s each; equal to the eager steps, bit for bit\n/,
      /\n {2}close {9}passed .* all memory released\n/,
      /\nstep\n {2}eager {9}[\d.]+m?s at batch 2; 104 B up, 16 B down\n {2}replayed {6}[\d.]+m?s at batch 2; 104 B up, 4 B down\n/,
      /\nAll 9 phases passed, in [\d.]+m?s\.\n$/,
    ]) {
      assert.match(text, line);
    }
  });

  test("the JSON report is one object with all results, and says which rows did not fit", () => {
    const { code, text } = runSmall({ rows: 10_000, memory: bytes(140 * MiB) }, true);
    assert.equal(code, exitCodes.ok.code);
    const report: DoctorReport = JSON.parse(text);
    assert.deepEqual(Object.keys(report), [
      "holdfast",
      "passed",
      "elapsedMs",
      "machine",
      "cuda",
      "ranks",
      "device",
      "phases",
      "step",
    ]);
    const { passed, machine, cuda, device, phases, step } = report;
    assert.equal(passed, true);
    assert.ok(machine.memory.totalBytes >= machine.memory.availableBytes);
    assert.deepEqual(
      cuda.libraries.map(({ library }) => library),
      ["cuda", "nvrtc", "cublasLt"],
    );
    assert.equal(device?.kind, "cpu");
    assert.equal(device?.budgetBytes, 140 * MiB);
    assert.equal(device?.budgetReason, "--memory");
    assert.deepEqual(
      phases.map(({ name, outcome, failure }) => [name, outcome, failure]),
      phaseNames.map((name) => [name, "passed", ""]),
    );
    const { rows = 0, tensors } = phases[1]?.figures ?? {};
    assert.ok(rows > 1000 && rows < 10_000, `${rows} rows`);
    assert.equal(tensors, rows + 39);
    assert.match(phases[1]?.detail ?? "", /; [\d,]+ more rows do not fit the budget$/);
    assert.deepEqual(step?.replayedBytes, { up: 2 * 12 * 4 + 8, down: 4 });
    assert.ok(step && step.launches > 50 && step.eagerMs > 0 && step.replayedMs > 0);
  });
});

test("the doctor always runs with the watchdog, and keeps a limit that was set", () => {
  const without = withWatchdog(
    readSettings({}, { HOLDFAST_STALL_AFTER: "off", HOLDFAST_ON_STALL: "report" }),
  );
  assert.deepEqual([without.stallAfter, without.onStall], [30_000, "end"]);
  assert.equal(withWatchdog(readSettings({}, { HOLDFAST_STALL_AFTER: "2m" })).stallAfter, 120_000);
});
