/**
 * OpenBLAS's GEMM, called from Node.js on its own arrays: the limit of the machine. OpenBLAS has no training
 * step.
 */

import { loadKoffi } from "../../src/driver/foreign-functions.js";
import { blasNoTranspose, blasRowMajor, openBlas } from "../../src/driver/index.js";
import { report } from "./report.js";
import { gemmSize, threads, values } from "./workload.js";

const blas = openBlas(process.argv[2] ?? "libopenblas.so.0", threads);
const koffi = loadKoffi();
const core = koffi.load(blas.library).func("const char *openblas_get_corename()")() as string;

function prepareGemm(): () => void {
  const { m, n, k } = gemmSize;
  const matrices = { a: values(1, [m, k]), b: values(2, [k, n]), c: new Float32Array(m * n) };
  const address = (matrix: Float32Array) => Number(koffi.address(matrix));
  return () => {
    const [a, b, c] = [address(matrices.a), address(matrices.b), address(matrices.c)];
    blas.gemms.f32(blasRowMajor, blasNoTranspose, blasNoTranspose, m, n, k, 1, a, k, b, n, 0, c, n);
  };
}

await report({ peer: "OpenBLAS", version: `kernels for ${core}`, prepareGemm });
