/** Attention writes results to their destinations: wherever a copy is all that reads them, and the destination is free. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { onCalls } from "../../../test/support/rewritten.js";
import { type Dtype, iterateElements, type RowKernel, term } from "../../ir/index.js";
import type { Runtime } from "../../runtime/index.js";
import type { AttentionCall } from "../program/kinds/attention.js";
import type { Buffer, BufferSlice, Call } from "../program/program.js";
import { writeAttentionOutputs } from "./attention-outputs.js";

const write = (calls: readonly Call[]): readonly Call[] =>
  onCalls((_, program) => writeAttentionOutputs(program))(undefined as unknown as Runtime, calls);

let buffers = 0;
const bufferOf = (floats: number, label = "b"): Buffer => ({ id: buffers++, bytes: 4 * floats, label });
const whole = (buffer: Buffer): BufferSlice => ({ buffer, offset: 0, size: buffer.bytes });

const [batch, heads, rows, width] = [2, 3, 5, 4];
const elements = batch * heads * rows * width;
const shape = {
  dtype: "f32",
  batch,
  heads,
  rows,
  columns: rows,
  width,
  valueWidth: width,
  scale: 1,
} as const;
const contiguous = { batchStride: heads * rows * width, headStride: rows * width, rowStride: width };

interface Step {
  readonly packed: Buffer;
  readonly results: readonly Buffer[];
  readonly attention: Call;
}

/** The gradients of query, key and value, in a buffer each. */
function backward(): Step {
  const input = whole(bufferOf(elements));
  const results = ["q", "k", "v"].map((name) => bufferOf(elements, name));
  const [queryGradient, keyGradient, valueGradient] = results.map(whole) as [
    BufferSlice,
    BufferSlice,
    BufferSlice,
  ];
  const layouts = { queryGradient: contiguous, keyGradient: contiguous, valueGradient: contiguous };
  const operands = { query: input, key: input, value: input, probabilities: input, outGradient: input };
  const scoreGradient = whole(bufferOf(batch * heads * rows * rows));
  const work: AttentionCall = {
    ...{ kind: "attention", direction: "backward", shape, layouts },
    operands: { ...operands, queryGradient, keyGradient, valueGradient, scoreGradient },
  };
  return { packed: bufferOf(3 * elements, "packed"), results, attention: { op: "attention", work } };
}

const moveKernel = (from: Dtype, to: Dtype): RowKernel => ({
  ...{ name: "copy", inputs: [from], outputs: [{ dtype: to, per: "element" }], scalars: [] },
  stages: [{ kind: "store", output: 0, value: term.load(0, "f32") }],
});

/** A copy of [batch, heads, rows, width] to [batch, rows, 3, heads, width]. */
function pack({ packed, results }: Step, index: number, first = index * heads * width): Call {
  const strides = [rows * 3 * heads * width, width, 3 * heads * width, 1];
  const iteration = iterateElements(
    [batch, heads, rows, width],
    [[heads * rows * width, rows * width, width, 1], strides],
  );
  const size = 4 * (3 * elements - 2 * heads * width);
  const target = { buffer: packed, offset: 4 * first, size };
  return {
    op: "pack",
    work: {
      ...{ kind: "row", kernel: moveKernel("f32", "f32"), iteration, scalars: [] },
      operands: [whole(results[index]!), target],
    },
  };
}

const readerOf = (buffer: Buffer): Call => ({
  op: "read",
  work: { kind: "copy", source: whole(buffer), target: whole(bufferOf(buffer.bytes / 4)) },
});
const opsOf = (calls: readonly Call[]): string[] => calls.map(({ op }) => op);

test("the gradients of query, key and value become slices of one gradient", () => {
  const step = backward();
  const after = write([step.attention, pack(step, 0), pack(step, 1), pack(step, 2), readerOf(step.packed)]);
  assert.deepEqual(opsOf(after), ["attention", "read"]);
  const { operands, layouts } = after[0]!.work as AttentionCall;
  for (const [index, name] of ["queryGradient", "keyGradient", "valueGradient"].entries()) {
    assert.equal(operands[name]!.buffer, step.packed);
    assert.equal(operands[name]!.offset, 4 * index * heads * width);
    const rowStride = 3 * heads * width;
    assert.deepEqual(layouts[name], { batchStride: rows * rowStride, headStride: width, rowStride });
  }
});

describe("a result stays in its own buffer", () => {
  const stays = (calls: readonly Call[]): void => assert.deepEqual(opsOf(write(calls)), opsOf(calls));

  test("if another call reads it too", () => {
    const step = backward();
    stays([step.attention, pack(step, 0), readerOf(step.results[0]!)]);
  });

  test("if its destination is accessed before the copy", () => {
    const step = backward();
    const zeros: Call = { op: "fill", work: { kind: "fill", target: whole(step.packed), byte: 0 } };
    stays([step.attention, zeros, pack(step, 0)]);
    stays([step.attention, readerOf(step.packed), pack(step, 0)]);
    assert.deepEqual(opsOf(write([zeros, step.attention, pack(step, 0)])), ["fill", "attention"]);
  });

  test("if another result goes to the same elements: the later copy has to win", () => {
    const step = backward();
    const after = write([step.attention, pack(step, 0), pack(step, 1, width)]);
    assert.deepEqual(opsOf(after), ["attention", "pack"]);
  });

  test("if the copy converts, or leaves elements out", () => {
    const step = backward();
    const copy = pack(step, 0);
    assert.ok(copy.work.kind === "row");
    stays([step.attention, { ...copy, work: { ...copy.work, kernel: moveKernel("f32", "bf16") } }]);
    const { outer, row } = copy.work.iteration;
    const fewer = { ...copy.work.iteration, outer: outer.slice(1), rows: 15, elements: 15 * row.size };
    stays([step.attention, { ...copy, work: { ...copy.work, iteration: fewer } }]);
  });

  test("if its rows are not contiguous at the destination", () => {
    const step = backward();
    const iteration = iterateElements(
      [batch * heads * rows, width],
      [
        [width, 1],
        [1, batch * heads * rows],
      ],
    );
    const copy = pack(step, 0);
    assert.ok(copy.work.kind === "row");
    stays([step.attention, { ...copy, work: { ...copy.work, iteration } }]);
  });
});
