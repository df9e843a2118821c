/** Printed row kernels against the obvious way: random expressions, dtypes, shapes and strides, on the strict driver. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { evaluate, rounded } from "../../../test/support/ir-reference.js";
import { openKernelRuntime, put } from "../../../test/support/kernel-runtime.js";
import type { Storage } from "../../runtime/index.js";
import type { Compute, Expression, RowKernel } from "../ir.js";
import { iterateElements, iterateRows } from "../iteration.js";
import { launchRows } from "../launch.js";

const runtime = openKernelRuntime();

const load = (input: number, type: Compute): Expression => ({ kind: "load", input, type });

/** How far an index may lead away from the place of the input that is read at indices. */
const reach = 9;

/** An index made of any whole number, brought into the reach. */
function within(a: Expression): Expression {
  const bound = (value: number): Expression => ({ kind: "constant", value, type: "i32" });
  const most: Expression = { kind: "binary", op: "min", a, b: bound(reach), type: "i32" };
  return { kind: "binary", op: "max", a: most, b: bound(0), type: "i32" };
}

/** Random expressions over two f32 inputs, one i32 input and one f32 input read at indices, of exactly rounded ops only. */
const { f32Expression } = fc.letrec<{ f32Expression: Expression; i32Expression: Expression }>((tie) => ({
  f32Expression: fc.oneof(
    { depthSize: "small", withCrossShrink: true },
    fc.constantFrom(load(0, "f32"), load(1, "f32")),
    fc
      .float({ noNaN: true, noDefaultInfinity: true })
      .map((value): Expression => ({ kind: "constant", value, type: "f32" })),
    fc.constant<Expression>({ kind: "scalar", index: 0, type: "f32" }),
    fc.record({
      kind: fc.constant("unary" as const),
      op: fc.constantFrom("neg" as const, "abs" as const, "floor" as const, "ceil" as const),
      a: tie("f32Expression"),
      type: fc.constant("f32" as const),
    }),
    fc.record({
      kind: fc.constant("binary" as const),
      op: fc.constantFrom(
        "add" as const,
        "sub" as const,
        "mul" as const,
        "div" as const,
        "min" as const,
        "max" as const,
      ),
      a: tie("f32Expression"),
      b: tie("f32Expression"),
      type: fc.constant("f32" as const),
    }),
    fc.record({
      kind: fc.constant("select" as const),
      condition: tie("i32Expression"),
      a: tie("f32Expression"),
      b: tie("f32Expression"),
      type: fc.constant("f32" as const),
    }),
    tie("i32Expression").map((a): Expression => ({ kind: "convert", a, type: "f32" })),
    tie("i32Expression").map((a): Expression => ({ kind: "load", input: 3, type: "f32", at: within(a) })),
  ),
  i32Expression: fc.oneof(
    { depthSize: "small", withCrossShrink: true },
    fc.constant(load(2, "i32")),
    fc.integer({ min: -9, max: 9 }).map((value): Expression => ({ kind: "constant", value, type: "i32" })),
    fc.record({
      kind: fc.constant("compare" as const),
      op: fc.constantFrom(
        "eq" as const,
        "ne" as const,
        "lt" as const,
        "le" as const,
        "gt" as const,
        "ge" as const,
      ),
      a: tie("f32Expression"),
      b: tie("f32Expression"),
      type: fc.constant("i32" as const),
    }),
    fc.record({
      kind: fc.constant("binary" as const),
      op: fc.constantFrom(
        "add" as const,
        "sub" as const,
        "mul" as const,
        "min" as const,
        "max" as const,
        "and" as const,
      ),
      a: tie("i32Expression"),
      b: tie("i32Expression"),
      type: fc.constant("i32" as const),
    }),
    fc.record({
      kind: fc.constant("binary" as const),
      op: fc.constant("shr" as const),
      a: tie("i32Expression"),
      b: fc.nat(31).map((value): Expression => ({ kind: "constant", value, type: "i32" })),
      type: fc.constant("i32" as const),
    }),
    tie("f32Expression").map((a): Expression => ({ kind: "convert", a, type: "i32" })),
  ),
}));

/** An operand's buffer with strides into it: contiguous, broadcast, permuted or stretched along the shape. */
interface Operand {
  readonly values: Float32Array | Int32Array;
  readonly strides: readonly number[];
}

function operandOf(
  shape: readonly number[],
  way: number,
  make: (index: number) => number,
  isWhole: boolean,
): Operand {
  const stretch = way % 3 === 0 ? 2 : 1;
  const order =
    way % 2 === 0 ? shape.map((_, axis) => axis) : shape.map((_, axis) => shape.length - 1 - axis);
  const strides = shape.map(() => 0);
  let step = stretch;
  for (const axis of order.toReversed()) {
    if ((way >> (axis + 2)) % 4 === 1) continue;
    strides[axis] = step;
    step *= shape[axis] ?? 1;
  }
  const values = Array.from({ length: Math.max(1, step) + reach }, (_, index) => make(index));
  return { values: isWhole ? Int32Array.from(values) : Float32Array.from(values), strides };
}

const contiguous = (shape: readonly number[]): number[] =>
  shape.map((_, axis) => shape.slice(axis + 1).reduce((product, size) => product * size, 1));

function offsetAt(shape: readonly number[], strides: readonly number[], index: number): number {
  let rest = index;
  let offset = 0;
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    const size = shape[axis] ?? 1;
    offset += (rest % size) * (strides[axis] ?? 0);
    rest = Math.floor(rest / size);
  }
  return offset;
}

const shapes = fc
  .array(fc.oneof(fc.integer({ min: 1, max: 9 }), fc.constantFrom(17, 64)), { maxLength: 4 })
  // The obvious way is slow, and larger shapes have no other loops.
  .filter((shape) => shape.reduce((product, size) => product * size, 1) <= 10_000);

test("any expression over any layout gives the very bits of the obvious way", () => {
  const special = [
    0,
    -0,
    1,
    -1,
    0.5,
    3.25,
    -7.75,
    1e30,
    -1e-30,
    Number.POSITIVE_INFINITY,
    Number.NEGATIVE_INFINITY,
  ];
  fc.assert(
    fc.property(
      f32Expression,
      shapes,
      fc.array(fc.nat(4095), { minLength: 4, maxLength: 4 }),
      (expression, shape, ways) => {
        const kernel: RowKernel = {
          name: "random",
          inputs: ["f32", "f32", "i32", "f32"],
          outputs: [{ dtype: "f32", per: "element" }],
          scalars: ["f32"],
          stages: [{ kind: "store", output: 0, value: expression }],
        };
        const inputs = ways.map((way, input) => {
          const make =
            input === 2
              ? (index: number) => (index % 7) - 3
              : (index: number) => special[(index * 5 + way) % 11]!;
          return operandOf(shape, way, make, input === 2);
        });
        const count = shape.reduce((product, size) => product * size, 1);
        const found = runtime.step(() => {
          const output = runtime.arena.allocate(4 * count, "output");
          const strides = [...inputs.map((one) => one.strides), contiguous(shape)];
          const operands = [
            ...inputs.map((one, index) => put(runtime, one.values, `input ${index}`)),
            output,
          ];
          launchRows(runtime, {
            kernel,
            iteration: iterateElements(shape, strides),
            operands,
            scalars: [2.5],
          });
          return new Float32Array(runtime.read(output).buffer);
        });
        for (let index = 0; index < count; index++) {
          const at = {
            load: (input: number, at: number) =>
              inputs[input]!.values[offsetAt(shape, inputs[input]!.strides, index) + at]!,
            scalars: [2.5],
            reduced: new Map(),
          };
          const expected = evaluate(expression, at);
          assert.ok(
            Object.is(found[index], expected) || (Number.isNaN(expected) && Number.isNaN(found[index]!)),
            `element ${index} is ${found[index]}, expected ${expected}`,
          );
        }
      },
    ),
    { numRuns: 250 },
  );
});

describe("reductions", () => {
  const x = load(0, "f32");
  const squares: Expression = { kind: "binary", op: "mul", a: x, b: x, type: "f32" };
  /** Stores the row's sum of squares, and each element less the row's largest. */
  const kernel: RowKernel = {
    name: "rows",
    inputs: ["f32"],
    outputs: [
      { dtype: "f32", per: "row" },
      { dtype: "f32", per: "element" },
    ],
    scalars: [],
    stages: [
      { kind: "reduce", op: "add", value: squares },
      { kind: "reduce", op: "max", value: x },
      { kind: "store", output: 0, value: { kind: "reduced", stage: 0, type: "f32" } },
      {
        kind: "store",
        output: 1,
        value: {
          kind: "binary",
          op: "sub",
          a: x,
          b: { kind: "reduced", stage: 1, type: "f32" },
          type: "f32",
        },
      },
    ],
  };

  /** The rows' sums of squares, and every element less its row's largest. */
  function reduceRows(
    values: Float32Array,
    rows: number,
    columns: number,
  ): readonly [Float32Array, Float32Array] {
    return runtime.step(() => {
      const row = runtime.arena.allocate(4 * rows, "sums");
      const element = runtime.arena.allocate(4 * rows * columns, "rest");
      const strides = [
        [columns, 1],
        [1, 0],
        [columns, 1],
      ];
      const iteration = iterateRows([rows, columns], strides, 1);
      launchRows(runtime, { kernel, iteration, operands: [put(runtime, values, "x"), row, element] });
      const read = (one: Storage): Float32Array => new Float32Array(runtime.read(one).buffer);
      return [read(row), read(element)];
    });
  }

  test("rows of every length reduce to their sum and maximum, and later stages use them", () => {
    for (const columns of [1, 2, 3, 4, 5, 7, 8, 13, 64, 193, 1000]) {
      const rows = 7;
      const values = Float32Array.from({ length: rows * columns }, (_, index) => Math.sin(index) * 10);
      const [sums, rest] = reduceRows(values, rows, columns);
      for (let row = 0; row < rows; row++) {
        const own = values.subarray(row * columns, (row + 1) * columns);
        const largest = Math.max(...own);
        const sum = own.reduce((total, value) => total + value * value, 0);
        assert.ok(
          Math.abs(sums[row]! - sum) <= 1e-6 * sum * columns ** 0.5,
          `sum of row ${row} of ${columns}`,
        );
        for (const [index, value] of own.entries()) {
          assert.equal(rest[row * columns + index], rounded("f32", value - largest));
        }
      }
    }
  });

  test("rows with no elements have the reductions' starts, and no rows leave everything as it was", () => {
    const [sums, rest] = runtime.step(() => {
      const outputs = ["sums", "rest"].map((label) => put(runtime, Float32Array.of(7, 7, 7), label));
      const x = put(runtime, Float32Array.of(1), "x");
      const strides = [
        [0, 1],
        [1, 0],
        [0, 1],
      ];
      launchRows(runtime, { kernel, iteration: iterateRows([2, 0], strides, 1), operands: [x, ...outputs] });
      launchRows(runtime, { kernel, iteration: iterateRows([0, 5], strides, 1), operands: [x, ...outputs] });
      return outputs.map((output) => [...new Float32Array(runtime.read(output).buffer)]);
    });
    assert.deepEqual(sums, [0, 0, 7]);
    assert.deepEqual(rest, [7, 7, 7]);
  });

  test("a row's bits don't depend on the other rows, nor on how many there are", () => {
    const columns = 101;
    const run = (rows: number): Float32Array => {
      const cosine = (_: unknown, index: number): number => Math.cos(index % columns) * 1e3;
      return reduceRows(Float32Array.from({ length: rows * columns }, cosine), rows, columns)[0];
    };
    const [alone] = run(1);
    assert.ok(run(500).every((sum) => Object.is(sum, alone)));
  });

  test("the place of a row's largest element is found by its position, the first one where several are", () => {
    const position: Expression = { kind: "position", type: "i32" };
    const none: Expression = { kind: "constant", value: 2 ** 31 - 1, type: "i32" };
    const isLargest: Expression = {
      kind: "compare",
      op: "eq",
      a: x,
      b: { kind: "reduced", stage: 0, type: "f32" },
      type: "i32",
    };
    const argmax: RowKernel = {
      name: "argmax",
      inputs: ["f32"],
      outputs: [{ dtype: "i32", per: "row" }],
      scalars: [],
      stages: [
        { kind: "reduce", op: "max", value: x },
        {
          kind: "reduce",
          op: "min",
          value: { kind: "select", condition: isLargest, a: position, b: none, type: "i32" },
        },
        { kind: "store", output: 0, value: { kind: "reduced", stage: 1, type: "i32" } },
      ],
    };
    for (const columns of [1, 3, 4, 6, 11, 193]) {
      const rows = 9;
      const values = Float32Array.from({ length: rows * columns }, (_, index) => (index * 7) % 5);
      const found = runtime.step(() => {
        const output = runtime.arena.allocate(4 * rows, "places");
        const iteration = iterateRows(
          [rows, columns],
          [
            [columns, 1],
            [1, 0],
          ],
          1,
        );
        launchRows(runtime, { kernel: argmax, iteration, operands: [put(runtime, values, "x"), output] });
        return new Int32Array(runtime.read(output).buffer);
      });
      for (let row = 0; row < rows; row++) {
        const own = values.subarray(row * columns, (row + 1) * columns);
        assert.equal(found[row], own.indexOf(Math.max(...own)), `row ${row} of ${columns}`);
      }
    }
  });

  test("in a kernel of doubles, whole numbers reduce over the lanes that hold elements and no others", () => {
    const isPositive: Expression = {
      kind: "compare",
      op: "gt",
      a: load(0, "f64"),
      b: { kind: "constant", value: 0, type: "f64" },
      type: "i32",
    };
    const allPositive: RowKernel = {
      name: "all positive",
      inputs: ["f64"],
      outputs: [{ dtype: "bool", per: "row" }],
      scalars: [],
      stages: [
        { kind: "reduce", op: "min", value: isPositive },
        { kind: "store", output: 0, value: { kind: "reduced", stage: 0, type: "i32" } },
      ],
    };
    for (const columns of [1, 2, 3, 4, 9]) {
      const values = Float64Array.from({ length: 2 * columns }, (_, index) => (index === columns ? -1 : 1));
      const found = runtime.step(() => {
        const output = runtime.arena.allocate(2, "truths");
        const strides = [
          [columns, 1],
          [1, 0],
        ];
        const iteration = iterateRows([2, columns], strides, 1);
        launchRows(runtime, {
          kernel: allPositive,
          iteration,
          operands: [put(runtime, values, "x"), output],
        });
        return [...runtime.read(output)];
      });
      assert.deepEqual(found, [1, 0], `rows of ${columns}`);
    }
  });

  test("what does not change along a row is the same in every element, whatever it is made of", () => {
    const columns = 7;
    const total: Expression = { kind: "reduced", stage: 0, type: "f32" };
    const root: Expression = { kind: "unary", op: "sqrt", a: total, type: "f32" };
    const perRow = load(1, "f32");
    const factor: Expression = { kind: "binary", op: "div", a: perRow, b: root, type: "f32" };
    const scaled: RowKernel = {
      name: "scaled",
      inputs: ["f32", "f32"],
      outputs: [{ dtype: "f32", per: "element" }],
      scalars: [],
      stages: [
        { kind: "reduce", op: "add", value: squares },
        { kind: "store", output: 0, value: { kind: "binary", op: "mul", a: x, b: factor, type: "f32" } },
      ],
    };
    const values = Float32Array.from({ length: 3 * columns }, (_, index) => 1 + (index % 4));
    const weights = Float32Array.of(2, -3, 0.5);
    const found = runtime.step(() => {
      const output = runtime.arena.allocate(4 * values.length, "output");
      const strides = [
        [columns, 1],
        [1, 0],
        [columns, 1],
      ];
      const operands = [put(runtime, values, "x"), put(runtime, weights, "weights"), output];
      launchRows(runtime, { kernel: scaled, iteration: iterateRows([3, columns], strides, 1), operands });
      return new Float32Array(runtime.read(output).buffer);
    });
    for (let row = 0; row < 3; row++) {
      const own = values.subarray(row * columns, (row + 1) * columns);
      const length = rounded("f32", Math.sqrt(own.reduce((sum, value) => sum + value * value, 0)));
      const expected = rounded("f32", weights[row]! / length);
      for (const [index, value] of own.entries()) {
        assert.equal(found[row * columns + index], rounded("f32", value * expected));
      }
    }
  });
});
