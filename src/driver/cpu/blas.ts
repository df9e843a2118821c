/**
 * A BLAS library of the host, which native kernels call directly on device memory. The setting HOLDFAST_BLAS names it.
 * A missing function is reported when the library is opened, not at the first GEMM.
 */

import type { LibraryHandle } from "koffi";
import { HoldfastError } from "../../errors/index.js";
import { loadKoffi } from "../foreign-functions.js";

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

export interface Blas {
  readonly library: string;
  readonly gemms: Readonly<Record<"f32" | "f64", BlasGemm>>;
  /** Sets the number of threads for the whole process. Does nothing if the library lacks the call. */
  useThreads(threads: number): void;
}

const gemmSymbols = {
  f32: { symbol: "cblas_sgemm", real: "float" },
  f64: { symbol: "cblas_dgemm", real: "double" },
} as const;

/** Opens a library by path or soname. */
export function openBlas(name: string): Blas {
  let library: LibraryHandle;
  try {
    library = withShortSpin(() => loadKoffi().load(name));
  } catch (cause) {
    if (cause instanceof HoldfastError) throw cause;
    throw unusable(name, `does not load: ${(cause as Error).message}`, cause);
  }
  const config = find(library, "const char *openblas_get_config()");
  if (config && String(config()).includes("USE64BITINT")) {
    throw unusable(name, "uses 64-bit integers, but Holdfast passes 32-bit ones");
  }
  const loadGemm = (dtype: "f32" | "f64"): BlasGemm => {
    const { symbol, real } = gemmSymbols[dtype];
    // koffi passes addresses as numbers twice as fast as pointers.
    const gemm = find(
      library,
      `void ${symbol}(int order, int ta, int tb, int m, int n, int k, ${real} alpha, uint64_t a, int lda, uint64_t b, int ldb, ${real} beta, uint64_t c, int ldc)`,
    );
    if (!gemm) throw unusable(name, `has no function ${symbol}`);
    return gemm;
  };
  const setThreads = find(library, "void openblas_set_num_threads(int threads)");
  return {
    library: name,
    gemms: { f32: loadGemm("f32"), f64: loadGemm("f64") },
    useThreads: (threads) => void setThreads?.(threads),
  };
}

/**
 * OpenBLAS's idle threads spin before they sleep and take cores from the kernels between two GEMMs: a training step
 * took 1.4 times as long. OpenBLAS reads this variable when it loads: 2⁴ spins instead of 2²⁶. A value that the user
 * has set stays.
 */
function withShortSpin<T>(load: () => T): T {
  const name = "OPENBLAS_THREAD_TIMEOUT";
  if (process.env[name] !== undefined) return load();
  process.env[name] = "4";
  try {
    return load();
  } finally {
    delete process.env[name];
  }
}

function find(library: LibraryHandle, prototype: string): ((...args: unknown[]) => unknown) | undefined {
  try {
    return library.func(prototype) as (...args: unknown[]) => unknown;
  } catch {
    return undefined;
  }
}

function unusable(library: string, why: string, cause?: unknown): HoldfastError {
  const message = `HOLDFAST_BLAS is "${library}", which ${why}. Set it to the path or the soname of a library with the CBLAS interface (Debian's package libopenblas0 contains libopenblas.so.0), or to off: GEMMs then run on Holdfast's WebAssembly kernels.`;
  return new HoldfastError("UNSUPPORTED", message, { numbers: { library }, cause });
}
