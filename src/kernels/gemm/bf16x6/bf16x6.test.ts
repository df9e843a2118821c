/** f32 GEMMs as six bf16 products: correct for every layout, as accurate as float32, and IEEE results for infinities and NaN. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { effort, isThorough } from "../../../../test/support/effort.js";
import { cudaMissing, openCudaKernelRuntime, put } from "../../../../test/support/kernel-runtime.js";
import { compileWithNvcc, noCompiler } from "../../../../test/support/nvcc.js";
import {
  biasStepOf,
  checkValues,
  expectedOf,
  layOutGemm,
  type RandomGemm,
  type RandomMatrix,
  valuesFor,
} from "../../../../test/support/random-gemms.js";
import { span } from "../../../units/index.js";
import { submit } from "../../submit.js";
import type { GemmDesc, GemmProblem } from "../desc.js";
import { type Bf16x6Config, selectBf16x6 } from "./configs.js";
import { bf16x6Source } from "./kernel.js";
import { bf16x6ConfigOf, lowerBf16x6Gemms } from "./launch.js";

const hopper = { kind: "cuda", computeCapability: "9.0", parallelism: 132 } as const;

const matrix = (isTransposed: boolean, gaps: readonly number[]): fc.Arbitrary<RandomMatrix> =>
  fc.record({
    isTransposed: fc.constant(isTransposed),
    batchLayout: fc.constantFrom("separate", "interleaved"),
    gap: fc.constantFrom(...gaps),
    offset: fc.constantFrom(0, 4),
  });

/** Rows begin at multiples of four floats, as TMA needs it. */
const aligned = fc.integer({ min: 1, max: 50 }).map((size) => 4 * size);

const drawGemm = (isATransposed: boolean, isBTransposed: boolean): fc.Arbitrary<RandomGemm> =>
  fc.record({
    ...{ dtype: fc.constant("f32" as const), resultDtype: fc.constant("f32" as const) },
    ...{ m: isATransposed ? aligned : fc.integer({ min: 1, max: 200 }), k: aligned },
    ...{ n: isBTransposed ? fc.integer({ min: 1, max: 200 }) : aligned, batch: fc.constantFrom(1, 1, 2) },
    ...{ a: matrix(isATransposed, [0, 4]), b: matrix(isBTransposed, [0, 4]), c: matrix(false, [0, 0, 1, 2]) },
    ...{ alpha: fc.constantFrom(1, -0.5), beta: fc.constantFrom(0, 0, 1) },
    bias: fc.constantFrom("none", "none", "one", "batched"),
    activation: fc.constant("none" as const),
  }) as fc.Arbitrary<RandomGemm>;

const layouts = [
  [false, false],
  [false, true],
  [true, false],
  [true, true],
] as const;

describe("a bf16x6 GEMM", { skip: cudaMissing }, () => {
  const runtime = cudaMissing ? undefined! : openCudaKernelRuntime();

  /** A GEMM in step memory, and the expected C. */
  function prepare(randomGemm: RandomGemm) {
    const laidOut = layOutGemm(randomGemm);
    const values = valuesFor(randomGemm);
    const { m, n, k, batch, alpha, beta } = randomGemm;
    const whole = put(runtime, Float32Array.from(values.c), "c");
    const matrixOf = (name: "a" | "b" | "c") => {
      const { offset, extent, rowStride, batchStride } = laidOut[name];
      const storage = name === "c" ? whole : put(runtime, Float32Array.from(values[name]), name);
      const { isTransposed } = randomGemm[name];
      return { storage: runtime.view(storage, 4 * offset, 4 * extent), rowStride, batchStride, isTransposed };
    };
    const bias =
      randomGemm.bias === "none" ? undefined : put(runtime, Float32Array.from(values.bias), "bias");
    const problem: GemmProblem = {
      ...{ dtype: "f32", m, n, k, batch, alpha, beta },
      ...{ a: matrixOf("a"), b: matrixOf("b"), c: matrixOf("c") },
      ...(bias && { bias, biasBatchStride: biasStepOf(randomGemm) }),
    };
    const prove = (): void =>
      checkValues(
        randomGemm,
        Float64Array.from(new Float32Array(runtime.read(whole).slice().buffer)),
        expectedOf(randomGemm, values),
      );
    return { problem, prove };
  }

  test("is correct for every shape, layout, batch, bias and scale, and writes nothing but C", () => {
    for (const [index, [isATransposed, isBTransposed]] of layouts.entries()) {
      for (const splitsK of [1, 2, 4, 8] as const) {
        if (!isThorough && splitsK !== [1, 2, 4, 1][index] && splitsK !== [8, 1, 1, 2][index]) continue;
        fc.assert(
          fc.property(drawGemm(isATransposed, isBTransposed), (randomGemm) =>
            runtime.step(() => {
              const { problem, prove } = prepare(randomGemm);
              const { config } = selectBf16x6(hopper, "f32", problem)!;
              submit(runtime, [lowerBf16x6Gemms([problem], { ...config, splitsK }, "product")]);
              prove();
            }),
          ),
          { numRuns: effort({ quick: 2, thorough: 8 }) },
        );
      }
    }
  });

  /** C[m, n] by a kernel whose code `alter` changes. */
  function multiply(
    [m, n, k]: readonly [number, number, number],
    left: Float32Array,
    right: Float32Array,
    { alter = (code: string) => code, more = {} as Partial<Bf16x6Config> } = {},
  ): Float32Array {
    const [a, b] = [put(runtime, left, "a"), put(runtime, right, "b")];
    const c = runtime.arena.allocate(4 * m * n, "c");
    const problem: GemmProblem = {
      ...{ dtype: "f32", m, n, k, a: { storage: a, rowStride: k }, b: { storage: b, rowStride: n } },
      c: { storage: c, rowStride: n },
    };
    const { config } = selectBf16x6(hopper, "f32", problem)!;
    const { source, ...launch } = lowerBf16x6Gemms([problem], { ...config, splitsK: 1, ...more }, "product");
    const cuda = { ...source.cuda!, code: alter(source.cuda!.code) };
    submit(runtime, [{ ...launch, source: { ...source, cuda } }]);
    return new Float32Array(runtime.read(c).slice().buffer);
  }

  const replacing = (from: string, to: string) => (code: string) => {
    assert.ok(code.includes(from), from);
    return code.replaceAll(from, to);
  };

  /** The largest error in units of 2⁻²⁴ · Σ |a · b|, of the kernel and of a sum in float32 in the order of k. */
  function errorsOf(alter?: (code: string) => string): { readonly ours: number; readonly f32: number } {
    const [m, n, k] = [40, 48, 520];
    const draw = (length: number, seed: number) =>
      Float32Array.from({ length }, (_, index) => Math.sin(index * seed + seed) * 2 ** ((index % 7) - 3));
    const [left, right] = [draw(m * k, 1.7), draw(k * n, 0.9)];
    const actual = multiply([m, n, k], left, right, { ...(alter && { alter }) });
    let [ours, f32] = [0, 0];
    for (const [index, value] of actual.entries()) {
      let [exact, size, inOrder] = [0, 0, 0];
      for (let term = 0; term < k; term++) {
        const product = left[Math.floor(index / n) * k + term]! * right[term * n + (index % n)]!;
        exact += product;
        size += Math.abs(product);
        inOrder = Math.fround(inOrder + product);
      }
      const unit = size * 2 ** -24;
      ours = Math.max(ours, Math.abs(value - exact) / unit);
      f32 = Math.max(f32, Math.abs(inOrder - exact) / unit);
    }
    return { ours, f32 };
  }

  test("is as accurate as a sum in float32", () => {
    runtime.step(() => {
      const { ours, f32 } = errorsOf();
      assert.ok(ours <= f32, `${ours} of ${f32}`);
    });
  });

  test("red proof: the check detects a missing term", () => {
    runtime.step(() => {
      const { ours, f32 } = errorsOf(
        replacing(
          "fragments[2][kStep], termTile(stageTerms + 0",
          "fragments[2][kStep], termTile(stageTerms + 2",
        ),
      );
      assert.ok(ours > f32, `${ours} of ${f32}`);
    });
  });

  test("has the same bits alone and in a group", () => {
    const [m, n, k] = [150, 132, 260];
    runtime.step(() => {
      const draw = (length: number, seed: number) =>
        put(
          runtime,
          Float32Array.from({ length }, (_, index) => Math.sin(index * seed + seed)),
          "operand",
        );
      const make = (seed: number): GemmProblem => ({
        ...{ dtype: "f32", m, n, k, a: { storage: draw(m * k, seed), rowStride: k } },
        ...{ b: { storage: draw(k * n, seed / 2), rowStride: n } },
        c: { storage: runtime.arena.allocate(4 * m * n, "c"), rowStride: n },
      });
      const problems = [1.7, 0.9, 2.3].map(make);
      const { config } = selectBf16x6(hopper, "f32", problems[0]!)!;
      const read = () =>
        problems.map(({ c }) => [...new Float32Array(runtime.read(c.storage).slice().buffer)]);
      for (const problem of problems)
        submit(runtime, [lowerBf16x6Gemms([problem], { ...config, splitsK: 2 }, "product")]);
      const alone = read();
      submit(runtime, [
        lowerBf16x6Gemms(problems.slice(0, 2).reverse(), { ...config, splitsK: 2 }, "products"),
      ]);
      assert.deepEqual(read(), alone);
      const [first, second] = alone;
      assert.notDeepEqual(first, second);
    });
  });

  const proveNonFinite = (alter?: (code: string) => string) =>
    runtime.step(() => {
      const [m, n, k] = [40, 40, 40];
      const left = new Float32Array(m * k).fill(1);
      left[3 * k + 5] = Number.NaN;
      left[7 * k] = Number.POSITIVE_INFINITY;
      left[9 * k + 39] = -3.4e38;
      const actual = multiply([m, n, k], left, new Float32Array(k * n).fill(0.5), {
        ...(alter && { alter }),
      });
      for (const [index, value] of actual.entries()) {
        const row = Math.floor(index / n);
        const expected =
          row === 3 ? Number.NaN : row === 7 ? Infinity : row === 9 ? Math.fround(-1.7e38) : 20;
        assert.ok(Object.is(value, expected), `row ${row}: ${value}`);
      }
    });

  test("keeps NaN and infinities in their own elements, and the largest floats finite", () =>
    proveNonFinite());

  test("red proof: the check detects sums that are not computed again", () => {
    assert.throws(() => proveNonFinite(replacing("notFinite != 0; notFinite", "false; notFinite")));
  });

  test("red proof: the check of layouts detects a wrong one, and a wrong stride", () => {
    const side = { batchLayout: "separate", gap: 4, offset: 0, isTransposed: false } as const;
    const randomGemm: RandomGemm = {
      ...{ dtype: "f32", resultDtype: "f32", m: 40, n: 40, k: 40, batch: 1, alpha: 1, beta: 0 },
      ...{ bias: "one", activation: "none", a: side, b: side, c: side },
    };
    const faults: Record<
      string,
      (problem: GemmProblem, config: Bf16x6Config) => [GemmProblem, Bf16x6Config]
    > = {
      "A's layout": (problem, config) => [problem, { ...config, isKMajor: { a: false, b: false } }],
      "B's layout": (problem, config) => [problem, { ...config, isKMajor: { a: true, b: true } }],
      "C's stride": (problem, config) => [{ ...problem, c: { ...problem.c, rowStride: 40 } }, config],
      K: (problem, config) => [{ ...problem, k: 39 }, config],
      "the bias": ({ bias: _, ...problem }, config) => [problem, { ...config, hasBias: false }],
    };
    for (const [what, inject] of Object.entries(faults)) {
      runtime.step(() => {
        const { problem, prove } = prepare(randomGemm);
        const { config } = selectBf16x6(hopper, "f32", problem)!;
        const [injected, faulty] = inject(problem, { ...config, splitsK: 1 });
        submit(runtime, [lowerBf16x6Gemms([injected], faulty, "product")]);
        assert.throws(prove, /element \d+ of C's memory/, what);
      });
    }
  });

  const proveSubnormals = () =>
    runtime.step(() => {
      const [m, n, k] = [8, 8, 8];
      const left = Float32Array.from({ length: 64 }, (_, index) =>
        index % 9 === 0 ? 2 ** -149 * (1 + index) : 0,
      );
      const right = Float32Array.from({ length: 64 }, (_, index) => (index % 9 === 0 ? 1 : 0));
      assert.deepEqual(
        [...multiply([m, n, k], left, right)].map((value) => value / 2 ** -149),
        [...Float32Array.from(left, (value) => Math.round(value / 2 ** -133) * 2 ** 16)],
      );
    });

  test("rounds subnormal floats to multiples of 2⁻¹³³", () => proveSubnormals());
});

describe("the config of bf16x6 GEMMs", () => {
  const matrixOf = (rowStride: number, address = 256) => ({
    storage: { span: span(address, 2 ** 30) },
    rowStride,
  });
  const gemmDesc = ({ m, n, k }: { m: number; n: number; k: number }, more = {}): GemmDesc => ({
    ...{ dtype: "f32", m, n, k, a: matrixOf(k), b: matrixOf(n), c: matrixOf(n), ...more },
  });
  const target = (device: object = hopper, precision = "f32") =>
    ({ device, settings: { precision } }) as Parameters<typeof bf16x6ConfigOf>[0];
  const large = { m: 4096, n: 4096, k: 4096 };

  test("exists for f32 on Hopper, with aligned operands", () => {
    assert.ok(bf16x6ConfigOf(target(), gemmDesc(large)));
    assert.equal(
      bf16x6ConfigOf(target({ ...hopper, computeCapability: "10.0" }), gemmDesc(large)),
      undefined,
    );
    assert.equal(bf16x6ConfigOf(target(hopper, "tf32"), gemmDesc(large)), undefined);
    for (const dtype of ["f64", "f16", "bf16"] as const)
      assert.equal(bf16x6ConfigOf(target(), gemmDesc(large, { dtype })), undefined);
    for (const a of [matrixOf(4098), matrixOf(4096, 264)])
      assert.equal(bf16x6ConfigOf(target(), gemmDesc(large, { a })), undefined);
  });

  test("splits K if C has few tiles", () => {
    const splitsOf = (shape: { m: number; n: number; k: number }) =>
      selectBf16x6(hopper, "f32", gemmDesc(shape))?.config.splitsK;
    assert.equal(splitsOf(large), 1);
    assert.equal(splitsOf({ m: 384, n: 384, k: 16384 }), 8);
    assert.equal(splitsOf({ m: 1024, n: 1024, k: 16384 }), 2);
    assert.equal(splitsOf({ m: 512, n: 512, k: 64 }), 1);
  });

  test("is not selected where small tiles of DMMA fill the GPU better", () => {
    assert.equal(bf16x6ConfigOf(target(), gemmDesc({ m: 256, n: 256, k: 64 })), undefined);
  });
});

test("the code of bf16x6 GEMMs compiles under nvcc without a warning and without spills", {
  skip: noCompiler(),
}, () => {
  const sources = layouts.flatMap(([isAMn, isBMn], index) =>
    ([1, 2, 4, 8] as const)
      .filter((splitsK) => isThorough || splitsK === (index === 0 ? 1 : index === 2 ? 8 : 0))
      .map((splitsK) =>
        bf16x6Source(
          {
            isKMajor: { a: !isAMn, b: !isBMn },
            ...{ hasBias: index % 2 === 0, readsC: index === 1, storesVectors: index !== 3, splitsK },
          },
          ["out"],
        ),
      ),
  );
  for (const [index, { stackBytes, spillBytes }] of compileWithNvcc(sources, "sm_90a").entries())
    assert.deepEqual({ stackBytes, spillBytes }, { stackBytes: 0, spillBytes: 0 }, `source ${index}`);
});
