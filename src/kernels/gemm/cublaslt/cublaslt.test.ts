/** cuBLASLt's algorithms for a GEMM: their number, the scratch memory of each, and their results. */

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

/** A storage without memory: queries about a GEMM need none. */
function gemmDesc(at = { a: 0, b: 4096, c: 8192 }): GemmDesc {
  const matrixOf = (address: number, rows: number, rowStride: number) => ({
    storage: { span: span(address, 4 * rows * rowStride) },
    rowStride,
  });
  return { dtype: "f32", m, n, k, a: matrixOf(at.a, m, k), b: matrixOf(at.b, k, n), c: matrixOf(at.c, m, n) };
}

for (const { device, skip, open } of kernelDevices) {
  test(`on ${device} a GEMM is correct with every algorithm and the scratch memory that it needs`, {
    skip,
  }, () => {
    const runtime = open();
    const candidates = gemmCandidates(runtime, gemmDesc());
    if (device === "the CPU") assert.deepEqual(candidates, [0]);
    else assert.ok(candidates.length > 1);
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
      for (const algorithm of candidates) {
        const c = runtime.arena.allocate(4 * m * n, "c");
        const size = gemmScratchBytes(runtime, { ...gemmDesc(), algorithm });
        const scratch = size > 0 && { scratch: runtime.arena.allocate(size, "scratch") };
        submit(
          runtime,
          gemmCalls({
            ...{ dtype: "f32", m, n, k, algorithm, ...scratch },
            ...{ a: { storage: a, rowStride: k }, b: { storage: b, rowStride: n } },
            c: { storage: c, rowStride: n },
          }),
        );
        assert.deepEqual(new Float32Array(runtime.read(c).buffer), expected, `algorithm ${algorithm}`);
      }
    });
  });
}

describe("the key of a GEMM", { skip: cudaMissing }, () => {
  const runtime = cudaMissing ? undefined! : openCudaKernelRuntime();
  const key = (problem: GemmDesc): string => cublasLtKey(runtime, problem);

  test("is the same at other addresses and with other algorithms, and differs with less alignment", () => {
    assert.equal(key(gemmDesc({ a: 256, b: 512, c: 0 })), key({ ...gemmDesc(), algorithm: 2 }));
    assert.notEqual(key(gemmDesc({ a: 16, b: 4096, c: 8192 })), key(gemmDesc()));
  });

  test("does not depend on the batch stride of a single matrix, nor on that of a missing bias", () => {
    const strided = (problem: GemmDesc, batchStride: number): GemmDesc => ({
      ...problem,
      ...{ a: { ...problem.a, batchStride }, biasBatchStride: batchStride },
    });
    assert.equal(key(strided(gemmDesc(), 64)), key({ ...gemmDesc(), batch: 1 }));
    const batch: GemmDesc = { ...gemmDesc(), batch: 2 };
    assert.notEqual(key(strided(batch, 64)), key(strided(batch, 128)));
    assert.equal(key({ ...batch, biasBatchStride: 64 }), key(batch));
  });

  test("changes with the work of cuBLASLt, not with an activation that a separate kernel applies", () => {
    assert.equal(key({ ...gemmDesc(), activation: "relu" }), key(gemmDesc()));
    const half: GemmDesc = { ...gemmDesc(), dtype: "bf16" };
    assert.notEqual(key({ ...half, activation: "relu" }), key(half));
    assert.notEqual(key({ ...gemmDesc(), beta: 1 }), key(gemmDesc()));
  });
});
