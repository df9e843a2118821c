/**
 * The head of a classifier on a GPU: a norm, a GEMM with a few classes, the loss and the backward pass of all
 * of them are three kernels. After a deep model, which leaves time to count labels, they are one. The bits
 * are those of the eager step.
 */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type CompileOptions, type Device, manualSeed, nn, randn, type Tensor, tensor } from "holdfast";
import { latestPlanOf } from "../src/tensor/compiled/compiled-step.js";
import { effort } from "./support/effort.js";
import { emulatorMissing } from "./support/emulator.js";
import { openEmulatorGpu } from "./support/emulator-gpu.js";
import { withNullGpu } from "./support/null-gpu.js";
import { sameBytes } from "./support/same-bytes.js";

const [rows, width, classes] = [1100, 32, 3] as const;
// A capture would run each new step twice more.
const capture = effort({ quick: "off", thorough: "on" } as const);

interface Options {
  readonly isWeighted?: boolean;
  /** The number of norms before the head. */
  readonly depth?: number;
  /** True if the step selects the labels from a larger tensor. */
  readonly selectsLabels?: boolean;
  readonly passes?: CompileOptions["passes"];
}

/** The loss, the gradients, and the step's explanation. */
function run(device: Device, mode: "eager" | "compiled", options: Options) {
  const { isWeighted = false, depth = 2, selectsLabels = false, passes = {} } = options;
  manualSeed(3);
  const norms = Array.from({ length: depth }, () => new nn.LayerNorm([width]));
  const model = new nn.Sequential(...norms, new nn.Linear(width, classes)).to(device);
  const parameters = model.parameters();
  const x = randn([rows, width], { device });
  // One of four labels is ignored.
  const labels = Int32Array.from({ length: rows }, (_, index) => ((index * index) % 7) % 4);
  const y = tensor(
    labels.map((label) => label - 1),
    { device },
  );
  const weight = tensor([0.5, 1.5, 2], { device });
  const order = tensor(
    Int32Array.from({ length: rows }, (_, index) => (index * 7) % rows),
    { device },
  );
  const body = (x: Tensor, y: Tensor) => {
    const options = { ignoreIndex: -1, ...(isWeighted && { weight }) };
    const logits = model.forward(x);
    const loss = nn.functional.crossEntropy(logits, selectsLabels ? y.indexSelect(0, order) : y, options);
    loss.backward();
    return loss;
  };
  const compiled = device.compile(body, { passes });
  const step = mode === "compiled" ? compiled : body;
  const loss = device.step(() => step(x, y).item());
  const gradients = parameters.map((parameter) => Float32Array.from(parameter.grad?.dataSync() ?? []));
  const text = mode === "compiled" ? compiled.explain() : "";
  const ops = latestPlanOf(compiled)?.planned.schedule.calls.map(({ call }) => call.op) ?? [];
  compiled.close();
  return { loss, gradients, explanation: text, ops };
}

const eagerRuns = new Map<string, ReturnType<typeof run>>();

/** The eager step of a model, which the compiled steps of all passes are compared with. */
function runEager(device: Device, { passes: _, ...model }: Options): ReturnType<typeof run> {
  const key = JSON.stringify(model);
  const eager = eagerRuns.get(key) ?? run(device, "eager", model);
  eagerRuns.set(key, eager);
  return eager;
}

/** Compares the compiled step with the eager one, and returns it. */
function compare(device: Device, options: Options) {
  const [eager, compiled] = [runEager(device, options), run(device, "compiled", options)];
  assert.equal(compiled.loss, eager.loss);
  assert.ok(Number.isFinite(eager.loss));
  for (const [index, gradient] of eager.gradients.entries()) {
    assert.ok(gradient.some((value) => value !== 0));
    sameBytes(compiled.gradients[index]!, gradient, `gradient ${index}`);
  }
  return compiled;
}

const callsOf = (text: string): string[] => text.split("\n").filter((line) => /^ +\d+ {2}/.test(line));

describe("the head of a classifier on a GPU", { skip: emulatorMissing }, () => {
  const device = emulatorMissing ? undefined! : openEmulatorGpu({ precision: "f32", capture });

  for (const isWeighted of effort({ quick: [false], thorough: [false, true] })) {
    test(`is three kernels with the eager bits, ${isWeighted ? "with" : "without"} weights of classes`, () => {
      const calls = callsOf(compare(device, { isWeighted, passes: { comboKernels: false } }).explanation);
      const others = /count of calls|check of indices|bad index/;
      const head = calls.filter((line) => / row /.test(line) && !others.test(line));
      assert.equal(head.length, 3, calls.join("\n"));
      for (const [index, name] of [
        "layerNorm + linear + cro",
        "mean of losses",
        "crossEntropyGradient + l",
      ].entries()) {
        assert.ok(head[index]?.includes(name), head[index]);
      }
    });
  }

  const variants = effort<readonly Options[]>({
    quick: [{}, { isWeighted: true, selectsLabels: true }],
    thorough: [{}, { isWeighted: true }, { selectsLabels: true }, { isWeighted: true, selectsLabels: true }],
  });
  for (const variant of variants) {
    test(`is one kernel after a deep model, with the eager bits: ${JSON.stringify(variant)}`, () => {
      const options = { depth: 4, ...variant };
      const fused = compare(device, options);
      const separate = { ...options, passes: { hoistOutputs: false } };
      const plain = effort({
        quick: () => withNullGpu("f32", (planning) => run(planning, "compiled", separate)),
        thorough: () => compare(device, separate),
      })();
      const isWhole = (op: string): boolean => op.includes("crossEntropy + crossEntropyGradient");
      assert.deepEqual([fused.ops.filter(isWhole).length, plain.ops.filter(isWhole).length], [1, 0]);
      assert.match(fused.explanation, /^ +\d+ → \d+ +hoistOutputs, [\s\S]*?crossEntropy ×2 more/m);
    });
  }
});
