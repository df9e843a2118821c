/** The text of explain(): every stage with its figures, within the report width. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { transformerSchedule } from "../../../test/support/random-steps.js";
import { readRepositoryFile } from "../../../test/support/repository.js";
import { bufferOf, elementwise } from "../../../test/support/row-calls.js";
import { withRuntime } from "../../../test/support/runtimes.js";
import { term } from "../../ir/index.js";
import type { Replayable } from "../../runtime/index.js";
import { planStep } from "../compile.js";
import { memoryOf } from "../memory/memory-report.js";
import { planMemory } from "../memory/plan.js";
import { type PassSettings, passNames, phaseNames } from "../pipeline.js";
import type { PlannedStep } from "../planned-step.js";
import type { Call } from "../program/program.js";
import { lifetimesOf } from "../schedule/liveness.js";
import { rejection } from "../verify/plan-error.js";
import { planRules } from "../verify/verify.js";
import { explainStep } from "./explain.js";
import { reportWidth } from "./text-columns.js";

/** The same exp twice, an unused result, a copy, and calls that fuse to one kernel. */
function smallStep(passes: PassSettings = {}): PlannedStep {
  const [x, y] = [bufferOf([6, 100], { label: "x", address: 4096 }), bufferOf([6, 100], { address: 8192 })];
  const make = (): ReturnType<typeof bufferOf> => bufferOf([6, 100], { label: "made" });
  const [first, again, unread, copied, sum] = [make(), make(), make(), make(), make()];
  const calls: Call[] = [
    elementwise("exp", (value) => term.exp(value!), [x], first!),
    elementwise("exp", (value) => term.exp(value!), [x], again!),
    elementwise("neg", (value) => term.neg(value!), [x], unread!),
    { op: "copy", work: { kind: "copy", target: copied!.slice, source: again!.slice } },
    elementwise("add", (a, b) => term.add(a!, b!), [first!, copied!], sum!),
    elementwise("neg", (value) => term.neg(value!), [sum!], y),
  ];
  const trace = {
    result: undefined,
    calls,
    ops: [],
    constants: [],
    guards: [],
    checks: [],
    deadOnExit: [],
    inCommon: "nothing" as const,
    rankParts: [],
    usesPdl: false,
    types: new Map(),
    holds: () => true,
  };
  return withRuntime({}, ({ runtime }) => planStep(runtime, trace, passes));
}

const graph: Replayable = {
  mode: "graph",
  nodes: { kernel: 1, copy: 0, fill: 0, memory: 0, host: 0 },
  replay: () => undefined,
  close: () => undefined,
};

test("a step without a plan says how it gets one", () => {
  assert.match(explainStep("train", []), /^Compiled train has no plan yet: its first call creates one/);
});

test("each pass has its call counts before and after and its effect, then come the plan, the rules and the graph", () => {
  const text = explainStep("train", [{ inputs: "f32 [6, 100]", planned: smallStep(), replayable: graph }]);
  const lines = text.split("\n");
  const lineOf = (label: string): string => lines.find((line) => line.startsWith(`${label} `)) ?? "";
  const unwrapped = text.replaceAll(/\s+/g, " ");
  assert.equal(lines[0], "Compiled train: 1 plan.");
  assert.match(text, /^plan 1 +for inputs f32 \[6, 100\]$/m);
  assert.match(lineOf("trace"), / 0 ops, 6 calls$/);
  assert.match(lineOf("cse"), /6 → 5 .*: exp ×1 gone$/);
  assert.match(lineOf("copyPropagation"), /5 → 4 .*: copy ×1 gone$/);
  assert.match(lineOf("dce"), /4 → 3 .*: neg ×1 gone$/);
  assert.match(unwrapped, /verticalFusion 3 → 1 [^:]*: 3 calls become 1; 2 buffers \(4\.69 KiB\) gone ×1/);
  assert.match(text, /^ +×1 {2}exp \+ add \+ neg$/m);
  assert.match(text, /^ +1 call on 1 stream$/m);
  const rules = Object.keys(planRules);
  const allRulesHold = `all ${rules.length} rules hold: ${rules.join(", ")}`;
  assert.ok(unwrapped.includes(`verify ${allRulesHold} capture`), text);
  assert.match(lineOf("capture"), /one graph of 1 node: 1 kernels, 0 copies, 0 fills$/);
  assert.match(text, /^ +0 {2}exp \+ add \+ neg .*row .* 2\.34 KiB {2}2\.34 KiB$/m);
});

test("a disabled pass is listed as left out", () => {
  const planned = smallStep({ cse: false, verticalFusion: false });
  const text = explainStep("train", [{ inputs: "f32 [6, 100]", planned }], { calls: false });
  assert.match(text, /^cse +left out, as the settings say$/m);
  assert.match(text, /^verticalFusion +left out, as the settings say$/m);
  assert.match(text, /^dce +5 → 4 /m);
  assert.match(text, /^plan +.*the peak is at call \d, \w+:$/m);
  assert.match(text, /^capture +not yet/m);
  for (const name of passNames) assert.match(text, new RegExp(`^${name} `, "m"));
});

test("without the list of calls the text ends with the capture, or with the reason for none", () => {
  const direct: Replayable = { ...graph, mode: "direct", reason: "HOLDFAST_CAPTURE is off" };
  const plan = { inputs: "", planned: smallStep(), replayable: direct };
  const text = explainStep("train", [plan], { calls: false });
  assert.match(text, /for no inputs$/m);
  assert.match(text, /capture +none, it runs call by call: HOLDFAST_CAPTURE is off$/);
});

test("the documentation of compiled steps has every pass and every phase", () => {
  const page = readRepositoryFile("docs/compile.md");
  for (const name of passNames) assert.match(page, new RegExp(`^${name} `, "m"));
  const table = readRepositoryFile("docs/internals/compiler.md");
  for (const name of phaseNames) assert.ok(table.includes(`[\`${name}\`](`), name);
});

test("GEMM autotuning is listed with its gain, or as not done", () => {
  const gemms = {
    gemms: 29,
    changed: 12,
    measured: 17,
    beforeUs: 384.04,
    afterUs: 301.5,
    elapsedMs: 850,
  };
  const textOf = (planned: PlannedStep): string =>
    explainStep("train", [{ inputs: "", planned }], { calls: false });
  const text = textOf({ ...smallStep(), gemms });
  assert.match(
    text.replaceAll(/\s+/g, " "),
    /gemmAlgorithms: on a GPU, the fastest .*; 12 of 29 GEMMs changed, 384\.0 → 301\.5/,
  );
  assert.match(text, /17 kinds\s+measured\s+in\s+850ms$/m);
  assert.match(
    textOf({ ...smallStep(), gemms: undefined }),
    /gemmAlgorithms: not tuned \(no cuBLASLt, or disabled\)$/m,
  );
});

test("several plans are numbered", () => {
  const plans = ["f32 [8]", "f32 [5]"].map((inputs) => ({ inputs, planned: smallStep() }));
  const text = explainStep("train", plans, { calls: false });
  assert.match(text, /^Compiled train: 2 plans\.$/m);
  assert.deepEqual(text.match(/^plan \d .*$/gm), [
    "plan 1            for inputs f32 [8]",
    "plan 2            for inputs f32 [5]",
  ]);
});

test("phases that were left out after a rejection are listed, with the rejection and its report", () => {
  const planned = smallStep();
  const leftOut = ["verticalFusion", "comboKernels", "gemmAlgorithms", "pdl"] as const;
  const stages = planned.stages.filter(({ name }) => name !== "verticalFusion" && name !== "comboKernels");
  const rejected = rejection("written", "call 3 (exp) reads what nothing has written");
  const fallback = { leftOut, rejection: rejected, report: "/tmp/report.json" };
  const text = explainStep("train", [{ inputs: "f32 [6, 100]", planned: { ...planned, stages, fallback } }], {
    calls: false,
  });
  const unwrapped = text.replaceAll(/\s+/g, " ");
  for (const name of ["verticalFusion:", "comboKernels:", "gemmAlgorithms:"])
    assert.ok(unwrapped.includes(`${name} left out: the verifier rejected the plan with it`), name);
  assert.match(
    unwrapped,
    /these phases were left out: pdl, gemmAlgorithms, comboKernels, verticalFusion\. Reason: The plan breaks the rule "written"/,
  );
  assert.match(unwrapped, /Please report it with \/tmp\/report\.json/);
});

test("a large step lists its largest holders and counts the rest, within the report width", () => {
  const schedule = transformerSchedule(12, true);
  const plan = planMemory(lifetimesOf(schedule));
  const calls = schedule.calls.map(({ call }) => call);
  const stages = [{ name: "trace", calls } as const];
  const memory = memoryOf(schedule, plan);
  const planned: PlannedStep = {
    name: "train",
    isTuned: false,
    ops: 400,
    stages,
    schedule,
    plan,
    memory,
    types: new Map(),
    deadOnExit: [],
    usesPdl: false,
    regions: [],
    copies: smallStep().copies,
    record: undefined,
  };
  const inputs = Array.from({ length: 20 }, () => "bf16 [256, 193, 1024]").join(", ");
  const text = explainStep("train", [{ inputs, planned, replayable: graph }]);
  assert.match(text, /^ +[\d.]+ [KMG]iB {2}in \d+ others$/m);
  for (const line of text.split("\n")) assert.ok(line.length <= reportWidth, line);
  assert.equal(text.match(/^ *\d+ {2}\S+ .* launch /gm)?.length, calls.length);
});
