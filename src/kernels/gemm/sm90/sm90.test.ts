/** Products by warpgroups: right for every layout and edge, in groups and finished, and written nowhere beside what is theirs. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { isThorough } from "../../../../test/support/effort.js";
import { encodeFloats } from "../../../../test/support/encoded-values.js";
import { cudaMissing, openCudaKernelRuntime, put } from "../../../../test/support/kernel-runtime.js";
import { compileWithNvcc, noCompiler } from "../../../../test/support/nvcc.js";
import {
  biasStepOf,
  drawValues,
  expectedOf,
  layOutGemm,
  proveValues,
  type RandomGemm,
  type RandomMatrix,
  smallValues,
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
import {
  countCtas,
  type Epilogue,
  isMmaSyncMainloop,
  isRsMainloop,
  listCandidates,
  prefersTransposed,
  type Sm90Config,
  type Sm90Tile,
  selectBatchedConfig,
  selectEpilogueConfig,
  selectGroupedConfig,
  singleWaveTile,
  sm90Tiles,
  splitKTile,
} from "./configs.js";
import { colsumRows } from "./epilogue-store.js";
import { sm90Source } from "./kernel.js";
import { lowerSm90Gemms } from "./launch.js";

const [large, square] = [192, 128].map((size) => sm90Tiles.find(({ tileM }) => tileM === size)!) as [
  Sm90Tile,
  Sm90Tile,
];
const small = sm90Tiles.find(({ tileM, tileN }) => tileM === 64 && tileN === 128)!;
const mmaSyncTile = sm90Tiles.find(({ tileN }) => tileN === 64)!;
/** Tiles in which a warpgroup has 64 columns: rows in eights, and one warpgroup or several. */
const swappedTiles = [
  { m: 24, n: 64 },
  { m: 104, n: 192 },
].map((size) => singleWaveTile(size, 1)!);
const hopper = { kind: "cuda", computeCapability: "9.0", parallelism: 132 } as const;
const elements: readonly MmaElement[] = ["bf16", "f16", "tf32"];
const dtypeOf = (element: MmaElement) => (element === "tf32" ? "f32" : element);

/** The sample of every run is the same, so that its kernels are compiled once on a machine. */
const drawing = (quick: number, thorough: number) =>
  isThorough ? { numRuns: thorough } : { numRuns: quick, seed: 20_251_117 };

/** Rows begin on 16 bytes of either dtype: see `aligned`. */
const matrix: fc.Arbitrary<RandomMatrix> = fc.record({
  ...{ isTransposed: fc.constant(false), form: fc.constant("apart" as const) },
  ...{ gap: fc.constantFrom(0, 0, 8), offset: fc.constantFrom(0, 8) },
});

const size = fc.constantFrom(8, 72, 136, 200);
/** Rows of operands may end anywhere, if those of C don't. */
const oddSize = fc.constantFrom(8, 61, 72, 193);

const drawGemm: fc.Arbitrary<RandomGemm> = fc.record({
  ...{ dtype: fc.constant("f32" as const), resultDtype: fc.constant("f32" as const) },
  ...{ m: oddSize, n: size, k: fc.constantFrom(64, 72, 193), batch: fc.constantFrom(1, 1, 3) },
  ...{ a: matrix, b: matrix, c: matrix },
  ...{ alpha: fc.constant(1), beta: fc.constant(0) },
  bias: fc.constantFrom("none", "one", "batched"),
  activation: fc.constant("none" as const),
});

/** A weight gradient: the terms of both operands lie apart. A batch may lie in any way, and an operand may be one for all. */
const drawGradient: fc.Arbitrary<RandomGemm> = fc
  .record({
    ...{ one: drawGemm, m: fc.constantFrom(8, 61, 193, 264), k: fc.constantFrom(20, 64, 72, 193, 577) },
    ...{
      left: fc.constantFrom("apart", "in turn", "shared"),
      right: fc.constantFrom("apart", "in turn", "shared"),
    },
  } as const)
  .map(({ one, m, k, left, right }) => ({
    ...{ ...one, m, k, bias: "none" },
    ...{ a: { ...one.a, isTransposed: true, form: left }, b: { ...one.b, form: right } },
  }));

/** What becomes of a result x beside another y: 3x − y as it is, and their sum as a half float. */
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

/** The same, with sums of the columns of both that are stored, as they are stored. */
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

/** The same with as much room between rows as lets each begin on 16 bytes. */
function aligned(drawn: RandomGemm): RandomGemm {
  const { m, n, k } = drawn;
  const roomy = (one: RandomMatrix, length: number): RandomMatrix => ({
    ...one,
    gap: one.gap + ((8 - (length % 8)) % 8),
  });
  const a = roomy(drawn.a, drawn.a.isTransposed ? m : k);
  const b = roomy(drawn.b, drawn.b.isTransposed ? k : n);
  return { ...drawn, a, b };
}

describe("a product by warpgroups", { skip: cudaMissing }, () => {
  const runtime = cudaMissing ? undefined! : openCudaKernelRuntime();
  const floatsIn = (storage: Parameters<typeof runtime.read>[0]): Float64Array =>
    Float64Array.from(new Float32Array(runtime.read(storage).slice().buffer));

  /** A product in step memory, its config in a tile, and the proof of what its C should hold. */
  function place(drawn: RandomGemm, element: MmaElement, tile = sm90Tiles[0]!) {
    const layouts = layOutGemm(drawn);
    const values = drawValues(drawn);
    const { m, n, k } = drawn;
    const whole = put(runtime, Float32Array.from(values.c), "c");
    const lying = (name: "a" | "b" | "c") => {
      const { offset, extent, rowStride, batchStride } = layouts[name];
      const storage = name === "c" ? whole : put(runtime, encodeFloats(values[name], dtypeOf(element)), name);
      const each = storage.span.size / layouts[name].length;
      const view = runtime.view(storage, each * offset, each * extent);
      return { storage: view, rowStride, batchStride, isTransposed: drawn[name].isTransposed };
    };
    const bias = drawn.bias === "none" ? undefined : put(runtime, Float32Array.from(values.bias), "bias");
    const problem: GemmProblem<GemmInputDtype> = {
      ...{ dtype: dtypeOf(element), resultDtype: "f32", m, n, k, batch: drawn.batch },
      ...{ a: lying("a"), b: lying("b"), c: lying("c") },
      ...(bias && { bias, biasBatchStride: biasStepOf(drawn) }),
    };
    const isKMajor = { a: !drawn.a.isTransposed, b: drawn.b.isTransposed };
    const config: Sm90Config = { element, tile, isKMajor, hasBias: bias !== undefined };
    const expected = expectedOf(drawn, values);
    return { problem, config, expected, prove: () => proveValues(drawn, floatsIn(whole), expected) };
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

  test("is right for any shape, layout and bias, in each of the tiles, and writes nothing beside C", () => {
    let count = 0;
    for (const element of elements) {
      for (const tile of [...sm90Tiles, ...swappedTiles]) {
        for (const [isATransposed, isBTransposed] of layoutsOf(element, tile)) {
          // f16 differs from bf16 in how an element is widened, whatever the layout.
          if (element === "f16" && !isThorough && (isATransposed || isBTransposed)) continue;
          const isKnown = count++ % 2 === 0;
          fc.assert(
            fc.property(drawGemm, fc.boolean(), (drawn, isOther) =>
              runtime.step(() => {
                const a = { ...drawn.a, isTransposed: isATransposed };
                const b = { ...drawn.b, isTransposed: isBTransposed };
                const { problem, config, prove } = place(aligned({ ...drawn, a, b }), element, tile);
                const known = { constantN: drawn.n, isUnbatched: drawn.batch === 1 };
                const hasKnown = isThorough ? isOther : isKnown;
                submit(runtime, [
                  lowerSm90Gemms([problem], { ...config, ...(hasKnown && known) }, "product"),
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

  test("of floats whose terms lie apart is right for any shape, each warp by itself", () => {
    fc.assert(
      fc.property(drawGemm, (drawn) =>
        runtime.step(() => {
          const turned = aligned({ ...drawn, a: { ...drawn.a, isTransposed: true }, bias: "none" });
          const { problem, config, prove } = place(turned, "tf32", mmaSyncTile);
          assert.ok(isMmaSyncMainloop(config));
          submit(runtime, [lowerSm90Gemms([problem], config, "product")]);
          prove();
        }),
      ),
      drawing(3, 8),
    );
  });

  test("of floats whose terms lie apart is right for any shape, batch and group, A through registers", () => {
    fc.assert(
      fc.property(fc.array(drawGradient, { minLength: 1, maxLength: 3 }), (group) =>
        runtime.step(() => {
          const placed = group.map((drawn) => place(aligned(drawn), "tf32", splitKTile));
          const { config } = placed[0]!;
          assert.ok(isRsMainloop(config) && !isMmaSyncMainloop(config));
          submit(runtime, [
            lowerSm90Gemms(
              placed.map(({ problem }) => problem),
              config,
              "products",
            ),
          ]);
          for (const { prove } of placed) prove();
        }),
      ),
      drawing(3, 8),
    );
  });

  test("stores C as half floats for any shape, layout and bias, rounded once, and nothing beside it", () => {
    for (const element of ["bf16", "f16"] as const) {
      for (const tile of [...sm90Tiles, ...swappedTiles]) {
        fc.assert(
          fc.property(drawGemm, fc.boolean(), (drawn, isTransposed) =>
            runtime.step(() => {
              const { problem, config, expected } = place(
                aligned({ ...drawn, b: { ...drawn.b, isTransposed } }),
                element,
                tile,
              );
              const { length, ...layout } = layOutGemm(drawn).c;
              const whole = put(runtime, new Uint16Array(length).fill(7), "c");
              const storage = runtime.view(whole, 2 * layout.offset, 2 * layout.extent);
              const narrow = { ...problem, resultDtype: element, biasDtype: "f32" } as const;
              const c = { ...problem.c, storage };
              submit(runtime, [
                lowerSm90Gemms([{ ...narrow, c }], { ...config, resultDtype: element }, "product"),
              ]);
              const found = new Uint16Array(runtime.read(whole).slice().buffer);
              const rounded = new Uint16Array(encodeFloats(expected, element).buffer);
              for (const [index, value] of expected.entries())
                assert.equal(found[index], Number.isNaN(value) ? 7 : rounded[index], `element ${index}`);
            }),
          ),
          drawing(1, 2),
        );
      }
    }
  });

  test("of a batch takes an operand that all share, from either side", () => {
    const [m, n, k, batch] = [72, 64, 64, 3];
    const put16 = (values: readonly number[], name: string) =>
      put(runtime, encodeFloats(values, "bf16"), name);
    const [one, many] = [
      (count: number) => Array<number>(count).fill(1),
      (count: number) => Array.from({ length: batch * count }, (_, index) => 1 + Math.floor(index / count)),
    ];
    for (const isLeftShared of [true, false]) {
      runtime.step(() => {
        const c = runtime.arena.allocate(4 * batch * m * n, "c");
        const left = put16(isLeftShared ? one(m * k) : many(m * k), "a");
        const right = put16(isLeftShared ? many(k * n) : one(k * n), "b");
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

  /** The sums of 128 products of two floats, all of them alike, whose terms lie apart in both operands. */
  function sumsOf(left: number, right: number, tile: Sm90Tile): Float32Array {
    const [m, n, k] = [72, 64, 128];
    return runtime.step(() => {
      const fill = (count: number, of: number, name: string) =>
        put(runtime, new Float32Array(count).fill(of), name);
      const c = runtime.arena.allocate(4 * m * n, "c");
      const problem: GemmProblem<GemmInputDtype> = {
        ...{ dtype: "f32", m, n, k, c: { storage: c, rowStride: n } },
        a: { storage: fill(m * k, left, "a"), rowStride: m, isTransposed: true },
        b: { storage: fill(k * n, right, "b"), rowStride: n },
      };
      const isKMajor = { a: false, b: false };
      submit(runtime, [
        lowerSm90Gemms([problem], { element: "tf32", tile, isKMajor, hasBias: false }, "product"),
      ]);
      return Float32Array.from(floatsIn(c));
    });
  }
  // One bit more than TF32 has.
  const longer = 1 + 2 ** -10 + 2 ** -11;

  test("of floats has the bits of them that TF32 has, and no others", () => {
    // What is left of it where the terms lie apart: 1 + 2^-10.
    for (const [index, sum] of sumsOf(longer, 1, mmaSyncTile).entries())
      assert.equal(sum, 128 * (1 + 2 ** -10), `element ${index}`);
  });

  test("of floats through registers has what TF32 has of A's bits, and B rounded to them", () => {
    for (const isLeft of [true, false]) {
      const sums = isLeft ? sumsOf(longer, 1, splitKTile) : sumsOf(1, longer, splitKTile);
      for (const [index, sum] of sums.entries())
        assert.equal(sum, 128 * (1 + (isLeft ? 2 ** -10 : 2 ** -9)), `element ${index}`);
    }
  });

  const plain: RandomGemm = {
    ...{ dtype: "f32", resultDtype: "f32", m: 72, n: 136, k: 72, batch: 1, alpha: 1, beta: 0 },
    ...{ bias: "one", activation: "none" },
    a: { isTransposed: false, form: "apart", gap: 8, offset: 0 },
    b: { isTransposed: false, form: "apart", gap: 8, offset: 0 },
    c: { isTransposed: false, form: "apart", gap: 0, offset: 0 },
  };

  test("red proof: the check sees a layout, a stride, a term and a bias that are not the product's", () => {
    type Placed = Pick<ReturnType<typeof place>, "problem" | "config">;
    const faults: Record<string, (placed: Placed) => Placed> = {
      "B's layout": ({ problem, config }) => ({
        problem,
        config: { ...config, isKMajor: { ...config.isKMajor, b: true } },
      }),
      "A's stride": ({ problem, config }) => ({
        problem: { ...problem, a: { ...problem.a, rowStride: 72 } },
        config,
      }),
      "the terms": ({ problem, config }) => ({ problem: { ...problem, k: 64 }, config }),
      "the bias": ({ problem: { bias: _, ...problem }, config }) => ({
        problem,
        config: { ...config, hasBias: false },
      }),
    };
    // As many columns as terms, so that B the other way round lies in its memory, too: what goes beyond that is rejected.
    const even = { ...plain, n: plain.k };
    for (const [what, inject] of Object.entries(faults)) {
      runtime.step(() => {
        const placed = place(even, "bf16");
        const { problem, config } = inject(placed);
        submit(runtime, [lowerSm90Gemms([problem], config, "product")]);
        assert.throws(placed.prove, /element \d+ of C's memory/, what);
      });
    }
  });

  test("is rejected with a layout in which an operand would go beyond its memory", () => {
    runtime.step(() => {
      const { problem, config } = place(plain, "bf16");
      const turned = { ...config, isKMajor: { ...config.isKMajor, b: true } };
      const launch = (): void => submit(runtime, [lowerSm90Gemms([problem], turned, "product")]);
      assert.throws(launch, {
        code: "BAD_ARGUMENT",
        message: /takes it as a tensor map of 1 × 136 × 72 elements of bf16/,
      });
    });
  });

  test("red proof: the check sees a stride, a term and a matrix that are not a gradient's", () => {
    const gradient = { ...plain, k: 193, batch: 3, bias: "none" } as const;
    const drawn = aligned({ ...gradient, a: { ...plain.a, isTransposed: true } });
    type Placed = ReturnType<typeof place>["problem"];
    const faults: Record<string, (problem: Placed) => Placed> = {
      "A's stride": (problem) => ({ ...problem, a: { ...problem.a, rowStride: problem.a.rowStride - 4 } }),
      "B's stride": (problem) => ({ ...problem, b: { ...problem.b, rowStride: problem.b.rowStride - 4 } }),
      "the last term": (problem) => ({ ...problem, k: 192 }),
      "the second half of the terms": (problem) => ({ ...problem, k: 96 }),
      "which matrix of A": (problem) => ({ ...problem, a: { ...problem.a, batchStride: 0 } }),
      "which matrix of B": (problem) => ({ ...problem, b: { ...problem.b, batchStride: 0 } }),
      "a row of C": (problem) => ({ ...problem, m: 71 }),
      "columns of C": (problem) => ({ ...problem, n: 128 }),
    };
    for (const [what, inject] of Object.entries(faults)) {
      runtime.step(() => {
        const { problem, config, prove } = place(drawn, "tf32", splitKTile);
        submit(runtime, [lowerSm90Gemms([inject(problem)], config, "product")]);
        assert.throws(prove, /element \d+ of C's memory/, what);
      });
    }
  });

  test("is made beside others as it is alone", () => {
    const tilesOf = { bf16: [square], f16: [square], tf32: [mmaSyncTile, splitKTile] };
    for (const [element, tile] of elements.flatMap((one) => tilesOf[one].map((of) => [one, of] as const))) {
      runtime.step(() => {
        const turned = { ...plain, a: { ...plain.a, isTransposed: true }, bias: "none" } as const;
        const group = [
          { ...turned, m: 136, n: 64 },
          { ...turned, m: 8, n: 200 },
          { ...turned, m: 264, n: 136 },
          { ...turned, n: 72, batch: 3 },
        ].map((drawn) => place(drawn, element, tile));
        const problems = group.map(({ problem }) => problem);
        submit(runtime, [lowerSm90Gemms(problems, group[0]!.config, "products")]);
        for (const { prove } of group) prove();
      });
    }
  });

  test("is finished before it is stored, and stored itself only where it is kept, in tiles of every kind", () => {
    const tiles = [large, small, ...swappedTiles];
    for (const [element, tile] of elements.flatMap((one) => tiles.map((of) => [one, of] as const))) {
      for (const [storesC, isTransposed] of [
        [true, tile.swapsAB === true && element === "tf32"],
        [false, true],
      ] as const) {
        runtime.step(() => {
          const drawn: RandomGemm = { ...plain, b: { ...plain.b, isTransposed } };
          const { problem, config, expected, prove } = place(drawn, element, tile);
          const { m, n } = plain;
          const other = smallValues(m * n, 9);
          const input = put(runtime, Float32Array.from(other), "y");
          const outputs = [4, 2].map((bytes) => runtime.arena.allocate(bytes * m * n, "out"));
          const finish = { kernel: threefold, product: 1, storesC, scalars: [3] };
          const operands = [input, problem.c.storage, ...outputs];
          submit(runtime, [lowerSm90Gemms([problem], config, "product", { ...finish, operands })]);
          if (storesC) prove();
          else assert.ok(floatsIn(problem.c.storage).every(Number.isNaN), "C is as it was");
          const found = floatsIn(outputs[0]!);
          const halves = new Uint16Array(runtime.read(outputs[1]!).slice().buffer);
          const sums = Float64Array.from(other, (value, index) => value + expected[index]!);
          const sumBits = new Uint16Array(encodeFloats(sums, "bf16").buffer);
          for (const [index, value] of other.entries()) {
            assert.equal(found[index], 3 * expected[index]! - value, `element ${index}`);
            assert.equal(halves[index], sumBits[index], `half float ${index}`);
          }
        });
      }
    }
  });

  test("keeps its result as half floats beside a finish that has it before it is rounded, and loads half floats", () => {
    runtime.step(() => {
      const unbiased: RandomGemm = { ...plain, bias: "none" };
      const { problem, config } = place(plain, "bf16");
      const { m, n } = plain;
      // Too little for bf16 beside a sum.
      const bias = put(runtime, new Float32Array(n).fill(2 ** -10), "bias");
      const other = smallValues(m * n, 9);
      const input = put(runtime, encodeFloats(other, "bf16"), "y");
      const [c, ...outputs] = [2, 4, 2].map((bytes) => runtime.arena.allocate(bytes * m * n, "out"));
      const kernel: RowKernel = { ...threefold, inputs: ["bf16", "f32"] };
      const finish = { kernel, product: 1, storesC: true, scalars: [3] };
      const narrow = { ...problem, bias, resultDtype: "bf16", biasDtype: "f32" } as const;
      const on = { ...narrow, c: { storage: c!, rowStride: n } };
      const operands = [input, undefined, ...outputs];
      submit(runtime, [
        lowerSm90Gemms([on], { ...config, resultDtype: "bf16" }, "product", { ...finish, operands }),
      ]);
      const sums = expectedOf(unbiased, drawValues(unbiased)).map((sum) => sum + 2 ** -10);
      const rounded = new Uint16Array(encodeFloats(sums, "bf16").buffer);
      const kept = new Uint16Array(runtime.read(c!).slice().buffer);
      const found = floatsIn(outputs[0]!);
      for (const [index, value] of other.entries()) {
        assert.equal(kept[index], rounded[index], `half float ${index}`);
        assert.equal(found[index], Math.fround(3 * sums[index]! - value), `element ${index}`);
      }
    });
  });

  test("reads back what its finish has stored as it was rounded", () => {
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
      const { problem, config, expected } = place(plain, "tf32");
      const { c: _, ...unplaced } = problem;
      const { m, n } = plain;
      const [halves, doubled] = [2, 4].map((bytes) => runtime.arena.allocate(bytes * m * n, "out"));
      const finish = { kernel: twice, product: 0, forwarded: [undefined, 0], storesC: false, scalars: [] };
      const operands = [undefined, halves, halves, doubled];
      submit(runtime, [lowerSm90Gemms([unplaced], config, "product", { ...finish, operands })]);
      const found = floatsIn(doubled!);
      let exact = 0;
      for (const [index, value] of expected.subarray(0, m * n).entries()) {
        // What is small keeps the addend, what is large rounds it away.
        assert.ok(Math.abs(found[index]! - 2 * value) <= 2 ** -11, `element ${index}`);
        if (found[index] === 2 * value) exact++;
      }
      assert.ok(exact > expected.length / 2 && exact < expected.length);
    });
  });

  test("adds up columns of what its finish stores, of sixteen rows each", () => {
    for (const element of elements) {
      // The last rows are fewer, and some warps have none.
      for (const m of [72, 200]) {
        runtime.step(() => {
          const { problem, config } = place({ ...plain, m }, element, large);
          const { n } = plain;
          const { c: _, ...unplaced } = problem;
          const input = put(runtime, Float32Array.from(smallValues(m * n, 9)), "y");
          const stored = [4, 2].map((bytes) => runtime.arena.allocate(bytes * m * n, "out"));
          const groups = Math.ceil(m / colsumRows);
          const beside = 8;
          const sums = [1, 2].map(() =>
            put(runtime, new Float32Array((groups + 1) * n + beside).fill(Number.NaN), "sums"),
          );
          const forwarded = [undefined, undefined, 0, 1];
          const finish = { kernel: summing, product: 1, forwarded, storesC: false, scalars: [3] };
          const operands = [input, undefined, ...stored, ...stored, ...sums];
          submit(runtime, [lowerSm90Gemms([unplaced], config, "product", { ...finish, operands })]);
          const widened = [
            floatsIn(stored[0]!),
            widenBf16(new Uint16Array(runtime.read(stored[1]!).slice().buffer)),
          ];
          for (const [index, values] of widened.entries()) {
            const found = floatsIn(sums[index]!);
            const expected = new Float64Array(groups * n);
            for (const [place, value] of values.entries())
              expected[Math.floor(place / n / colsumRows) * n + (place % n)]! += value;
            assert.deepEqual(found.subarray(0, groups * n), expected, `${element}, sum ${index}`);
            assert.ok(found.subarray(groups * n).every(Number.isNaN), "nothing beside them");
          }
        });
      }
    }
  });

  test("has tanh and sigmoid in its finish that are right to 2^-21 of 1, and keep what is not finite", () => {
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
        const { problem, config, expected } = place(plain, "bf16");
        const { c: _, ...unplaced } = problem;
        const { m, n } = plain;
        const outputs = [1, 2].map(() => runtime.arena.allocate(4 * m * n, "out"));
        const finish = { kernel: quick, product: 0, storesC: false, scalars: [scale] };
        submit(runtime, [
          lowerSm90Gemms([unplaced], config, "product", {
            ...finish,
            operands: [undefined, ...outputs],
          }),
        ]);
        const [tanh, sigmoid] = outputs.map(floatsIn);
        for (const [index, value] of expected.subarray(0, m * n).entries()) {
          const x = value * Math.fround(scale);
          for (const [found, exact] of [
            [tanh![index]!, Math.tanh(x)],
            [sigmoid![index]!, 1 / (1 + Math.exp(-x))],
          ] as const)
            assert.ok(Object.is(found, exact) || Math.abs(found - exact) <= 2 ** -21, `of ${x}: ${found}`);
        }
      });
    }
  });

  test("of a batch is what gemm launches on Hopper where rows are odd, and no library's", () => {
    const isHopper = runtime.device.computeCapability === "9.0";
    runtime.step(() => {
      const drawn = aligned({ ...plain, n: 136, k: 193, batch: 3, bias: "batched" });
      const { problem, prove } = place(drawn, "bf16");
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

  test("is what gemm launches where it is chosen in the library's place, alone and for a batch", () => {
    const isHopper = runtime.device.computeCapability === "9.0";
    // So many blocks that a GPU of this size is worth the trial.
    const wide = { ...plain, m: runtime.device.parallelism > 32 ? 1600 : 400, n: 520, bias: "none" } as const;
    for (const drawn of [wide, { ...wide, n: 264, batch: 3 }]) {
      runtime.step(() => {
        const { problem, prove } = place(drawn, "bf16");
        const choices = gemmCandidates(runtime, problem);
        assert.equal(choices.includes(firstNativeAlgorithm), isHopper);
        assert.equal(choices[0], 0);
        if (!isHopper) return;
        for (const choice of choices.filter((one) => one <= firstNativeAlgorithm)) {
          assert.equal(gemmScratchBytes(runtime, { ...problem, algorithm: choice }), 0);
          const calls = gemmCalls({ ...problem, algorithm: choice });
          const commands = lowerCalls(backendOf(runtime), calls);
          assert.deepEqual(
            commands.map((one) => one.kind === "launch" && one.source.name),
            ["gemm_bf16_sm90"],
          );
          submit(runtime, calls);
          prove();
        }
      });
    }
  });

  test("is what grouped GEMMs and GEMMs with an epilogue are lowered to on Hopper, and rejected elsewhere", () => {
    const isHopper = runtime.device.computeCapability === "9.0";
    runtime.step(() => {
      const drawn = { ...plain, m: 64, n: 64, k: 1024, bias: "none" } as const;
      const group = [1, 2].map(() =>
        place({ ...drawn, a: { ...drawn.a, isTransposed: true } }, "bf16", square),
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
      const { problem } = place(plain, "bf16");
      const finish: Epilogue = { kernel: threefold, product: 1, storesC: true };
      assert.equal(canFuseEpilogue(runtime, problem, finish), false, "too small to be worth it");
      assert.throws(
        () =>
          submit(
            runtime,
            backendOf(runtime).lowerGemmEpilogue(problem, { ...finish, operands: [], scalars: [] }, "gemm"),
          ),
        {
          code: "BAD_ARGUMENT",
        },
      );
    });
  });
});

describe("the config of products by warpgroups", () => {
  const lying = (rowStride: number, address = 256) => ({
    storage: { span: span(address, 2 ** 30) },
    rowStride,
  });
  const outline = (shape: { m: number; n: number; k: number }, more = {}): GemmDesc => ({
    ...{ dtype: "bf16", resultDtype: "f32", ...shape },
    ...{ a: lying(shape.k), b: lying(shape.n), c: lying(shape.n) },
    ...more,
  });
  const gradient = (m: number, n: number, more = {}): GemmDesc =>
    outline({ m, n, k: 3072 }, { a: { ...lying(m), isTransposed: true }, ...more });

  test("is there for groups of weight gradients, on Hopper alone", () => {
    const pair = [gradient(256, 1024), gradient(1024, 256)];
    assert.equal(selectGroupedConfig(hopper, "bf16", pair)?.element, "bf16");
    const batch = {
      batch: 3,
      b: { ...lying(768), batchStride: 256 },
      c: { ...lying(256), batchStride: 65536 },
    };
    assert.equal(selectGroupedConfig(hopper, "bf16", [...pair, gradient(256, 256, batch)])?.element, "bf16");
    assert.equal(selectGroupedConfig({ ...hopper, computeCapability: "8.0" }, "bf16", pair), undefined);
    assert.equal(selectGroupedConfig({}, "bf16", pair), undefined);
    for (const other of [
      outline({ m: 3072, n: 1024, k: 1024 }),
      gradient(256, 1024, { beta: 1 }),
      gradient(256, 1024, { batch: 2, c: { ...lying(1024), batchStride: 256 * 1024 + 2 } }),
      gradient(256, 1028),
      gradient(256, 1024, { resultDtype: "bf16" }),
      gradient(256, 1024, { b: lying(1024, 264) }),
      gradient(256, 1024, { dtype: "f16" }),
    ])
      assert.equal(selectGroupedConfig(hopper, "bf16", [...pair, other]), undefined);
    const floats = [gradient(256, 1024, { dtype: "f32" }), gradient(1024, 256, { dtype: "f32" })];
    assert.equal(selectGroupedConfig(hopper, "tf32", floats)?.element, "tf32");
    assert.equal(selectGroupedConfig(hopper, "tf32", floats)?.tile, splitKTile);
    assert.equal(selectGroupedConfig(hopper, "bf16", pair)?.tile, square);
    assert.deepEqual(
      floats.map((one) => countCtas(one, splitKTile)),
      [16, 16],
      "two for each of eight tiles",
    );
    assert.equal(selectGroupedConfig(hopper, "f32", floats), undefined);
    assert.equal(selectGroupedConfig(hopper, "bf16", []), undefined);
  });

  test("has blocks with tiles of the same rows beside each other, where there is an even number of those in a row", () => {
    const clusterOf = (config: Sm90Config | undefined): string | undefined =>
      sm90Source(config!, ["out"]).cuda?.code.match(/__cluster_dims__\((\d)/)?.[1];
    const plain = (n: number): Sm90Config | undefined =>
      listCandidates(hopper, "bf16", outline({ m: 3072, n, k: 256 }))[0];
    assert.deepEqual(
      [256, 768, 64, 320].map((n) => clusterOf(plain(n))),
      ["2", "2", undefined, undefined],
    );
    const pair = [gradient(256, 1024), gradient(1024, 256)];
    assert.equal(selectGroupedConfig(hopper, "bf16", pair)?.clusterN, 2);
    assert.equal(selectGroupedConfig(hopper, "bf16", [...pair, gradient(256, 128)])?.clusterN, undefined);
    const floats = pair.map((one) => ({ ...one, dtype: "f32" as const }));
    assert.equal(selectGroupedConfig(hopper, "tf32", floats)?.clusterN, undefined, "pairs share terms");
  });

  test("is there for batches of small products whose rows have an odd length", () => {
    const each = (more = {}): GemmDesc => ({
      ...outline({ m: 256, n: 256, k: 193 }),
      ...{ batch: 12, a: { ...lying(2400), batchStride: 200 }, b: { ...lying(256), batchStride: 49408 } },
      ...{ c: { ...lying(3072), batchStride: 256 }, ...more },
    });
    assert.equal(selectBatchedConfig(hopper, "bf16", each())?.element, "bf16");
    for (const other of [
      each({ batch: 1 }),
      each({ k: 192 }),
      each({ m: 4096 }),
      each({ a: { ...lying(2316), batchStride: 193 } }),
      each({ c: { ...lying(3072), batchStride: 257 } }),
    ])
      assert.equal(selectBatchedConfig(hopper, "tf32", other), undefined);
    const floats = each({ dtype: "f32" });
    assert.equal(selectBatchedConfig(hopper, "tf32", floats)?.element, "tf32");
    assert.equal(selectBatchedConfig(hopper, "f32", floats), undefined);
    const apart = { ...floats, a: { ...floats.a, isTransposed: true }, m: 193, k: 256 };
    const bias = { span: span(256, 2 ** 20) };
    assert.equal(selectBatchedConfig(hopper, "tf32", apart)?.tile, mmaSyncTile);
    assert.equal(selectBatchedConfig(hopper, "tf32", { ...apart, bias }), undefined, "warps add no bias");
    const turned = { ...apart, b: { ...lying(256), batchStride: 65536, isTransposed: true } };
    assert.equal(selectBatchedConfig(hopper, "tf32", turned), undefined, "one along and one apart");
  });

  test("is there by itself, to be measured, in tiles of which there are enough", () => {
    const one = outline({ m: 3072, n: 768, k: 256 });
    const formsOf = (problem: GemmDesc) => listCandidates(hopper, "tf32", problem);
    const tilesOf = (problem: GemmDesc) => formsOf(problem).map(({ tile }) => [tile.tileM, tile.tileN]);
    assert.equal(formsOf(one)[0]?.element, "bf16");
    assert.equal(formsOf({ ...one, dtype: "f32" })[0]?.element, "tf32");
    const [ofLarge, ofSmall] = [large, small].map(({ tileM, tileN }) => [tileM, tileN]);
    assert.deepEqual(tilesOf(one), [[144, 128]], "one wave");
    assert.deepEqual(tilesOf({ ...one, dtype: "f32" }), [ofLarge, ofSmall], "floats that lie apart");
    const along = { ...one, dtype: "f32", b: { ...one.b, isTransposed: true } } as const;
    assert.deepEqual(tilesOf(along), [[144, 128]], "floats that lie side by side");
    assert.deepEqual(tilesOf(outline({ m: 6144, n: 1024, k: 256 })), [ofLarge, ofSmall], "several waves");
    assert.deepEqual(tilesOf(outline({ m: 3072, n: 256, k: 256 })), [[96, 64]], "narrow");
    assert.deepEqual(tilesOf(outline({ m: 1024, n: 256, k: 256 })), [[32, 64]], "few rows");
    assert.deepEqual(tilesOf(outline({ m: 256, n: 64, k: 256 })), [], "less than a third of all");
    const batch = { n: 256, batch: 3, b: { ...lying(256), batchStride: 65536 } };
    assert.equal(formsOf({ ...one, ...batch, c: { ...lying(256), batchStride: 786432 } }).length, 1);
    assert.deepEqual(formsOf({ ...one, ...batch, c: { ...lying(256), batchStride: 786433 } }), []);
    const [single] = formsOf(one);
    assert.deepEqual(
      [single?.constantN, single?.isUnbatched],
      [768, true],
      "the code is for so many columns",
    );
    assert.deepEqual(formsOf({ ...one, a: { ...one.a, isTransposed: true } }), []);
    assert.deepEqual(listCandidates(hopper, "f32", { ...one, dtype: "f32" }), []);
  });

  test("would have floats of the right side turned where many rows are multiplied by them", () => {
    const one: GemmDesc = { ...outline({ m: 3072, n: 256, k: 256 }), dtype: "f32" };
    const isWanted = (problem: GemmDesc) => prefersTransposed(hopper, "tf32", problem);
    assert.ok(isWanted(one));
    assert.ok(!prefersTransposed(hopper, "f32", one));
    assert.ok(!isWanted({ ...one, dtype: "bf16" }), "half floats are read either way");
    assert.ok(!isWanted({ ...one, m: 512 }), "few rows");
    assert.ok(!isWanted({ ...one, b: { ...one.b, isTransposed: true } }), "along already");
    assert.ok(!isWanted({ ...one, a: { ...one.a, isTransposed: true } }), "a gradient");
    assert.ok(!isWanted({ ...one, k: 66, a: lying(68) }), "rows of the turned one would begin anywhere");
  });

  test("stores half floats of half floats, with a bias of f32, but for weight gradients", () => {
    const finish: Epilogue = { kernel: threefold, product: 1, storesC: true };
    const halves = { resultDtype: "bf16", biasDtype: "f32", bias: { span: span(256, 2 ** 20) } } as const;
    const one = outline({ m: 3072, n: 1024, k: 256 }, halves);
    const plainConfigOf = (problem: GemmDesc) => listCandidates(hopper, "bf16", problem)[0];
    assert.equal(selectEpilogueConfig(hopper, "bf16", one, finish)?.resultDtype, "bf16");
    assert.equal(plainConfigOf(one)?.resultDtype, "bf16");
    assert.equal(plainConfigOf({ ...one, resultDtype: "f32" })?.resultDtype, undefined);
    assert.equal(plainConfigOf({ ...one, biasDtype: "bf16" }), undefined, "a bias of bf16");
    assert.equal(plainConfigOf({ ...one, resultDtype: "f16" }), undefined, "another half");
    assert.equal(listCandidates(hopper, "tf32", { ...one, dtype: "f32" })[0], undefined, "of floats");
    assert.equal(plainConfigOf({ ...one, c: lying(1028) }), undefined, "rows on 8 bytes");
    const { bias: _, ...unbiased } = one;
    const turned = { ...unbiased, k: 3072, a: { ...lying(3072), isTransposed: true } };
    assert.equal(selectGroupedConfig(hopper, "bf16", [turned]), undefined);
    assert.ok(selectGroupedConfig(hopper, "bf16", [{ ...turned, resultDtype: "f32" }]));
  });

  test("is there for a finish where the result is large and the terms are few", () => {
    const finish: Epilogue = { kernel: threefold, product: 1, storesC: true };
    const one = outline({ m: 3072, n: 1024, k: 256 });
    const formOf = (problem: GemmDesc, of = finish) => selectEpilogueConfig(hopper, "tf32", problem, of);
    assert.equal(formOf(one)?.tile, large);
    assert.equal(formOf(outline({ m: 3072, n: 1024, k: 768 })), undefined, "more than large tiles are for");
    assert.equal(formOf(one)?.element, "bf16");
    assert.equal(formOf({ ...one, dtype: "f32" })?.element, "tf32");
    assert.equal(selectEpilogueConfig(hopper, "f32", { ...one, dtype: "f32" }, finish), undefined);
    assert.equal(formOf(outline({ m: 3072, n: 256, k: 1024 })), undefined, "many terms");
    assert.equal(formOf(outline({ m: 300, n: 256, k: 256 })), undefined, "a small result");
    assert.equal(formOf({ ...one, c: lying(1032) }), undefined, "a result with gaps");
    assert.equal(formOf({ ...one, a: { ...one.a, isTransposed: true } }), undefined);
    const reducing: RowKernel = {
      ...threefold,
      stages: [{ kind: "reduce", op: "add", value: term.load(0, "f32") }, ...threefold.stages],
    };
    assert.equal(formOf(one, { ...finish, kernel: reducing }), undefined, "no elementwise work");
    const ofRows: RowKernel = {
      ...threefold,
      outputs: threefold.outputs.map((one) => ({ ...one, per: "row" })),
    };
    assert.equal(formOf(one, { ...finish, kernel: ofRows }), undefined, "values of rows");
  });

  test("is there for sums of columns where a warp stores a whole row of its tile at a time", () => {
    const finish: Epilogue = {
      kernel: summing,
      product: 1,
      forwarded: [undefined, undefined, 0, 1],
      storesC: false,
    };
    assert.equal(
      selectEpilogueConfig(hopper, "bf16", outline({ m: 3072, n: 1024, k: 256 }), finish)?.tile,
      large,
    );
    const narrow = outline({ m: 3072, n: 256, k: 256 });
    assert.ok(selectEpilogueConfig(hopper, "bf16", narrow, { ...finish, kernel: threefold })?.tile.swapsAB);
    assert.equal(
      selectEpilogueConfig(hopper, "bf16", narrow, finish),
      undefined,
      "a tile that is turned round",
    );
  });

  test("is there for a finish in small tiles where large ones would leave most of the GPU idle", () => {
    const finish: Epilogue = { kernel: threefold, product: 1, storesC: false };
    const along = (shape: { m: number; n: number; k: number }, more = {}): GemmDesc =>
      outline(shape, { b: { ...lying(shape.k), isTransposed: true }, ...more });
    const tileOf = (problem: GemmDesc, parallelism = 132) =>
      selectEpilogueConfig({ ...hopper, parallelism }, "tf32", problem, finish)?.tile;
    const narrow = { m: 3072, n: 256, k: 768 };
    const wave = singleWaveTile(narrow, 132);
    assert.deepEqual([wave?.tileM, wave?.tileN], [96, 64]);
    assert.deepEqual(tileOf(along(narrow)), wave);
    assert.deepEqual(tileOf(outline(narrow)), wave, "half floats are read either way");
    assert.deepEqual(tileOf(along(narrow, { dtype: "f32" })), wave);
    assert.equal(tileOf({ ...outline(narrow), dtype: "f32" }), undefined, "floats would have to be turned");
    assert.equal(tileOf(along({ ...narrow, k: 776 })), undefined, "many terms");
    assert.equal(tileOf(along({ ...narrow, m: 2040 })), undefined, "a small result");
    assert.deepEqual(tileOf(along({ ...narrow, m: 2048 })), singleWaveTile({ ...narrow, m: 2048 }, 132));
    // Of 32 large tiles.
    assert.deepEqual(
      [64, 65].map((parallelism) => tileOf(along(narrow), parallelism)),
      [undefined, singleWaveTile(narrow, 65)],
    );
    const wide = { m: 1024, n: 1024, k: 256 };
    assert.deepEqual(
      [96, 97].map((parallelism) => tileOf(along(wide), parallelism)),
      [large, singleWaveTile(wide, 97)],
    );
    assert.equal(tileOf({ ...outline(wide), dtype: "f32" }), large, "floats that have to be turned");
    const moving: RowKernel = {
      ...{ name: "f32 to bf16", inputs: ["f32"], outputs: [{ dtype: "bf16", per: "element" }], scalars: [] },
      stages: [{ kind: "store", output: 0, value: term.load(0, "f32") }],
    };
    const converting = { kernel: moving, product: 0, storesC: true };
    const few = { ...narrow, k: 256 };
    assert.deepEqual(tileOf(along(few)), wave);
    assert.equal(
      selectEpilogueConfig(hopper, "bf16", along(few), converting),
      undefined,
      "no work of its own",
    );
    assert.equal(selectEpilogueConfig(hopper, "bf16", along(wide), converting)?.tile, large);
  });
});

describe("a swappedTiles tile", () => {
  const sizesOf = (m: number, n: number, parallelism = 132, batch = 1) => {
    const tile = singleWaveTile({ m, n, batch }, parallelism);
    return tile && [tile.tileM, tile.tileN];
  };

  test("is the one with the least to bring of those that all multiprocessors make at once", () => {
    assert.deepEqual(sizesOf(3072, 256), [96, 64]);
    assert.deepEqual(sizesOf(3072, 768), [144, 128]);
    assert.deepEqual(sizesOf(3072, 1024), [192, 128]);
    assert.deepEqual(sizesOf(256, 256, 132, 12), [56, 128]);
    assert.deepEqual(sizesOf(8, 8), [8, 64]);
    assert.equal(sizesOf(3072, 4096), undefined, "too large for registers");
    assert.equal(sizesOf(256, 256, 132, 200), undefined, "more matrices than multiprocessors");
  });

  test("there are never more of than multiprocessors, and its sums fit into registers", () => {
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

describe("the code of products by warpgroups under nvcc", { skip: noCompiler() }, () => {
  const finish: Epilogue = { kernel: threefold, product: 1, storesC: true };
  const formOf = (element: MmaElement, tile: Sm90Tile, a: boolean, b: boolean): Sm90Config => ({
    ...{ element, tile, isKMajor: { a, b }, hasBias: a },
  });
  const byRegisters = sm90Source(formOf("tf32", splitKTile, false, false), Array(8).fill("out"));
  const sources = [
    sm90Source(formOf("bf16", square, false, false), ["out", "partial-out", "out"]),
    sm90Source(formOf("f16", square, false, false), ["out"]),
    ...elements.flatMap((element) =>
      [true, false].flatMap((isKMajor) =>
        [large, small].map((tile) =>
          sm90Source(formOf(element, tile, true, isKMajor), ["out"], {
            ...finish,
            storesC: isKMajor === (tile === large),
          }),
        ),
      ),
    ),
    ...[true, false].flatMap((a) =>
      [true, false].map((b) => sm90Source(formOf("bf16", small, a, b), ["partial-out"])),
    ),
    ...elements.map((element) =>
      sm90Source(formOf(element, large, true, true), ["out"], {
        ...{ kernel: summing, product: 1, forwarded: [undefined, undefined, 0, 1], storesC: false },
      }),
    ),
    ...[finish, undefined].map((kept) =>
      sm90Source({ ...formOf("bf16", large, true, false), resultDtype: "bf16" }, ["out"], kept),
    ),
    sm90Source({ ...formOf("f16", small, true, true), resultDtype: "f16" }, ["partial-out"]),
    sm90Source(formOf("tf32", mmaSyncTile, false, false), ["out", "partial-out"]),
    byRegisters,
    sm90Source(formOf("tf32", small, true, false), ["partial-out"]),
    ...[
      singleWaveTile({ m: 3072, n: 256 }, 132)!,
      singleWaveTile({ m: 3072, n: 1024 }, 132)!,
      swappedTiles[1]!,
    ].flatMap((tile) => [
      sm90Source({ ...formOf("bf16", tile, true, false), resultDtype: "bf16" }, ["out"]),
      sm90Source(formOf("tf32", tile, true, true), ["out"], finish),
    ]),
  ];

  test("compiles without a warning, needs no local memory, and lets no product wait for the last", () => {
    // One of five, and the one with the most registers.
    const some = isThorough
      ? sources
      : sources.filter((source, index) => index % 5 === 0 || source === byRegisters);
    for (const [index, cost] of compileWithNvcc(some, "sm_90a").entries()) {
      const { stackBytes, spillBytes, isSerialized, registers } = cost;
      const found = { stackBytes, spillBytes, isSerialized };
      assert.deepEqual(found, { stackBytes: 0, spillBytes: 0, isSerialized: false }, `source ${index}`);
      assert.ok(registers * (some[index]!.cuda!.threads ?? 0) <= 65_536, `${registers} registers`);
      assert.ok((some[index]!.cuda!.sharedBytes ?? 0) <= 227 * 1024);
    }
  });

  test("red proof: sums that are set between products are seen to make them wait", () => {
    const faults = [
      [sources[0]!, "for (unsigned kStep = 0; kStep < 4; kStep++) {"],
      [byRegisters, "for (unsigned i = 0; i < 4; i++) {\n      wgmmaRs"],
    ] as const;
    const injected = faults.map(([source, before]) => {
      const code = source.cuda!.code.replace(before, before.replace("{", "{\n      acc[0][0] += 1;"));
      assert.notEqual(code, source.cuda!.code);
      return { ...source, cuda: { ...source.cuda!, code } };
    });
    for (const { isSerialized } of compileWithNvcc(injected, "sm_90a")) assert.equal(isSerialized, true);
  });
});
