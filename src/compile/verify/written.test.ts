/** The rule `written` against the obvious way: byte by byte, for rows at any steps. */

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

/** A kernel that reads one element by the number that another holds. */
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
  /** Which parts of the source are written before, from a byte to before another. */
  readonly written: readonly (readonly [from: number, to: number])[];
}

/** A program that writes parts of a buffer, and then reads elements of it at steps. */
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

/** Is an element read of which some byte was not written? */
function readsUnwritten({ shape, strides, written }: Reading): boolean {
  const places = shape.reduce(
    (found, size, axis) =>
      found.flatMap((place) => Array.from({ length: size }, (_, index) => place + index * strides[axis]!)),
    [0],
  );
  const isWritten = (byte: number): boolean => written.some(([from, to]) => from <= byte && byte < to);
  return places.some((place) => [0, 1, 2, 3].some((byte) => !isWritten(4 * place + byte)));
}

const readings: fc.Arbitrary<Reading> = fc
  .tuple(
    fc.array(fc.tuple(fc.integer({ min: 1, max: 4 }), fc.integer({ min: 0, max: 12 })), { maxLength: 3 }),
    fc.array(fc.tuple(fc.integer({ min: 0, max: 30 }), fc.integer({ min: 1, max: 40 })), { maxLength: 5 }),
  )
  .map(([axes, pieces]) => ({
    shape: axes.map(([size]) => size),
    strides: axes.map(([, stride]) => stride),
    written: pieces.map(([start, count]) => [4 * start, 4 * (start + count)] as const),
  }));

test("a read of elements at steps is rejected exactly where one of them was not written", () => {
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

test("rows that lie at aligned steps are read over the padding between them", () => {
  // Two layers of 300 elements, each at a multiple of 256 bytes, as copies of one form have them.
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

test("where elements are read at indices, all of the part has to be written", () => {
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
