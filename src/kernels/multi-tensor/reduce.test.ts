/** Multi-tensor reductions in chunks, on every device: every element counts once, and no memory outside of the tensors is read. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import {
  cudaMissing,
  kernelDevices,
  openCudaKernelRuntime,
  put,
} from "../../../test/support/kernel-runtime.js";
import { sameBytes } from "../../../test/support/same-bytes.js";
import type { ChunkedReduceKernel } from "../../ir/index.js";
import { narrowToBf16, term, widenBf16 } from "../../ir/index.js";
import type { Runtime } from "../../runtime/index.js";
import { backendOf } from "../backend.js";
import { submit } from "../submit.js";
import { chunkCount } from "./reduce.js";

const squares: ChunkedReduceKernel = {
  name: "squares",
  dtype: "f32",
  scalars: ["f64"],
  op: "add",
  value: term.mul(
    term.scalar(0, "f64"),
    term.mul(term.convert(term.load(0, "f32"), "f64"), term.convert(term.load(0, "f32"), "f64")),
  ),
};
const largest: ChunkedReduceKernel = {
  ...{ name: "largest", dtype: "bf16", scalars: [], op: "max" },
  value: term.abs(term.load(0, "f32")),
};

const chunkLength = 4096;

interface Drawn {
  readonly length: number;
  /** Elements before the vector's first: 4 of them are 16 bytes. */
  readonly before: number;
}

/** Integers, whose sum of squares does not depend on the order. */
const elementOf = (vector: number, index: number): number => ((7 * vector + 3 * index) % 11) - 5;

/** The results of the chunks, and the number of launches. NaNs surround each vector. */
function reduce(runtime: Runtime, shapes: readonly Drawn[]): { results: Float64Array; launches: number } {
  return runtime.step(() => {
    const vectors = shapes.map(({ length, before }, vector) => {
      const values = new Float32Array(before + length + 5).fill(Number.NaN);
      for (let index = 0; index < length; index++) values[before + index] = elementOf(vector, index);
      return { storage: runtime.view(put(runtime, values, "vector"), 4 * before, 4 * length), length };
    });
    const parts = shapes.reduce((sum, { length }) => sum + chunkCount(length), 0);
    const results = runtime.arena.allocate(8 * parts, "results");
    const work = backendOf(runtime).lowerChunkedReduce({
      ...{ kernel: squares, vectors, results, scalars: [0.5] },
      view: (storage, offset, size) => runtime.view(storage, offset, size),
    });
    submit(runtime, work);
    return { results: new Float64Array(runtime.read(results).buffer), launches: work.length };
  });
}

function expected(shapes: readonly Drawn[]): Float64Array {
  return Float64Array.from(
    shapes.flatMap(({ length }, vector) =>
      Array.from({ length: chunkCount(length) }, (_, part) => {
        let sum = 0;
        const end = Math.min(length, (part + 1) * chunkLength);
        for (let index = part * chunkLength; index < end; index++) sum += elementOf(vector, index) ** 2 / 2;
        return sum;
      }),
    ),
  );
}

for (const { device, skip, open } of kernelDevices) {
  describe(`on ${device}`, { skip }, () => {
    const runtime = open();

    test("the chunks of all vectors are reduced, in order, at any address", () => {
      const length = fc.oneof(
        { arbitrary: fc.integer({ min: 1, max: 40 }), weight: 4 },
        { arbitrary: fc.constantFrom(4095, 4096, 4097, 8192, 8199, 12_289), weight: 1 },
      );
      const vector = fc.record({ length, before: fc.nat(4) });
      fc.assert(
        fc.property(fc.array(vector, { minLength: 1, maxLength: 24, size: "max" }), (shapes) => {
          sameBytes(reduce(runtime, shapes).results, expected(shapes), `${shapes.length} vectors`);
        }),
        { numRuns: 15 },
      );
    });

    test("16-bit floats are reduced, and the maximum is NaN if an element is NaN", () => {
      runtime.step(() => {
        const values = Float32Array.from({ length: 5000 }, (_, index) => Math.sin(index) * 100);
        const narrow = narrowToBf16(values);
        const reduceBf16 = (): Float32Array => {
          const results = runtime.arena.allocate(8, "results");
          submit(
            runtime,
            backendOf(runtime).lowerChunkedReduce({
              ...{
                kernel: largest,
                vectors: [{ storage: put(runtime, narrow, "v"), length: 5000 }],
                results,
              },
              view: (storage, offset, size) => runtime.view(storage, offset, size),
            }),
          );
          return new Float32Array(runtime.read(results).buffer);
        };
        const wide = Array.from(widenBf16(narrow), Math.abs);
        const most = [Math.max(...wide.slice(0, 4096)), Math.max(...wide.slice(4096))];
        assert.deepEqual([...reduceBf16()], most);
        narrow[4999] = 0x7fc0;
        assert.deepEqual([...reduceBf16()], [most[0], Number.NaN]);
      });
    });
  });
}

describe("on CUDA", { skip: cudaMissing }, () => {
  const runtime = cudaMissing ? undefined! : openCudaKernelRuntime();

  for (const [count, launches] of [
    [1, 1],
    [17, 1],
    [128, 1],
    [129, 2],
  ] as const) {
    test(`${count} vectors are ${launches === 1 ? "one launch" : `${launches} launches`}`, () => {
      const shapes = Array.from({ length: count }, (_, index) => ({ length: 1 + (index % 5), before: 0 }));
      const actual = reduce(runtime, shapes);
      sameBytes(actual.results, expected(shapes), `${count} vectors`);
      assert.equal(actual.launches, launches);
    });
  }
});
