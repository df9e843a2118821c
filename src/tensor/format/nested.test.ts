/** Nested arrays become elements and back, and invalid data is rejected with its index. */

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { effort } from "../../../test/support/effort.js";
import { rejects } from "../../../test/support/rejects.js";
import { sameBytes } from "../../../test/support/same-bytes.js";
import { chooseDtype, type NestedArray, type NestedList, readNested, toNested } from "./nested.js";

/** Nested arrays of any shape with elements of one type. */
function nestedOf(element: fc.Arbitrary<number | boolean>): fc.Arbitrary<NestedList> {
  const shapes = fc.array(fc.integer({ min: 0, max: 4 }), { maxLength: 5 });
  return shapes.chain((shape) =>
    shape.reduceRight<fc.Arbitrary<NestedList>>(
      (inner, length) => fc.array(inner, { minLength: length, maxLength: length }),
      element,
    ),
  );
}

/** Data of a JavaScript caller, without type checks. */
const untyped = (data: unknown): NestedArray => data as NestedArray;

it("toNested is the inverse of readNested", () => {
  for (const element of [fc.double(), fc.boolean()]) {
    fc.assert(
      fc.property(nestedOf(element), (data) => {
        const { shape, values, kind } = readNested(data);
        assert.deepEqual(toNested(shape, values, kind), data);
      }),
    );
  }
});

it("elements survive a round trip in every shape in which no axis follows an empty one", () => {
  fc.assert(
    fc.property(
      fc.array(fc.integer({ min: 1, max: 5 }), { maxLength: 5 }),
      fc.boolean(),
      (sizes, isEmpty) => {
        const shape = isEmpty ? [...sizes, 0] : sizes;
        const values = Float64Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, at) => at / 2);
        const read = readNested(toNested(shape, values));
        assert.deepEqual(read.shape, shape);
        assert.deepEqual([...(read.values as Float64Array)], [...values]);
      },
    ),
  );
});

const { count, side, depth } = effort({
  quick: { count: 150_000, side: 50, depth: 17 },
  thorough: { count: 1_000_000, side: 100, depth: 20 },
});

// More elements than a function may have arguments.
describe(`${count} elements survive a round trip, wide, tall and deep`, () => {
  for (const shape of [[count], [count, 1], [1, count], [side, side, side], new Array(depth).fill(2)]) {
    it(`shape [${shape.join(", ")}]`, () => {
      const length = shape.reduce((a, b) => a * b, 1);
      const values = Float64Array.from({ length }, (_, at) => at + 0.5);
      const read = readNested(toNested(shape, values));
      assert.deepEqual(read.shape, shape);
      sameBytes(read.values, values, "the elements");
    });
  }
});

it("scalars, empty arrays and typed rows have shapes", () => {
  for (const [data, shape, values] of [
    [7, [], [7]],
    [true, [], [1]],
    [[], [0], []],
    [[[], []], [2, 0], []],
    [[[[]], [[]]], [2, 1, 0], []],
    [
      [[1, 2, 3], new Float32Array([4, 5, 6])],
      [2, 3],
      [1, 2, 3, 4, 5, 6],
    ],
    [
      [Uint8Array.of(1, 2), Int32Array.of(-3, 4)],
      [2, 2],
      [1, 2, -3, 4],
    ],
  ] as const) {
    const read = readNested(data);
    assert.deepEqual(read.shape, shape);
    assert.deepEqual(Array.from(read.values), values);
  }
});

it("data that is one typed array is not copied", () => {
  const data = Float32Array.of(1, 2);
  assert.equal(readNested(data).values, data);
  assert.equal(readNested([data]).values, data);
});

it("the kind is boolean or integer only if every element is, and booleans count as integers", () => {
  for (const [data, kind] of [
    [[true, false], "boolean"],
    [true, "boolean"],
    [[true, 2], "integer"],
    [[[1], [2]], "integer"],
    [[true, 2.5], "float"],
    [[1, Number.NaN], "float"],
    [[], "float"],
    [Uint8Array.of(1), "integer"],
    [Float32Array.of(1.5), "float"],
  ] as const) {
    assert.equal(readNested(data).kind, kind, String(data));
  }
});

it("rows of different lengths are rejected with both indices and both lengths", () => {
  const cases: readonly (readonly [NestedArray, string])[] = [
    [
      [
        [1, 2, 3],
        [4, 5],
      ],
      "data[1] has 2 elements where data[0] has 3; every row needs the same length.",
    ],
    [[[], [1]], "data[1] has 1 element where data[0] has 0; every row needs the same length."],
    [
      [
        [[1], [2]],
        [[3], []],
      ],
      "data[1][1] has 0 elements where data[0][0] has 1; every row needs the same length.",
    ],
    [[[1], 2], "data[1] is the number 2 where data[0] is an array of 1; every row needs the same length."],
    [[1, [2]], "data[1] is an array of 1 where data[0] is one element; every row needs the same length."],
    [
      [[[1, 2]], Float32Array.of(5)],
      "data[1][0] is the number 5 where data[0][0] is an array of 2; every row needs the same length.",
    ],
  ];
  for (const [data, message] of cases) {
    assert.throws(() => readNested(data), { code: "BAD_SHAPE", message });
  }
});

it("a row that is too short is rejected with its index", () => {
  const sizes = fc.tuple(
    fc.integer({ min: 2, max: 5 }),
    fc.integer({ min: 1, max: 5 }),
    fc.integer({ min: 1, max: 5 }),
  );
  fc.assert(
    fc.property(sizes, fc.nat(), ([depth, height, width], pick) => {
      const data = Array.from({ length: depth }, () =>
        Array.from({ length: height }, () => new Array(width).fill(1)),
      );
      // Never the first row, which defines the shape.
      const broken = 1 + (pick % (depth * height - 1));
      const [outer, inner] = [Math.floor(broken / height), broken % height];
      data[outer]![inner]!.pop();
      const place = `data[${outer}][${inner}] has ${width - 1} element`;
      assert.throws(
        () => readNested(data),
        (error) => (error as Error).message.startsWith(place),
      );
    }),
  );
});

it("an element that is not a number is rejected with its index and its type", () => {
  const hole = "is undefined, or a hole in its array";
  for (const [data, message] of [
    [[1, "3"], 'data[1] is the string "3"'],
    [
      [
        [1, 2],
        [3, null],
      ],
      "data[1][1] is null",
    ],
    [[1, undefined], `data[1] ${hole}`],
    // biome-ignore lint/suspicious/noSparseArray: the hole is what is tested.
    [[1, , 3], `data[1] ${hole}`],
    // biome-ignore lint/suspicious/noSparseArray: the hole is what is tested.
    [[[1], , [3]], `data[1] ${hole}`],
    [[1n], "data[0] is the bigint 1n"],
    [[[1], { length: 1 }], "data[1] is an object of class Object"],
    [new BigInt64Array(2), "data is an object of class BigInt64Array"],
    [new DataView(new ArrayBuffer(8)), "data is an object of class DataView"],
    [[() => 1], "data[0] is a function"],
    [Object.create(null), "data is an object of class null"],
    ["text", 'data is the string "text"'],
  ] as const) {
    assert.throws(
      () => readNested(untyped(data)),
      (error) => (error as Error).message.startsWith(`${message}, but a tensor holds numbers and booleans. `),
      message,
    );
    rejects("BAD_ARGUMENT", () => readNested(untyped(data)));
  }
});

it("an array that contains itself is rejected", () => {
  const data: unknown[] = [];
  data.push(data);
  rejects("BAD_SHAPE", () => readNested(untyped(data)), /more than 64 arrays/);
});

it("rows of different lengths are rejected before memory for the shape is allocated", () => {
  // According to its first row this needs 80 GB.
  const data = [new Array(100_000).fill(0), ...new Array(99_999).fill([])];
  rejects("BAD_SHAPE", () => readNested(data), /data\[1\] has 0 elements where data\[0\] has 100000/);
});

it("the default dtype is f32 for numbers and bool for booleans", () => {
  assert.equal(chooseDtype(readNested([1, 2, 3])), "f32");
  assert.equal(chooseDtype(readNested([0.5])), "f32");
  assert.equal(chooseDtype(readNested([])), "f32");
  assert.equal(chooseDtype(readNested([true, false])), "bool");
  assert.equal(chooseDtype(readNested([true, 2])), "f32");
  assert.equal(chooseDtype(readNested([1.5, Number.NaN]), "bf16"), "bf16");
  assert.equal(chooseDtype(readNested([-(2 ** 31), 2 ** 31 - 1]), "i32"), "i32");
  assert.equal(chooseDtype(readNested([0, 255]), "u8"), "u8");
  assert.equal(chooseDtype(readNested([0, 1, true]), "bool"), "bool");
});

it("an element that the dtype can't hold is rejected with its index, its value and the range", () => {
  const i32 = "i32 holds whole numbers from -2147483648 to 2147483647";
  const u8 = "u8 holds whole numbers from 0 to 255";
  for (const [data, dtype, message] of [
    [
      [
        [1, 2],
        [3, 1.5],
      ],
      "i32",
      `data[1][1] is 1.5, but ${i32}`,
    ],
    [[2 ** 31], "i32", `data[0] is 2147483648, but ${i32}`],
    [Number.NaN, "i32", `data is NaN, but ${i32}`],
    [[0, 256], "u8", `data[1] is 256, but ${u8}`],
    [[-1], "u8", `data[0] is -1, but ${u8}`],
    [[[2]], "bool", "data[0][0] is 2, but bool holds whole numbers from 0 to 1"],
  ] as const) {
    const remedy = "Correct the data, or use another dtype.";
    assert.throws(() => chooseDtype(readNested(data), dtype), {
      code: "BAD_DTYPE",
      message: `${message}. ${remedy}`,
    });
  }
});

it("toNested rejects a shape with another number of elements", () => {
  assert.deepEqual(toNested([0, 3], []), []);
  assert.deepEqual(toNested([2, 1], Uint8Array.of(1, 0), "boolean"), [[true], [false]]);
  rejects("BAD_ARGUMENT", () => toNested([2, 2], [1, 2, 3]), /Got 3 values for shape \[2, 2\], which has 4/);
});
