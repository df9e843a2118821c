/** Which results of products become bf16 between kernels, and which stay f32; and what their readers make of it. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { type Dtype, iterateElements, type RowKernel, term } from "../../ir/index.js";
import type { Runtime, Storage } from "../../runtime/index.js";
import { span } from "../../units/index.js";
import type { AttentionCall } from "../program/attention-call.js";
import type { Buffer, Call, FinishedCall, Part, ProductCall, RowCall } from "../program/program.js";
import { narrowedIn, narrowResults } from "./bf16-activations.js";

/** A card with no kernels of our own, unless it is Hopper; its library wants as much workspace as is said. */
function on({ precision = "bf16", capability = "8.0", kind = "cuda", workspaceBytes = 0 } = {}): Runtime {
  return {
    ...{ device: { kind, computeCapability: capability, parallelism: 132 }, settings: { precision } },
    kernel: () => ({ workspaceBytes }),
  } as unknown as Runtime;
}
const plain = on();
const hopper = on({ capability: "9.0" });

let buffers = 0;
const bufferOf = (bytes: number, storage?: Storage): Buffer => {
  buffers++;
  return { id: buffers, bytes, label: `b${buffers}`, ...(storage && { storage }) };
};
const kept = (bytes: number): Buffer =>
  bufferOf(bytes, { span: span(4096 * (1 + buffers), bytes) } as unknown as Storage);
const whole = (buffer: Buffer): Part => ({ buffer, offset: 0, size: buffer.bytes });

const [m, n, k] = [3072, 1024, 256];

interface Made<W> extends Call {
  readonly work: W & Call["work"];
  readonly made: Buffer;
}

function product(more: Partial<ProductCall["problem"]> = {}, made = bufferOf(4 * m * n)): Made<ProductCall> {
  const problem: ProductCall["problem"] = {
    ...{ dtype: "bf16", resultDtype: "f32", m, n, k },
    a: { part: whole(bufferOf(2 * m * k)), rowStride: k },
    b: { part: whole(bufferOf(2 * k * n)), rowStride: n },
    c: { part: whole(made), rowStride: n },
    ...more,
  };
  return { op: "linear", work: { kind: "product", problem }, made };
}

function rows(
  from: Buffer,
  { to = bufferOf(4 * m * n), as = "f32" as Dtype, value = term.exp(term.load(0, "f32")) } = {},
): Made<RowCall> {
  const kernel: RowKernel = {
    ...{ name: "exp", inputs: ["f32"], outputs: [{ dtype: as, per: "element" }], scalars: [] },
    stages: [{ kind: "store", output: 0, value }],
  };
  const iteration = iterateElements([m * n], [[1], [1]]);
  const operands = [whole(from), whole(to)];
  return { op: "exp", work: { kind: "rows", kernel, iteration, operands, scalars: [] }, made: to };
}

/** The mean of a row beside its elements: no elementwise work. */
const norming: RowKernel = {
  ...{ name: "norm", inputs: ["f32"], outputs: [{ dtype: "f32", per: "element" }], scalars: [] },
  stages: [
    { kind: "reduce", op: "add", value: term.load(0, "f32") },
    { kind: "store", output: 0, value: term.load(0, "f32") },
  ],
};

function normed(from: Buffer, to = bufferOf(4 * m * n)): Made<RowCall> {
  const { work, ...rest } = rows(from, { to });
  return { ...rest, work: { ...work, kernel: norming } };
}

function attention(read: Readonly<Record<string, Part>>): Call & { readonly work: AttentionCall } {
  const sizes = { batch: 256, heads: 4, rows: 12, columns: 12, width: 64, valueWidth: 64, scale: 1 };
  const strides = { batchStride: 12 * 256, headStride: 64, rowStride: 256 };
  const input = whole(bufferOf(4 * m * 256));
  const operands = { query: input, key: input, value: input, out: input, probabilities: input, ...read };
  const lying = ["query", "key", "value", "out"].map((name) => [name, strides] as const);
  const shape = { dtype: "f32", ...sizes } as const;
  const layouts = Object.fromEntries(lying);
  return { op: "attention", work: { kind: "attention", direction: "forward", shape, operands, layouts } };
}

const narrowed = (runtime: Runtime, calls: readonly Call[]): readonly number[] => [
  ...narrowedIn(calls, narrowResults(runtime, calls)),
];

test("a product's result that kernels load is stored as bf16, and loaded as such", () => {
  const first = product();
  const [one, other] = [rows(first.made), normed(first.made)];
  const [made, read, last] = narrowResults(plain, [first, one, other]);
  assert.ok(made?.work.kind === "product" && read?.work.kind === "rows" && last?.work.kind === "rows");
  assert.equal(made.work.problem.resultDtype, "bf16");
  const { part } = made.work.problem.c;
  assert.deepEqual([part.size, part.buffer.bytes], [2 * m * n, 2 * m * n]);
  for (const { work } of [read, last] as const) {
    assert.ok(work.kind === "rows");
    assert.deepEqual(work.kernel.inputs, ["bf16"]);
    assert.deepEqual(work.operands[0], part);
    assert.equal(work.kernel.outputs[0]?.dtype, "f32");
  }
});

test("kernels that load the same inputs as bf16 are one kernel", () => {
  const [first, second] = [product(), product()];
  const [one, other] = [rows(first.made), rows(second.made)];
  const same = { ...other, work: { ...other.work, kernel: one.work.kernel } };
  const kernels = narrowResults(plain, [first, one, second, same]).flatMap(({ work }) =>
    work.kind === "rows" ? [work.kernel] : [],
  );
  assert.equal(kernels.length, 2);
  assert.equal(kernels[0], kernels[1]);
});

test("only products in bf16 on a GPU that was told to leave bf16", () => {
  const first = product();
  const calls = [first, rows(first.made)];
  for (const runtime of [on({ precision: "tf32" }), on({ precision: "f32" }), on({ kind: "cpu" })])
    assert.equal(narrowResults(runtime, calls), calls);
  const floats = product({ dtype: "f32" });
  assert.deepEqual(narrowed(plain, [floats, rows(floats.made)]), []);
});

test("what is summed up, kept, read by a reduction of columns or not read at all stays f32", () => {
  const [one, more] = [product(), bufferOf(4 * m * n)];
  const added = product({ beta: 1 }, more);
  const columns = (from: Buffer): Call => ({
    op: "sum",
    work: {
      ...{ kind: "columns", rows: m, columns: n, scalars: [] },
      strides: [],
      kernel: { inputs: ["f32"] } as never,
      operands: [whole(from), whole(bufferOf(4 * n))],
    },
  });
  const copied = product();
  const copy: Call = {
    op: "copy",
    work: { kind: "copy", source: whole(copied.made), target: whole(bufferOf(4 * m * n)) },
  };
  const inPlace = product();
  const direct = product({}, kept(4 * m * n));
  for (const calls of [
    [one, columns(one.made)],
    [one, rows(one.made), columns(one.made)],
    [rows(bufferOf(4 * m * n), { to: more }), added, rows(more)],
    [copied, copy],
    [inPlace, rows(inPlace.made, { to: inPlace.made }), rows(inPlace.made)],
    [direct, rows(direct.made)],
    [product()],
  ])
    assert.deepEqual(narrowed(plain, calls), []);
});

test("results of the step and gradients of weights stay f32, also behind other elementwise work", () => {
  const one = product();
  const between = rows(one.made);
  assert.deepEqual(narrowed(plain, [one, rows(one.made, { to: kept(4 * m * n) })]), []);
  assert.deepEqual(narrowed(plain, [one, between, rows(between.made, { to: kept(4 * m * n) })]), []);
  // A norm's result is another value, made of many.
  const norm = normed(one.made);
  assert.deepEqual(narrowed(plain, [one, norm, rows(norm.made, { to: kept(4 * m * n) })]), [one.made.id]);
  const gradient = product({ a: { part: whole(bufferOf(2 * m * k)), rowStride: m, isTransposed: true } });
  assert.deepEqual(narrowed(plain, [gradient, normed(gradient.made)]), []);
});

test("rows that would begin on fewer than 16 bytes stay f32, and so does a part of a buffer", () => {
  const odd = bufferOf(4 * m * 1020);
  const narrow = product({ n: 1020, c: { part: whole(odd), rowStride: 1020 } }, odd);
  assert.deepEqual(narrowed(plain, [narrow, normed(odd)]), []);
  const wide = bufferOf(8 * m * n);
  const half = product({ c: { part: { ...whole(wide), size: 4 * m * n }, rowStride: n } }, wide);
  assert.deepEqual(narrowed(plain, [half, normed(wide)]), []);
});

test("a library's product with a bias stays f32, and our own keeps the bias as it is", () => {
  const bias = whole(kept(4 * n));
  const one = product({ bias });
  assert.deepEqual(narrowed(plain, [one, normed(one.made)]), []);
  // An odd length of rows in a batch is our own kernels' work on Hopper.
  const [size, batch] = [256, 12];
  const made = bufferOf(4 * size * size * batch);
  const each = product(
    {
      ...{ m: size, n: size, k: 193, batch, bias },
      a: { part: whole(bufferOf(2 * size * 2400)), rowStride: 2400, batchStride: 200 },
      b: { part: whole(bufferOf(2 * 193 * size * batch)), rowStride: size, batchStride: 193 * size },
      c: { part: whole(made), rowStride: size * batch, batchStride: size },
    },
    made,
  );
  const [found] = narrowResults(hopper, [each, normed(made)]);
  assert.ok(found?.work.kind === "product");
  const { resultDtype, biasDtype, bias: given } = found.work.problem;
  assert.deepEqual([resultDtype, biasDtype, given], ["bf16", "f32", bias]);
});

test("a finished product's result is kept as bf16, and its finish has it before it is rounded", () => {
  const { work, made } = product({ bias: whole(kept(4 * n)) });
  const [after, gradient] = [rows(made, { as: "bf16", to: bufferOf(2 * m * n) }), product()];
  const finish = { kernel: after.work.kernel, product: 0, keepsResult: true };
  const finished: FinishedCall = {
    ...{ kind: "finished", problem: work.problem, finish },
    ...{ operands: after.work.operands, scalars: [] },
  };
  const both: RowKernel = {
    ...{ name: "both", inputs: ["f32", "f32"], outputs: [{ dtype: "bf16", per: "element" }], scalars: [] },
    stages: [{ kind: "store", output: 0, value: term.mul(term.load(0, "f32"), term.load(1, "f32")) }],
  };
  const later: FinishedCall = {
    ...{ kind: "finished", problem: gradient.work.problem },
    finish: { kernel: both, product: 1, keepsResult: false },
    ...{ operands: [whole(made), whole(gradient.made), whole(bufferOf(2 * m * n))], scalars: [] },
  };
  const [first, second] = narrowResults(hopper, [
    { op: "linear", work: finished },
    { op: "linear", work: later },
  ]);
  assert.ok(first?.work.kind === "finished" && second?.work.kind === "finished");
  assert.equal(first.work.problem.resultDtype, "bf16");
  assert.deepEqual(first.work.finish.kernel.inputs, ["f32"]);
  assert.deepEqual(second.work.finish.kernel.inputs, ["bf16", "f32"]);
  assert.equal(second.work.operands[0]?.buffer, first.work.problem.c.part.buffer);
  assert.equal(second.work.problem.resultDtype, "f32");
});

test("attention reads queries, keys and values as bf16, and nothing else", () => {
  const [made, size] = [bufferOf(3 * 4 * m * 256), 4 * m * 256];
  const packed = product(
    {
      ...{
        n: 256,
        batch: 3,
        b: { part: whole(bufferOf(6 * 256 * 256)), rowStride: 256, batchStride: 65536 },
      },
      c: { part: whole(made), rowStride: 256, batchStride: m * 256 },
    },
    made,
  );
  const part = (index: number): Part => ({ buffer: made, offset: index * size, size });
  const reader = attention({ query: part(0), key: part(1), value: part(2) });
  const [, read] = narrowResults(plain, [packed, reader]);
  assert.ok(read?.work.kind === "attention");
  const { layouts, operands } = read.work;
  assert.deepEqual(
    ["query", "key", "value", "out"].map((name) => layouts[name]?.dtype),
    ["bf16", "bf16", "bf16", undefined],
  );
  assert.deepEqual([operands["value"]?.offset, operands["value"]?.size], [size, size / 2]);
  assert.deepEqual(narrowed(plain, [packed, attention({ probabilities: part(0) })]), []);
  assert.deepEqual(narrowed(plain, [packed, attention({ mask: part(0) })]), []);
});

test("a conversion to bf16 of what is bf16 is gone, and its readers read that", () => {
  const first = product();
  const cast = rows(first.made, { to: bufferOf(2 * m * n), as: "bf16", value: term.load(0, "f32") });
  const last = product({ a: { part: whole(cast.made), rowStride: n }, k: n });
  const calls = narrowResults(plain, [first, cast, normed(first.made), last]);
  assert.deepEqual(
    calls.map(({ work }) => work.kind),
    ["product", "rows", "product"],
  );
  const [made, , read] = calls;
  assert.ok(made?.work.kind === "product" && read?.work.kind === "product");
  assert.deepEqual(read.work.problem.a.part, made.work.problem.c.part);
  const toKept = rows(first.made, { to: kept(2 * m * n), as: "bf16", value: term.load(0, "f32") });
  assert.equal(narrowResults(plain, [first, toKept]).length, 2);
});

test("a library's product gets the workspace that it wants with the other result", () => {
  const first = product({ scratch: whole(bufferOf(64)) });
  const scratchWith = (workspaceBytes: number): number | undefined => {
    const [made] = narrowResults(on({ workspaceBytes }), [first, normed(first.made)]);
    return made?.work.kind === "product" ? made.work.problem.scratch?.size : undefined;
  };
  assert.deepEqual([0, 64, 512].map(scratchWith), [undefined, 64, 512]);
});

test("where it is told which results to round, it rounds no others", () => {
  const [first, second] = [product(), product()];
  const calls = [first, normed(first.made), second, normed(second.made)];
  const some = narrowResults(plain, calls, new Set([second.made.id]));
  assert.deepEqual([...narrowedIn(calls, some)], [second.made.id]);
});
