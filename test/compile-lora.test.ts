/**
 * Training steps of LoRA on a GPU: the low-rank products are added in the GEMMs of their layers, the gradients of an input that several
 * layers share are one GEMM, and no kernel stores a value that nothing reads.
 */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { applyLora, type Device, fromTyped, manualSeed, modelFromConfig, nn, optim } from "holdfast";
import type { PassSettings } from "../src/compile/index.js";
import {
  accessesOf,
  type Call,
  type GemmCall,
  type GemmSumCall,
  isSameSlice,
} from "../src/compile/program/program.js";
import { latestPlanOf } from "../src/tensor/compiled/compiled-step.js";
import { emulatorMissing } from "./support/emulator.js";
import { openEmulatorGpu } from "./support/emulator-gpu.js";
import { planAllSchedules, withNullGpu } from "./support/null-gpu.js";
import { rejectionBy } from "./support/proposed-steps.js";

const headWidth = 64;

interface Sizes {
  readonly width: number;
  readonly hidden: number;
  readonly layers: number;
  readonly batch: number;
  readonly tokens: number;
}

/** A Llama in bf16 with adapters in all layers, and the loss of one batch. */
function llamaWithLora(device: Device, { width, hidden, layers, batch, tokens }: Sizes) {
  const model = modelFromConfig({
    ...{ model_type: "llama", vocab_size: 64, hidden_size: width, intermediate_size: hidden },
    ...{ num_hidden_layers: layers, num_attention_heads: width / headWidth, num_key_value_heads: 1 },
  });
  model.requiresGrad_(false).to(device, "bf16");
  applyLora(model, { rank: 16, alpha: 32, targets: "all-linear" });
  const parameters = model.parameters().filter(({ requiresGrad }) => requiresGrad);
  const words = Int32Array.from({ length: batch * tokens }, (_, index) => (index * index + 3 * index) % 61);
  const ids = device.keep(fromTyped(words, [batch, tokens], { device }));
  return { parameters, loss: () => model.loss(ids, ids) };
}

const wide: Sizes = { width: 512, hidden: 1024, layers: 2, batch: 8, tokens: 512 };

/** The plan of a step that trains the adapters of a wide model. */
function planned(passes: PassSettings = {}) {
  return withNullGpu("bf16", (device) => {
    const { parameters, loss } = llamaWithLora(device, wide);
    const optimizer = new optim.AdamW(parameters);
    const step = () => {
      loss().backward();
      optim.clipGradNorm(parameters, 1);
      optimizer.step();
      optimizer.zeroGrad();
    };
    return planAllSchedules(device, step, passes)[0]!;
  });
}

const callsOf = ({ schedule }: ReturnType<typeof planned>): readonly Call[] =>
  schedule.calls.map(({ call }) => call);
const sumsIn = (calls: readonly Call[]): readonly GemmSumCall[] =>
  calls.flatMap(({ work }) => (work.kind === "gemm-sum" ? [work] : []));
const gemmsIn = (calls: readonly Call[]): readonly GemmCall["problem"][] =>
  calls.flatMap(({ work }) =>
    work.kind === "grouped-gemm" ? work.problems : work.kind === "gemm" ? [work.problem] : [],
  );
const kOf = ({ problem, addends }: GemmSumCall): string =>
  [problem.k, ...addends.map(({ k }) => k)].join("+");

describe("a step of LoRA that is planned for a Hopper GPU", () => {
  const plan = planned();
  const calls = callsOf(plan);

  test("has each low-rank product in the GEMM of its layer, and the gradient of a shared input in one GEMM", () => {
    const counts = new Map<string, number>();
    for (const sum of sumsIn(calls)) counts.set(kOf(sum), (counts.get(kOf(sum)) ?? 0) + 1);
    const { layers } = wide;
    assert.deepEqual(
      new Map([...counts].sort()),
      new Map([
        ["1024+1024+16+16", layers], // The gradient of gate's and up's input.
        ["1024+16", layers], // down.
        // q, k, v, o, gate and up; the gradients of down's and o's input.
        ["512+16", 8 * layers],
        // The gradient of q's, k's and v's input, which the first layer does not need.
        [`512+${headWidth}+${headWidth}+16+16+16`, layers - 1],
      ]),
    );
    const wideGemms = calls.filter(
      ({ work }) => work.kind === "gemm" && work.problem.n >= wide.width && work.problem.n !== 16,
    );
    // The head and its gradient.
    assert.equal(wideGemms.length, 1);
    assert.equal(calls.filter(({ op }) => /^add$/.test(op)).length, 0);
  });

  test("stores no large value that no call reads, and trains no frozen weight", () => {
    const read = new Set(
      calls.flatMap((call) => accessesOf(call).flatMap(({ slice, reads }) => (reads ? [slice.buffer] : []))),
    );
    // Attention has scratch memory, which its kernels read themselves.
    const ofRows = calls.filter(({ work }) => work.kind === "row" || work.kind === "combo");
    const unread = ofRows.flatMap((call) =>
      accessesOf(call).flatMap(({ slice: { buffer }, writes }) =>
        writes && !buffer.storage && !read.has(buffer) ? [{ op: call.op, bytes: buffer.bytes }] : [],
      ),
    );
    const rows = wide.batch * wide.tokens;
    assert.deepEqual(
      unread.filter(({ bytes }) => bytes >= rows),
      [],
    );
    const gradients = gemmsIn(calls).filter(({ a }) => a.isTransposed);
    assert.equal(gradients.length, 2 * 7 * wide.layers);
    for (const { m, n } of gradients) assert.equal(Math.min(m, n), 16);
  });

  test("projects an input that layers share to all of their ranks in one launch", () => {
    const groups = calls.flatMap(({ work }) =>
      work.kind === "grouped-gemm" && work.problems.every(({ a }) => !a.isTransposed) ? [work.problems] : [],
    );
    for (const problems of groups) for (const { n } of problems) assert.equal(n, 16);
    const shared = groups.filter(([first, ...others]) =>
      others.every(({ a }) => isSameSlice(a.slice, first!.a.slice)),
    );
    const { layers } = wide;
    // q, k and v; gate and up. Their gradients have inputs of their own.
    assert.deepEqual(
      shared.map(({ length }) => length),
      Array.from({ length: layers }, () => [3, 2]).flat(),
    );
    assert.deepEqual(
      groups.map(({ length }) => length),
      [...shared.map(({ length }) => length), ...Array.from({ length: layers }, () => [2, 3]).flat()],
    );
  });

  test("reads and writes less with the sums than without", () => {
    const without = callsOf(planned({ gemmSums: false }));
    assert.deepEqual(sumsIn(without), []);
    assert.ok(without.length > calls.length);
  });

  test("red proof: the verifier rejects a sum before one of its products' factors", () => {
    const { schedule, plan: memory } = plan;
    assert.equal(rejectionBy({ program: calls, schedule, plan: memory }), undefined);
    const at = schedule.calls.findIndex(({ call: { work } }) => work.kind === "gemm-sum");
    const sum = sumsIn(calls)[0]!;
    const factor = schedule.calls.findLastIndex(
      ({ call }, index) =>
        index < at &&
        accessesOf(call).some(
          ({ slice, writes }) => writes && slice.buffer === sum.addends[0]!.a.slice.buffer,
        ),
    );
    assert.ok(factor >= 0);
    const swapped = schedule.calls.toSpliced(factor, 1).toSpliced(at, 0, schedule.calls[factor]!);
    assert.match(
      String(rejectionBy({ program: calls, schedule: { calls: swapped }, plan: memory })),
      /order|written/,
    );
  });
});

describe("on the emulated GPU", { skip: emulatorMissing }, () => {
  const small: Sizes = { width: 128, hidden: 96, layers: 2, batch: 2, tokens: 32 };

  /** The loss and the gradients of the adapters. */
  function train(device: Device, passes: PassSettings | undefined) {
    manualSeed(5);
    const { parameters, loss } = llamaWithLora(device, small);
    for (const parameter of parameters) parameter.initialize(nn.init.normal(0, 0.1));
    const run = () => {
      const value = loss();
      value.backward();
      return value;
    };
    const step = passes && device.compile(run, { passes });
    const value = step ? step().item() : device.step(() => run().item());
    const kinds =
      (step && latestPlanOf(step)?.planned.schedule.calls.map(({ call }) => call.work.kind)) ?? [];
    const gradients = parameters.map(({ grad }) => Float32Array.from(grad!.dataSync()));
    step?.close();
    return { value, gradients, sums: kinds.filter((kind) => kind === "gemm-sum").length };
  }

  test("gradients are those of eager code within bf16, and have its bits with eager GEMMs", () => {
    const device = openEmulatorGpu({
      precision: "bf16",
      multiprocessors: 2,
      capture: "off",
      seesSnapshots: false,
    });
    const eager = train(device, undefined);
    const exact = train(device, { autotune: false });
    assert.equal(exact.sums, 0);
    assert.equal(exact.value, eager.value);
    assert.deepEqual(exact.gradients, eager.gradients);
    const summed = train(device, {});
    assert.ok(summed.sums > 0);
    assert.ok(Math.abs(summed.value - eager.value) < 0.02 * Math.abs(eager.value));
    for (const [index, values] of eager.gradients.entries()) {
      const norm = Math.hypot(...values);
      const distance = Math.hypot(...values.map((value, at) => value - summed.gradients[index]![at]!));
      assert.ok(norm > 0);
      assert.ok(distance < 0.05 * norm, `gradient ${index} is ${distance / norm} from eager code`);
    }
  });
});
