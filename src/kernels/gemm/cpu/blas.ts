/** GEMMs by a BLAS library: a native kernel that calls it on device memory in place. */

import {
  type Blas,
  blasNoTranspose,
  blasRowMajor,
  blasTransposed,
  type KernelSource,
  type Parameter,
} from "../../../driver/index.js";
import type { AccessToC, MatrixLayout } from "../desc.js";
import type { GemmDtype } from "./element.js";

/** The parameters, in order. Row strides are in elements, as BLAS expects. */
export function blasParameters(dtype: GemmDtype, access: AccessToC) {
  return {
    c: access,
    a: "in",
    b: "in",
    m: "i32",
    n: "i32",
    k: "i32",
    transposeA: "i32",
    transposeB: "i32",
    aRowStride: "i32",
    bRowStride: "i32",
    cRowStride: "i32",
    aBatchBytes: "u32",
    bBatchBytes: "u32",
    cBatchBytes: "u32",
    alpha: dtype,
    beta: dtype,
    threads: "i32",
  } as const satisfies Readonly<Record<string, Parameter>>;
}

export function blasTranspose({ isTransposed }: MatrixLayout): number {
  return isTransposed ? blasTransposed : blasNoTranspose;
}

/** Kernel sources by library. Sources are compared by identity here, because a native function has no content to compare. */
const sources = new WeakMap<Blas, Map<string, KernelSource>>();

export function blasKernel(blas: Blas, dtype: GemmDtype, access: AccessToC): KernelSource {
  const ofLibrary = sources.get(blas) ?? new Map<string, KernelSource>();
  sources.set(blas, ofLibrary);
  const key = `${dtype} ${access}`;
  const cached = ofLibrary.get(key);
  if (cached) return cached;
  const source = createKernel(blas, dtype, access);
  ofLibrary.set(key, source);
  return source;
}

function createKernel(blas: Blas, dtype: GemmDtype, access: AccessToC): KernelSource {
  const gemm = blas.gemms[dtype];
  const run = (
    firstBlock: number,
    endBlock: number,
    c: number,
    a: number,
    b: number,
    m: number,
    n: number,
    k: number,
    transposeA: number,
    transposeB: number,
    aRowStride: number,
    bRowStride: number,
    cRowStride: number,
    aBatchBytes: number,
    bBatchBytes: number,
    cBatchBytes: number,
    alpha: number,
    beta: number,
    threads: number,
  ): void => {
    // The library's thread count is process-wide, and another runtime may have changed it.
    blas.useThreads(threads);
    for (let matrix = firstBlock; matrix < endBlock; matrix++) {
      const matrixA = a + matrix * aBatchBytes;
      const matrixB = b + matrix * bBatchBytes;
      const matrixC = c + matrix * cBatchBytes;
      gemm(
        blasRowMajor,
        transposeA,
        transposeB,
        m,
        n,
        k,
        alpha,
        matrixA,
        aRowStride,
        matrixB,
        bRowStride,
        beta,
        matrixC,
        cRowStride,
      );
    }
  };
  const parameters = Object.values(blasParameters(dtype, access));
  return {
    name: `gemm blas ${dtype} ${access}`,
    parameters,
    native: run,
  };
}
