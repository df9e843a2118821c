/** The trace: valid for any run, with the documented tracks, and bounded in size. */

import assert from "node:assert/strict";
import { appendFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { effort } from "../../../test/support/effort.js";
import { makeFolder } from "../../../test/support/folders.js";
import { samplePlan } from "../../../test/support/sample-plan.js";
import { sampleIncidents, writeSampleRun } from "../../../test/support/sample-run.js";
import { checkTrace } from "../../../test/support/trace-format.js";
import { stepColumns } from "../../records/index.js";
import { StepLog } from "../../train/index.js";
import { exportTrace, traceRun } from "./index.js";

const start = Date.UTC(2026, 0, 5, 12);
const iso = (ms: number): string => new Date(start + ms).toISOString();

test("a run's steps, phases, copies, incidents, curves and kernels are on their tracks", () => {
  const run = writeSampleRun(makeFolder(), "first", { steps: 50, incidents: sampleIncidents() });
  run.appendPhases([
    `${iso(10)}  phase-enter  compile (train step)`,
    `${iso(11)}  phase        upload (weights) ×3  2.4ms  6 MiB  step 1`,
    `${iso(12)}  charge       step arena  64 MiB`,
    `${iso(13)}  phase-exit   compile (train step)`,
  ]);
  run.close();
  const { name, type, bytes } = exportTrace(run.path);
  assert.deepEqual([name, type], ["first-trace.json", "application/json"]);
  const trace = checkTrace(Buffer.from(bytes).toString("utf8"));

  const steps = trace.spans.get("run first: steps, as the host sends them")!;
  assert.equal(steps.length, 50);
  const row = run.rowOf(7);
  assert.equal(steps[6]!.name, "step 7");
  assert.equal(steps[6]!.end - steps[6]!.begin, Math.round(row.hostMs * 1e6) - 1);
  assert.equal(steps[6]!.args["loss"], row.loss);

  const phases = trace.spans.get("run first: phases and copies")!;
  const compile = phases.find((span) => span.name === "compile (train step)")!;
  const upload = phases.find((span) => span.cat === "copy")!;
  assert.equal(upload.name, "upload (weights) ×3");
  assert.ok(compile.begin <= upload.begin && upload.end <= compile.end);

  assert.deepEqual(
    trace.instants.filter(({ track }) => track === "incidents").map((instant) => instant.name),
    sampleIncidents().map(({ kind }) => kind),
  );
  const stall = trace.instants.find((instant) => instant.name === "stall")!;
  assert.equal(stall.args["phases"], "upload\ntrain step\nread-back");
  assert.ok(trace.instants.some((instant) => instant.name === "charge step arena"));

  const loss = trace.counters.get("run first: loss value")!;
  assert.deepEqual([loss.length, loss[6]!.value], [50, row.loss]);
  const arena = trace.counters.get("run first: arena, bytes highWater")!;
  assert.equal(arena.at(-1)?.value, 48 * 2 ** 20);
  assert.equal(trace.counters.get("run first: memory by holder, bytes staging")?.length, 2);
});

test("each rank has a process, with its steps, its time in collectives and its recorder, on one clock", () => {
  const run = writeSampleRun(makeFolder(), "first", { steps: 50, startMs: start });
  run.writeRanks([10, 15, null]);
  run.close();
  const trace = checkTrace(JSON.stringify(traceRun(run.path)));
  const rank1 = "run first, rank 1 (process 4001 on node0)";
  const [first, ...more] = trace.spans.get(`${rank1}: steps and collectives`)!;
  assert.equal(first!.name, "steps 1 to 10");
  const [inCollectives] = more;
  assert.equal(inCollectives!.cat, "collectives");
  assert.ok(first!.begin < inCollectives!.begin && inCollectives!.end <= first!.end);
  // A quarter of a step, about.
  const share = (inCollectives!.end - inCollectives!.begin) / (first!.end - first!.begin);
  assert.ok(share > 0.2 && share < 0.3, String(share));
  assert.equal(trace.counters.get(`${rank1}: in collectives, ms per step value`)!.length, 5);
  const [compile] = trace.spans.get(`${rank1}: phases and copies`)!;
  assert.deepEqual([compile!.name, compile!.end - compile!.begin], ["compile (train)", 100e6 - 1]);
  // The same times as on the track of rank 0.
  const title = "run first, rank 0 (process 4000 on node0)";
  const rank0 = trace.spans.get(`${title}: steps and collectives`)!;
  assert.equal(rank0[0]!.begin, first!.begin);
  const hostSteps = trace.spans.get(`${title}: steps, as the host sends them`)!;
  assert.equal(hostSteps[9]!.begin, first!.end + 1);
  const gpu = trace.spans.get("run first, rank 2 (process 4002 on node1): steps and collectives")!;
  assert.deepEqual([gpu.length, new Set(gpu.map(({ cat }) => cat)).size], [5, 1]);
});

test("a replay of a plan lasts the sum of its measured calls, with a track per stream, at a step of the run", () => {
  const run = writeSampleRun(makeFolder(), "first", {
    steps: 5,
    plans: [samplePlan({ time: start, step: 2 })],
  });
  run.close();
  const { calls, name, inputs } = samplePlan();
  const trace = checkTrace(JSON.stringify(traceRun(run.path)));
  const process = `plan ${name} (${inputs})`;
  const [replay, ...phases] = trace.spans.get(`${process}: the step and its phases`)!;
  assert.equal(replay!.name, "one replay, shown at step 3");
  assert.equal(replay!.cat, "measured kernel times");
  const inAllUs = calls.reduce((sum, { us = 0 }) => sum + us, 0);
  assert.equal(replay!.end - replay!.begin, inAllUs * 1000 - 1);
  const step = trace.spans.get("run first: steps, as the host sends them")![2]!;
  assert.equal(replay!.begin, step.begin);
  assert.deepEqual(
    phases.map((phase) => phase.name),
    ["forward", "backward", "update"],
  );
  const kernels = ["kernels, main stream", "kernels, stream 1"].flatMap((track) =>
    trace.spans.get(`${process}: ${track}`)!.map((span) => ({ ...span, track })),
  );
  assert.equal(kernels.length, calls.length);
  let at = replay!.begin;
  for (const [index, call] of calls.entries()) {
    const span = kernels.find(({ args }) => args["call"] === index)!;
    assert.deepEqual([span.begin, span.end], [at, at + call.us! * 1000 - 1]);
    assert.equal(span.track === "kernels, main stream", call.stream === 0);
    assert.deepEqual([span.name, span.args["kernel"]], [call.op, call.kernel]);
    at = span.end + 1;
  }
});

test("kernels that were not measured are not shown, and the file says so", () => {
  const plan = samplePlan();
  const calls = plan.calls.map(({ us, ...call }) => call);
  const run = writeSampleRun(makeFolder(), "first", { plans: [{ ...plan, calls }] });
  run.close();
  const file = traceRun(run.path);
  const { spans } = checkTrace(JSON.stringify(file));
  assert.ok([...spans.keys()].every((track) => !track.startsWith("plan")));
  assert.match(file.otherData["notes"]!, /has no measured times: its \d+ calls are not shown/);
});

test("steps of one millisecond follow each other, each with its host time", () => {
  const path = makeFolder();
  const log = new StepLog(join(path, "steps.bin"));
  for (let step = 1; step <= 10; step++) {
    const row = { step, time: start + Math.floor(step / 5), loss: 1, lr: 1, fold: 0, epoch: 0 };
    log.append({ ...row, samples: 1, hostMs: 0.125 });
  }
  log.close();
  const [steps] = [...checkTrace(JSON.stringify(traceRun(path))).spans.values()];
  assert.deepEqual(
    steps?.map(({ begin, end }) => [begin, end - begin]),
    Array.from({ length: 10 }, (_, index) => {
      const ms = Math.floor((index + 1) / 5);
      return [ms * 1e6 + ((index + 1) % 5) * 125_000 - (ms === 0 ? 125_000 : 0), 124_999];
    }),
  );
});

test("the last steps of a long run are shown individually and the earlier ones in groups, with their extremes", () => {
  const run = writeSampleRun(makeFolder(), "long", {
    ...{ steps: 5000, stepMs: 1 },
    lossAt: (step) => (step === 123 ? 99 : undefined),
  });
  run.close();
  const file = traceRun(run.path, { steps: 100, buckets: 50 });
  const { spans } = checkTrace(JSON.stringify(file));
  const steps = spans.get("run long: steps, as the host sends them")!;
  assert.equal(steps.length, 50 + 100);
  assert.deepEqual([steps[1]!.name, steps[1]!.cat], ["steps 99 to 196", "step group"]);
  assert.deepEqual([steps[1]!.args["steps"], steps[1]!.args["lossMax"]], [98, 99]);
  assert.deepEqual([steps[50]!.name, steps.at(-1)!.name], ["step 4901", "step 5000"]);
  assert.match(
    file.otherData["notes"]!,
    /The last 100 of 5000 steps are shown individually; the 4900 earlier ones are 50 points/,
  );
});

test("a long run gives a file of some megabytes", () => {
  const stepCount = effort({ quick: 20_000, thorough: 1_000_000 });
  const path = makeFolder();
  const file = join(path, "steps.bin");
  new StepLog(file).close();
  // The same bytes as the log's, written faster.
  const rows = new Float64Array(stepCount * stepColumns.length);
  for (let step = 1; step <= stepCount; step++) {
    const row = [step, start + step / 50, 1 / step, 1e-3, 0, 0, 256, 0.015];
    rows.set(row, (step - 1) * stepColumns.length);
  }
  appendFileSync(file, new Uint8Array(rows.buffer));
  const { bytes } = exportTrace(path);
  const { spans, events } = checkTrace(Buffer.from(bytes).toString("utf8"));
  const steps = [...spans.values()][0]!;
  assert.equal(steps.length, 4000);
  assert.equal(steps.at(-1)?.name, `step ${stepCount}`);
  assert.ok(events < 20_000 && bytes.length < 8 * 2 ** 20, `${events} events, ${bytes.length} bytes`);
});

/** Lines of the recorder, and invalid ones: of a killed process, and of a truncated log. */
const drawnLine = fc.oneof(
  fc
    .record({
      ms: fc.nat(400),
      kind: fc.constantFrom("phase-enter", "phase-exit", "phase", "charge", "capture", "reject", "what"),
      label: fc.constantFrom("init", "upload (weights)", "step", "compile", "read-back", "step arena"),
      lasted: fc.constantFrom("0ms", "0.03ms", "12ms", "1.5s", "3m", "soon"),
      step: fc.nat(9),
    })
    .map(({ ms, kind, label, lasted, step }) =>
      [iso(ms), kind.padEnd(11), label, ...(kind === "phase" ? [lasted] : []), `step ${step}`].join("  "),
    ),
  fc.constantFrom("", "12 events came too fast and were lost", "2026-01-05T12  phase", "garbage  garbage  x"),
);

const randomStep = fc.record({
  time: fc.oneof(fc.double({ min: -50, max: 400, noNaN: true }), fc.nat(400), fc.constant(Number.NaN)),
  loss: fc.oneof(fc.double(), fc.constant(1)),
  lr: fc.double(),
  hostMs: fc.oneof(fc.double({ min: 0, max: 1000 }), fc.constantFrom(0.02, -1, Infinity)),
});

test("the trace is valid for any lines and rows: clocks that go back, phases without end, losses that are not finite", () => {
  const folder = makeFolder();
  let count = 0;
  fc.assert(
    fc.property(
      fc.array(drawnLine, { maxLength: 40 }),
      fc.array(randomStep, { maxLength: 30 }),
      fc.array(fc.double({ min: 0, max: 1e6, noNaN: true }), { maxLength: 9 }),
      fc.nat(20),
      (lines, steps, times, limit) => {
        const plan = samplePlan({ time: start });
        const calls = plan.calls.map((call, index) => ({ ...call, us: times[index] }));
        const run = writeSampleRun(folder, `run-${count++}`, {
          ...{ steps: 0, plans: [{ ...plan, calls }], incidents: sampleIncidents(start - 1000) },
        });
        run.appendPhases(lines);
        run.close();
        const log = new StepLog(join(run.path, "steps.bin"));
        for (const [index, { time, ...row }] of steps.entries())
          log.append({ step: index + 1, time: start + time, fold: 0, epoch: 0, samples: 1, ...row });
        log.close();
        const trace = checkTrace(JSON.stringify(traceRun(run.path, { steps: limit, buckets: 5, lines: 30 })));
        const shown =
          [...trace.spans].find(([track]) => track.includes("steps, as the host"))?.[1].length ?? 0;
        assert.ok(shown <= limit + 5);
      },
    ),
    { numRuns: effort({ quick: 12, thorough: 150 }) },
  );
});

test("a folder that is damaged or empty gives a trace that says so", () => {
  const run = writeSampleRun(makeFolder(), "torn", { steps: 3 });
  run.close();
  appendFileSync(join(run.path, "plans.jsonl"), '{"name": 3}\n{"na');
  writeFileSync(join(run.path, "steps.bin"), "x".repeat(700));
  const torn = traceRun(run.path);
  checkTrace(JSON.stringify(torn));
  assert.match(torn.otherData["notes"]!, /plans\.jsonl is ignored.*steps\.bin is not a step log/s);
  const empty = traceRun(makeFolder());
  assert.ok(checkTrace(JSON.stringify(empty)).events > 0);
  assert.match(empty.otherData["notes"]!, /no step log/);
});

test("the reader of the format detects crossing spans, times that go back and missing names", () => {
  const run = writeSampleRun(makeFolder(), "first", { steps: 3 });
  run.close();
  const file = traceRun(run.path);
  const last = file.traceEvents.findLast(({ ph }) => ph === "X")!;
  assert.ok(last.ph === "X");
  const added = (event: object): string =>
    JSON.stringify({ ...file, traceEvents: [...file.traceEvents, { ...last, ...event }] });
  assert.throws(() => checkTrace(added({ ts: last.ts, dur: last.dur + 1 })), /neither inside/);
  assert.throws(() => checkTrace(added({ ts: last.ts - 1 })), /time goes back/);
  assert.throws(() => checkTrace(added({ tid: 9999 })), /a thread without a name/);
  assert.throws(() => checkTrace(added({ dur: -1 })), /a time/);
  assert.throws(() => checkTrace(added({ pid: 1 })), /a thread of two processes/);
});
