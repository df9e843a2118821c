/** Common subexpressions: equal calls, and equal sequences of calls that assemble a buffer, run once. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { rewritten } from "../../../test/support/rewritten.js";
import { bufferOf, elementwise, type View } from "../../../test/support/row-calls.js";
import { term } from "../../ir/index.js";
import type { Call } from "../program/program.js";
import { eliminateCommonCalls } from "./cse.js";

const cse = (calls: readonly Call[]): string[] =>
  rewritten(calls, (program) => eliminateCommonCalls(program)).map(({ op }) => op);

const [rows, channels, padded] = [8, 3, 4];

/** Column ranges of a matrix with `padded` columns. */
const columns = (view: View, from: number, count: number): View => ({
  ...{ ...view, shape: [rows, count] },
  slice: { ...view.slice, offset: 4 * from, size: 4 * ((rows - 1) * padded + count) },
});

const fill = ({ slice }: View, byte = 0): Call => ({
  op: "fill",
  work: { kind: "fill", target: slice, byte },
});
const copy = (from: View, to: View): Call => elementwise("copy", (x) => x!, [from], to);
const read = (from: View, to: View): Call => elementwise("read", (x) => term.add(x!, 1), [from], to);

/** A source, two buffers that get it with zeros after its last column, and two results. */
function buffers() {
  const source = bufferOf([rows, channels], { address: 4096 });
  const [first, second] = [bufferOf([rows, padded]), bufferOf([rows, padded])];
  const results = [
    bufferOf([rows, padded], { address: 8192 }),
    bufferOf([rows, padded], { address: 16384 }),
  ] as const;
  return { source, first, second, results };
}

test("two buffers that are filled and written alike are one", () => {
  const { source, first, second, results } = buffers();
  const calls = [
    ...[fill(first), copy(source, columns(first, 0, channels)), read(first, results[0])],
    ...[fill(second), copy(source, columns(second, 0, channels)), read(second, results[1])],
  ];
  assert.deepEqual(cse(calls), ["fill", "copy", "read", "read"]);
});

test("buffers with other contents stay: of another fill, to other columns, or of a source that has changed", () => {
  const { source, first, second, results } = buffers();
  const begin = [fill(first), copy(source, columns(first, 0, channels)), read(first, results[0])];
  const change = elementwise("change", (x) => term.add(x!, 1), [source], source);
  const others: readonly (readonly Call[])[] = [
    [fill(second, 1), copy(source, columns(second, 0, channels))],
    [fill(second), copy(source, columns(second, 1, channels))],
    [change, fill(second), copy(source, columns(second, 0, channels))],
  ];
  for (const other of others) {
    const calls = [...begin, ...other, read(second, results[1])];
    assert.equal(cse(calls).length, calls.length);
  }
});

test("a buffer that is read between its writes stays", () => {
  const { source, first, second, results } = buffers();
  const calls = [
    ...[fill(first), read(first, results[0]), copy(source, columns(first, 0, channels))],
    ...[
      fill(second),
      copy(source, columns(second, 0, channels)),
      read(second, results[1]),
      read(first, results[0]),
    ],
  ];
  assert.equal(cse(calls).length, calls.length);
});
