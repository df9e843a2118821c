/** Native Hopper GEMMs: correct for every layout and edge, in groups and with epilogues, without writes outside of C. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { effort, isThorough } from "../../../../test/support/effort.js";
import { encodeFloats } from "../../../../test/support/encoded-values.js";
import { cudaMissing, openCudaKernelRuntime, put } from "../../../../test/support/kernel-runtime.js";
import { compileWithNvcc, type KernelCost, noCompiler } from "../../../../test/support/nvcc.js";
import {
  biasStepOf,
  checkValues,
  expectedOf,
  layOutGemm,
  type RandomGemm,
  type RandomMatrix,
  smallValues,
  valuesFor,
} from "../../../../test/support/random-gemms.js";
import type { RowKernel } from "../../../ir/index.js";
import { term, widenBf16 } from "../../../ir/index.js";
import { span } from "../../../units/index.js";
import { backendOf, lowerCalls } from "../../backend.js";
import type { MmaElement } from "../../codegen/cuda/intrinsics/wgmma.js";
import { submit } from "../../submit.js";
import { hasNativeGemm } from "../cuda.js";
import { firstNativeAlgorithm, type GemmDesc, type GemmInputDtype, type GemmProblem } from "../desc.js";
import { canFuseEpilogue, canGroupGemms, gemmCalls, gemmCandidates, gemmScratchBytes } from "../gemm.js";
import { type Epilogue, isMmaSyncMainloop, isRsMainloop, type Sm90Config } from "./configs.js";
import { colsumRows } from "./epilogue-store.js";
import { selectGroupedConfig } from "./grouped-configs.js";
import { sm90Source } from "./kernel.js";
import { lowerSm90Gemms } from "./launch.js";
import {
  listCandidates,
  listEpilogueConfigs,
  prefersFusedEpilogue,
  prefersTransposed,
  selectBatchedConfig,
} from "./select-config.js";
import { countCtas, fittedTile, type Sm90Tile, singleWaveTile, splitKTile, tiles } from "./tiles.js";

const { large, square, small, mmaSync: mmaSyncTile } = tiles;
const allTiles = Object.values(tiles);
/** swapAB tiles: a multiple of eight rows, with one warpgroup and with several. */
const swappedTiles = [
  { m: 24, n: 64 },
  { m: 104, n: 192 },
].map((size) => singleWaveTile(size, 1)!);
const hopper = { kind: "cuda", computeCapability: "9.0", parallelism: 132 } as const;
const elements: readonly MmaElement[] = ["bf16", "f16", "tf32"];
const dtypeOf = (element: MmaElement) => (element === "tf32" ? "f32" : element);

/** Every run uses the same sample, so that its kernels are compiled once on a machine. */
const drawing = (quick: number, thorough: number) =>
  isThorough ? { numRuns: thorough } : { numRuns: quick, seed: 20_251_117 };

/** Rows begin on 16 bytes in every dtype: see `aligned`. */
const matrix: fc.Arbitrary<RandomMatrix> = fc.record({
  ...{ isTransposed: fc.constant(false), batchLayout: fc.constant("separate" as const) },
  ...{ gap: fc.constantFrom(0, 0, 8), offset: fc.constantFrom(0, 8) },
});

const size = fc.constantFrom(8, 72, 136, 200);
/** Rows of operands may have any length; rows of C have a multiple of eight elements. */
const oddSize = fc.constantFrom(8, 61, 72, 193);

// The emulator takes long for a large K.
const sizesOfK = fc.constantFrom(...effort({ quick: [64, 72, 97], thorough: [64, 72, 193] }));

const drawGemm: fc.Arbitrary<RandomGemm> = fc.record({
  ...{ dtype: fc.constant("f32" as const), resultDtype: fc.constant("f32" as const) },
  ...{ m: oddSize, n: size, k: sizesOfK, batch: fc.constantFrom(1, 1, 3) },
  ...{ a: matrix, b: matrix, c: matrix },
  ...{ alpha: fc.constant(1), beta: fc.constant(0) },
  bias: fc.constantFrom("none", "one", "batched"),
  activation: fc.constant("none" as const),
});

/** A weight gradient: both operands are MN-major. A batch has any strides, and may share an operand. */
const drawGradient: fc.Arbitrary<RandomGemm> = fc
  .record({
    ...{ gemm: drawGemm, m: fc.constantFrom(8, 61, 193, 264) },
    // The emulator takes long for a large K.
    k: fc.constantFrom(...effort({ quick: [20, 64, 72, 97], thorough: [20, 64, 72, 193, 577] })),
    ...{
      left: fc.constantFrom("separate", "interleaved", "shared"),
      right: fc.constantFrom("separate", "interleaved", "shared"),
    },
  } as const)
  .map(({ gemm, m, k, left, right }) => ({
    ...{ ...gemm, m, k, bias: "none" },
    ...{ a: { ...gemm.a, isTransposed: true, batchLayout: left }, b: { ...gemm.b, batchLayout: right } },
  }));

/** The config without autotuning; undefined if two launches are probably faster. */
const selectEpilogueConfig = (...of: Parameters<typeof listEpilogueConfigs>) =>
  prefersFusedEpilogue(...of) ? listEpilogueConfigs(...of)[0] : undefined;

/** An epilogue of the GEMM's result x and another input y: 3x − y in f32, and x + y in bf16. */
const threefold: RowKernel = {
  name: "threefold",
  inputs: ["f32", "f32"],
  outputs: [
    { dtype: "f32", per: "element" },
    { dtype: "bf16", per: "element" },
  ],
  scalars: ["f32"],
  stages: [
    {
      kind: "store",
      output: 0,
      value: term.sub(term.mul(term.load(1, "f32"), term.scalar(0, "f32")), term.load(0, "f32")),
    },
    { kind: "store", output: 1, value: term.add(term.load(0, "f32"), term.load(1, "f32")) },
  ],
};

/** The same, with column sums of both outputs after rounding. */
const summing: RowKernel = {
  ...threefold,
  inputs: ["f32", "f32", "f32", "bf16"],
  outputs: [...threefold.outputs, { dtype: "f32", per: "column" }, { dtype: "f32", per: "column" }],
  stages: [
    ...threefold.stages,
    { kind: "store", output: 2, value: term.load(2, "f32") },
    { kind: "store", output: 3, value: term.load(3, "f32") },
  ],
};

/** The same with padded rows, so that each begins on 16 bytes. */
function aligned(randomGemm: RandomGemm): RandomGemm {
  const { m, n, k } = randomGemm;
  const padded = (matrix: RandomMatrix, length: number): RandomMatrix => ({
    ...matrix,
    gap: matrix.gap + ((8 - (length % 8)) % 8),
  });
  const a = padded(randomGemm.a, randomGemm.a.isTransposed ? m : k);
  const b = padded(randomGemm.b, randomGemm.b.isTransposed ? k : n);
  return { ...randomGemm, a, b };
}

describe("a native Hopper GEMM", { skip: cudaMissing }, () => {
  const runtime = cudaMissing ? undefined! : openCudaKernelRuntime();
  const floatsIn = (storage: Parameters<typeof runtime.read>[0]): Float64Array =>
    Float64Array.from(new Float32Array(runtime.read(storage).slice().buffer));

  /** A GEMM in step memory, its config with a tile, the expected C, and a check of C's memory. */
  function prepare(randomGemm: RandomGemm, element: MmaElement, tile = large) {
    const layouts = layOutGemm(randomGemm);
    const values = valuesFor(randomGemm);
    const { m, n, k } = randomGemm;
    const whole = put(runtime, Float32Array.from(values.c), "c");
    const matrixOf = (name: "a" | "b" | "c") => {
      const { offset, extent, rowStride, batchStride } = layouts[name];
      const storage = name === "c" ? whole : put(runtime, encodeFloats(values[name], dtypeOf(element)), name);
      const each = storage.span.size / layouts[name].length;
      const view = runtime.view(storage, each * offset, each * extent);
      return { storage: view, rowStride, batchStride, isTransposed: randomGemm[name].isTransposed };
    };
    const bias =
      randomGemm.bias === "none" ? undefined : put(runtime, Float32Array.from(values.bias), "bias");
    const problem: GemmProblem<GemmInputDtype> = {
      ...{ dtype: dtypeOf(element), resultDtype: "f32", m, n, k, batch: randomGemm.batch },
      ...{ a: matrixOf("a"), b: matrixOf("b"), c: matrixOf("c") },
      ...(bias && { bias, biasBatchStride: biasStepOf(randomGemm) }),
    };
    const isKMajor = { a: !randomGemm.a.isTransposed, b: randomGemm.b.isTransposed };
    const config: Sm90Config = { element, tile, isKMajor, hasBias: bias !== undefined };
    const expected = expectedOf(randomGemm, values);
    return { problem, config, expected, prove: () => checkValues(randomGemm, floatsIn(whole), expected) };
  }

  /** Is A transposed, and B? */
  const layouts = [
    [false, false],
    [false, true],
    [true, false],
    [true, true],
  ] as const;
  const layoutsOf = (element: MmaElement, { swapsAB = false }: Sm90Tile) =>
    layouts.filter(([isATransposed, isBTransposed]) => {
      if (element !== "tf32") return !swapsAB || !isATransposed;
      return !isATransposed && (!swapsAB || isBTransposed);
    });
  const testedTiles = [...allTiles, ...swappedTiles];

  /** One layout per tile, another one for the next tile. */
  function sampleLayouts(element: MmaElement, tile: Sm90Tile) {
    const possible = layoutsOf(element, tile);
    const index = testedTiles.indexOf(tile);
    // f16 differs from bf16 only in the instruction's element type, in every layout.
    if (element === "f16") return index % 4 === 0 ? possible.slice(0, 1) : [];
    return possible.filter((_, which) => which === index % possible.length);
  }

  test("is correct for every shape, layout and bias, with every tile, and writes nothing but C", () => {
    let count = 0;
    for (const element of elements) {
      for (const tile of testedTiles) {
        const tested = isThorough ? layoutsOf(element, tile) : sampleLayouts(element, tile);
        for (const [isATransposed, isBTransposed] of tested) {
          const isKnown = count++ % 2 === 0;
          fc.assert(
            fc.property(drawGemm, fc.boolean(), (randomGemm, isOther) =>
              runtime.step(() => {
                const a = { ...randomGemm.a, isTransposed: isATransposed };
                const b = { ...randomGemm.b, isTransposed: isBTransposed };
                const { problem, config, prove } = prepare(aligned({ ...randomGemm, a, b }), element, tile);
                const specialisation = { constantN: randomGemm.n, isUnbatched: randomGemm.batch === 1 };
                const isSpecialised = isThorough ? isOther : isKnown;
                submit(runtime, [
                  lowerSm90Gemms([problem], { ...config, ...(isSpecialised && specialisation) }, "gemm"),
                ]);
                prove();
              }),
            ),
            drawing(1, 2),
          );
        }
      }
    }
  });

  test("the mma.sync mainloop is correct for every shape of MN-major floats", () => {
    fc.assert(
      fc.property(drawGemm, (randomGemm) =>
        runtime.step(() => {
          const transposedA = aligned({
            ...randomGemm,
            a: { ...randomGemm.a, isTransposed: true },
            bias: "none",
          });
          const { problem, config, prove } = prepare(transposedA, "tf32", mmaSyncTile);
          assert.ok(isMmaSyncMainloop(config));
          submit(runtime, [lowerSm90Gemms([problem], config, "gemm")]);
          prove();
        }),
      ),
      drawing(2, 8),
    );
  });

  test("the RS mainloop is correct for every shape, batch and group of MN-major floats", () => {
    fc.assert(
      fc.property(fc.array(drawGradient, { minLength: 1, maxLength: 3 }), (group) =>
        runtime.step(() => {
          const prepared = group.map((randomGemm) => prepare(aligned(randomGemm), "tf32", splitKTile));
          const { config } = prepared[0]!;
          assert.ok(isRsMainloop(config) && !isMmaSyncMainloop(config));
          submit(runtime, [
            lowerSm90Gemms(
              prepared.map(({ problem }) => problem),
              config,
              "gemms",
            ),
          ]);
          for (const { prove } of prepared) prove();
        }),
      ),
      drawing(2, 8),
    );
  });

  test("stores C as 16-bit floats for every shape, layout and bias, rounded once, and nothing else", () => {
    for (const [which, element] of (["bf16", "f16"] as const).entries()) {
      for (const [index, tile] of testedTiles.entries()) {
        if (!isThorough && index % 2 !== which) continue;
        fc.assert(
          fc.property(drawGemm, fc.boolean(), fc.boolean(), (randomGemm, isTransposed, isBiasNarrow) =>
            runtime.step(() => {
              const { problem, config, expected } = prepare(
                aligned({ ...randomGemm, b: { ...randomGemm.b, isTransposed } }),
                element,
                tile,
              );
              const { length, ...layout } = layOutGemm(randomGemm).c;
              const whole = put(runtime, new Uint16Array(length).fill(7), "c");
              const storage = runtime.view(whole, 2 * layout.offset, 2 * layout.extent);
              const biasDtype = isBiasNarrow ? element : ("f32" as const);
              const bias =
                problem.bias &&
                put(runtime, encodeFloats(valuesFor(randomGemm).bias, biasDtype), "bias of its dtype");
              const narrow = { ...problem, resultDtype: element, biasDtype, ...(bias && { bias }) };
              const c = { ...problem.c, storage };
              const halves = { resultDtype: element, ...(isBiasNarrow && { biasDtype: element }) };
              submit(runtime, [lowerSm90Gemms([{ ...narrow, c }], { ...config, ...halves }, "gemm")]);
              const actual = new Uint16Array(runtime.read(whole).slice().buffer);
              const rounded = new Uint16Array(encodeFloats(expected, element).buffer);
              for (const [index, value] of expected.entries())
                assert.equal(actual[index], Number.isNaN(value) ? 7 : rounded[index], `element ${index}`);
            }),
          ),
          drawing(1, 2),
        );
      }
    }
  });

  test("a batch can share A or B", () => {
    const [m, n, k, batch] = [72, 64, 64, 3];
    const put16 = (values: readonly number[], name: string) =>
      put(runtime, encodeFloats(values, "bf16"), name);
    const [single, batched] = [
      (count: number) => Array<number>(count).fill(1),
      (count: number) => Array.from({ length: batch * count }, (_, index) => 1 + Math.floor(index / count)),
    ];
    for (const isLeftShared of [true, false]) {
      runtime.step(() => {
        const c = runtime.arena.allocate(4 * batch * m * n, "c");
        const left = put16(isLeftShared ? single(m * k) : batched(m * k), "a");
        const right = put16(isLeftShared ? batched(k * n) : single(k * n), "b");
        const problem: GemmProblem<GemmInputDtype> = {
          ...{ dtype: "bf16", resultDtype: "f32", m, n, k, batch },
          a: { storage: left, rowStride: k, batchStride: isLeftShared ? 0 : m * k },
          b: { storage: right, rowStride: n, batchStride: isLeftShared ? k * n : 0 },
          c: { storage: c, rowStride: n, batchStride: m * n },
        };
        const isKMajor = { a: true, b: false };
        submit(runtime, [
          lowerSm90Gemms([problem], { element: "bf16", tile: square, isKMajor, hasBias: false }, "one"),
        ]);
        for (const [index, sum] of floatsIn(c).entries())
          assert.equal(sum, k * (1 + Math.floor(index / (m * n))), `element ${index}`);
      });
    }
  });

  const plain: RandomGemm = {
    ...{ dtype: "f32", resultDtype: "f32", m: 72, n: 136, k: 72, batch: 1, alpha: 1, beta: 0 },
    ...{ bias: "one", activation: "none" },
    a: { isTransposed: false, batchLayout: "separate", gap: 8, offset: 0 },
    b: { isTransposed: false, batchLayout: "separate", gap: 8, offset: 0 },
    c: { isTransposed: false, batchLayout: "separate", gap: 0, offset: 0 },
  };

  test("red proof: the check detects a wrong layout, stride, K and bias", () => {
    type Prepared = Pick<ReturnType<typeof prepare>, "problem" | "config">;
    const faults: Record<string, (prepared: Prepared) => Prepared> = {
      "B's layout": ({ problem, config }) => ({
        problem,
        config: { ...config, isKMajor: { ...config.isKMajor, b: true } },
      }),
      "A's stride": ({ problem, config }) => ({
        problem: { ...problem, a: { ...problem.a, rowStride: 72 } },
        config,
      }),
      K: ({ problem, config }) => ({ problem: { ...problem, k: 64 }, config }),
      "the bias": ({ problem: { bias: _, ...problem }, config }) => ({
        problem,
        config: { ...config, hasBias: false },
      }),
    };
    // N equals K, so that a transposed B also fits into its memory; anything beyond it would be rejected.
    const even = { ...plain, n: plain.k };
    for (const [what, inject] of Object.entries(faults)) {
      runtime.step(() => {
        const prepared = prepare(even, "bf16");
        const { problem, config } = inject(prepared);
        submit(runtime, [lowerSm90Gemms([problem], config, "gemm")]);
        assert.throws(prepared.prove, /element \d+ of C's memory/, what);
      });
    }
  });

  /** Rows of C that are no whole vectors of four, with aligned strides: a bias, and what lies between the rows. */
  const narrow = (n: number): RandomGemm => ({
    ...{ ...plain, n, b: { ...plain.b, isTransposed: true } },
    c: { ...plain.c, gap: (8 - (n % 8)) % 8 },
  });

  test("stores rows of C of any length, and no column more", () => {
    const cases = [
      [65, "bf16", fittedTile({ m: 8, n: 65 }, 1)!],
      [10, "tf32", fittedTile({ m: 8, n: 10 }, 132)!],
      [135, "f16", fittedTile({ m: 8, n: 135 }, 1)!],
      [135, "bf16", large],
      [65, "bf16", swappedTiles[0]!],
    ] as const;
    for (const [n, element, tile] of cases) {
      runtime.step(() => {
        const { problem, config, prove } = prepare(narrow(n), element, tile);
        submit(runtime, [lowerSm90Gemms([problem], { ...config, constantN: n }, "gemm")]);
        prove();
      });
    }
  });

  test("red proof: the check detects a vector that is stored beyond the row", () => {
    runtime.step(() => {
      const { problem, config, prove } = prepare(
        { ...narrow(65), bias: "none" },
        "bf16",
        fittedTile({ m: 8, n: 65 }, 1),
      );
      submit(runtime, [lowerSm90Gemms([problem], config, "gemm")]);
      assert.throws(prove, /element \d+ of C's memory/);
    });
  });

  test("a layout in which an operand exceeds its memory is rejected", () => {
    runtime.step(() => {
      const { problem, config } = prepare(plain, "bf16");
      const wrongConfig = { ...config, isKMajor: { ...config.isKMajor, b: true } };
      const launch = (): void => submit(runtime, [lowerSm90Gemms([problem], wrongConfig, "gemm")]);
      assert.throws(launch, {
        code: "BAD_ARGUMENT",
        message: /takes it as a tensor map of 1 × 136 × 72 elements of bf16/,
      });
    });
  });

  test("red proof: the check detects a wrong stride, K and matrix of a weight gradient", () => {
    const gradient = { ...plain, n: 72, k: 65, batch: 2, bias: "none" } as const;
    const randomGemm = aligned({ ...gradient, a: { ...plain.a, isTransposed: true } });
    type Prepared = ReturnType<typeof prepare>["problem"];
    const faults: Record<string, (problem: Prepared) => Prepared> = {
      "A's stride": (problem) => ({ ...problem, a: { ...problem.a, rowStride: problem.a.rowStride - 4 } }),
      "B's stride": (problem) => ({ ...problem, b: { ...problem.b, rowStride: problem.b.rowStride - 4 } }),
      "the last term": (problem) => ({ ...problem, k: 64 }),
      "the second half of K": (problem) => ({ ...problem, k: 32 }),
      "which matrix of A": (problem) => ({ ...problem, a: { ...problem.a, batchStride: 0 } }),
      "which matrix of B": (problem) => ({ ...problem, b: { ...problem.b, batchStride: 0 } }),
      "a row of C": (problem) => ({ ...problem, m: 71 }),
      "columns of C": (problem) => ({ ...problem, n: 64 }),
    };
    for (const [what, inject] of Object.entries(faults)) {
      runtime.step(() => {
        const { problem, config, prove } = prepare(randomGemm, "tf32", splitKTile);
        submit(runtime, [lowerSm90Gemms([inject(problem)], config, "gemm")]);
        assert.throws(prove, /element \d+ of C's memory/, what);
      });
    }
  });

  test("has the same bits in a group as alone", () => {
    const tilesOf = {
      ...{ bf16: [square], f16: effort({ quick: [], thorough: [square] }) },
      tf32: [mmaSyncTile, splitKTile],
    };
    for (const [element, tile] of elements.flatMap((element) =>
      tilesOf[element].map((tile) => [element, tile] as const),
    )) {
      runtime.step(() => {
        const transposedA = { ...plain, a: { ...plain.a, isTransposed: true }, bias: "none" } as const;
        const group = [
          { ...transposedA, m: 136, n: 64 },
          { ...transposedA, m: 8, n: 136 },
          ...effort({ quick: [], thorough: [{ ...transposedA, m: 264, n: 72 }] }),
          { ...transposedA, n: 72, batch: 2 },
        ].map((randomGemm) => prepare(randomGemm, element, tile));
        const problems = group.map(({ problem }) => problem);
        submit(runtime, [lowerSm90Gemms(problems, group[0]!.config, "gemms")]);
        for (const { prove } of group) prove();
      });
    }
  });

  test("applies its epilogue before the store, and stores C only if asked, with every kind of tile", () => {
    const tested = [large, small, tiles.paired, tiles.wide, ...swappedTiles].flatMap((tile, index) =>
      elements
        .filter((_, which) => isThorough || which === index % elements.length)
        .map((element) => [element, tile] as const),
    );
    for (const [element, tile] of tested) {
      for (const [storesC, isTransposed] of [
        [true, tile.swapsAB === true && element === "tf32"],
        [false, true],
      ] as const) {
        runtime.step(() => {
          const randomGemm: RandomGemm = { ...plain, b: { ...plain.b, isTransposed } };
          const { problem, config, expected, prove } = prepare(randomGemm, element, tile);
          const { m, n } = plain;
          const other = smallValues(m * n, 9);
          const input = put(runtime, Float32Array.from(other), "y");
          const outputs = [4, 2].map((bytes) => runtime.arena.allocate(bytes * m * n, "out"));
          const fusedEpilogue = { kernel: threefold, gemmInput: 1, storesC, scalars: [3] };
          const operands = [input, problem.c.storage, ...outputs];
          submit(runtime, [lowerSm90Gemms([problem], config, "gemm", { ...fusedEpilogue, operands })]);
          if (storesC) prove();
          else assert.ok(floatsIn(problem.c.storage).every(Number.isNaN), "C is as it was");
          const actual = floatsIn(outputs[0]!);
          const halves = new Uint16Array(runtime.read(outputs[1]!).slice().buffer);
          const sums = Float64Array.from(other, (value, index) => value + expected[index]!);
          const sumBits = new Uint16Array(encodeFloats(sums, "bf16").buffer);
          for (const [index, value] of other.entries()) {
            assert.equal(actual[index], 3 * expected[index]! - value, `element ${index}`);
            assert.equal(halves[index], sumBits[index], `half float ${index}`);
          }
        });
      }
    }
  });

  test("stores C as 16-bit floats; the epilogue gets it before rounding, and can load 16-bit floats", () => {
    runtime.step(() => {
      const unbiased: RandomGemm = { ...plain, bias: "none" };
      const { problem, config } = prepare(plain, "bf16");
      const { m, n } = plain;
      // Too small to change a sum in bf16.
      const bias = put(runtime, new Float32Array(n).fill(2 ** -10), "bias");
      const other = smallValues(m * n, 9);
      const input = put(runtime, encodeFloats(other, "bf16"), "y");
      const [c, ...outputs] = [2, 4, 2].map((bytes) => runtime.arena.allocate(bytes * m * n, "out"));
      const kernel: RowKernel = { ...threefold, inputs: ["bf16", "f32"] };
      const fusedEpilogue = { kernel, gemmInput: 1, storesC: true, scalars: [3] };
      const narrow = { ...problem, bias, resultDtype: "bf16", biasDtype: "f32" } as const;
      const on = { ...narrow, c: { storage: c!, rowStride: n } };
      const operands = [input, undefined, ...outputs];
      submit(runtime, [
        lowerSm90Gemms([on], { ...config, resultDtype: "bf16" }, "gemm", { ...fusedEpilogue, operands }),
      ]);
      const sums = expectedOf(unbiased, valuesFor(unbiased)).map((sum) => sum + 2 ** -10);
      const rounded = new Uint16Array(encodeFloats(sums, "bf16").buffer);
      const kept = new Uint16Array(runtime.read(c!).slice().buffer);
      const actual = floatsIn(outputs[0]!);
      for (const [index, value] of other.entries()) {
        assert.equal(kept[index], rounded[index], `half float ${index}`);
        assert.equal(actual[index], Math.fround(3 * sums[index]! - value), `element ${index}`);
      }
    });
  });

  test("loads an epilogue's operands before the mainloop, except at C's edge; red proof: from another row", () => {
    // Some warps have all of their rows, one has half of them, others have none. Some columns of the last tile are outside of C.
    const { m, n } = plain;
    const other = smallValues(m * n, 9);
    /** The number of wrong elements. */
    function run(change: (code: string) => string): number {
      return runtime.step(() => {
        const { problem, config, expected } = prepare(plain, "bf16", tiles.paired);
        const { c: _, ...withoutC } = problem;
        const input = put(runtime, encodeFloats(other, "bf16"), "y");
        const outputs = [4, 2].map((bytes) => runtime.arena.allocate(bytes * m * n, "out"));
        const kernel: RowKernel = { ...threefold, inputs: ["bf16", "f32"] };
        const fusedEpilogue = { kernel, gemmInput: 1, storesC: false, scalars: [3] };
        const operands = [input, undefined, ...outputs];
        const early = { ...config, loadsOperandsEarly: true };
        const command = lowerSm90Gemms([withoutC], early, "gemm", { ...fusedEpilogue, operands });
        const { cuda } = command.source;
        const source = { ...command.source, cuda: { ...cuda!, code: change(cuda!.code) } };
        submit(runtime, [{ ...command, source }]);
        const actual = floatsIn(outputs[0]!);
        return other.filter((value, index) => actual[index] !== 3 * expected[index]! - value).length;
      });
    }
    assert.equal(
      run((code) => code),
      0,
    );
    const wrong = run((code) =>
      code.replace("beginOffset = (long long)earlyRow", "beginOffset = (long long)(earlyRow + 1)"),
    );
    // Eight of sixteen rows are loaded early.
    assert.ok(wrong > (m * n) / 4 && wrong < m * n, `${wrong} elements`);
  });

  test("forwards an epilogue's stored values to later stages as they were rounded", () => {
    const twice: RowKernel = {
      ...{ name: "twice", inputs: ["f32", "bf16"], scalars: [] },
      outputs: [
        { dtype: "bf16", per: "element" },
        { dtype: "f32", per: "element" },
      ],
      stages: [
        { kind: "store", output: 0, value: term.add(term.load(0, "f32"), 2 ** -12) },
        { kind: "store", output: 1, value: term.mul(term.load(1, "f32"), 2) },
      ],
    };
    runtime.step(() => {
      const { problem, config, expected } = prepare(plain, "tf32");
      const { c: _, ...withoutC } = problem;
      const { m, n } = plain;
      const [halves, doubled] = [2, 4].map((bytes) => runtime.arena.allocate(bytes * m * n, "out"));
      const fusedEpilogue = {
        kernel: twice,
        gemmInput: 0,
        forwarded: [undefined, 0],
        storesC: false,
        scalars: [],
      };
      const operands = [undefined, halves, halves, doubled];
      submit(runtime, [lowerSm90Gemms([withoutC], config, "gemm", { ...fusedEpilogue, operands })]);
      const actual = floatsIn(doubled!);
      let exact = 0;
      for (const [index, value] of expected.subarray(0, m * n).entries()) {
        // A small value keeps the addend, a large value rounds it away.
        assert.ok(Math.abs(actual[index]! - 2 * value) <= 2 ** -11, `element ${index}`);
        if (actual[index] === 2 * value) exact++;
      }
      assert.ok(exact > expected.length / 2 && exact < expected.length);
    });
  });

  test("stores partial column sums of the epilogue's outputs, over sixteen rows each", () => {
    for (const element of elements) {
      // The last rows are fewer, and some warps have none.
      for (const m of effort({ quick: element === "bf16" ? [203] : [70], thorough: [70, 203] })) {
        runtime.step(() => {
          const { problem, config } = prepare({ ...plain, m }, element, large);
          const { n } = plain;
          const { c: _, ...withoutC } = problem;
          const input = put(runtime, Float32Array.from(smallValues(m * n, 9)), "y");
          const stored = [4, 2].map((bytes) => runtime.arena.allocate(bytes * m * n, "out"));
          const groups = Math.ceil(m / colsumRows);
          const padding = 8;
          const sums = [1, 2].map(() =>
            put(runtime, new Float32Array((groups + 1) * n + padding).fill(Number.NaN), "sums"),
          );
          const forwarded = [undefined, undefined, 0, 1];
          const fusedEpilogue = { kernel: summing, gemmInput: 1, forwarded, storesC: false, scalars: [3] };
          const operands = [input, undefined, ...stored, ...stored, ...sums];
          submit(runtime, [lowerSm90Gemms([withoutC], config, "gemm", { ...fusedEpilogue, operands })]);
          const widened = [
            floatsIn(stored[0]!),
            widenBf16(new Uint16Array(runtime.read(stored[1]!).slice().buffer)),
          ];
          for (const [index, values] of widened.entries()) {
            const actual = floatsIn(sums[index]!);
            const expected = new Float64Array(groups * n);
            for (const [index, value] of values.entries())
              expected[Math.floor(index / n / colsumRows) * n + (index % n)]! += value;
            assert.deepEqual(actual.subarray(0, groups * n), expected, `${element}, sum ${index}`);
            assert.ok(actual.subarray(groups * n).every(Number.isNaN), "nothing after them");
          }
        });
      }
    }
  });

  test("tanh and sigmoid in the epilogue have an error of at most 2^-21, and keep NaN and infinities", () => {
    const scaled = term.mul(term.load(0, "f32"), term.scalar(0, "f32"));
    const quick: RowKernel = {
      ...{ name: "quick", inputs: ["f32"], scalars: ["f32"] },
      outputs: [
        { dtype: "f32", per: "element" },
        { dtype: "f32", per: "element" },
      ],
      stages: [
        { kind: "store", output: 0, value: term.tanh(scaled) },
        { kind: "store", output: 1, value: term.sigmoid(scaled) },
      ],
    };
    for (const scale of [2 ** -12, 0.03, 1.5, 1e30, Number.NaN]) {
      runtime.step(() => {
        const { problem, config, expected } = prepare(plain, "bf16");
        const { c: _, ...withoutC } = problem;
        const { m, n } = plain;
        const outputs = [1, 2].map(() => runtime.arena.allocate(4 * m * n, "out"));
        const fusedEpilogue = { kernel: quick, gemmInput: 0, storesC: false, scalars: [scale] };
        submit(runtime, [
          lowerSm90Gemms([withoutC], config, "gemm", {
            ...fusedEpilogue,
            operands: [undefined, ...outputs],
          }),
        ]);
        const [tanh, sigmoid] = outputs.map(floatsIn);
        for (const [index, value] of expected.subarray(0, m * n).entries()) {
          const x = value * Math.fround(scale);
          for (const [actual, exact] of [
            [tanh![index]!, Math.tanh(x)],
            [sigmoid![index]!, 1 / (1 + Math.exp(-x))],
          ] as const)
            assert.ok(Object.is(actual, exact) || Math.abs(actual - exact) <= 2 ** -21, `of ${x}: ${actual}`);
        }
      });
    }
  });

  test("gemm launches it on Hopper for batches with unaligned rows, instead of cuBLASLt", () => {
    const isHopper = runtime.device.computeCapability === "9.0";
    runtime.step(() => {
      const randomGemm = aligned({
        ...plain,
        n: 136,
        k: 193,
        batch: effort({ quick: 2, thorough: 3 }),
        bias: "batched",
      });
      const { problem, prove } = prepare(randomGemm, "bf16");
      assert.equal(hasNativeGemm(runtime, problem), isHopper);
      const bytes = gemmScratchBytes(runtime, problem);
      if (isHopper) assert.deepEqual([bytes, gemmCandidates(runtime, problem)], [0, [0]]);
      submit(
        runtime,
        gemmCalls(bytes > 0 ? { ...problem, scratch: runtime.arena.allocate(bytes, "gemm") } : problem),
      );
      prove();
    });
  });

  test("gemm launches it if its algorithm is selected, for a single GEMM and for a batch", () => {
    const isHopper = runtime.device.computeCapability === "9.0";
    // So many blocks that a GPU of this size is worth the trial.
    const isLarge = runtime.device.parallelism > 32;
    const wide = { ...plain, m: isLarge ? 1600 : 104, n: isLarge ? 520 : 136, bias: "none" } as const;
    for (const randomGemm of [wide, { ...wide, n: isLarge ? 264 : 72, batch: 3 }]) {
      runtime.step(() => {
        const { problem, prove } = prepare(randomGemm, "bf16");
        const candidates = gemmCandidates(runtime, problem);
        assert.equal(candidates.includes(firstNativeAlgorithm), isHopper);
        assert.equal(candidates[0], 0);
        if (!isHopper) return;
        for (const algorithm of candidates.filter((id) => id <= firstNativeAlgorithm)) {
          assert.equal(gemmScratchBytes(runtime, { ...problem, algorithm }), 0);
          const calls = gemmCalls({ ...problem, algorithm });
          const commands = lowerCalls(backendOf(runtime), calls);
          assert.deepEqual(
            commands.map((command) => command.kind === "launch" && command.source.name),
            ["gemm_bf16_sm90"],
          );
          submit(runtime, calls);
          prove();
        }
      });
    }
  });

  test("grouped GEMMs and GEMMs with an epilogue are lowered to it on Hopper, and rejected elsewhere", () => {
    const isHopper = runtime.device.computeCapability === "9.0";
    runtime.step(() => {
      const randomGemm = { ...plain, m: 64, n: 64, k: 1024, bias: "none" } as const;
      const group = [1, 2].map(() =>
        prepare({ ...randomGemm, a: { ...randomGemm.a, isTransposed: true } }, "bf16", square),
      );
      const problems = group.map(({ problem }) => problem);
      assert.equal(canGroupGemms(runtime, problems), isHopper);
      if (isHopper) {
        submit(runtime, backendOf(runtime).lowerGroupedGemm(problems, "gemm"));
        for (const { prove } of group) prove();
      } else
        assert.throws(() => submit(runtime, backendOf(runtime).lowerGroupedGemm(problems, "gemm")), {
          code: "BAD_ARGUMENT",
        });
      const { problem } = prepare(plain, "bf16");
      const fusedEpilogue: Epilogue = { kernel: threefold, gemmInput: 1, storesC: true };
      assert.equal(canFuseEpilogue(runtime, problem, fusedEpilogue), isHopper);
      assert.equal(
        prefersFusedEpilogue(runtime.device, "bf16", problem, fusedEpilogue),
        false,
        "too small to be worth it",
      );
      assert.throws(
        () =>
          submit(
            runtime,
            backendOf(runtime).lowerGemmEpilogue(
              { ...problem, batch: 2 },
              { ...fusedEpilogue, operands: [], scalars: [] },
              "gemm",
            ),
          ),
        {
          code: "BAD_ARGUMENT",
        },
      );
    });
  });
});

describe("the selected config", () => {
  const matrixOf = (rowStride: number, address = 256) => ({
    storage: { span: span(address, 2 ** 30) },
    rowStride,
  });
  const gemmDesc = (shape: { m: number; n: number; k: number }, more = {}): GemmDesc => ({
    ...{ dtype: "bf16", resultDtype: "f32", ...shape },
    ...{ a: matrixOf(shape.k), b: matrixOf(shape.n), c: matrixOf(shape.n) },
    ...more,
  });
  const gradient = (m: number, n: number, more = {}): GemmDesc =>
    gemmDesc({ m, n, k: 3072 }, { a: { ...matrixOf(m), isTransposed: true }, ...more });

  test("exists for groups of weight gradients, on Hopper only", () => {
    const pair = [gradient(256, 1024), gradient(1024, 256)];
    assert.equal(selectGroupedConfig(hopper, "bf16", pair)?.element, "bf16");
    const batch = {
      batch: 3,
      b: { ...matrixOf(768), batchStride: 256 },
      c: { ...matrixOf(256), batchStride: 65536 },
    };
    assert.equal(selectGroupedConfig(hopper, "bf16", [...pair, gradient(256, 256, batch)])?.element, "bf16");
    assert.equal(selectGroupedConfig({ ...hopper, computeCapability: "8.0" }, "bf16", pair), undefined);
    assert.equal(selectGroupedConfig({}, "bf16", pair), undefined);
    for (const other of [
      gemmDesc({ m: 3072, n: 1024, k: 1024 }),
      gradient(256, 1024, { beta: 1 }),
      gradient(256, 1024, { batch: 2, c: { ...matrixOf(1024), batchStride: 256 * 1024 + 2 } }),
      gradient(256, 1028),
      gradient(256, 1024, { resultDtype: "bf16" }),
      gradient(256, 1024, { b: matrixOf(1024, 264) }),
      gradient(256, 1024, { dtype: "f16" }),
    ])
      assert.equal(selectGroupedConfig(hopper, "bf16", [...pair, other]), undefined);
    const floats = [gradient(256, 1024, { dtype: "f32" }), gradient(1024, 256, { dtype: "f32" })];
    assert.equal(selectGroupedConfig(hopper, "tf32", floats)?.element, "tf32");
    assert.equal(selectGroupedConfig(hopper, "tf32", floats)?.tile, splitKTile);
    assert.equal(selectGroupedConfig(hopper, "bf16", pair)?.tile, square);
    assert.deepEqual(
      floats.map((gemm) => countCtas(gemm, splitKTile)),
      [16, 16],
      "two CTAs for each of eight tiles",
    );
    assert.equal(selectGroupedConfig(hopper, "f32", floats), undefined);
    assert.equal(selectGroupedConfig(hopper, "bf16", []), undefined);
  });

  test("has clusters of two CTAs if the number of N tiles is even", () => {
    const clusterOf = (config: Sm90Config | undefined): string | undefined =>
      sm90Source(config!, ["out"]).cuda?.code.match(/__cluster_dims__\((\d)/)?.[1];
    const plain = (n: number): Sm90Config | undefined =>
      listCandidates(hopper, "bf16", gemmDesc({ m: 3072, n, k: 256 }))[0];
    assert.deepEqual(
      [256, 768, 64, 320].map((n) => clusterOf(plain(n))),
      ["2", "2", undefined, undefined],
    );
    const pair = [gradient(256, 1024), gradient(1024, 256)];
    assert.equal(selectGroupedConfig(hopper, "bf16", pair)?.clusterN, 2);
    assert.equal(selectGroupedConfig(hopper, "bf16", [...pair, gradient(256, 128)])?.clusterN, undefined);
    const floats = pair.map((gemm) => ({ ...gemm, dtype: "f32" as const }));
    assert.equal(selectGroupedConfig(hopper, "tf32", floats)?.clusterN, undefined, "the cluster splits K");
  });

  test("exists for batches of small GEMMs with unaligned rows", () => {
    const each = (more = {}): GemmDesc => ({
      ...gemmDesc({ m: 256, n: 256, k: 193 }),
      ...{
        batch: 12,
        a: { ...matrixOf(2400), batchStride: 200 },
        b: { ...matrixOf(256), batchStride: 49408 },
      },
      ...{ c: { ...matrixOf(3072), batchStride: 256 }, ...more },
    });
    assert.equal(selectBatchedConfig(hopper, "bf16", each())?.element, "bf16");
    for (const other of [
      each({ batch: 1 }),
      each({ k: 192 }),
      each({ m: 4096 }),
      each({ a: { ...matrixOf(2316), batchStride: 193 } }),
      each({ c: { ...matrixOf(3072), batchStride: 257 } }),
    ])
      assert.equal(selectBatchedConfig(hopper, "tf32", other), undefined);
    const floats = each({ dtype: "f32" });
    assert.equal(selectBatchedConfig(hopper, "tf32", floats)?.element, "tf32");
    assert.equal(selectBatchedConfig(hopper, "f32", floats), undefined);
    const mnMajor = { ...floats, a: { ...floats.a, isTransposed: true }, m: 193, k: 256 };
    const bias = { span: span(256, 2 ** 20) };
    assert.equal(selectBatchedConfig(hopper, "tf32", mnMajor)?.tile, mmaSyncTile);
    assert.equal(
      selectBatchedConfig(hopper, "tf32", { ...mnMajor, bias }),
      undefined,
      "the mma.sync mainloop adds no bias",
    );
    const kMajorB = { ...mnMajor, b: { ...matrixOf(256), batchStride: 65536, isTransposed: true } };
    assert.equal(
      selectBatchedConfig(hopper, "tf32", kMajorB),
      undefined,
      "one K-major and one MN-major operand",
    );
  });

  test("is a candidate for autotuning if its tiles cover enough SMs", () => {
    const gemm = gemmDesc({ m: 3072, n: 768, k: 256 });
    const candidatesOf = (problem: GemmDesc) => listCandidates(hopper, "tf32", problem);
    const tilesOf = (problem: GemmDesc) => candidatesOf(problem).map(({ tile }) => [tile.tileM, tile.tileN]);
    assert.equal(candidatesOf(gemm)[0]?.element, "bf16");
    assert.equal(candidatesOf({ ...gemm, dtype: "f32" })[0]?.element, "tf32");
    const [largeSize, smallSize] = [large, small].map(({ tileM, tileN }) => [tileM, tileN]);
    assert.deepEqual(tilesOf(gemm), [[144, 128]], "one wave");
    assert.deepEqual(tilesOf({ ...gemm, dtype: "f32" }), [largeSize, smallSize], "MN-major floats");
    const kMajor = { ...gemm, dtype: "f32", b: { ...gemm.b, isTransposed: true } } as const;
    assert.deepEqual(tilesOf(kMajor), [[144, 128]], "K-major floats");
    assert.deepEqual(
      tilesOf(gemmDesc({ m: 6144, n: 1024, k: 256 })),
      [largeSize, smallSize],
      "several waves",
    );
    assert.deepEqual(tilesOf(gemmDesc({ m: 3072, n: 256, k: 256 })), [[96, 64]], "narrow");
    assert.deepEqual(tilesOf(gemmDesc({ m: 1024, n: 256, k: 256 })), [[32, 64]], "few rows");
    assert.deepEqual(tilesOf(gemmDesc({ m: 256, n: 64, k: 256 })), [], "fewer than a third of the SMs");
    const batch = { n: 256, batch: 3, b: { ...matrixOf(256), batchStride: 65536 } };
    assert.equal(candidatesOf({ ...gemm, ...batch, c: { ...matrixOf(256), batchStride: 786432 } }).length, 1);
    assert.deepEqual(candidatesOf({ ...gemm, ...batch, c: { ...matrixOf(256), batchStride: 786433 } }), []);
    const [single] = candidatesOf(gemm);
    assert.deepEqual([single?.constantN, single?.isUnbatched], [768, true], "specialised on N");
    assert.deepEqual(candidatesOf({ ...gemm, a: { ...gemm.a, isTransposed: true } }), []);
    assert.deepEqual(listCandidates(hopper, "f32", { ...gemm, dtype: "f32" }), []);
  });

  test("is a candidate for rows of any length, with a tile that fits them, if the row stride is aligned", () => {
    const head = (n: number, rowStride: number, m = 16_384): GemmDesc => ({
      ...gemmDesc({ m, n, k: 384 }, { resultDtype: "bf16" }),
      ...{ b: { ...matrixOf(384), isTransposed: true }, c: matrixOf(rowStride) },
    });
    const tilesOf = (problem: GemmDesc) =>
      listCandidates(hopper, "bf16", problem).map(({ tile }) => [tile.tileM, tile.tileN]);
    assert.deepEqual(tilesOf(head(65, 65)), []);
    assert.deepEqual(tilesOf(head(65, 72)), [[128, 72]]);
    assert.deepEqual(tilesOf(head(10, 16)), [[128, 16]]);
    assert.deepEqual(tilesOf(head(65, 72, 4096)).at(-1), [64, 72], "few rows");
    assert.deepEqual(tilesOf(head(257, 264)).at(-1), [128, 88], "three tiles");
    assert.deepEqual(
      tilesOf(head(50_257, 50_264)),
      [large, small].map(({ tileM, tileN }) => [tileM, tileN]),
    );
    assert.deepEqual(tilesOf({ ...head(65, 72), b: matrixOf(72) }), [], "boxes of B are wider");
    assert.deepEqual(selectBatchedConfig(hopper, "bf16", { ...head(65, 72), batch: 2 }), undefined);
  });

  test("prefers a transposed B in TF32 if there are many rows", () => {
    const gemm: GemmDesc = { ...gemmDesc({ m: 3072, n: 256, k: 256 }), dtype: "f32" };
    const isPreferred = (problem: GemmDesc) => prefersTransposed(hopper, "tf32", problem);
    assert.ok(isPreferred(gemm));
    assert.ok(!prefersTransposed(hopper, "f32", gemm));
    assert.ok(!isPreferred({ ...gemm, dtype: "bf16" }), "16-bit operands can be MN-major");
    assert.ok(!isPreferred({ ...gemm, m: 512 }), "few rows");
    assert.ok(!isPreferred({ ...gemm, b: { ...gemm.b, isTransposed: true } }), "already K-major");
    assert.ok(!isPreferred({ ...gemm, a: { ...gemm.a, isTransposed: true } }), "a gradient");
    assert.ok(
      !isPreferred({ ...gemm, k: 66, a: matrixOf(68) }),
      "rows of the transposed B would not be aligned",
    );
  });

  test("stores 16-bit results of 16-bit operands, with a bias of f32 or their dtype, except for weight gradients", () => {
    const fusedEpilogue: Epilogue = { kernel: threefold, gemmInput: 1, storesC: true };
    const halves = { resultDtype: "bf16", biasDtype: "f32", bias: { span: span(256, 2 ** 20) } } as const;
    const gemm = gemmDesc({ m: 3072, n: 1024, k: 256 }, halves);
    const plainConfigOf = (problem: GemmDesc) => listCandidates(hopper, "bf16", problem)[0];
    assert.equal(selectEpilogueConfig(hopper, "bf16", gemm, fusedEpilogue)?.resultDtype, "bf16");
    assert.equal(plainConfigOf(gemm)?.resultDtype, "bf16");
    assert.equal(plainConfigOf({ ...gemm, resultDtype: "f32" })?.resultDtype, undefined);
    assert.equal(plainConfigOf(gemm)?.biasDtype, undefined);
    assert.equal(plainConfigOf({ ...gemm, biasDtype: "bf16" })?.biasDtype, "bf16");
    assert.equal(plainConfigOf({ ...gemm, biasDtype: "f16" }), undefined, "a bias of another 16-bit dtype");
    const unaligned = { ...gemm, biasDtype: "bf16", bias: { span: span(260, 2 ** 20) } } as const;
    assert.equal(plainConfigOf(unaligned), undefined, "a bias on 4 bytes");
    assert.equal(plainConfigOf({ ...gemm, resultDtype: "f16" }), undefined, "another 16-bit dtype");
    assert.equal(listCandidates(hopper, "tf32", { ...gemm, dtype: "f32" })[0], undefined, "of floats");
    assert.equal(plainConfigOf({ ...gemm, c: matrixOf(1028) }), undefined, "rows on 8 bytes");
    const { bias: _, ...unbiased } = gemm;
    const transposedA = { ...unbiased, k: 3072, a: { ...matrixOf(3072), isTransposed: true } };
    assert.equal(selectGroupedConfig(hopper, "bf16", [transposedA]), undefined);
    assert.ok(selectGroupedConfig(hopper, "bf16", [{ ...transposedA, resultDtype: "f32" }]));
  });

  test("exists for an epilogue if the result is large and K is small", () => {
    const fusedEpilogue: Epilogue = { kernel: threefold, gemmInput: 1, storesC: true };
    const gemm = gemmDesc({ m: 3072, n: 1024, k: 256 });
    const configOf = (problem: GemmDesc, of = fusedEpilogue) =>
      selectEpilogueConfig(hopper, "tf32", problem, of);
    assert.equal(configOf(gemm)?.tile, large);
    assert.equal(
      configOf(gemmDesc({ m: 3072, n: 1024, k: 768 })),
      undefined,
      "K above the limit of large tiles",
    );
    assert.equal(configOf(gemm)?.element, "bf16");
    assert.equal(configOf({ ...gemm, dtype: "f32" })?.element, "tf32");
    assert.equal(selectEpilogueConfig(hopper, "f32", { ...gemm, dtype: "f32" }, fusedEpilogue), undefined);
    assert.equal(configOf(gemmDesc({ m: 3072, n: 256, k: 1024 })), undefined, "a large K");
    assert.equal(configOf(gemmDesc({ m: 300, n: 256, k: 256 })), undefined, "a small result");
    assert.equal(configOf({ ...gemm, c: matrixOf(1032) }), undefined, "padded rows of C");
    assert.equal(configOf({ ...gemm, a: { ...gemm.a, isTransposed: true } }), undefined);
    const reducing: RowKernel = {
      ...threefold,
      stages: [{ kind: "reduce", op: "add", value: term.load(0, "f32") }, ...threefold.stages],
    };
    assert.equal(configOf(gemm, { ...fusedEpilogue, kernel: reducing }), undefined, "not elementwise");
    const ofRows: RowKernel = {
      ...threefold,
      outputs: threefold.outputs.map((output) => ({ ...output, per: "row" })),
    };
    assert.equal(configOf(gemm, { ...fusedEpilogue, kernel: ofRows }), undefined, "values per row");
  });

  test("loads a 16-bit operand of an epilogue early, as one more candidate, if two CTAs share an SM", () => {
    const problem = gemmDesc({ m: 16384, n: 1536, k: 384 });
    const candidatesWith = (inputs: RowKernel["inputs"]) =>
      listEpilogueConfigs(hopper, "bf16", problem, {
        ...{ kernel: { ...threefold, inputs }, gemmInput: 1, storesC: false },
      }).map(({ tile, loadsOperandsEarly = false }) => [tile, loadsOperandsEarly]);
    const [once, early] = [false, true].map((loadsEarly) => [tiles.paired, loadsEarly]);
    const others = [tiles.large, tiles.wide].map((tile) => [tile, false]);
    assert.deepEqual(candidatesWith(["bf16", "f32"]), [others[0], once, early, others[1]]);
    assert.deepEqual(candidatesWith(["f32", "f32"]), [others[0], once, others[1]], "too many registers");
    assert.deepEqual(candidatesWith(["draw", "f32"]), [others[0], once, others[1]], "nothing to load");
  });

  test("exists for column sums if a warp stores a whole row of its tile at a time", () => {
    const fusedEpilogue: Epilogue = {
      kernel: summing,
      gemmInput: 1,
      forwarded: [undefined, undefined, 0, 1],
      storesC: false,
    };
    assert.equal(
      selectEpilogueConfig(hopper, "bf16", gemmDesc({ m: 3072, n: 1024, k: 256 }), fusedEpilogue)?.tile,
      large,
    );
    const narrow = gemmDesc({ m: 3072, n: 256, k: 256 });
    assert.ok(
      selectEpilogueConfig(hopper, "bf16", narrow, { ...fusedEpilogue, kernel: threefold })?.tile.swapsAB,
    );
    assert.equal(selectEpilogueConfig(hopper, "bf16", narrow, fusedEpilogue), undefined, "a swapAB tile");
  });

  test("has small tiles for an epilogue if large tiles would leave most of the GPU idle", () => {
    const fusedEpilogue: Epilogue = { kernel: threefold, gemmInput: 1, storesC: false };
    const withKMajorB = (shape: { m: number; n: number; k: number }, more = {}): GemmDesc =>
      gemmDesc(shape, { b: { ...matrixOf(shape.k), isTransposed: true }, ...more });
    const tileOf = (problem: GemmDesc, parallelism = 132) =>
      selectEpilogueConfig({ ...hopper, parallelism }, "tf32", problem, fusedEpilogue)?.tile;
    const narrow = { m: 3072, n: 256, k: 768 };
    const wave = singleWaveTile(narrow, 132);
    assert.deepEqual([wave?.tileM, wave?.tileN], [96, 64]);
    assert.deepEqual(tileOf(withKMajorB(narrow)), wave);
    assert.deepEqual(tileOf(gemmDesc(narrow)), wave, "16-bit operands can be MN-major");
    assert.deepEqual(tileOf(withKMajorB(narrow, { dtype: "f32" })), wave);
    assert.equal(tileOf({ ...gemmDesc(narrow), dtype: "f32" }), undefined, "B would have to be transposed");
    assert.equal(tileOf(withKMajorB({ ...narrow, k: 776 })), undefined, "a large K");
    // 48 and 50 small tiles: three eighths of 132 SMs are 49.5.
    assert.equal(tileOf(withKMajorB({ ...narrow, m: 1536 })), undefined, "a small result");
    assert.deepEqual(
      tileOf(withKMajorB({ ...narrow, m: 1600 })),
      singleWaveTile({ ...narrow, m: 1600 }, 132),
    );
    // 32 large tiles cover half of 64 SMs.
    assert.deepEqual(
      [64, 65].map((parallelism) => tileOf(withKMajorB(narrow), parallelism)),
      [undefined, singleWaveTile(narrow, 65)],
    );
    const wide = { m: 1024, n: 1024, k: 256 };
    assert.deepEqual(
      [96, 97].map((parallelism) => tileOf(withKMajorB(wide), parallelism)),
      [large, singleWaveTile(wide, 97)],
    );
    assert.equal(tileOf({ ...gemmDesc(wide), dtype: "f32" }), large, "B has to be transposed");
    const moving: RowKernel = {
      ...{ name: "f32 to bf16", inputs: ["f32"], outputs: [{ dtype: "bf16", per: "element" }], scalars: [] },
      stages: [{ kind: "store", output: 0, value: term.load(0, "f32") }],
    };
    const converting = { kernel: moving, gemmInput: 0, storesC: true };
    const few = { ...narrow, k: 256 };
    assert.deepEqual(tileOf(withKMajorB(few)), wave);
    assert.equal(
      selectEpilogueConfig(hopper, "bf16", withKMajorB(few), converting),
      undefined,
      "only a conversion",
    );
    assert.equal(selectEpilogueConfig(hopper, "bf16", withKMajorB(wide), converting)?.tile, large);
  });
});

describe("the single-wave tile", () => {
  const sizesOf = (m: number, n: number, parallelism = 132, batch = 1) => {
    const tile = singleWaveTile({ m, n, batch }, parallelism);
    return tile && [tile.tileM, tile.tileN];
  };

  test("loads the least of all tiles that need one wave", () => {
    assert.deepEqual(sizesOf(3072, 256), [96, 64]);
    assert.deepEqual(sizesOf(3072, 768), [144, 128]);
    assert.deepEqual(sizesOf(3072, 1024), [192, 128]);
    assert.deepEqual(sizesOf(256, 256, 132, 12), [56, 128]);
    assert.deepEqual(sizesOf(8, 8), [8, 64]);
    assert.equal(sizesOf(3072, 4096), undefined, "too large for registers");
    assert.equal(sizesOf(256, 256, 132, 200), undefined, "more matrices than multiprocessors");
  });

  test("needs at most one CTA per SM, and its accumulators fit into registers", () => {
    const size = fc.integer({ min: 1, max: 500 }).map((eights) => 8 * eights);
    fc.assert(
      fc.property(
        size,
        size,
        fc.integer({ min: 1, max: 200 }),
        fc.integer({ min: 1, max: 4 }),
        (m, n, all, batch) => {
          const tile = singleWaveTile({ m, n, batch }, all);
          if (!tile) return;
          const { tileM, tileN } = tile;
          assert.ok(countCtas({ m, n, batch }, tile) <= all);
          assert.ok(tileM % 8 === 0 && tileM <= 256 && tileN % 64 === 0 && tileM * tileN <= 32_768);
        },
      ),
    );
  });
});

describe("the code of native Hopper GEMMs under nvcc", { skip: noCompiler() }, () => {
  const fusedEpilogue: Epilogue = { kernel: threefold, gemmInput: 1, storesC: true };
  const configOf = (element: MmaElement, tile: Sm90Tile, a: boolean, b: boolean): Sm90Config => ({
    ...{ element, tile, isKMajor: { a, b }, hasBias: a },
  });
  const rsMainloop = sm90Source(configOf("tf32", splitKTile, false, false), Array(8).fill("out"));
  const early = sm90Source(
    { ...configOf("bf16", tiles.paired, true, false), hasBias: false, loadsOperandsEarly: true },
    ["out"],
    { kernel: { ...threefold, inputs: ["bf16", "f32"] }, gemmInput: 1, storesC: false },
  );
  const withTail = sm90Source(
    {
      ...configOf("bf16", fittedTile({ m: 16_384, n: 65 }, 132)!, true, true),
      ...{ constantN: 65, resultDtype: "bf16" },
    },
    ["partial-out"],
  );
  const sources = [
    early,
    sm90Source(configOf("bf16", square, false, false), ["out", "partial-out", "out"]),
    sm90Source(configOf("f16", square, false, false), ["out"]),
    ...elements.flatMap((element) =>
      [true, false].flatMap((isKMajor) =>
        [large, small].map((tile) =>
          sm90Source(configOf(element, tile, true, isKMajor), ["out"], {
            ...fusedEpilogue,
            storesC: isKMajor === (tile === large),
          }),
        ),
      ),
    ),
    ...[true, false].flatMap((a) =>
      [true, false].map((b) => sm90Source(configOf("bf16", small, a, b), ["partial-out"])),
    ),
    ...elements.map((element) =>
      sm90Source(configOf(element, large, true, true), ["out"], {
        ...{ kernel: summing, gemmInput: 1, forwarded: [undefined, undefined, 0, 1], storesC: false },
      }),
    ),
    ...[fusedEpilogue, undefined].map((kept) =>
      sm90Source({ ...configOf("bf16", large, true, false), resultDtype: "bf16" }, ["out"], kept),
    ),
    sm90Source({ ...configOf("f16", small, true, true), resultDtype: "f16" }, ["partial-out"]),
    sm90Source(configOf("tf32", mmaSyncTile, false, false), ["out", "partial-out"]),
    ...[rsMainloop, withTail],
    sm90Source(configOf("tf32", small, true, false), ["partial-out"]),
    ...[
      singleWaveTile({ m: 3072, n: 256 }, 132)!,
      singleWaveTile({ m: 3072, n: 1024 }, 132)!,
      swappedTiles[1]!,
    ].flatMap((tile) => [
      sm90Source({ ...configOf("bf16", tile, true, false), resultDtype: "bf16" }, ["out"]),
      sm90Source(configOf("tf32", tile, true, true), ["out"], fusedEpilogue),
    ]),
  ];

  // One of eleven, and those with the most registers.
  const some = isThorough
    ? sources
    : sources.filter((source, index) => index % 11 === 0 || [rsMainloop, early, withTail].includes(source));

  /** With accumulators that are initialised between wgmmas. */
  const injected = (
    [
      [sources[1]!, "for (unsigned kStep = 0; kStep < 4; kStep++) {"],
      [rsMainloop, "for (unsigned i = 0; i < 4; i++) {\n      wgmmaRs"],
    ] as const
  ).map(([source, before]) => {
    const code = source.cuda!.code.replace(before, before.replace("{", "{\n      acc[0][0] += 1;"));
    assert.notEqual(code, source.cuda!.code);
    return { ...source, cuda: { ...source.cuda!, code } };
  });

  let costs: readonly KernelCost[] | undefined;

  /** The costs of all of them, compiled in one run of the compiler. */
  function compileAll(): readonly KernelCost[] {
    costs ??= compileWithNvcc([...some, ...injected], "sm_90a");
    return costs;
  }

  test("compiles without a warning, needs no local memory, and does not serialise wgmma", () => {
    for (const [index, cost] of compileAll().slice(0, some.length).entries()) {
      const { stackBytes, spillBytes, isSerialized, registers } = cost;
      const actual = { stackBytes, spillBytes, isSerialized };
      assert.deepEqual(actual, { stackBytes: 0, spillBytes: 0, isSerialized: false }, `source ${index}`);
      assert.ok(registers * (some[index]!.cuda!.threads ?? 0) <= 65_536, `${registers} registers`);
      assert.ok((some[index]!.cuda!.sharedBytes ?? 0) <= 227 * 1024);
    }
  });

  test("red proof: accumulators that are initialised between wgmmas serialise them", () => {
    const found = compileAll().slice(some.length);
    assert.equal(found.length, injected.length);
    for (const { isSerialized } of found) assert.equal(isSerialized, true);
  });
});
