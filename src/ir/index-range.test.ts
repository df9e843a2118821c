/** Indexed loads that provably stay in their row, and those that may not. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { type Expression, type Output, type RowKernel, staysInRow, term } from "./index.js";

const label = term.load(1, "i32");
const classes = term.scalar(0, "f32");

/** A kernel that stores the element at an index of its row. */
function picks(at: Expression, per: Output["per"] = "row"): RowKernel {
  return {
    ...{ name: "pick", inputs: ["f32", "i32"], outputs: [{ dtype: "f32", per }], scalars: ["f32", "i32"] },
    stages: [{ kind: "store", output: 0, value: term.load(0, "f32", at) }],
  };
}

const isAtLeast0 = term.ge(label, 0);
const isBelowCount = term.lt(term.convert(label, "f32"), classes);
const guarded = (condition: Expression): Expression => term.select(condition, label, 0);

test("an index that is checked against both ends of the row stays in it", () => {
  const both = guarded(term.min(isAtLeast0, isBelowCount));
  assert.ok(staysInRow(picks(both), 0, 10, [10, 1]));
  assert.ok(!staysInRow(picks(both), 0, 10, [11, 1]), "one class too many");
  assert.ok(!staysInRow(picks(both, "element"), 0, 10, [10, 1]), "relative to an element inside the row");
  const strided = term.mul(both, term.scalar(1, "i32"));
  assert.ok(staysInRow(picks(strided), 0, 28, [10, 3]));
  assert.ok(!staysInRow(picks(strided), 0, 27, [10, 3]));
});

test("an index without one of the checks may leave its row", () => {
  for (const at of [label, guarded(isAtLeast0), guarded(isBelowCount), term.add(label, 1)])
    assert.ok(!staysInRow(picks(at), 0, 10, [10, 1]));
  // The check is one of another number.
  const other = term.load(2, "i32");
  const ofOther = term.min(term.ge(other, 0), term.lt(other, 10));
  assert.ok(!staysInRow(picks(guarded(ofOther)), 0, 10, [10, 1]));
});

test("i32 products that overflow may be anything", () => {
  const both = guarded(term.min(isAtLeast0, isBelowCount));
  assert.ok(!staysInRow(picks(term.mul(both, term.scalar(1, "i32"))), 0, Infinity, [2 ** 20, 2 ** 20]));
});
