/**
 * `npm run bench:gemm`: GEMMs of a training step in GFLOP/s, with 1 and 2 threads, compared with OpenBLAS if
 * Debian's package libopenblas0-pthread is installed. Repetitions of both alternate and the best of each
 * counts, because other load on the machine only ever adds time. OPENBLAS_CORETYPE=Nehalem limits OpenBLAS to
 * vectors of 128 bits, which is all that WebAssembly has; OPENBLAS_CORETYPE=Haswell to 256.
 */

import "./source-modules.js";
import { cpus } from "node:os";
import { openCpuDriver, openRuntime, type Runtime } from "holdfast/internals";
import koffi from "koffi";
import { hasRelaxedSimd } from "../src/driver/index.js";
import { type GemmProblem, gemmCalls, gemmScratchBytes, submit } from "../src/kernels/index.js";
import { answerHelp } from "../test/support/command-line.js";
import { bestTimes } from "./best-times.js";

answerHelp(import.meta.url);

const repetitions = 12;

/** A GEMM: C[m, n] = op(A) · op(B), all matrices dense. */
interface Gemm {
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly isATransposed?: boolean;
  readonly isBTransposed?: boolean;
  readonly batch?: number;
}

const large: readonly Gemm[] = [
  { m: 3072, n: 256, k: 1024 },
  { m: 3072, n: 1024, k: 256 },
  { m: 3072, n: 768, k: 256 },
  { m: 3072, n: 768, k: 256, isBTransposed: true },
  { m: 256, n: 1024, k: 3072, isATransposed: true },
];

const small: readonly Gemm[] = [
  { m: 12, n: 12, k: 64, isBTransposed: true, batch: 1024 },
  { m: 12, n: 64, k: 12, batch: 1024 },
  { m: 12, n: 64, k: 12, isATransposed: true, batch: 1024 },
  { m: 3072, n: 3, k: 256 },
];

type Contender = (gemm: Gemm) => () => void;

interface OpenBlas {
  readonly config: string;
  readonly setThreads: (threads: number) => void;
  readonly prepare: Contender;
}

function gemmOn(runtime: Runtime): Contender {
  return ({ m, n, k, isATransposed = false, isBTransposed = false, batch = 1 }) => {
    const sizes = { a: m * k, b: k * n, c: m * n };
    const allocate = (name: keyof typeof sizes) => {
      const size = sizes[name] * batch * 4;
      const storage = runtime.persistent.place("data set", name, [{ name, size }]).storages[0]!;
      if (name !== "c") runtime.upload([{ source: randomValues(size / 4), target: storage }]);
      return storage;
    };
    const problem: GemmProblem = {
      dtype: "f32",
      m,
      n,
      k,
      batch,
      a: {
        storage: allocate("a"),
        rowStride: isATransposed ? m : k,
        isTransposed: isATransposed,
        batchStride: sizes.a,
      },
      b: {
        storage: allocate("b"),
        rowStride: isBTransposed ? k : n,
        isTransposed: isBTransposed,
        batchStride: sizes.b,
      },
      c: { storage: allocate("c"), rowStride: n, batchStride: sizes.c },
    };
    // A storage has at least one byte; a GEMM without operands does not read it.
    const placement = { name: "scratch", size: Math.max(gemmScratchBytes(runtime, problem), 1) };
    const scratch = runtime.persistent.place("library workspace", "scratch", [placement]).storages[0]!;
    return () => {
      submit(runtime, gemmCalls({ ...problem, scratch }));
      runtime.synchronize();
    };
  };
}

/** Undefined if the library is not installed. */
function loadOpenBlas(): OpenBlas | undefined {
  let library: ReturnType<typeof koffi.load>;
  try {
    koffi.config({ sync_stack_size: 16 << 20 });
    library = koffi.load("libopenblas.so.0");
  } catch {
    return undefined;
  }
  const sgemm = library.func(
    "void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc)",
  );
  const [rowMajor, plain, transposed] = [101, 111, 112];
  return {
    config: library.func("const char *openblas_get_config()")() as string,
    setThreads: library.func("void openblas_set_num_threads(int)") as (threads: number) => void,
    prepare: ({ m, n, k, isATransposed, isBTransposed, batch = 1 }) => {
      const items = Array.from({ length: batch }, () => ({
        a: randomValues(m * k),
        b: randomValues(k * n),
        c: new Float32Array(m * n),
      }));
      const [ta, lda] = isATransposed ? [transposed, m] : [plain, k];
      const [tb, ldb] = isBTransposed ? [transposed, k] : [plain, n];
      return () => {
        for (const { a, b, c } of items) sgemm(rowMajor, ta, tb, m, n, k, 1, a, lda, b, ldb, 0, c, n);
      };
    },
  };
}

function randomValues(count: number): Float32Array {
  return Float32Array.from({ length: count }, () => Math.random() - 0.5);
}

function nameOf({ m, n, k, isATransposed, isBTransposed, batch }: Gemm): string {
  const layout = `${isATransposed ? "T" : "N"}${isBTransposed ? "T" : "N"}`;
  return `${m}×${n}×${k} ${layout}${batch === undefined ? "" : ` × ${batch}`}`;
}

function printTable(gemms: readonly Gemm[], threads: number, openBlas: OpenBlas | undefined): void {
  const driver = openCpuDriver({ threads });
  const runtime = openRuntime({ driver, stallAfter: "off", environment: {}, print: () => {} });
  openBlas?.setThreads(threads);
  for (const gemm of gemms) {
    const { m, n, k, batch = 1 } = gemm;
    const contenders = [gemmOn(runtime), ...(openBlas ? [openBlas.prepare] : [])];
    const times = bestTimes(
      contenders.map((prepare) => prepare(gemm)),
      repetitions,
    );
    const [ours = 0, theirs] = times.map((elapsedMs) => (2 * m * n * k * batch) / elapsedMs / 1e6);
    const comparison = theirs
      ? `${theirs.toFixed(1).padStart(9)} ${((100 * ours) / theirs).toFixed(0).padStart(6)} %`
      : "";
    console.log(
      `  ${nameOf(gemm).padEnd(24)} ${String(threads).padStart(7)} ${ours.toFixed(1).padStart(9)} ${comparison}`,
    );
  }
  runtime.close();
  driver.close();
}

const openBlas = loadOpenBlas();
console.log(
  `${new Date().toISOString()}, node ${process.version}, ${process.platform} ${process.arch}, ${cpus().length} × ${cpus()[0]?.model}`,
);
console.log(
  `relaxed SIMD: ${hasRelaxedSimd() ? "yes" : "no"}; OpenBLAS: ${openBlas?.config ?? "not installed"}`,
);
console.log("\n  M×N×K, layout            threads  GFLOP/s  OpenBLAS  share");
for (const threads of [1, 2]) printTable(large, threads, openBlas);
for (const threads of [1, 2]) printTable(small, threads, openBlas);
