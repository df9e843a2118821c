/** GEMMs by a BLAS library: correct in every layout, in the order of the stream, with the driver's number of threads. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { compileBlas } from "../../../../test/support/blas-library.js";
import { effort } from "../../../../test/support/effort.js";
import {
  checkGemm,
  type GemmCase,
  gemmCases,
  plainCase,
  runGemm,
  shapeOf,
} from "../../../../test/support/gemms.js";
import { withCpuRuntime } from "../../../../test/support/runtimes.js";
import { sameBytes } from "../../../../test/support/same-bytes.js";
import { openCpuDriver } from "../../../driver/index.js";
import { openRuntime, type Runtime } from "../../../runtime/index.js";
import { submit } from "../../submit.js";
import type { GemmProblem } from "../desc.js";
import { gemmCalls } from "../gemm.js";
import { elementOf } from "./element.js";
import { cpuScratchBytes } from "./lower.js";
import { blocking } from "./multiply.js";
import { planGemm } from "./plan.js";

const library = compileBlas();
const skip = library === undefined && "this machine has no C compiler";
const blas = library?.path ?? "";
const countGemms = () => library?.gemmCount() ?? 0;

for (const dtype of ["f32", "f64"] as const) {
  test(`a library's GEMM of ${dtype} is correct for every shape, layout, alpha and beta, and writes nothing but C`, {
    skip,
  }, () => {
    withCpuRuntime({ blas }, ({ runtime }) => {
      const before = countGemms();
      let large = 0;
      const cases = gemmCases(dtype, blocking(elementOf(dtype)));
      const isLarge = (gemm: GemmCase) => planGemm(shapeOf(gemm)).algorithm === "packed";
      const check = (gemm: GemmCase): void => {
        if (isLarge(gemm)) large += gemm.batch;
        checkGemm(runtime, gemm);
      };
      fc.assert(fc.property(cases, check), { numRuns: effort({ quick: 6, thorough: 60 }) });
      for (const gemm of fc.sample(cases.filter(isLarge), 2)) check(gemm);
      assert.ok(large > 0);
      assert.equal(countGemms() - before, large);
    });
  });
}

test("with a library no GEMM needs scratch memory", { skip }, () => {
  const large = shapeOf({ ...plainCase, m: 3072, n: 256, k: 1024 });
  withCpuRuntime({ blas }, ({ runtime }) => assert.equal(cpuScratchBytes(runtime, large), 0));
  withCpuRuntime({}, ({ runtime }) => assert.ok(cpuScratchBytes(runtime, large) > 0));
});

test("a library uses as many threads as the driver", { skip }, () => {
  for (const threads of [3, 1]) {
    const driver = openCpuDriver({ threads });
    const quiet = { stallAfter: "off", environment: {}, print: () => {} } as const;
    const runtime = openRuntime({ driver, blas, ...quiet });
    runGemm(runtime, { ...plainCase, m: 70, n: 70, k: 70 });
    assert.equal(library?.threads(), threads);
    runtime.close();
    driver.close();
  }
});

describe("a library's work", { skip }, () => {
  const size = 70;

  /** C = A · B and D = C · B, where A is 0.5 and B is 2 throughout: C is 70 and D is 9800. */
  function placeChain(runtime: Runtime) {
    const entries = ["a", "b", "c", "d"].map((name) => ({ name, size: size * size * 4 }));
    const [a, b, c, d] = runtime.persistent.place("weights", "weights", entries).storages;
    runtime.upload([
      { source: new Float32Array(size * size).fill(0.5), target: a! },
      { source: new Float32Array(size * size).fill(2), target: b! },
    ]);
    const shape = { dtype: "f32", m: size, n: size, k: size } as const;
    const operand = (storage: typeof a) => ({ storage: storage!, rowStride: size });
    const first: GemmProblem = { ...shape, a: operand(a), b: operand(b), c: operand(c) };
    const second: GemmProblem = { ...shape, a: operand(c), b: operand(b), c: operand(d) };
    const multiply = () => {
      submit(runtime, gemmCalls(first));
      submit(runtime, gemmCalls(second));
    };
    return { multiply, a: a!, b: b!, d: d! };
  }

  const expected = (value: number) => new Float32Array(size * size).fill(value);

  test("waits for its stream and keeps the order of the stream", () => {
    withCpuRuntime({ blas }, ({ runtime }) => {
      const { multiply, a, b, d } = placeChain(runtime);
      const before = countGemms();
      multiply();
      runtime.fill(a, 0);
      runtime.fill(b, 0);
      assert.equal(countGemms(), before);
      sameBytes(runtime.read(d), expected(9800), "the products before the fills");
      multiply();
      sameBytes(runtime.read(d), expected(0), "the products behind the fills");
      assert.equal(countGemms(), before + 4);
    });
  });

  test("can be captured, and every replay runs it", () => {
    withCpuRuntime({ blas, capture: "on" }, ({ runtime }) => {
      const { multiply, a, d } = placeChain(runtime);
      const graph = runtime.capture("products", multiply);
      assert.equal(graph.mode, "graph");
      const before = countGemms();
      runtime.upload([{ source: expected(1), target: a }]);
      graph.replay();
      sameBytes(runtime.read(d), expected(19_600), "the replay");
      assert.equal(countGemms(), before + 2);
    });
  });
});
