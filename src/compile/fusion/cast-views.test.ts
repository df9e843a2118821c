/** Writers of views store the converted values if a conversion is the only reader of their buffer. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { rewritten } from "../../../test/support/rewritten.js";
import { bufferOf, elementwise, type View } from "../../../test/support/row-calls.js";
import { term } from "../../ir/index.js";
import type { Call, RowCall } from "../program/program.js";
import { storeConvertedViews } from "./cast-views.js";

const [rows, columns, views] = [6, 8, 3];

/** The columns of a view in a matrix of all views. */
function columnsOf(matrix: View, index: number): View {
  const pitch = views * columns;
  const slice = {
    ...matrix.slice,
    offset: 4 * index * columns,
    size: 4 * ((rows - 1) * pitch + columns),
  };
  return { ...matrix, slice, shape: [rows, columns], strides: [pitch, 1] };
}

/** Three calls write the columns of a matrix, and a fourth one converts it. */
function program({ dtype = "bf16" as "bf16" | "f64", isReadAgain = false, isInPlace = false } = {}): Call[] {
  const matrix = bufferOf([rows, views * columns], { label: "matrix" });
  const converted = bufferOf([rows, views * columns], { label: "converted", dtype });
  const inputs = Array.from({ length: views }, (_, index) =>
    bufferOf([rows, columns], { label: `x${index}` }),
  );
  return [
    ...inputs.map((input, index) =>
      elementwise(`half ${index}`, (x) => term.mul(x, 0.5), [input], columnsOf(matrix, index)),
    ),
    ...(isInPlace ? [elementwise("neg", term.neg, [columnsOf(matrix, 0)], columnsOf(matrix, 0))] : []),
    elementwise("cast", (x) => (dtype === "f64" ? term.convert(x, "f64") : x), [matrix], converted),
    ...(isReadAgain ? [elementwise("twice", (x) => term.mul(x, 2), [matrix], bufferOf([rows, 24]))] : []),
  ];
}

const rewrite = (calls: readonly Call[]): readonly Call[] => rewritten(calls, storeConvertedViews);
const opsOf = (calls: readonly Call[]): string[] => calls.map(({ op }) => op);

test("each writer stores its columns as bf16, and the conversion is gone", () => {
  const calls = rewrite(program());
  assert.deepEqual(opsOf(calls), ["half 0", "half 1", "half 2"]);
  for (const [index, { work }] of calls.entries()) {
    const { kernel, operands, iteration } = work as RowCall;
    const { buffer, offset, size } = operands[1]!;
    assert.deepEqual(kernel.outputs, [{ dtype: "bf16", per: "element" }]);
    assert.deepEqual([buffer.label, offset], ["converted", 2 * index * columns]);
    assert.equal(size, 2 * ((rows - 1) * views * columns + columns));
    assert.equal(iteration.outer[0]?.strides[1], views * columns);
  }
});

test("nothing changes if another call reads the buffer, a writer reads it, or the conversion does not round to half floats", () => {
  for (const options of [{ isReadAgain: true }, { isInPlace: true }, { dtype: "f64" as const }]) {
    const calls = program(options);
    assert.deepEqual(opsOf(rewrite(calls)), opsOf(calls), JSON.stringify(options));
  }
});
