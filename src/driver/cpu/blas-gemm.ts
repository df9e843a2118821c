/** The CBLAS interface to matrix multiplication: the function type and its constants. */

/**
 * `C = alpha · op(A) · op(B) + beta · C`: the argument order of `cblas_sgemm` and `cblas_dgemm`. Matrices are native
 * addresses.
 */
export type BlasGemm = (
  order: typeof blasRowMajor,
  transposeA: number,
  transposeB: number,
  m: number,
  n: number,
  k: number,
  alpha: number,
  a: number,
  aRowStride: number,
  b: number,
  bRowStride: number,
  beta: number,
  c: number,
  cRowStride: number,
) => void;

/** CBLAS constants for the layout and for the transposition of operands. */
export const blasRowMajor = 101;
export const blasNoTranspose = 111;
export const blasTransposed = 112;
