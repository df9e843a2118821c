/**
 * A BLAS library of the host, which native kernels call directly on device memory. The setting HOLDFAST_BLAS names it, or asks for a
 * search. A library is used only if it has the functions and its products are right: a fault is reported when it is opened, not at the
 * first GEMM.
 */

import type { LibraryHandle } from "koffi";
import { HoldfastError } from "../../errors/index.js";
import { loadKoffi } from "../foreign-functions.js";
import type { BlasGemm } from "./blas-gemm.js";
import { describeBlas, type FindFunction, listInstalledBlas } from "./blas-implementations.js";
import { findWrongProduct } from "./check-gemm.js";

export interface Blas {
  /** The path or soname that it was loaded by. */
  readonly library: string;
  /** The implementation with its version; the library if that is unknown. */
  readonly name: string;
  readonly gemms: Readonly<Record<"f32" | "f64", BlasGemm>>;
  /** Sets the number of threads for the whole process. Does nothing if the library lacks the call. */
  useThreads(threads: number): void;
}

/** A library that loads, but that a search did not take. */
export interface RejectedBlas {
  readonly library: string;
  /** The rest of a sentence that begins with the library. */
  readonly why: string;
  readonly isWrong: boolean;
}

export interface BlasSearch {
  readonly blas: Blas | undefined;
  readonly rejected: readonly RejectedBlas[];
}

const gemmSymbols = {
  f32: { symbol: "cblas_sgemm", real: "float" },
  f64: { symbol: "cblas_dgemm", real: "double" },
} as const;

/** Opens a library by path or soname. `threads` is the number that it will be used with. */
export function openBlas(name: string, threads: number): Blas {
  const opened = tryOpen(name, threads);
  if ("blas" in opened) return opened.blas;
  const message = `HOLDFAST_BLAS is "${name}", which ${opened.why}. Set it to the path or the soname of a library with the CBLAS interface (Debian's package libopenblas0 contains libopenblas.so.0), to auto, or to off: GEMMs then run on Holdfast's WebAssembly kernels.`;
  throw new HoldfastError("UNSUPPORTED", message, { numbers: { library: name }, cause: opened.cause });
}

/**
 * Searches for an installed library and opens the first one that works. A library of an unknown implementation is not taken: the
 * reference BLAS is slower than Holdfast's kernels.
 */
export function findBlas(threads: number, candidates: readonly string[] = listInstalledBlas()): BlasSearch {
  const rejected: RejectedBlas[] = [];
  for (const library of candidates) {
    const opened = tryOpen(library, threads);
    if ("blas" in opened && opened.isKnown) return { blas: opened.blas, rejected };
    if ("blas" in opened)
      rejected.push({ library, why: "is no implementation that Holdfast knows to be fast", isWrong: false });
    else if (opened.fault !== "missing")
      rejected.push({ library, why: opened.why, isWrong: opened.fault === "wrong" });
  }
  return { blas: undefined, rejected };
}

type Opened =
  | { readonly blas: Blas; readonly isKnown: boolean }
  | { readonly fault: "missing" | "unusable" | "wrong"; readonly why: string; readonly cause?: unknown };

function tryOpen(name: string, threads: number): Opened {
  return withSleepingThreads(threads, () => {
    let library: LibraryHandle;
    const koffi = loadKoffi();
    try {
      library = koffi.load(name);
    } catch (cause) {
      return { fault: "missing", why: `does not load: ${(cause as Error).message}`, cause };
    }
    const find: FindFunction = (prototype) => findFunction(library, prototype);
    const description = describeBlas(name, find);
    if (description?.hasWideIntegers)
      return { fault: "unusable", why: "uses 64-bit integers, but Holdfast passes 32-bit ones" };
    const [f32, f64] = [findGemm(find, "f32"), findGemm(find, "f64")];
    if (!f32 || !f64)
      return { fault: "unusable", why: `has no function ${gemmSymbols[f32 ? "f64" : "f32"].symbol}` };
    const blas: Blas = {
      library: name,
      name: description?.name ?? name,
      gemms: { f32, f64 },
      useThreads: (count) => description?.setThreads?.(count),
    };
    blas.useThreads(threads);
    const wrong = findWrongProduct(blas.gemms);
    if (wrong) return { fault: "wrong", why: `gives wrong results: ${wrong} is wrong` };
    return { blas, isKnown: description !== undefined };
  });
}

function findGemm(find: FindFunction, dtype: "f32" | "f64"): BlasGemm | undefined {
  const { symbol, real } = gemmSymbols[dtype];
  // koffi passes addresses as numbers twice as fast as pointers.
  return find(
    `void ${symbol}(int order, int ta, int tb, int m, int n, int k, ${real} alpha, uint64_t a, int lda, uint64_t b, int ldb, ${real} beta, uint64_t c, int ldc)`,
  );
}

/**
 * Sets variables that libraries read when they load and at their first product. Idle threads of OpenBLAS and OpenMP spin before they
 * sleep, and take cores from the kernels between two GEMMs: a training step took 1.4 times as long. OpenBLAS then spins 2⁴ times
 * instead of 2²⁶. It also starts no more threads than a container allows. A value that the user has set stays.
 */
function withSleepingThreads<T>(threads: number, body: () => T): T {
  const values = {
    OPENBLAS_THREAD_TIMEOUT: "4",
    OPENBLAS_NUM_THREADS: String(threads),
    OMP_WAIT_POLICY: "PASSIVE",
  };
  const unset = Object.entries(values).filter(([name]) => process.env[name] === undefined);
  for (const [name, value] of unset) process.env[name] = value;
  try {
    return body();
  } finally {
    for (const [name] of unset) delete process.env[name];
  }
}

function findFunction(library: LibraryHandle, prototype: string): ReturnType<FindFunction> {
  try {
    return library.func(prototype) as (...args: unknown[]) => unknown;
  } catch {
    return undefined;
  }
}
