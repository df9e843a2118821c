/** Values have the same key if and only if `Object.is` holds for their numbers and members. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { specialValues } from "../../test/support/special-values.js";
import { literalKey } from "./literal-key.js";

test("every special number has a distinct key, alone, in a list and in a record", () => {
  const forms: readonly ((value: number) => unknown)[] = [
    (value) => value,
    (value) => [1, value],
    (value) => ({ scalars: [value], kind: "rows" }),
  ];
  for (const form of forms) {
    const keys = specialValues.map((value) => literalKey(form(value)));
    assert.equal(new Set(keys).size, specialValues.length);
    assert.deepEqual(
      specialValues.map((value) => literalKey(form(value))),
      keys,
    );
  }
});

test("two doubles share a key only if they are the same", () => {
  fc.assert(
    fc.property(fc.double(), fc.double(), (a, b) => {
      assert.equal(literalKey(a) === literalKey(b), Object.is(a, b));
      assert.ok(Object.is(Number(literalKey(a)), a), "a key tells its number to the bit");
    }),
  );
});

test("values of different types with the same text have distinct keys", () => {
  const values = [0, -0, "0", "-0", null, "null", undefined, "undefined", NaN, "NaN", true, "true", 1n, 1];
  const lists = [
    [],
    [[]],
    [0],
    [0, 0],
    ["0,0"],
    [[0], 0],
    {},
    { a: 0 },
    { b: 0 },
    { a: [0] },
    [undefined],
    [null],
  ];
  const keys = [...values, ...lists].map(literalKey);
  assert.equal(new Set(keys).size, keys.length);
});

test("random data share a key only if they are equal", () => {
  const values = fc.object({
    values: [fc.double(), fc.integer(), fc.string(), fc.constant(null)],
    maxDepth: 2,
  });
  fc.assert(
    fc.property(values, values, (a, b) => {
      if (literalKey(a) !== literalKey(b)) return;
      assert.deepStrictEqual(a, b);
    }),
  );
});

test("a member that is undefined counts as missing", () => {
  assert.equal(literalKey({ a: 1, b: undefined }), literalKey({ a: 1 }));
});

test("a value that is not plain data has no key", () => {
  for (const value of [() => 0, Symbol("a"), new Map(), new Float32Array(1), { at: new Date(0) }])
    assert.throws(() => literalKey(value), /has no key\. Pass plain data/);
});
