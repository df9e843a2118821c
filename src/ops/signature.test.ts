/** Signatures: calls that may be lowered differently have different signatures, and tables find values by them. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import type { Storage } from "../runtime/index.js";
import { span } from "../units/index.js";
import { contiguousStrides, type DeviceArray } from "./device-array.js";
import { SignatureTable, writeCallSignature, writeViewSignature } from "./signature.js";

type Record_ = Readonly<Record<string, unknown>>;

function storageAt(address: number, size: number, kind: Storage["kind"] = "step"): Storage {
  const rest = { generation: 0, label: "invented", home: {}, owner: undefined };
  return { kind, span: span(address, size), ...rest };
}

interface ArrayOptions {
  readonly dtype?: DeviceArray["dtype"];
  readonly shape?: readonly number[];
  readonly strides?: readonly number[];
  readonly address?: number;
  readonly size?: number;
  readonly storage?: Storage | undefined;
}

function array({
  dtype = "f32",
  shape = [2, 3],
  address = 4096,
  size = 24,
  ...rest
}: ArrayOptions = {}): DeviceArray {
  const storage = "storage" in rest ? rest.storage : storageAt(address, size);
  return { dtype, shape, strides: rest.strides ?? contiguousStrides(shape), storage };
}

type Call = () => void;

const call =
  (operands: readonly (DeviceArray | number)[], attributes: Record_ = {}, target?: DeviceArray): Call =>
  () =>
    writeCallSignature(operands, attributes, { withAddresses: false, ...(target && { target }) });

/** True if two calls have the same signature. */
function areSame(first: Call, second: Call): boolean {
  const table = new SignatureTable<string>();
  first();
  table.reserve()("kept");
  second();
  return table.find() === "kept";
}

const [here, there] = [storageAt(8192, 24), storageAt(16_384, 24)];
const empty = { shape: [0, 3], storage: undefined };

/** Pairs of calls that a lowering could distinguish. */
const differences: Readonly<Record<string, readonly [Call, Call]>> = {
  dtype: [call([array()]), call([array({ dtype: "i32" })])],
  shape: [call([array({ shape: [2, 3] })]), call([array({ shape: [3, 2] })])],
  "the number of axes": [call([array({ shape: [6] })]), call([array({ shape: [6, 1], strides: [1, 1] })])],
  strides: [call([array()]), call([array({ strides: [1, 2] })])],
  "a stretched axis": [call([array({ strides: [3, 1] })]), call([array({ strides: [0, 1] })])],
  "the size of the storage": [call([array({ size: 24 })]), call([array({ size: 28 })])],
  alignment: [call([array({ address: 4096 })]), call([array({ address: 4100 })])],
  "alignment up to 256": [call([array({ address: 4096 })]), call([array({ address: 4096 + 128 })])],
  "the number of operands": [call([array()]), call([array(), array({ address: 8192 })])],
  "an operand twice or two of them": [
    call([array({ storage: here }), array({ storage: here })]),
    call([array({ storage: here }), array({ storage: there })]),
  ],
  "two views of the same bytes or two of others": [
    call([array({ storage: here }), array({ storage: { ...here } })]),
    call([array({ storage: here }), array({ storage: there })]),
  ],
  "which of the operands are the same": [
    call([array({ storage: here }), array({ storage: there }), array({ storage: here })]),
    call([array({ storage: here }), array({ storage: there }), array({ storage: there })]),
  ],
  "no memory at all": [call([array(empty)]), call([array({ shape: [0, 3], storage: here })])],
  "a literal": [call([array(), 1]), call([array(), 2])],
  "a literal's sign of zero": [call([array(), 0]), call([array(), -0])],
  "a literal or an array": [call([array(), 0]), call([array(), array({ shape: [], size: 4 })])],
  "a target or none": [call([array()]), call([array()], {}, array())],
  "a target that is the operand or another": [
    call([array({ storage: here })], {}, array({ storage: here })),
    call([array({ storage: here })], {}, array({ storage: there })),
  ],
  "a target that is another view of the operand": [
    call([array({ storage: here })], {}, array({ storage: { ...here } })),
    call([array({ storage: here })], {}, array({ storage: there })),
  ],
  "a target or one operand more": [
    call([array({ storage: here })], {}, array({ storage: there })),
    call([array({ storage: here }), array({ storage: there })]),
  ],
  "an attribute": [call([array()], { axis: 0 }), call([array()], { axis: 1 })],
  "an attribute's name": [call([array()], { axis: 0 }), call([array()], { axes: 0 })],
  "an attribute more": [call([array()], { axis: 0 }), call([array()], { axis: 0, keepsAxes: true })],
  "undefined or missing": [call([array()], {}), call([array()], { axis: undefined })],
  "undefined or null": [call([array()], { axis: null }), call([array()], { axis: undefined })],
  "a number or its text": [call([array()], { p: 1 }), call([array()], { p: "1" })],
  "a truth or a number": [call([array()], { p: 1 }), call([array()], { p: true })],
  "zeros of both signs": [call([array()], { p: 0 }), call([array()], { p: -0 })],
  "NaN or a number": [call([array()], { p: Number.NaN }), call([array()], { p: 0 })],
  "a list or its only element": [call([array()], { axes: 1 }), call([array()], { axes: [1] })],
  "nothing or an empty list": [call([array()], { axes: undefined }), call([array()], { axes: [] })],
  "an empty list or an empty record": [call([array()], { axes: {} }), call([array()], { axes: [] })],
  "how a list is nested": [call([array()], { r: [[1, 2], [3]] }), call([array()], { r: [[1], [2, 3]] })],
  "where a list has nothing": [
    call([array()], { r: [null, [2, 5]] }),
    call([array()], { r: [[2, 5], null] }),
  ],
  "a word in a list or its number": [call([array()], { r: [true] }), call([array()], { r: [1] })],
  "a record in an attribute": [call([array()], { r: { a: 1 } }), call([array()], { r: { a: 2 } })],
};

describe("calls that differ in", () => {
  for (const [difference, [first, second]] of Object.entries(differences)) {
    test(difference, () => {
      assert.equal(areSame(first, first), true);
      assert.equal(areSame(second, second), true);
      assert.equal(areSame(first, second), false);
      assert.equal(areSame(second, first), false);
    });
  }

  test("their addresses only have the same signature", () => {
    assert.ok(areSame(call([array({ address: 4096 })]), call([array({ address: 2 ** 46 })])));
    assert.ok(areSame(call([array(), Number.NaN]), call([array(), Number.NaN])));
    assert.ok(
      areSame(call([array()], { p: Number.NaN, r: [null] }), call([array()], { p: Number.NaN, r: [null] })),
    );
  });

  test("the addresses of persistent operands have different signatures only if the op depends on addresses", () => {
    const at = (address: number, kind: Storage["kind"]) => array({ storage: storageAt(address, 24, kind) });
    const sign = (address: number, kind: Storage["kind"], withAddresses: boolean) => () =>
      writeCallSignature([at(address, kind)], {}, { withAddresses });
    assert.equal(areSame(sign(4096, "persistent", true), sign(8192, "persistent", true)), false);
    assert.equal(areSame(sign(4096, "persistent", false), sign(8192, "persistent", false)), true);
    assert.equal(areSame(sign(4096, "step", true), sign(8192, "step", true)), true);
    assert.equal(areSame(sign(4096, "step", true), sign(4096, "persistent", true)), false);
  });
});

/** Attributes of every kind that ops have, and unusual ones. */
const attributeValues = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 3 },
    fc.constantFrom<unknown>(0, -0, 1, 2, 3, Number.NaN, true, false, null, undefined, "", "mean", "0", "1"),
    fc.integer({ min: -3, max: 3 }),
    fc.array(tie("value"), { maxLength: 3 }),
    fc.dictionary(fc.constantFrom("a", "b", "axis"), tie("value"), { maxKeys: 2, noNullPrototype: true }),
  ),
})).value;
const someAttributes = fc.dictionary(fc.constantFrom("a", "b", "axis"), attributeValues, {
  maxKeys: 3,
  noNullPrototype: true,
});

/** A text that is equal for equal attributes in the same order, and different for all others. */
function textOf(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(textOf).join(",")}]`;
  if (typeof value === "object" && value !== null) {
    const members = Object.entries(value).map(
      ([name, member]) => `${JSON.stringify(name)}:${textOf(member)}`,
    );
    return `{${members.join(",")}}`;
  }
  return Object.is(value, -0) ? "-0" : typeof value === "string" ? JSON.stringify(value) : String(value);
}

test("two records of attributes have the same signature if and only if they are equal", () => {
  fc.assert(
    fc.property(someAttributes, someAttributes, (first, second) => {
      assert.equal(
        areSame(call([array()], first), call([array()], second)),
        textOf(first) === textOf(second),
      );
      assert.ok(areSame(call([array()], first), call([array()], structuredClone(first))));
    }),
    { numRuns: 2000 },
  );
});

test("the signature of a view depends on dtype, shape, strides and attributes only", () => {
  const view =
    (options: ArrayOptions, attributes: Record_ = {}) =>
    () =>
      writeViewSignature(array(options), attributes);
  assert.ok(areSame(view({ address: 4096 }), view({ address: 4100, size: 96 })));
  for (const other of [
    view({ dtype: "f64" }),
    view({ shape: [3, 2] }),
    view({ strides: [1, 2] }),
    view({}, { shape: [6] }),
  ])
    assert.equal(areSame(view({}), other), false);
});

describe("a table", () => {
  const sign = (number: number) => writeCallSignature([number], {}, { withAddresses: false });

  test("stores a reserved value under its signature, even after other signatures were written", () => {
    const table = new SignatureTable<string>();
    sign(1);
    const keepFirst = table.reserve();
    sign(2);
    table.reserve()("second");
    keepFirst("first");
    sign(1);
    assert.equal(table.find(), "first");
    sign(2);
    assert.equal(table.find(), "second");
  });

  test("returns the newest of two values under one signature", () => {
    const table = new SignatureTable<string>();
    for (const value of ["old", "new"]) {
      sign(1);
      table.reserve()(value);
    }
    sign(1);
    assert.equal(table.find(), "new");
  });

  test("has a bounded number of entries, and keeps working", () => {
    const table = new SignatureTable<number>();
    const countEntries = (): number => {
      let count = 0;
      for (let number = 0; number < 2000; number++) {
        sign(number);
        if (table.find() === number) count += 1;
      }
      return count;
    };
    for (let number = 0; number < 2000; number++) {
      sign(number);
      table.reserve()(number);
      sign(number);
      assert.equal(table.find(), number);
      if (number % 500 === 499)
        assert.ok(countEntries() <= 512, `${countEntries()} entries after ${number + 1}`);
    }
    assert.ok(countEntries() > 0);
  });

  test("distinguishes signatures of any length, also with equal hashes", () => {
    const table = new SignatureTable<string>();
    const signAll = (values: readonly number[]) =>
      writeCallSignature([], { values }, { withAddresses: false });
    const lists = fc.array(fc.array(fc.oneof(fc.double(), fc.integer()), { maxLength: 300 }), {
      maxLength: 20,
    });
    fc.assert(
      fc.property(lists, (drawn) => {
        const entries = new Map(drawn.map((values) => [textOf(values), values]));
        for (const [text, values] of entries) {
          signAll(values);
          table.reserve()(text);
        }
        for (const [text, values] of entries) {
          signAll(values);
          assert.equal(table.find(), text);
        }
      }),
      { numRuns: 40 },
    );
  });
});
