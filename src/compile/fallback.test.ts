/** A rejected plan: what is left out, in which order, what is said and what is written. */

import assert from "node:assert/strict";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { makeFolder } from "../../test/support/folders.js";
import { Sketch } from "../../test/support/proposed-steps.js";
import { rejectionOf } from "../../test/support/rejections.js";
import { withRuntime } from "../../test/support/runtimes.js";
import type { Runtime, RuntimeOptions } from "../runtime/index.js";
import { type Proposed, planAgreed, planOptional } from "./fallback.js";
import type { Stage } from "./pipeline.js";
import { rejection } from "./verify/plan-error.js";

/** A trace and four phases, of which the third has changed nothing. */
function stages(): readonly Stage[] {
  const callsOf = (op: string): Stage["calls"] => {
    const sketch = new Sketch();
    sketch.launch(op, { writes: [sketch.step(`${op} result`, 64)] });
    return sketch.program;
  };
  const fused = callsOf("fused");
  return [
    { name: "trace", calls: callsOf("traced") },
    { name: "cse", calls: callsOf("shared") },
    { name: "verticalFusion", calls: fused },
    { name: "batchCopies", calls: fused },
    { name: "comboKernels", calls: callsOf("combo") },
  ];
}

const nameOf = ({ stages: given, usesPdl }: Proposed): string =>
  `${given.at(-1)?.name}${usesPdl ? " with PDL" : ""}`;

/** A verifier that agrees to what one of its names says, and what was asked of it. */
function verifierOf(agreesTo: readonly string[]) {
  const asked: string[] = [];
  const plan = (proposed: Proposed): string => {
    const name = nameOf(proposed);
    asked.push(name);
    if (!agreesTo.includes(name)) throw rejection("written", `${name} is rejected`, { call: 3 });
    return `plan of ${name}`;
  };
  return { asked, plan };
}

function withWarnings<T>(
  options: RuntimeOptions,
  use: (runtime: Runtime, printed: string[], folder: string) => T,
): T {
  const [printed, reports]: [string[], string] = [[], makeFolder()];
  const heard = { print: (text: string) => void printed.push(text) };
  return withRuntime({ onRejectedPlan: "fallback", reports, ...options, ...heard }, ({ runtime }) => {
    printed.splice(0);
    return use(runtime, printed, reports);
  });
}

const whole = (): Proposed => ({ stages: stages(), usesPdl: true });

test("where the verifier agrees, nothing is left out and nothing is said", () => {
  withWarnings({}, (runtime, printed, folder) => {
    const { asked, plan } = verifierOf(["comboKernels with PDL"]);
    const agreed = planAgreed(runtime, "train", whole(), plan);
    assert.equal(agreed.planned, "plan of comboKernels with PDL");
    assert.equal(agreed.fallback, undefined);
    assert.deepEqual([asked.length, printed, readdirSync(folder)], [1, [], []]);
  });
});

test("PDL goes first, then phases from the last one back; a phase that changed nothing is not tried by itself", () => {
  withWarnings({}, (runtime) => {
    const { asked, plan } = verifierOf(["cse"]);
    const agreed = planAgreed(runtime, "train", whole(), plan);
    assert.deepEqual(asked, ["comboKernels with PDL", "comboKernels", "batchCopies", "cse"]);
    assert.equal(agreed.planned, "plan of cse");
    assert.deepEqual(
      agreed.stages.map(({ name }) => name),
      ["trace", "cse"],
    );
    assert.equal(agreed.usesPdl, false);
    assert.deepEqual(agreed.fallback?.leftOut, ["verticalFusion", "batchCopies", "comboKernels", "pdl"]);
    assert.match(agreed.fallback?.rejection.message ?? "", /comboKernels with PDL is rejected/);
  });
});

test("one warning names the step, the first phase left out, the rule and a file that holds what a report needs", () => {
  withWarnings({}, (runtime, printed, folder) => {
    const { fallback } = planAgreed(runtime, "train", whole(), verifierOf(["batchCopies"]).plan);
    const [file = ""] = readdirSync(folder);
    assert.equal(fallback?.report, join(folder, file));
    assert.equal(printed.length, 1);
    assert.match(printed[0]!, /^holdfast: the verifier rejected a plan of compiled train/);
    assert.match(
      printed[0]!,
      /runs without the phase "comboKernels" and the phase after it, and may be slower\. This is a bug in Holdfast/,
    );
    assert.match(printed[0]!, /breaks the rule "written"/);
    assert.ok(printed[0]!.includes(fallback?.report ?? "none"));
    const report = JSON.parse(readFileSync(join(folder, file), "utf8")) as Record<string, unknown>;
    assert.deepEqual(report["leftOut"], ["comboKernels", "pdl"]);
    assert.deepEqual(report["numbers"], { rule: "written", call: 3 });
    assert.deepEqual([report["step"], report["code"]], ["train", "PLAN_REJECTED"]);
    assert.equal((report["device"] as { kind?: string }).kind, runtime.device.kind);
    assert.match((report["calls"] as string[]).join("\n"), /0 {2}combo .*launch/);
  });
});

test("where the report can't be written the warning says so, and the step is planned", () => {
  const file = join(makeFolder(), "no folder");
  writeFileSync(file, "");
  withWarnings({ reports: file }, (runtime, printed) => {
    const agreed = planAgreed(runtime, "train", whole(), verifierOf(["trace"]).plan);
    assert.equal(agreed.planned, "plan of trace");
    assert.match(printed.join(""), /its report could not be written: /);
  });
});

test("where even the traced calls are rejected, the first rejection is thrown and nothing is written", () => {
  withWarnings({}, (runtime, printed, folder) => {
    const { asked, plan } = verifierOf([]);
    const error = rejectionOf(() => planAgreed(runtime, "train", whole(), plan));
    assert.match(error?.message ?? "", /comboKernels with PDL is rejected/);
    assert.equal(error?.code, "PLAN_REJECTED");
    assert.equal(asked.at(-1), "trace");
    assert.deepEqual([printed, readdirSync(folder)], [[], []]);
  });
});

test("with onRejectedPlan: error, the first rejection is thrown at once, of a plan and of an optional schedule", () => {
  withWarnings({ onRejectedPlan: "error" }, (runtime, printed) => {
    const { asked, plan } = verifierOf(["comboKernels"]);
    assert.equal(rejectionOf(() => planAgreed(runtime, "train", whole(), plan))?.code, "PLAN_REJECTED");
    assert.equal(asked.length, 1);
    const rejected = (): never => {
      throw rejection("order", "rejected");
    };
    const streams = { name: "train", schedule: "side streams", calls: [] };
    assert.equal(rejectionOf(() => planOptional(runtime, streams, rejected))?.code, "PLAN_REJECTED");
    assert.deepEqual(printed, []);
  });
});

test("a rejected schedule that is optional is left out with a warning, and other errors pass", () => {
  withWarnings({}, (runtime, printed, folder) => {
    const streams = { name: "train", schedule: "side streams", calls: stages().at(-1)!.calls };
    const rejected = (): never => {
      throw rejection("order", "rejected");
    };
    assert.equal(
      planOptional(runtime, streams, () => 7),
      7,
    );
    assert.equal(planOptional(runtime, streams, rejected), undefined);
    assert.match(
      printed.join(""),
      /compiled train, so the step runs without side streams, and may be slower\./,
    );
    assert.equal(readdirSync(folder).length, 1);
    const broken = (): never => {
      throw new TypeError("broken");
    };
    assert.throws(() => planOptional(runtime, streams, broken), TypeError);
    assert.throws(() => planAgreed(runtime, "train", whole(), broken), TypeError);
  });
});
