/** A bias that a library can't add to half floats is added where the result is read, and any other stays with its product. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { iterateElements, iterateRows, type RowKernel, term } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import type { Buffer, Call, Part, ProductCall } from "../program.js";
import { takeBiasesApart } from "./biases.js";

const on = (precision: string, kind = "cuda"): Runtime =>
  ({
    device: { kind, computeCapability: "9.0", parallelism: 132 },
    settings: { precision },
  }) as unknown as Runtime;
const gpu = on("bf16");

let buffers = 0;
const bufferOf = (bytes: number): Buffer => {
  buffers++;
  return { id: buffers, bytes, label: `b${buffers}` };
};
const whole = (buffer: Buffer): Part => ({ buffer, offset: 0, size: buffer.bytes });

const [m, n, k] = [3072, 256, 1024];
const result = bufferOf(4 * m * n);
const bias = whole(bufferOf(4 * n));

function product(more: Partial<ProductCall["problem"]> = {}): Call {
  const problem: ProductCall["problem"] = {
    ...{ dtype: "bf16", resultDtype: "f32", m, n, k, bias },
    a: { part: whole(bufferOf(2 * m * k)), rowStride: k },
    b: { part: whole(bufferOf(2 * k * n)), rowStride: n },
    c: { part: whole(result), rowStride: n },
    ...more,
  };
  return { op: "linear", work: { kind: "product", problem } };
}

const twice: RowKernel = {
  ...{ name: "twice", inputs: ["f32"], outputs: [{ dtype: "f32", per: "element" }], scalars: [] },
  stages: [{ kind: "store", output: 0, value: term.add(term.load(0, "f32"), term.load(0, "f32")) }],
};

function reader(
  iteration = iterateRows(
    [m, n],
    [
      [n, 1],
      [n, 1],
    ],
    1,
  ),
): Call {
  const operands = [whole(result), whole(bufferOf(4 * m * n))];
  return { op: "norm", work: { kind: "rows", kernel: twice, iteration, operands, scalars: [] } };
}

test("the product is made without it, and it is added to every row on the way to where the result is read", () => {
  const after = reader();
  const [made, added, read, ...others] = takeBiasesApart(gpu, [product(), after]);
  assert.deepEqual(others, []);
  assert.equal(read, after);
  assert.ok(made?.work.kind === "product" && added?.work.kind === "rows");
  const { c } = made.work.problem;
  assert.equal(made.work.problem.bias, undefined);
  assert.notEqual(c.part.buffer, result);
  assert.equal(c.part.size, 4 * m * n);
  assert.deepEqual(added.work.operands, [c.part, bias, whole(result)]);
  const { outer, row } = added.work.iteration;
  assert.deepEqual(
    [...outer, row],
    [
      { size: m, strides: [n, 0, n] },
      { size: n, strides: [1, 1, 1] },
    ],
  );
});

test("it stays with a product that our own kernels make or finish, and with one that no row kernel reads", () => {
  const wide = { n: 1024, k: 256, b: { part: whole(bufferOf(2 * 256 * 1024)), rowStride: 1024 } };
  const large = bufferOf(4 * m * 1024);
  const finishable = product({ ...wide, c: { part: whole(large), rowStride: 1024 } });
  const iteration = iterateElements([m * 1024], [[1], [1]]);
  const activation: Call = {
    op: "gelu",
    work: {
      kind: "rows",
      kernel: twice,
      iteration,
      operands: [whole(large), whole(bufferOf(4))],
      scalars: [],
    },
  };
  const few = reader(
    iterateRows(
      [m / 2, n],
      [
        [n, 1],
        [n, 1],
      ],
      1,
    ),
  );
  const copy: Call = {
    op: "copy",
    work: { kind: "copy", source: whole(result), target: whole(bufferOf(4 * m * n)) },
  };
  for (const calls of [[finishable, activation], [product(), few], [product(), copy], [product()]])
    assert.deepEqual(takeBiasesApart(gpu, calls), calls);
});

test("it stays where products leave floats, and with what is more than a product", () => {
  for (const runtime of [on("tf32"), on("f32"), on("bf16", "cpu")]) {
    const calls = [product(), reader()];
    assert.equal(takeBiasesApart(runtime, calls), calls);
  }
  for (const more of [
    { activation: "relu" },
    { beta: 1 },
    { dtype: "f32" },
    { resultDtype: "bf16" },
  ] as const) {
    const calls = [product(more), reader()];
    assert.deepEqual(takeBiasesApart(gpu, calls), calls);
  }
});
