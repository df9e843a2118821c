/** Loops in compiled steps: one call for any number of iterations, with exact effects for the verifier. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { type Device, manualSeed, nn, optim, randn, type Tensor } from "holdfast";
import { traceStep } from "../src/compile/index.js";
import { type BodyCall, loop, operandBuffer } from "../src/compile/program/kinds/loop.js";
import type { BufferSlice, LoopCall } from "../src/compile/program/program.js";
import { effectsOf } from "../src/compile/verify/effects.js";
import { iterateElements, type RowKernel, term } from "../src/ir/index.js";
import { openStrictDevice } from "./support/devices.js";
import { emulatorGpuMissing, openEmulatorGpu } from "./support/emulator-gpu.js";

const device = openStrictDevice();

class Tagger extends nn.Module {
  readonly rnn = new nn.LSTM(3, 5, { numLayers: 2, bidirectional: true, dropout: 0.3 });
  readonly head = new nn.Linear(10, 2);

  forward(x: Tensor, lengths: Tensor): Tensor {
    return this.head.forward(this.rnn.forward(x, undefined, { lengths })[0]);
  }
}

function training(on: Device): {
  readonly model: Tagger;
  readonly step: (x: Tensor, lengths: Tensor) => Tensor;
} {
  manualSeed(3);
  const model = new Tagger().to(on);
  const optimizer = new optim.AdamW(model.parameters(), { lr: 0.02 });
  const step = (x: Tensor, lengths: Tensor): Tensor => {
    optimizer.zeroGrad();
    const loss = model.forward(x, lengths).square().mean();
    loss.backward();
    optimizer.step();
    return loss;
  };
  return { model, step };
}

const batchOf = (steps: number): [Tensor, Tensor] => [
  randn([steps, 4, 3], { device }),
  device.fromHost([steps, 1, steps - 1, 2], [4], "i32"),
];

test("a recurrent layer in training has the weights of eager steps, bit for bit", () => {
  const [eager, compiled] = [training(device), training(device)];
  manualSeed(4);
  const [x, lengths] = batchOf(6);
  const run = (step: (x: Tensor, lengths: Tensor) => unknown): void => {
    manualSeed(5);
    for (let count = 0; count < 3; count++) step(x, lengths);
  };
  run((...batch) => device.step(() => eager.step(...batch).item()));
  const step = device.compile(compiled.step);
  run(step);
  step.close();
  const weights = ({ model }: typeof eager): unknown => model.parameters().map((each) => each.tolist());
  assert.deepEqual(weights(compiled), weights(eager));
});

test("the calls of a step do not grow with the steps of a sequence", () => {
  const { step } = training(device);
  const callsOf = (steps: number): number => {
    const batch = batchOf(steps);
    const { calls } = traceStep(device.runtime, () => device.inTracedStep(() => void step(...batch)));
    assert.equal(calls.filter(({ work }) => work.kind === "loop").length, 8);
    return calls.length;
  };
  // From so many steps on, the sums over them have the kernels of long columns.
  assert.equal(callsOf(60), callsOf(90));
});

const [rowBytes, rows] = [16, 5];
const copyRow: RowKernel = {
  ...{ name: "copy", inputs: ["f32"], scalars: [] },
  outputs: [{ dtype: "f32", per: "element" }],
  stages: [{ kind: "store", output: 0, value: term.load(0, "f32") }],
};

/** A loop over [rows + 1, 4] that copies parts of one operand: from `from` to `to`, in bytes, in each iteration. */
function copyLoop(copies: readonly (readonly [from: number, to: number])[], stride: number): LoopCall {
  const buffer = { id: 1, bytes: (rows + 1) * rowBytes, label: "states" };
  const stand = operandBuffer(0, buffer.bytes);
  const at = (offset: number): BufferSlice => ({ buffer: stand, offset, size: rowBytes });
  const body = copies.map(([from, to]): BodyCall => {
    const iteration = iterateElements([4], [[1], [1]]);
    return { kind: "row", kernel: copyRow, iteration, scalars: [], operands: [at(from), at(to)] };
  });
  const slice: BufferSlice = { buffer, offset: 0, size: buffer.bytes };
  return { kind: "loop", count: rows, operands: [{ slice, access: "inout", stride }], body };
}

/** The ranges that a loop reads from before it, as [from, to). */
function rangesRead(work: LoopCall): readonly (readonly [number, number])[] {
  return effectsOf({ op: "loop", work }).accesses.flatMap(({ slice: { offset, size }, reads }) =>
    reads ? [[offset, offset + size] as const] : [],
  );
}

test("the verifier counts what a loop reads from before it, and nothing that an earlier iteration wrote", () => {
  const last = rows * rowBytes;
  assert.deepEqual(rangesRead(copyLoop([[0, rowBytes]], rowBytes)), [[0, rowBytes]], "forwards");
  assert.deepEqual(
    rangesRead(copyLoop([[last, last - rowBytes]], -rowBytes)),
    [[last, last + rowBytes]],
    "backwards",
  );
  assert.deepEqual(
    rangesRead(copyLoop([[0, 2 * rowBytes]], rowBytes)),
    [[0, 2 * rowBytes]],
    "two rows ahead",
  );
  assert.deepEqual(
    rangesRead(copyLoop([[rowBytes, 0]], rowBytes)),
    [[rowBytes, last + rowBytes]],
    "a row back",
  );
  assert.deepEqual(
    rangesRead(
      copyLoop(
        [
          [0, rowBytes],
          [rowBytes, 0],
        ],
        0,
      ),
    ),
    [[0, rowBytes]],
    "shared",
  );
});

test("loops with other bodies or strides are not equal", () => {
  const parts = {
    read: ({ offset, size }: BufferSlice) => `${offset}:${size}`,
    written: ({ size }: BufferSlice) => `${size}`,
    literal: (value: unknown) => JSON.stringify(value),
    identity: () => "kernel",
  };
  const loops = [
    copyLoop([[0, rowBytes]], rowBytes),
    copyLoop([[0, rowBytes]], 2 * rowBytes),
    copyLoop([[0, 2 * rowBytes]], rowBytes),
    copyLoop(
      [
        [0, rowBytes],
        [0, rowBytes],
      ],
      rowBytes,
    ),
  ];
  assert.equal(new Set(loops.map((work) => loop.key(work, parts))).size, loops.length);
  assert.equal(loop.key(copyLoop([[0, rowBytes]], rowBytes), parts), loop.key(loops[0]!, parts));
});

test("in bf16 a GPU rounds states and gradients in the kernels of the steps, and losses stay near those of f32", {
  skip: emulatorGpuMissing,
}, () => {
  const lossesIn = (precision: "f32" | "bf16"): { readonly losses: number[]; readonly bodies: string[] } => {
    const gpu = openEmulatorGpu({ precision });
    manualSeed(3);
    const layer = new nn.GRU(8, 40).to(gpu);
    const x = randn([3, 12, 8], { device: gpu });
    const optimizer = new optim.SGD(layer.parameters(), { lr: 0.5 });
    const step = (): Tensor => {
      optimizer.zeroGrad();
      const loss = layer.forward(x)[0].sub(1).square().mean();
      loss.backward();
      optimizer.step();
      return loss;
    };
    const losses = [0, 1, 2].map(() => gpu.step(() => step().item()));
    const { calls } = traceStep(gpu.runtime, () => gpu.inTracedStep(() => void step()));
    return { losses, bodies: calls.flatMap(({ work }) => (work.kind === "loop" ? loop.name(work) : [])) };
  };
  const [exact, rounded] = [lossesIn("f32"), lossesIn("bf16")];
  assert.deepEqual(rounded.bodies, [
    "loop of gemm NT bf16 → f32 + bias + gru cell",
    "loop of gru cell gradient + gemm NN bf16 → f32",
  ]);
  assert.notDeepEqual(rounded.losses, exact.losses);
  for (const [index, loss] of exact.losses.entries())
    assert.ok(Math.abs(rounded.losses[index]! - loss) < 2e-3 * loss, `${rounded.losses} and ${exact.losses}`);
});
