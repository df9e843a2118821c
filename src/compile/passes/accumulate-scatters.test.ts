/** A scatter whose result is only added to a tensor in place adds to the tensor itself. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { rewritten } from "../../../test/support/rewritten.js";
import { bufferOf, elementwise, type View } from "../../../test/support/row-calls.js";
import { term } from "../../ir/index.js";
import type { Call, ScatterCall } from "../program/program.js";
import { accumulateScatters } from "./accumulate-scatters.js";

const [rows, width, count] = [8, 4, 3];
const table = [rows, width];

interface Options {
  /** Where the sum goes; default: in place. */
  readonly result?: View;
  readonly isReadAgain?: boolean;
  readonly isSourceChanged?: boolean;
  readonly overwrites?: boolean;
  readonly op?: "add" | "mul";
}

function program(options: Options = {}) {
  const { overwrites = true, op = "add", isReadAgain = false, isSourceChanged = false } = options;
  const gradient = bufferOf(table, { label: "gradient", address: 0x1000 });
  const [index, source] = [bufferOf([count], { dtype: "i32" }), bufferOf([count, width])];
  const scattered = bufferOf(table, { label: "scattered" });
  const scatter: ScatterCall = {
    kind: "scatter",
    shape: {
      ...{ dtype: "f32", outer: 1, length: rows, inner: width, count, isIndexShared: true },
      ...(overwrites && { overwrites }),
    },
    ...{ index: index.slice, source: source.slice, target: scattered.slice, scratch: [] },
  };
  const change = elementwise("neg", term.neg, [bufferOf([count, width])], source);
  const calls: Call[] = [
    { op: "scatter", work: scatter },
    ...(isSourceChanged ? [change] : []),
    elementwise(op, term[op], [gradient, scattered], options.result ?? gradient),
    ...(isReadAgain ? [elementwise("neg", term.neg, [scattered], bufferOf(table))] : []),
  ];
  return { calls, gradient };
}

test("it stands where the sum stood, and keeps the tensor's values", () => {
  const { calls, gradient } = program();
  const [call, ...others] = rewritten(calls, accumulateScatters);
  assert.equal(others.length, 0);
  const { shape, target } = call!.work as ScatterCall;
  assert.equal(target, gradient.slice);
  assert.equal(shape.overwrites, undefined);
});

test("nothing changes if the result is needed, the sum is elsewhere or another operation, or its source has changed", () => {
  const cases: readonly Options[] = [
    { isReadAgain: true },
    { isSourceChanged: true },
    { overwrites: false },
    { op: "mul" },
    { result: bufferOf(table, { address: 0x8000 }) },
  ];
  for (const options of cases) {
    const { calls } = program(options);
    assert.deepEqual(rewritten(calls, accumulateScatters), calls);
  }
});
