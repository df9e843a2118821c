/**
 * A BLAS library of the machine, which native kernels may call on device memory in place. The setting HOLDFAST_BLAS names
 * it; what it lacks is told when it is opened and not at the first product.
 */

import type { LibraryHandle } from "koffi";
import { HoldfastError } from "../../errors/index.js";
import { loadKoffi } from "../foreign-functions.js";

/**
 * `C = alpha · op(A) · op(B) + beta · C`, row by row: `cblas_sgemm` or `cblas_dgemm` with its arguments in its own order.
 * Matrices are native addresses.
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

/** CBLAS's numbers for the order of a matrix and for the two operands of a product. */
export const blasRowMajor = 101;
export const blasPlain = 111;
export const blasTransposed = 112;

export interface Blas {
  readonly library: string;
  readonly products: Readonly<Record<"f32" | "f64", BlasGemm>>;
  /** Takes effect for the whole process; does nothing where the library has no such call. */
  useThreads(threads: number): void;
}

const gemmOf = {
  f32: { symbol: "cblas_sgemm", real: "float" },
  f64: { symbol: "cblas_dgemm", real: "double" },
} as const;

/** Opens a library by its path or its soname. */
export function openBlas(name: string): Blas {
  let library: LibraryHandle;
  try {
    library = withSleepyThreads(() => loadKoffi().load(name));
  } catch (cause) {
    if (cause instanceof HoldfastError) throw cause;
    throw unusable(name, `does not load: ${(cause as Error).message}`, cause);
  }
  const config = find(library, "const char *openblas_get_config()");
  if (config && String(config()).includes("USE64BITINT")) {
    throw unusable(name, "counts in 64-bit integers, and products are asked with 32-bit ones");
  }
  const product = (dtype: "f32" | "f64"): BlasGemm => {
    const { symbol, real } = gemmOf[dtype];
    // Addresses as numbers: koffi passes those twice as fast as its pointers.
    const found = find(
      library,
      `void ${symbol}(int order, int ta, int tb, int m, int n, int k, ${real} alpha, uint64_t a, int lda, uint64_t b, int ldb, ${real} beta, uint64_t c, int ldc)`,
    );
    if (!found) throw unusable(name, `has no function ${symbol}`);
    return found;
  };
  const setThreads = find(library, "void openblas_set_num_threads(int threads)");
  return {
    library: name,
    products: { f32: product("f32"), f64: product("f64") },
    useThreads: (threads) => void setThreads?.(threads),
  };
}

/**
 * OpenBLAS's idle threads spin before they sleep, and take the cores from the kernels between two products: a training
 * step was 1.4 times as long. It reads this when it loads: 2⁴ turns instead of 2²⁶. Who has set it keeps it.
 */
function withSleepyThreads<T>(load: () => T): T {
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
  const message = `HOLDFAST_BLAS is "${library}", which ${why}. Give the path or the soname of a library with the C interface to BLAS (Debian's package libopenblas0 brings libopenblas.so.0), or turn the setting off: products then run on Holdfast's own kernels.`;
  return new HoldfastError("UNSUPPORTED", message, { numbers: { library }, cause });
}
