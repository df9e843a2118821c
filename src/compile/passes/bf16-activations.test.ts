/** Which results of products become bf16 between kernels, and which stay f32; and what their readers make of it. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { onCalls } from "../../../test/support/rewritten.js";
import { type ColumnKernel, type Dtype, iterateElements, type RowKernel, term } from "../../ir/index.js";
import type { Runtime, Storage } from "../../runtime/index.js";
import { span } from "../../units/index.js";
import type { AttentionCall } from "../program/kinds/attention.js";
import type {
  Buffer,
  BufferSlice,
  Call,
  ColumnCall,
  GemmCall,
  GemmEpilogueCall,
  RowCall,
} from "../program/program.js";
import { bf16ActivationsIn, storeActivationsAsBf16 as storeActivationsAsBf16In } from "./bf16-activations.js";

const storeActivationsAsBf16 = onCalls(storeActivationsAsBf16In);

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
const whole = (buffer: Buffer): BufferSlice => ({ buffer, offset: 0, size: buffer.bytes });

const [m, n, k] = [3072, 1024, 256];

interface Made<W> extends Call {
  readonly work: W & Call["work"];
  readonly made: Buffer;
}

function product(more: Partial<GemmCall["problem"]> = {}, made = bufferOf(4 * m * n)): Made<GemmCall> {
  const problem: GemmCall["problem"] = {
    ...{ dtype: "bf16", resultDtype: "f32", m, n, k },
    a: { slice: whole(bufferOf(2 * m * k)), rowStride: k },
    b: { slice: whole(bufferOf(2 * k * n)), rowStride: n },
    c: { slice: whole(made), rowStride: n },
    ...more,
  };
  return { op: "linear", work: { kind: "gemm", problem }, made };
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
  return { op: "exp", work: { kind: "row", kernel, iteration, operands, scalars: [] }, made: to };
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

function attention(read: Readonly<Record<string, BufferSlice>>): Call & { readonly work: AttentionCall } {
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
  ...bf16ActivationsIn(calls, storeActivationsAsBf16(runtime, calls)),
];

test("a product's result that kernels load is stored as bf16, and loaded as such", () => {
  const first = product();
  const [one, other] = [rows(first.made), normed(first.made)];
  const [made, read, last] = storeActivationsAsBf16(plain, [first, one, other]);
  assert.ok(made?.work.kind === "gemm" && read?.work.kind === "row" && last?.work.kind === "row");
  assert.equal(made.work.problem.resultDtype, "bf16");
  const { slice } = made.work.problem.c;
  assert.deepEqual([slice.size, slice.buffer.bytes], [2 * m * n, 2 * m * n]);
  for (const { work } of [read, last] as const) {
    assert.ok(work.kind === "row");
    assert.deepEqual(work.kernel.inputs, ["bf16"]);
    assert.deepEqual(work.operands[0], slice);
    assert.equal(work.kernel.outputs[0]?.dtype, "f32");
  }
});

test("a loss loads the logit of its label as bf16", () => {
  const logits = product();
  const label = term.load(0, "f32", term.position);
  const [made, loss] = storeActivationsAsBf16(plain, [logits, rows(logits.made, { value: label })]);
  assert.ok(made?.work.kind === "gemm" && loss?.work.kind === "row");
  assert.deepEqual([made.work.problem.resultDtype, loss.work.kernel.inputs], ["bf16", ["bf16"]]);
});

test("kernels that load the same inputs as bf16 are one kernel", () => {
  const [first, second] = [product(), product()];
  const [one, other] = [rows(first.made), rows(second.made)];
  const same = { ...other, work: { ...other.work, kernel: one.work.kernel } };
  const kernels = storeActivationsAsBf16(plain, [first, one, second, same]).flatMap(({ work }) =>
    work.kind === "row" ? [work.kernel] : [],
  );
  assert.equal(kernels.length, 2);
  assert.equal(kernels[0], kernels[1]);
});

test("only products in bf16 on a GPU that was told to leave bf16", () => {
  const first = product();
  const calls = [first, rows(first.made)];
  for (const runtime of [on({ precision: "tf32" }), on({ precision: "f32" }), on({ kind: "cpu" })])
    assert.equal(storeActivationsAsBf16(runtime, calls), calls);
  const floats = product({ dtype: "f32" });
  assert.deepEqual(narrowed(plain, [floats, rows(floats.made)]), []);
});

/** Sums of columns: the second input, if there is one, is a factor. */
function columns(from: readonly Buffer[], made = bufferOf(4 * n)): Made<ColumnCall> {
  const loads = from.map((_, input) => term.load(input, "f32"));
  const kernel: ColumnKernel = {
    ...{ name: "sum", inputs: from.map(() => "f32"), outputs: ["f32"], scalars: [], op: "add" },
    values: [loads.reduce((product, load) => term.mul(product, load))],
  };
  const strides = from.map(() => ({ row: n, column: "unit" }) as const);
  const operands = [...from, made].map(whole);
  return {
    ...{ op: "sum", made },
    work: { kind: "column", rows: m, columns: n, scalars: [], strides, kernel, operands },
  };
}

test("a reduction of columns loads bf16 next to f32, and its result stays f32", () => {
  const [gradient, input] = [product(), bufferOf(4 * m * n)];
  const calls = [gradient, columns([gradient.made, input], kept(4 * n)), normed(gradient.made)];
  const [made, reduced, last] = storeActivationsAsBf16(plain, calls);
  assert.ok(made?.work.kind === "gemm" && reduced?.work.kind === "column" && last?.work.kind === "row");
  assert.equal(made.work.problem.resultDtype, "bf16");
  assert.deepEqual([reduced.work.kernel.inputs, reduced.work.kernel.outputs], [["bf16", "f32"], ["f32"]]);
  assert.deepEqual(reduced.work.operands.slice(0, 2), [made.work.problem.c.slice, whole(input)]);
  assert.deepEqual(last.work.operands[0], made.work.problem.c.slice);
  assert.deepEqual(narrowed(plain, [gradient, columns([gradient.made])]), [gradient.made.id]);
});

test("what is summed up, kept, overwritten by a reduction of columns or not read at all stays f32", () => {
  const [one, more] = [product(), bufferOf(4 * m * n)];
  const added = product({ beta: 1 }, more);
  const copied = product();
  const copy: Call = {
    op: "copy",
    work: { kind: "copy", source: whole(copied.made), target: whole(bufferOf(4 * m * n)) },
  };
  const inPlace = product();
  const direct = product({}, kept(4 * m * n));
  for (const calls of [
    [one, rows(one.made), columns([bufferOf(4 * m * n)], one.made)],
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
  const gradient = product({ a: { slice: whole(bufferOf(2 * m * k)), rowStride: m, isTransposed: true } });
  assert.deepEqual(narrowed(plain, [gradient, normed(gradient.made)]), []);
});

test("a small part may reach a result, such as the first row from which a channel's distances are summed", () => {
  const one = product();
  const partOf = (count: number): Call => {
    const { work, op } = rows(one.made, { to: kept(4 * count) });
    const between = bufferOf(4 * count);
    return { op, work: { ...work, operands: [{ ...whole(one.made), size: 4 * count }, whole(between)] } };
  };
  const keptAfter = (count: number): readonly Call[] => {
    const part = partOf(count);
    const { buffer } = (part.work as RowCall).operands[1]!;
    return [one, part, rows(buffer, { to: kept(4 * count) })];
  };
  assert.deepEqual(narrowed(plain, keptAfter(n)), [one.made.id]);
  assert.deepEqual(narrowed(plain, keptAfter((m * n) / 2)), []);
});

test("rows that would begin on fewer than 16 bytes stay f32, and so does a part of a buffer", () => {
  const odd = bufferOf(4 * m * 1020);
  const narrow = product({ n: 1020, c: { slice: whole(odd), rowStride: 1020 } }, odd);
  assert.deepEqual(narrowed(plain, [narrow, normed(odd)]), []);
  const wide = bufferOf(8 * m * n);
  const half = product({ c: { slice: { ...whole(wide), size: 4 * m * n }, rowStride: n } }, wide);
  assert.deepEqual(narrowed(plain, [half, normed(wide)]), []);
});

test("a library's product gets its bias as bf16, and our own keeps the bias as it is", () => {
  const bias = whole(kept(4 * n));
  const one = product({ bias });
  const [cast, library] = storeActivationsAsBf16(plain, [one, normed(one.made)]);
  assert.ok(cast?.work.kind === "row" && library?.work.kind === "gemm");
  assert.equal(library.work.problem.biasDtype, "bf16");
  assert.deepEqual([cast.work.kernel.inputs, cast.work.kernel.outputs[0]?.dtype], [["f32"], "bf16"]);
  assert.deepEqual(cast.work.operands, [bias, library.work.problem.bias]);
  // An odd length of rows in a batch is our own kernels' work on Hopper.
  const [size, batch] = [256, 12];
  const made = bufferOf(4 * size * size * batch);
  const each = product(
    {
      ...{ m: size, n: size, k: 193, batch, bias },
      a: { slice: whole(bufferOf(2 * size * 2400)), rowStride: 2400, batchStride: 200 },
      b: { slice: whole(bufferOf(2 * 193 * size * batch)), rowStride: size, batchStride: 193 * size },
      c: { slice: whole(made), rowStride: size * batch, batchStride: size },
    },
    made,
  );
  const [found] = storeActivationsAsBf16(hopper, [each, normed(made)]);
  assert.ok(found?.work.kind === "gemm");
  const { resultDtype, biasDtype, bias: given } = found.work.problem;
  assert.deepEqual([resultDtype, biasDtype, given], ["bf16", "f32", bias]);
});

test("a library's product reads its bias from an earlier cast of it, if the bias has not changed since", () => {
  const weights = kept(4 * (k * n + n));
  const cast = rows(weights, { to: bufferOf(2 * (k * n + n)), as: "bf16", value: term.load(0, "f32") });
  const whole = { ...cast.work, iteration: iterateElements([k * n + n], [[1], [1]]) };
  const bias = { buffer: weights, offset: 4 * k * n, size: 4 * n };
  const one = product({ bias });
  const biasIn = (calls: readonly Call[]) =>
    storeActivationsAsBf16(plain, calls).flatMap(({ work }) =>
      work.kind === "gemm" ? [work.problem.bias] : [],
    );
  const casted = { ...cast, work: whole };
  const expected = { buffer: cast.made, offset: 2 * k * n, size: 2 * n };
  assert.deepEqual(biasIn([casted, one, normed(one.made)]), [expected]);
  const update = rows(bufferOf(4 * m * n), { to: weights });
  for (const calls of [
    [casted, update, one, normed(one.made)],
    [one, normed(one.made), casted],
  ])
    assert.notEqual(biasIn(calls)[0]?.buffer, cast.made);
});

test("a finished product's result is kept as bf16, and its finish has it before it is rounded", () => {
  const { work, made } = product({ bias: whole(kept(4 * n)) });
  const [after, gradient] = [rows(made, { as: "bf16", to: bufferOf(2 * m * n) }), product()];
  const finish = { kernel: after.work.kernel, gemmInput: 0, storesC: true };
  const finished: GemmEpilogueCall = {
    ...{ kind: "gemm-epilogue", problem: work.problem, epilogue: finish },
    ...{ operands: after.work.operands, scalars: [] },
  };
  const both: RowKernel = {
    ...{ name: "both", inputs: ["f32", "f32"], outputs: [{ dtype: "bf16", per: "element" }], scalars: [] },
    stages: [{ kind: "store", output: 0, value: term.mul(term.load(0, "f32"), term.load(1, "f32")) }],
  };
  const later: GemmEpilogueCall = {
    ...{ kind: "gemm-epilogue", problem: gradient.work.problem },
    epilogue: { kernel: both, gemmInput: 1, storesC: false },
    ...{ operands: [whole(made), whole(gradient.made), whole(bufferOf(2 * m * n))], scalars: [] },
  };
  const [first, second] = storeActivationsAsBf16(hopper, [
    { op: "linear", work: finished },
    { op: "linear", work: later },
  ]);
  assert.ok(first?.work.kind === "gemm-epilogue" && second?.work.kind === "gemm-epilogue");
  assert.equal(first.work.problem.resultDtype, "bf16");
  assert.deepEqual(first.work.epilogue.kernel.inputs, ["f32"]);
  assert.deepEqual(second.work.epilogue.kernel.inputs, ["bf16", "f32"]);
  assert.equal(second.work.operands[0]?.buffer, first.work.problem.c.slice.buffer);
  assert.equal(second.work.problem.resultDtype, "f32");
});

test("attention reads queries, keys and values as bf16, and nothing else", () => {
  const [made, size] = [bufferOf(3 * 4 * m * 256), 4 * m * 256];
  const packed = product(
    {
      ...{
        n: 256,
        batch: 3,
        b: { slice: whole(bufferOf(6 * 256 * 256)), rowStride: 256, batchStride: 65536 },
      },
      c: { slice: whole(made), rowStride: 256, batchStride: m * 256 },
    },
    made,
  );
  const slice = (index: number): BufferSlice => ({ buffer: made, offset: index * size, size });
  const reader = attention({ query: slice(0), key: slice(1), value: slice(2) });
  const [, read] = storeActivationsAsBf16(plain, [packed, reader]);
  assert.ok(read?.work.kind === "attention");
  const { layouts, operands } = read.work;
  assert.deepEqual(
    ["query", "key", "value", "out"].map((name) => layouts[name]?.dtype),
    ["bf16", "bf16", "bf16", undefined],
  );
  assert.deepEqual([operands["value"]?.offset, operands["value"]?.size], [size, size / 2]);
  assert.deepEqual(narrowed(plain, [packed, attention({ probabilities: slice(0) })]), []);
  assert.deepEqual(narrowed(plain, [packed, attention({ mask: slice(0) })]), []);
});

test("what only attention reads of row kernels is stored as bf16; with another reader, or partly by another kind, it stays f32", () => {
  const size = 4 * m * 256;
  const made = bufferOf(2 * size);
  const halves = [0, 1].map((index) => ({ buffer: made, offset: index * size, size }) as const);
  const writer = (slice: BufferSlice): Call => {
    const { work, op } = rows(bufferOf(size));
    return { op, work: { ...work, operands: [work.operands[0]!, slice] } };
  };
  const [query, key] = halves as [BufferSlice, BufferSlice];
  const writers = [writer(query), writer(key)];
  const reader = attention({ query, key });
  const [one, other, read] = storeActivationsAsBf16(plain, [...writers, reader]);
  assert.ok(one?.work.kind === "row" && other?.work.kind === "row" && read?.work.kind === "attention");
  assert.deepEqual([one.work.kernel.inputs, one.work.kernel.outputs[0]?.dtype], [["f32"], "bf16"]);
  assert.deepEqual([other.work.operands[1]?.offset, other.work.operands[1]?.size], [size / 2, size / 2]);
  assert.deepEqual(
    ["query", "key", "value"].map((name) => read.work.kind === "attention" && read.work.layouts[name]?.dtype),
    ["bf16", "bf16", undefined],
  );
  assert.equal(one.work.operands[1]?.buffer, read.work.operands["query"]?.buffer);
  const fill: Call = { op: "fill", work: { kind: "copy", source: whole(bufferOf(size)), target: key } };
  for (const calls of [
    [...writers, reader, rows(made)],
    [writer(query), fill, reader],
    [...writers, attention({ query, mask: key })],
  ])
    assert.deepEqual(narrowed(plain, calls), []);
});

test("the results of attention are stored as bf16 if kernels convert all of them on load", () => {
  const [query, key, value] = [bufferOf(size()), bufferOf(size()), bufferOf(size())] as const;
  function size(): number {
    return 4 * m * 256;
  }
  const gradients = { queryGradient: whole(query), keyGradient: whole(key), valueGradient: whole(value) };
  const { op, work } = attention(gradients);
  const backward: Call = { op, work: { ...work, direction: "backward" } };
  const cast = rows(value, { to: bufferOf(size() / 2), as: "bf16", value: term.load(0, "f32") });
  const calls = storeActivationsAsBf16(plain, [backward, normed(query), rows(key), cast, normed(cast.made)]);
  const [made, ...readers] = calls;
  assert.ok(made?.work.kind === "attention");
  assert.equal(made.work.shape.resultDtype, "bf16");
  // The conversion is gone: its reader reads the gradient.
  assert.deepEqual(
    readers.map(({ work: read }) => read.kind === "row" && read.kernel.inputs),
    [["bf16"], ["bf16"], ["f32"]],
  );
  assert.equal(readers[2]?.work.kind === "row" && readers[2].work.operands[0]?.buffer.bytes, size() / 2);
  const copy: Call = {
    op: "copy",
    work: { kind: "copy", source: whole(key), target: whole(bufferOf(size())) },
  };
  for (const reader of [copy, rows(key, { to: kept(size()) })])
    assert.deepEqual(narrowed(plain, [backward, normed(query), reader, normed(value)]), []);
});

test("a conversion to bf16 of what is bf16 is gone, and its readers read that", () => {
  const first = product();
  const cast = rows(first.made, { to: bufferOf(2 * m * n), as: "bf16", value: term.load(0, "f32") });
  const last = product({ a: { slice: whole(cast.made), rowStride: n }, k: n });
  const calls = storeActivationsAsBf16(plain, [first, cast, normed(first.made), last]);
  assert.deepEqual(
    calls.map(({ work }) => work.kind),
    ["gemm", "row", "gemm"],
  );
  const [made, , read] = calls;
  assert.ok(made?.work.kind === "gemm" && read?.work.kind === "gemm");
  assert.deepEqual(read.work.problem.a.slice, made.work.problem.c.slice);
  const toKept = rows(first.made, { to: kept(2 * m * n), as: "bf16", value: term.load(0, "f32") });
  assert.equal(storeActivationsAsBf16(plain, [first, toKept]).length, 2);
});

test("a library's product gets the workspace that it wants with the other result", () => {
  const first = product({ scratch: whole(bufferOf(64)) });
  const scratchWith = (workspaceBytes: number): number | undefined => {
    const [made] = storeActivationsAsBf16(on({ workspaceBytes }), [first, normed(first.made)]);
    return made?.work.kind === "gemm" ? made.work.problem.scratch?.size : undefined;
  };
  assert.deepEqual([0, 64, 512].map(scratchWith), [undefined, 64, 512]);
});

test("where it is told which results to round, it rounds no others", () => {
  const [first, second] = [product(), product()];
  const calls = [first, normed(first.made), second, normed(second.made)];
  const some = storeActivationsAsBf16(plain, calls, new Set([second.made.id]));
  assert.deepEqual([...bf16ActivationsIn(calls, some)], [second.made.id]);
});
