/** DMMA GEMMs: correct for every layout, tile and group, without writes outside of C, and with the same bits in every config. */

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
import { backendOf } from "../../backend.js";
import { submit } from "../../submit.js";
import type { GemmDesc, GemmProblem } from "../desc.js";
import { canGroupGemms, gemmCalls } from "../gemm.js";
import { type DmmaConfig, dmmaTiles, selectDmmaConfig } from "./configs.js";
import { dmmaSource } from "./kernel.js";
import { lowerDmmaGemms } from "./launch.js";
import type { DmmaShape } from "./mainloop.js";
import type { Widening } from "./widening.js";

/** A GPU with few SMs, so that small GEMMs fill it. */
const small = { kind: "cuda", computeCapability: "9.0", parallelism: 1 } as const;

const matrix = (mayTurn: boolean): fc.Arbitrary<RandomMatrix> =>
  fc.record({
    isTransposed: mayTurn ? fc.boolean() : fc.constant(false),
    batchLayout: fc.constantFrom("separate", "interleaved"),
    gap: fc.constantFrom(0, 0, 2, 4),
    offset: fc.constantFrom(0, 0, 2, 4),
  });

const size = fc.oneof(fc.integer({ min: 1, max: 70 }), fc.constantFrom(48, 64, 65, 96, 128));

const drawGemm: fc.Arbitrary<RandomGemm> = fc.record({
  ...{ dtype: fc.constant("f32" as const), resultDtype: fc.constant("f32" as const) },
  ...{ m: size, n: size, k: fc.integer({ min: 32, max: 70 }), batch: fc.constantFrom(1, 1, 2) },
  ...{ a: matrix(true), b: matrix(true), c: matrix(false) },
  ...{ alpha: fc.constantFrom(1, -0.5), beta: fc.constantFrom(0, 0, 1) },
  bias: fc.constantFrom("none", "none", "one", "batched"),
  activation: fc.constant("none" as const),
});

describe("a DMMA GEMM", { skip: cudaMissing }, () => {
  const runtime = cudaMissing ? undefined! : openCudaKernelRuntime();

  /** A GEMM in step memory, and the expected C. */
  function prepare(randomGemm: RandomGemm) {
    const layouts = layOutGemm(randomGemm);
    const values = valuesFor(randomGemm);
    const { m, n, k, batch, alpha, beta } = randomGemm;
    const whole = put(runtime, Float32Array.from(values.c), "c");
    const matrixOf = (name: "a" | "b" | "c") => {
      const { offset, extent, rowStride, batchStride } = layouts[name];
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

  test("is correct for every shape, layout, batch, bias and scale, with every tile, and writes nothing but C", () => {
    // Every config is a kernel to compile. So each tile is tried with one layout, or with all a few times, and the rest is random.
    const layouts = [
      [false, false],
      [false, true],
      [true, false],
      [true, true],
    ];
    for (const [index, tile] of dmmaTiles.entries()) {
      const tested = layouts.filter((_, which) => isThorough || which === index % 4);
      for (const [isATransposed, isBTransposed] of tested) {
        const numRuns = effort({ quick: 1, thorough: 4 });
        let observed = 0;
        fc.assert(
          fc.property(drawGemm, (randomGemm) =>
            runtime.step(() => {
              const a = { ...randomGemm.a, isTransposed: isATransposed! };
              const b = { ...randomGemm.b, isTransposed: isBTransposed! };
              const { problem, prove } = prepare({ ...randomGemm, a, b });
              const form = selectDmmaConfig(small, "f32", [problem]);
              fc.pre(form !== undefined);
              observed++;
              submit(runtime, [lowerDmmaGemms([problem], { ...form, tile }, "product")]);
              prove();
            }),
          ),
          { numRuns },
        );
        assert.equal(observed, numRuns);
      }
    }
  });

  test("red proof: the check detects a wrong layout, stride and bias", () => {
    const randomGemm: RandomGemm = {
      ...{ dtype: "f32", resultDtype: "f32", m: 40, n: 40, k: 40, batch: 1, alpha: 1, beta: 0 },
      ...{ bias: "one", activation: "none" },
      a: { isTransposed: false, batchLayout: "separate", gap: 4, offset: 0 },
      b: { isTransposed: false, batchLayout: "separate", gap: 4, offset: 0 },
      c: { isTransposed: false, batchLayout: "separate", gap: 4, offset: 0 },
    };
    const faults: Record<string, (problem: GemmProblem, form: DmmaConfig) => [GemmProblem, DmmaConfig]> = {
      "A's layout": (problem, form) => [problem, { ...form, a: { ...form.a, isKMajor: false } }],
      "B's layout": (problem, form) => [problem, { ...form, b: { ...form.b, isKMajor: true } }],
      "C's stride": (problem, form) => [{ ...problem, c: { ...problem.c, rowStride: 40 } }, form],
      K: (problem, config) => [{ ...problem, k: 39 }, config],
      "the bias": ({ bias: _, ...problem }, form) => [problem, { ...form, hasBias: false }],
    };
    for (const [what, inject] of Object.entries(faults)) {
      runtime.step(() => {
        const { problem, prove } = prepare(randomGemm);
        const form = selectDmmaConfig(small, "f32", [problem])!;
        submit(runtime, [
          lowerDmmaGemms([...[inject(problem, form)[0]]], inject(problem, form)[1], "product"),
        ]);
        assert.throws(prove, /element \d+ of C's memory/, what);
      });
    }
  });

  test("has the same bits with every tile and in every group, rounded once", () => {
    const [m, n, k] = [70, 52, 120];
    const draw = (length: number, seed: number) =>
      Float32Array.from({ length }, (_, index) => Math.sin(index * seed + seed) * 2 ** ((index % 9) - 4));
    runtime.step(() => {
      const [left, right] = [draw(m * k, 1.7), draw(k * n, 0.9)];
      const [a, b] = [put(runtime, left, "a"), put(runtime, right, "b")];
      const make = (): GemmProblem => ({
        ...{ dtype: "f32", m, n, k, a: { storage: a, rowStride: k }, b: { storage: b, rowStride: n } },
        c: { storage: runtime.arena.allocate(4 * m * n, "c"), rowStride: n },
      });
      const read = ({ c }: GemmProblem) => [...new Float32Array(runtime.read(c.storage).slice().buffer)];
      const exact = Array.from({ length: m * n }, (_, index) => {
        let sum = 0;
        for (let term = 0; term < k; term++)
          sum += left[Math.floor(index / n) * k + term]! * right[term * n + (index % n)]!;
        return Math.fround(sum);
      });
      const separate = dmmaTiles.map((tile) => {
        const problem = make();
        const form = selectDmmaConfig(small, "f32", [problem])!;
        submit(runtime, [lowerDmmaGemms([problem], { ...form, tile }, "product")]);
        return read(problem);
      });
      for (const bits of separate) assert.deepEqual(bits, exact);
      const group = [make(), make(), make()];
      submit(runtime, [lowerDmmaGemms(group, selectDmmaConfig(small, "f32", group)!, "products")]);
      for (const problem of group) assert.deepEqual(read(problem), exact);
    });
  });

  /** C of 40 × 40 values of K = 40, by one tile. `alter` changes the code of the kernel. */
  function multiply(
    left: Float32Array,
    right: Float32Array,
    tile: DmmaShape,
    alter = (code: string) => code,
  ): Float32Array {
    const side = 40;
    const [a, b] = [put(runtime, left, "a"), put(runtime, right, "b")];
    const c = runtime.arena.allocate(4 * side ** 2, "c");
    const problem: GemmProblem = {
      ...{ dtype: "f32", m: side, n: side, k: side },
      ...{ a: { storage: a, rowStride: side }, b: { storage: b, rowStride: side } },
      c: { storage: c, rowStride: side },
    };
    const config = selectDmmaConfig(small, "f32", [problem])!;
    const { source, ...launch } = lowerDmmaGemms([problem], { ...config, tile }, "product");
    const cuda = { ...source.cuda!, code: alter(source.cuda!.code) };
    submit(runtime, [{ ...launch, source: { ...source, cuda } }]);
    return new Float32Array(runtime.read(c).slice().buffer);
  }

  const tileBy = (widening: Widening): DmmaShape =>
    dmmaTiles.find(({ widening: found = "convert" }) => found === widening)!;

  const proveNonFinite = (tile: DmmaShape, alter?: (code: string) => string) =>
    runtime.step(() => {
      const left = new Float32Array(40 * 40).fill(1);
      left[3 * 40 + 5] = Number.NaN;
      left[7 * 40] = Number.POSITIVE_INFINITY;
      const actual = multiply(left, new Float32Array(40 * 40).fill(0.5), tile, alter);
      for (const [index, value] of actual.entries()) {
        const row = Math.floor(index / 40);
        assert.ok(Object.is(value, row === 3 ? Number.NaN : row === 7 ? Infinity : 20), `row ${row}`);
      }
    });

  test("keeps NaN and infinities in their own elements", () => {
    for (const widening of ["convert", "bits"] as const) proveNonFinite(tileBy(widening));
  });

  /** Rows of A and columns of B have floats of one magnitude each, so that every product of two magnitudes fills elements of C. */
  const proveExtremes = (tile: DmmaShape, alter?: (code: string) => string) =>
    runtime.step(() => {
      // Larger ones are converted: their products are no finite floats.
      const large = (2 - 2 ** -23) * 2 ** 59;
      const magnitudes = [
        [0, -0, 2 ** -149, -3 * 2 ** -149, 7 * 2 ** -145, -(2 ** -140), 2 ** -136],
        [2 ** -126 - 2 ** -149, 2 ** -126, -1.25 * 2 ** -126, 2 ** -127, 1.5 * 2 ** -126, 0, -0],
        [1.1, -0.7, 0, 3.3, 1.9, -0.3, -0],
        [large, -large, 0, large / 3, 2 ** 58, -large / 7, -0],
      ];
      const floatAt = (line: number, k: number) => magnitudes[line % 4]![(3 * line + 5 * k) % 7]!;
      const left = Float32Array.from({ length: 1600 }, (_, index) =>
        floatAt(Math.floor(index / 40), index % 40),
      );
      const right = Float32Array.from({ length: 1600 }, (_, index) =>
        floatAt(index % 40, Math.floor(index / 40) + 1),
      );
      const expected = Float32Array.from({ length: 1600 }, (_, index) => {
        let sum = 0;
        for (let k = 0; k < 40; k++)
          sum += left[Math.floor(index / 40) * 40 + k]! * right[k * 40 + (index % 40)]!;
        return sum;
      });
      assert.ok(expected.some((value) => value !== 0 && Math.abs(value) < 2 ** -126));
      assert.deepEqual([...multiply(left, right, tile, alter)], [...expected]);
    });

  test("widens zeros, subnormals and large floats exactly", () => {
    for (const widening of ["convert", "bits"] as const) proveExtremes(tileBy(widening));
  });

  test("red proof: the checks detect a widening by bits without its scale or its search for NaN", () => {
    const replacing = (from: string, to: string) => (code: string) => {
      assert.ok(code.includes(from));
      return code.replaceAll(from, to);
    };
    assert.throws(() => proveExtremes(tileBy("bits"), replacing("0x1p1023", "0x1p511")));
    assert.throws(() => proveNonFinite(tileBy("bits"), replacing("isNonFinite = 1", "isNonFinite = 0")));
  });

  test("gemm launches it if it fills enough of the device; it needs no scratch memory", () => {
    const side = 16 * runtime.device.parallelism;
    runtime.step(() => {
      const [a, b] = [1, 2].map((value) => put(runtime, new Float32Array(64 * side).fill(value), "operand"));
      const make = (): GemmProblem => ({
        ...{ dtype: "f32", m: 64, n: side, k: 64 },
        a: { storage: a!, rowStride: 64 },
        b: { storage: b!, rowStride: side },
        c: { storage: runtime.arena.allocate(4 * 64 * side, "c"), rowStride: side },
      });
      const problems = [make(), make()];
      const canImplement = runtime.device.computeCapability === "9.0";
      assert.equal(canGroupGemms(runtime, problems), canImplement);
      if (canImplement) {
        submit(runtime, gemmCalls(problems[0]!));
        submit(runtime, backendOf(runtime).lowerGroupedGemm(problems.slice(1), "gemm"));
        for (const { c } of problems)
          assert.equal(new Float32Array(runtime.read(c.storage).slice().buffer)[5], 128);
      } else
        assert.throws(() => submit(runtime, backendOf(runtime).lowerGroupedGemm(problems, "gemm")), {
          code: "BAD_ARGUMENT",
        });
    });
  });
});

describe("the config of DMMA GEMMs", () => {
  const matrixOf = (rowStride: number) => ({ storage: { span: span(256, 2 ** 30) }, rowStride });
  const gemmDesc = (shape: { m: number; n: number; k: number; batch?: number }, more = {}): GemmDesc => {
    return {
      dtype: "f32",
      ...shape,
      a: matrixOf(shape.k),
      b: matrixOf(shape.n),
      c: matrixOf(shape.n),
      ...more,
    };
  };
  const hopper = { ...small, parallelism: 132 };
  const tileOf = (...problems: GemmDesc[]) => {
    const tile = selectDmmaConfig(hopper, "f32", problems)?.tile;
    return tile && `${tile.tileM}×${tile.tileN}`;
  };

  test("exists only for f32 on Hopper", () => {
    const gemm = gemmDesc({ m: 3072, n: 1024, k: 256 });
    assert.ok(selectDmmaConfig(hopper, "f32", [gemm]));
    assert.equal(selectDmmaConfig(hopper, "tf32", [gemm]), undefined);
    assert.equal(selectDmmaConfig({ ...hopper, computeCapability: "8.0" }, "f32", [gemm]), undefined);
    assert.equal(selectDmmaConfig({ parallelism: hopper.parallelism }, "f32", [gemm]), undefined);
    for (const dtype of ["f64", "f16", "bf16"] as const)
      assert.equal(selectDmmaConfig(hopper, "f32", [{ ...gemm, dtype }]), undefined);
    assert.equal(selectDmmaConfig(hopper, "f32", [gemmDesc({ m: 3072, n: 1024, k: 31 })]), undefined);
    assert.equal(selectDmmaConfig(hopper, "f32", []), undefined);
  });

  test("has the tile with the shortest time of the busiest SM", () => {
    assert.equal(tileOf(gemmDesc({ m: 3072, n: 1024, k: 256 })), "64×64");
    assert.equal(tileOf(gemmDesc({ m: 3072, n: 768, k: 256 })), "48×64");
    assert.equal(tileOf(gemmDesc({ m: 3072, n: 256, k: 1024 })), "48×64");
    assert.equal(tileOf(gemmDesc({ m: 1024, n: 256, k: 3072 })), "32×64");
    assert.equal(tileOf(gemmDesc({ m: 64, n: 64, k: 3072 })), undefined, "too few blocks");
  });

  test("copies as many floats at once as strides and addresses allow, at least two", () => {
    const at = (address: number, rowStride: number) => ({
      storage: { span: span(address, 2 ** 30) },
      rowStride,
    });
    const shape = { m: 3072, n: 1024, k: 256 };
    const chunkOf = (a: GemmDesc["a"]) =>
      selectDmmaConfig(hopper, "f32", [gemmDesc(shape, { a })])?.a.copyFloats;
    assert.deepEqual([at(256, 256), at(264, 256), at(256, 258), at(260, 256), at(256, 257)].map(chunkOf), [
      ...[4, 2, 2],
      ...[undefined, undefined],
    ]);
  });

  test("is shared by GEMMs with the same K and layouts, all with or all without a bias", () => {
    const gemm = gemmDesc({ m: 1024, n: 256, k: 3072 });
    assert.equal(tileOf(gemm, gemmDesc({ m: 256, n: 1024, k: 3072 })), "64×64");
    assert.equal(tileOf(gemm, gemmDesc({ m: 256, n: 1024, k: 3000 })), undefined);
    assert.equal(tileOf(gemm, { ...gemm, a: { ...gemm.a, isTransposed: true, rowStride: 1024 } }), undefined);
    assert.equal(tileOf(gemm, { ...gemm, bias: { span: span(256, 1024) } }), undefined);
    assert.equal(tileOf(gemm, { ...gemm, beta: 1 }), undefined);
  });
});

if (isThorough) {
  test("the code of DMMA GEMMs compiles under nvcc without a warning and needs no local memory", {
    skip: noCompiler(),
  }, () => {
    const operand = { copyFloats: 4 } as const;
    const layouts = [
      [true, true],
      [true, false],
      [false, false],
    ] as const;
    const sources = dmmaTiles.flatMap((tile) =>
      layouts.map(([isAKMajor, isBKMajor]) =>
        dmmaSource(
          {
            ...{ tile, storesVectors: true, hasBias: isAKMajor, readsC: false },
            ...{ a: { ...operand, isKMajor: isAKMajor }, b: { ...operand, isKMajor: isBKMajor } },
          },
          ["out", "partial-out"],
        ),
      ),
    );
    for (const [index, { stackBytes, spillBytes }] of compileWithNvcc(sources, "sm_90a").entries())
      assert.deepEqual({ stackBytes, spillBytes }, { stackBytes: 0, spillBytes: 0 }, `source ${index}`);
  });
}
