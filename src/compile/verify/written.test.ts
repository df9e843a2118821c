/** The rule `written` against a byte-by-byte model, for rows with any strides. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { planDisjoint, rejectionBy, Sketch, sliceOf } from "../../../test/support/proposed-steps.js";
import { iterateElements, type RowKernel, term } from "../../ir/index.js";
import type { BufferSlice, Call } from "../program/program.js";

const copy: RowKernel = {
  ...{ name: "copy", inputs: ["f32"], outputs: [{ dtype: "f32", per: "element" }], scalars: [] },
  stages: [{ kind: "store", output: 0, value: term.load(0, "f32") }],
};

/** A kernel that reads the element at an index that it loads. */
const select: RowKernel = {
  ...{ name: "select", inputs: ["i32", "f32"], outputs: [{ dtype: "f32", per: "element" }], scalars: [] },
  stages: [
    { kind: "store", output: 0, value: { kind: "load", input: 1, type: "f32", at: term.load(0, "i32") } },
  ],
};

interface Reading {
  readonly shape: readonly number[];
  /** In elements. */
  readonly strides: readonly number[];
  /** The written byte ranges of the source; the end is not included. */
  readonly written: readonly (readonly [from: number, to: number])[];
}

/** A program that writes ranges of a buffer, and then reads elements of it with strides. */
function stepOf({ shape, strides, written }: Reading) {
  const sketch = new Sketch();
  const elements = shape.reduce((product, size) => product * size, 1);
  const bytes = 4 * (1 + shape.reduce((sum, size, axis) => sum + (size - 1) * strides[axis]!, 0));
  const source = sketch.step("source", bytes);
  const target = sketch.persistent("target", 0x10000, 4 * elements);
  for (const [from, to] of written) {
    const end = Math.min(to, bytes);
    if (from < end) sketch.launch("write", { writes: [sliceOf(source, from, end - from)] });
  }
  const contiguous = shape.map((_, axis) =>
    shape.slice(axis + 1).reduce((product, size) => product * size, 1),
  );
  const operands: BufferSlice[] = [sliceOf(source, 0, bytes), sliceOf(target, 0, 4 * elements)];
  const iteration = iterateElements(shape, [strides, contiguous]);
  const read: Call = { op: "read", work: { kind: "row", kernel: copy, iteration, operands, scalars: [] } };
  const program = [...sketch.program, read];
  const schedule = { calls: program.map((call) => ({ call, stream: 0, after: [] })) };
  return { program, schedule, plan: planDisjoint(schedule) };
}

/** True if a read element has an unwritten byte. */
function readsUnwritten({ shape, strides, written }: Reading): boolean {
  const positions = shape.reduce(
    (offsets, size, axis) =>
      offsets.flatMap((position) =>
        Array.from({ length: size }, (_, index) => position + index * strides[axis]!),
      ),
    [0],
  );
  const isWritten = (byte: number): boolean => written.some(([from, to]) => from <= byte && byte < to);
  return positions.some((position) => [0, 1, 2, 3].some((byte) => !isWritten(4 * position + byte)));
}

const readings: fc.Arbitrary<Reading> = fc
  .tuple(
    fc.array(fc.tuple(fc.integer({ min: 1, max: 4 }), fc.integer({ min: 0, max: 12 })), { maxLength: 3 }),
    fc.array(fc.tuple(fc.integer({ min: 0, max: 30 }), fc.integer({ min: 1, max: 40 })), { maxLength: 5 }),
  )
  .map(([axes, ranges]) => ({
    shape: axes.map(([size]) => size),
    strides: axes.map(([, stride]) => stride),
    written: ranges.map(([start, count]) => [4 * start, 4 * (start + count)] as const),
  }));

test("a strided read is rejected if and only if one of its elements is unwritten", () => {
  let [rejected, passed] = [0, 0];
  fc.assert(
    fc.property(readings, (reading) => {
      const rejection = rejectionBy(stepOf(reading));
      assert.equal(
        rejection?.numbers["rule"],
        readsUnwritten(reading) ? "written" : undefined,
        rejection?.message,
      );
      if (rejection) rejected++;
      else passed++;
    }),
    { numRuns: 500 },
  );
  assert.ok(rejected > 50 && passed > 20, `${rejected} were rejected and ${passed} passed`);
});

test("rows with aligned strides may be read although the padding between them is unwritten", () => {
  // Two layers of 300 elements, each at a multiple of 256 bytes, as batched copies have them.
  const layers = { shape: [2, 300], strides: [320, 1] };
  assert.equal(
    rejectionBy(
      stepOf({
        ...layers,
        written: [
          [0, 1200],
          [1280, 2480],
        ],
      }),
    ),
    undefined,
  );
  const short = stepOf({
    ...layers,
    written: [
      [0, 1200],
      [1280, 2476],
    ],
  });
  assert.match(rejectionBy(short)?.message ?? "", /no earlier call writes byte 2476 of it/);
});

test("for an indexed read, the whole slice must be written", () => {
  const sketch = new Sketch();
  const [index, source] = [sketch.persistent("index", 0x10000, 4), sketch.step("source", 64)];
  const target = sketch.persistent("target", 0x20000, 4);
  sketch.launch("write", { writes: [sliceOf(source, 0, 60)] });
  const operands = [sliceOf(index, 0, 4), sliceOf(source, 0, 64), sliceOf(target, 0, 4)];
  const iteration = iterateElements([1], [[1], [1], [1]]);
  const read: Call = { op: "read", work: { kind: "row", kernel: select, iteration, operands, scalars: [] } };
  const program = [...sketch.program, read];
  const schedule = { calls: program.map((call) => ({ call, stream: 0, after: [] })) };
  const rejection = rejectionBy({ program, schedule, plan: planDisjoint(schedule) });
  assert.match(rejection?.message ?? "", /no earlier call writes byte 60 of it/);
});
