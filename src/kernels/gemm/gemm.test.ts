/** CPU GEMMs against float64 over random shapes, strides and transposes; untouched memory; and their bits. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { effort } from "../../../test/support/effort.js";
import {
  arrayOf,
  checkGemm,
  type GemmCase,
  gemmCases,
  layOutAll,
  plainCase,
  randomValues,
  runGemm,
  shapeOf,
} from "../../../test/support/gemms.js";
import { openCpuKernelRuntime } from "../../../test/support/kernel-runtime.js";
import { withCpuRuntime, withRuntime } from "../../../test/support/runtimes.js";
import { sameBytes } from "../../../test/support/same-bytes.js";
import type { Runtime } from "../../runtime/index.js";
import { submit } from "../submit.js";
import { directStrips } from "./cpu/direct.js";
import { elementOf } from "./cpu/element.js";
import { cpuScratchBytes } from "./cpu/lower.js";
import { blocking } from "./cpu/multiply.js";
import { planGemm } from "./cpu/plan.js";
import { tileColumns } from "./cpu/tile.js";
import type { GemmProblem } from "./desc.js";
import { gemmCalls, gemmScratchBytes } from "./gemm.js";

for (const dtype of ["f32", "f64"] as const) {
  test(`a GEMM of ${dtype} is correct for every shape, layout, alpha and beta, and writes nothing but C`, () => {
    const cases = gemmCases(dtype, blocking(elementOf(dtype)));
    withRuntime({}, ({ runtime }) => {
      fc.assert(
        fc.property(cases, (gemm) => checkGemm(runtime, gemm)),
        { numRuns: effort({ quick: 6, thorough: 120 }) },
      );
      for (const algorithm of ["columns", "dots", "packed"]) {
        const [gemm] = fc.sample(
          cases.filter((drawn) => planGemm(shapeOf(drawn)).algorithm === algorithm),
          1,
        );
        checkGemm(runtime, gemm!);
      }
    });
  });
}

test("sizes that fill tiles, strips and slices exactly are correct, and sizes that differ by one", () => {
  const element = elementOf("f32");
  const strip = blocking(element);
  withRuntime({}, ({ runtime }) => {
    for (const by of [-1, 0, 1]) {
      const tile = { m: 20 * element.tile.rows + by, n: 8 * tileColumns(element) + by, k: strip.depth + by };
      assert.equal(planGemm(shapeOf({ ...plainCase, ...tile })).algorithm, "packed");
      for (const isTransposed of [false, true]) {
        const layout = { isATransposed: isTransposed, isBTransposed: isTransposed };
        checkGemm(runtime, { ...plainCase, ...tile, ...layout });
      }
    }
  });
});

test("a GEMM of few rows has several strips of columns, of which the last one may be narrow", () => {
  withRuntime({}, ({ runtime }) => {
    for (const dtype of ["f32", "f64"] as const) {
      for (const [m, k] of [
        [5, 600],
        [33, 20],
      ] as const) {
        const n = 2 * directStrips({ m, n: 1, k }).stripColumns + 3;
        assert.equal(directStrips({ m, n, k }).columnStrips, 3);
        for (const isBTransposed of [false, true]) {
          const gemm = { ...plainCase, dtype, m, n, k, batch: 2, isBTransposed, beta: -2 };
          assert.equal(planGemm(shapeOf(gemm)).algorithm, isBTransposed ? "dots" : "columns");
          checkGemm(runtime, gemm);
        }
      }
    }
  });
});

test("with k = 0, C is multiplied by beta, and set to zero if beta is 0", () => {
  // A GPU's library takes no such product; the ops never ask for one.
  withCpuRuntime({}, ({ runtime }) => {
    for (const dtype of ["f32", "f64"] as const) {
      for (const beta of [0, -2]) {
        const { values, layouts, after } = runEmpty(runtime, { ...plainCase, dtype, m: 5, n: 7, beta });
        const { offset, extent } = layouts.c;
        for (let index = offset; index < offset + extent; index++) {
          assert.equal(after[index], beta === 0 ? 0 : beta * values.c[index]!);
        }
      }
    }
  });
});

/** A GEMM with k = 0 has empty operands, but a storage has at least one element: these are not read. */
function runEmpty(runtime: Runtime, gemm: GemmCase) {
  const layouts = layOutAll(gemm);
  const c = randomValues(gemm.dtype, layouts.c.size, 3);
  if (gemm.beta === 0) c.fill(Number.NaN);
  return runtime.step(() => {
    const storage = runtime.arena.allocate(c.byteLength, "c");
    const operand = { storage: runtime.arena.allocate(8, "operand"), rowStride: 7 };
    runtime.upload([{ source: c, target: storage }]);
    const { dtype, m, n, beta } = gemm;
    submit(
      runtime,
      gemmCalls({ dtype, m, n, k: 0, a: operand, b: operand, c: { storage, rowStride: n }, beta }),
    );
    return { values: { c }, layouts, after: new arrayOf[dtype](runtime.read(storage).buffer) };
  });
}

describe("the bits of a GEMM", () => {
  const large = [
    { ...plainCase, dtype: "f64" as const, m: 131, n: 131, k: 300 },
    {
      ...plainCase,
      ...effort({ quick: { m: 131, n: 120 }, thorough: { m: 301, n: 270 } }),
      k: 600,
      alpha: 0.5,
    },
    { ...plainCase, m: 67, n: 259, k: 1030, isATransposed: true, isBTransposed: true },
    { ...plainCase, m: 9, n: 2000, k: 40 },
    { ...plainCase, m: 12, n: 12, k: 64, batch: effort({ quick: 60, thorough: 500 }), isBTransposed: true },
  ];

  const alone = openCpuKernelRuntime(1);
  const together = [2, 4].map((threads) => ({ threads, runtime: openCpuKernelRuntime(threads) }));

  for (const [index, gemm] of large.entries()) {
    const { dtype, m, n, k, batch } = gemm;
    test(`are the same with 1, 2 and 4 threads: ${batch} × ${m}×${n}×${k} in ${dtype}`, () => {
      const expected = runGemm(alone, gemm).after;
      // Workers boot when they boot: the later runs surely have their help.
      const runs = index === 0 ? effort({ quick: 8, thorough: 12 }) : effort({ quick: 2, thorough: 3 });
      for (const { threads, runtime } of together) {
        for (let run = 0; run < runs; run++)
          sameBytes(runGemm(runtime, gemm).after, expected, `${threads} threads`);
      }
    });
  }
});

test("a GEMM can be captured and replayed", () => {
  withRuntime({ capture: "on" }, ({ runtime }) => {
    const [m, n, k] = [70, 70, 70];
    const entries = Object.entries({ a: m * k * 4, b: k * n * 4, c: m * n * 4 });
    const placements = entries.map(([name, size]) => ({ name, size }));
    const [a, b, c] = runtime.persistent.place("weights", "weights", placements).storages;
    runtime.upload([
      { source: new Float32Array(m * k).fill(0.5), target: a! },
      { source: new Float32Array(k * n).fill(2), target: b! },
    ]);
    const product: GemmProblem = {
      ...{ dtype: "f32", m, n, k },
      a: { storage: a!, rowStride: k },
      b: { storage: b!, rowStride: n },
      c: { storage: c!, rowStride: n },
    };
    const size = Math.max(1, gemmScratchBytes(runtime, product));
    const [scratch] = runtime.persistent.place("library workspace", "scratch", [
      { name: "scratch", size },
    ]).storages;
    const graph = runtime.capture("product", () =>
      submit(runtime, gemmCalls({ ...product, scratch: scratch! })),
    );
    assert.equal(graph.mode, "graph");
    graph.replay();
    sameBytes(runtime.read(c!), new Float32Array(m * n).fill(k), "the replay");
  });
});

test("an empty GEMM launches nothing", () => {
  withRuntime({}, ({ runtime }) =>
    runtime.step(() => {
      const operand = { storage: runtime.arena.allocate(36, "operand"), rowStride: 3 };
      for (const shape of [
        { m: 0, n: 3, k: 3 },
        { m: 3, n: 0, k: 3 },
        { m: 3, n: 3, k: 3, batch: 0 },
      ]) {
        submit(runtime, gemmCalls({ dtype: "f32", a: operand, b: operand, c: operand, ...shape }));
      }
    }),
  );
});

test("inconsistent sizes, strides and storages are rejected with their numbers, before a launch", () => {
  // Scratch memory depends on the device; this test knows the CPU's.
  withCpuRuntime({}, ({ runtime }) =>
    runtime.step(() => {
      const operand = { storage: runtime.arena.allocate(64 * 64 * 4, "operand"), rowStride: 64 };
      const sound: GemmProblem = {
        dtype: "f32",
        m: 64,
        n: 64,
        k: 64,
        a: operand,
        b: operand,
        c: { ...operand, storage: runtime.arena.allocate(64 * 64 * 4, "result") },
      };
      const rejections: readonly [Partial<GemmProblem>, RegExp][] = [
        [{ m: 1.5 }, /m is 1\.5; pass a whole number/],
        [{ m: 65 }, /A takes 16640 bytes .* and "operand" has 16384/],
        [
          { k: 32, a: { ...operand, rowStride: 31 } },
          /A is 64×32, and its row stride of 31 makes its rows overlap/,
        ],
        [
          { m: 8, batch: 2, c: operand },
          /C's batch stride of 0 makes its 2 matrices of 512 elements overlap/,
        ],
        [{}, /needs \d+ bytes of scratch memory, and none was passed/],
        [{ scratch: operand.storage }, /scratch memory, and "operand" has 16384/],
      ];
      for (const [change, message] of rejections) {
        assert.throws(() => submit(runtime, gemmCalls({ ...sound, ...change })), {
          code: "BAD_ARGUMENT",
          message,
        });
      }
    }),
  );
});

test("a small GEMM needs no scratch memory, and a large one at least B's panels and little more than all panels", () => {
  const embedded = { blas: undefined };
  const small = shapeOf({ ...plainCase, m: 12, n: 12, k: 64, batch: 1000, isBTransposed: true });
  assert.equal(cpuScratchBytes(embedded, small), 0);
  const large = shapeOf({ ...plainCase, m: 3072, n: 256, k: 1024 });
  const [a, b] = [3072 * 1024 * 4, 256 * 1024 * 4];
  const needed = cpuScratchBytes(embedded, large);
  assert.ok(needed >= b && needed < 1.05 * (a + b));
});
