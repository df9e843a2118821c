/** The algorithms of a library's products: how many there are, what scratch memory each wants, and that all are right. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  cudaMissing,
  kernelDevices,
  openCudaKernelRuntime,
  put,
} from "../../../../test/support/kernel-runtime.js";
import { span } from "../../../units/index.js";
import { submit } from "../../submit.js";
import type { GemmDesc } from "../desc.js";
import { gemmCalls, gemmCandidates, gemmScratchBytes } from "../gemm.js";
import { cublasLtKey } from "./cublaslt.js";

const [m, n, k] = [7, 9, 33];

/** Nobody's memory: what is asked about a product needs none. */
function outline(at = { a: 0, b: 4096, c: 8192 }): GemmDesc {
  const lying = (address: number, rows: number, rowStride: number) => ({
    storage: { span: span(address, 4 * rows * rowStride) },
    rowStride,
  });
  return { dtype: "f32", m, n, k, a: lying(at.a, m, k), b: lying(at.b, k, n), c: lying(at.c, m, n) };
}

for (const { device, skip, open } of kernelDevices) {
  test(`on ${device} a product is right with each of its choices, given the scratch memory that it wants`, {
    skip,
  }, () => {
    const runtime = open();
    const choices = gemmCandidates(runtime, outline());
    if (device === "the CPU") assert.deepEqual(choices, [0]);
    else assert.ok(choices.length > 1);
    runtime.step(() => {
      const values = (length: number) => Float32Array.from({ length }, (_, index) => (index % 7) - 3);
      const [left, right] = [values(m * k), values(k * n)];
      const [a, b] = [put(runtime, left, "a"), put(runtime, right, "b")];
      const expected = Float32Array.from({ length: m * n }, (_, index) => {
        const [row, column] = [Math.floor(index / n), index % n];
        let sum = 0;
        for (let term = 0; term < k; term++) sum += left[row * k + term]! * right[term * n + column]!;
        return sum;
      });
      for (const choice of choices) {
        const c = runtime.arena.allocate(4 * m * n, "c");
        const size = gemmScratchBytes(runtime, { ...outline(), algorithm: choice });
        const scratch = size > 0 && { scratch: runtime.arena.allocate(size, "scratch") };
        submit(
          runtime,
          gemmCalls({
            ...{ dtype: "f32", m, n, k, algorithm: choice, ...scratch },
            ...{ a: { storage: a, rowStride: k }, b: { storage: b, rowStride: n } },
            c: { storage: c, rowStride: n },
          }),
        );
        assert.deepEqual(new Float32Array(runtime.read(c).buffer), expected, `choice ${choice}`);
      }
    });
  });
}

describe("the key of a product", { skip: cudaMissing }, () => {
  const runtime = cudaMissing ? undefined! : openCudaKernelRuntime();
  const key = (problem: GemmDesc): string => cublasLtKey(runtime, problem);

  test("is that of its neighbours at other places, whichever choice they have, and not of one less aligned", () => {
    assert.equal(key(outline({ a: 256, b: 512, c: 0 })), key({ ...outline(), algorithm: 2 }));
    assert.notEqual(key(outline({ a: 16, b: 4096, c: 8192 })), key(outline()));
  });

  test("changes with what the library does of it: not with an activation that is ours", () => {
    assert.equal(key({ ...outline(), activation: "relu" }), key(outline()));
    const half: GemmDesc = { ...outline(), dtype: "bf16" };
    assert.notEqual(key({ ...half, activation: "relu" }), key(half));
    assert.notEqual(key({ ...outline(), beta: 1 }), key(outline()));
  });
});
