/** The diff of a pass is complete: the marked calls give the lists before and after. */

import assert from "node:assert/strict";
import test from "node:test";
import * as fc from "fast-check";
import { changesOf } from "./call-changes.js";

const calls = (ops: string) => [...ops].map((op) => ({ op, kernel: `k_${op}` }));
const diffText = (before: string, after: string): string =>
  changesOf(calls(before), calls(after))
    .map(({ op, mark }) => ({ kept: "", removed: "-", added: "+" })[mark] + op)
    .join(" ");

test("calls that a pass keeps are kept, fused calls are removed, and the fused call is added", () => {
  assert.equal(diffText("abcd", "aXd"), "a -b -c +X d");
  assert.equal(diffText("abc", "abc"), "a b c");
  assert.equal(diffText("", "ab"), "+a +b");
  assert.equal(diffText("ab", ""), "-a -b");
});

test("a call that is the same op by another kernel is removed and added", () => {
  const marks = changesOf([{ op: "add", kernel: "k1" }], [{ op: "add", kernel: "k2" }]);
  assert.deepEqual(
    marks.map(({ mark }) => mark),
    ["removed", "added"],
  );
});

test("kept and removed calls are the list before, kept and added calls are the list after, and the diff is minimal", () => {
  const list = fc.string({ unit: fc.constantFrom("a", "b", "c"), maxLength: 12 });
  fc.assert(
    fc.property(list, list, (before, after) => {
      const marked = changesOf(calls(before), calls(after));
      const pick = (without: string): string =>
        marked
          .filter(({ mark }) => mark !== without)
          .map(({ op }) => op)
          .join("");
      assert.equal(pick("added"), before);
      assert.equal(pick("removed"), after);
      assert.equal(marked.filter(({ mark }) => mark === "kept").length, longestCommon(before, after));
    }),
  );
});

test("thousands of changed calls are shown as all removed and all added", () => {
  const many = (kernel: string) => Array.from({ length: 5000 }, (_, at) => ({ op: `op${at}`, kernel }));
  const marked = changesOf(many("one"), many("two"));
  assert.equal(marked.filter(({ mark }) => mark === "removed").length, 5000);
  assert.equal(marked.filter(({ mark }) => mark === "added").length, 5000);
});

function longestCommon(one: string, other: string): number {
  let row = new Array<number>(other.length + 1).fill(0);
  for (const letter of one) {
    const next = [0];
    for (let at = 0; at < other.length; at++)
      next.push(letter === other[at] ? row[at]! + 1 : Math.max(row[at + 1]!, next[at]!));
    row = next;
  }
  return row.at(-1)!;
}
