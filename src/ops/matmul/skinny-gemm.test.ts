/** Skinny GEMMs are right for every layout, with and without a bias. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { effort } from "../../../test/support/effort.js";
import { issuedBy } from "../../../test/support/issued-work.js";
import { cudaMissing, openCudaKernelRuntime, put } from "../../../test/support/kernel-runtime.js";
import { submit } from "../../kernels/index.js";
import type { DeviceArray } from "../device-array.js";
import { OpLowering } from "../lowering.js";
import { runOp } from "../run.js";
import { linear, weightGradient } from "./matmul.js";
import { lowerSkinnyGemm } from "./skinny-gemm.js";

/** Small whole numbers, so that every order of adding gives the same sum. */
const valueAt = (index: number): number => ((index * 7) % 5) - 2;

interface SkinnyCase {
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly isATransposed: boolean;
  readonly isBTransposed: boolean;
  readonly gap: number;
  readonly hasBias: boolean;
}

const few = fc.integer({ min: 1, max: 5 });
const many = fc.integer({ min: 30, max: 70 });
const skinnyCases: fc.Arbitrary<SkinnyCase> = fc
  .tuple(
    fc.oneof(
      fc.record({ m: many, n: many, k: few }),
      fc.record({ m: many, n: few, k: many }),
      fc.record({ m: few, n: many, k: many }),
    ),
    fc.record({
      ...{ isATransposed: fc.boolean(), isBTransposed: fc.boolean(), hasBias: fc.boolean() },
      gap: fc.constantFrom(0, 0, 3),
    }),
  )
  .map(([shape, layout]) => ({ ...shape, ...layout }));

describe("a skinny GEMM", { skip: cudaMissing }, () => {
  const runtime = cudaMissing ? undefined! : openCudaKernelRuntime();

  /** A matrix with gaps between its rows or columns. */
  function allocate(rows: number, columns: number, isTransposed: boolean, gap: number): DeviceArray {
    const [outer, inner] = isTransposed ? [columns, rows] : [rows, columns];
    const step = inner + gap;
    const values = Float32Array.from({ length: outer * step }, (_, index) => valueAt(index));
    const storage = put(runtime, values, "operand");
    return { shape: [rows, columns], strides: isTransposed ? [1, step] : [step, 1], dtype: "f32", storage };
  }

  const elementOf = ({ strides: [down = 0, across = 0] }: DeviceArray, row: number, column: number): number =>
    valueAt(row * down + column * across);

  function prove(skinnyCase: SkinnyCase): boolean {
    const { m, n, k, isATransposed, isBTransposed, gap, hasBias } = skinnyCase;
    return runtime.step(() => {
      const [left, right] = [allocate(m, k, isATransposed, gap), allocate(k, n, isBTransposed, gap)];
      const vector = hasBias ? allocate(1, n, false, 0) : undefined;
      const bias = vector && { ...vector, shape: [n], strides: [1] };
      const output = allocate(m, n, false, 0);
      const lowering = new OpLowering(runtime, "gemm");
      if (!lowerSkinnyGemm(lowering, left, right, output, bias)) return false;
      submit(runtime, lowering.calls);
      const actual = new Float32Array(runtime.read(output.storage!).slice().buffer);
      for (const [index, value] of actual.entries()) {
        const [row, column] = [Math.floor(index / n), index % n];
        let sum = hasBias ? valueAt(column) : 0;
        for (let term = 0; term < k; term++)
          sum += elementOf(left, row, term) * elementOf(right, term, column);
        assert.ok(
          value === sum,
          `element ${row}, ${column} is ${value}, not ${sum}: ${JSON.stringify(skinnyCase)}`,
        );
      }
      return true;
    });
  }

  test("is right for any layout and any skinny side", () => {
    const runs = effort({ quick: 80, thorough: 250 });
    let done = 0;
    fc.assert(
      fc.property(skinnyCases, (skinnyCase) => {
        if (prove(skinnyCase)) done++;
      }),
      { numRuns: runs },
    );
    assert.ok(done > runs / 4, `${done} of ${runs} were skinny`);
  });

  test("has a side of at most four elements, and its other sides are at least a warp", () => {
    const plain = { isATransposed: false, isBTransposed: false, gap: 0, hasBias: false };
    assert.equal(prove({ ...plain, m: 40, n: 3, k: 40 }), true);
    assert.equal(prove({ ...plain, m: 40, n: 5, k: 40 }), false);
    assert.equal(prove({ ...plain, m: 20, n: 3, k: 40 }), false);
  });

  test("is one launch, also for a weight gradient with few columns", () => {
    runtime.step(() => {
      const [x, y] = [allocate(48, 40, false, 0), allocate(48, 3, false, 0)];
      const issued = issuedBy(runtime, () => {
        const [gradient] = runOp(runtime, weightGradient, [x, y], {});
        assert.deepEqual(gradient?.shape, [40, 3]);
      });
      assert.equal(issued.length, 1);
    });
  });

  test("computes layers with few outputs, and their gradients", () => {
    const [rows, width, out] = [48, 40, 3];
    runtime.step(() => {
      const x = allocate(rows, width, false, 0);
      const weight = allocate(out, width, false, 0);
      const [y] = runOp(runtime, linear, [x, weight], {});
      const [gradient] = runOp(runtime, weightGradient, [y!, x], {});
      const product = (row: number, column: number): number => {
        let sum = 0;
        for (let term = 0; term < width; term++)
          sum += elementOf(x, row, term) * elementOf(weight, column, term);
        return sum;
      };
      const actual = new Float32Array(runtime.read(gradient!.storage!).slice().buffer);
      for (const [index, value] of actual.entries()) {
        let sum = 0;
        for (let row = 0; row < rows; row++)
          sum += product(row, Math.floor(index / width)) * elementOf(x, row, index % width);
        assert.ok(value === sum, `element ${index} is ${value}, not ${sum}`);
      }
    });
  });
});
