/** Multi-tensor transpose: every word is moved, and no other word changes. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { cudaMissing, openCudaKernelRuntime, put } from "../../../test/support/kernel-runtime.js";
import { sameBytes } from "../../../test/support/same-bytes.js";
import type { Storage } from "../../runtime/index.js";
import { maxTransposes, transposeLaunchOf } from "./transpose.js";

const skip = cudaMissing;
const runtime = skip ? undefined! : openCudaKernelRuntime();

interface Drawn {
  readonly rows: number;
  readonly columns: number;
  /** Words between rows, and after the result. */
  readonly gap: number;
}

const drawn: fc.Arbitrary<Drawn> = fc.record({
  rows: fc.oneof(fc.integer({ min: 1, max: 70 }), fc.constantFrom(32, 64, 96)),
  columns: fc.oneof(fc.integer({ min: 1, max: 70 }), fc.constantFrom(32, 64)),
  gap: fc.nat(3),
});

function prove(matrices: readonly Drawn[]): void {
  runtime.step(() => {
    const placed = matrices.map(({ rows, columns, gap }, index) => {
      const rowStride = columns + gap;
      const source = Uint32Array.from({ length: rows * rowStride }, (_, word) => 7919 * (index + 1) + word);
      const target = new Uint32Array(rows * columns + gap).fill(0xdead_0000 + index);
      const expected = target.map((word, at) =>
        at < rows * columns ? source[(at % rows) * rowStride + Math.floor(at / rows)]! : word,
      );
      const [from, whole] = [put(runtime, source, "source"), put(runtime, target, "target")];
      const to = runtime.view(whole, 0, 4 * rows * columns);
      return { expected, whole, matrix: { from, to, rows, columns, rowStride } };
    });
    const { source, ...launch } = transposeLaunchOf<Storage>(placed.map(({ matrix }) => matrix));
    runtime.launch({ op: "turn", kernel: runtime.kernel(source), ...launch });
    for (const [index, { whole, expected }] of placed.entries())
      sameBytes(runtime.read(whole), expected, `matrix ${index} of ${matrices.length}`);
  });
}

describe("multi-tensor transpose on CUDA", { skip }, () => {
  test("transposes any number of matrices of any size and row stride, and writes nothing else", () => {
    fc.assert(
      fc.property(fc.array(drawn, { minLength: 1, maxLength: 4 }), (matrices) => prove(matrices)),
      { numRuns: 40 },
    );
  });

  test("the maximum number of matrices fits into the arguments of a launch", () => {
    prove(Array.from({ length: maxTransposes }, (_, index) => ({ rows: 1 + index, columns: 3, gap: 0 })));
    const bytes = transposeLaunchOf(
      Array.from({ length: maxTransposes }, () => ({ from: 0, to: 0, rows: 1, columns: 1, rowStride: 1 })),
    ).arguments.length;
    assert.ok(bytes * 8 <= 4096);
  });
});
