/** Sums of products in one launch: every tile and layout, wide and short products, and the faults that the comparison finds. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { encodeFloats } from "../../../../test/support/encoded-values.js";
import { cudaMissing, openCudaKernelRuntime, put } from "../../../../test/support/kernel-runtime.js";
import { compileWithNvcc, noCompiler } from "../../../../test/support/nvcc.js";
import { smallValues } from "../../../../test/support/random-gemms.js";
import { sampleOfDay } from "../../../../test/support/sample-of-day.js";
import type { Runtime } from "../../../runtime/index.js";
import { backendOf } from "../../backend.js";
import { submit } from "../../submit.js";
import type { GemmDesc, GemmInputDtype, GemmProblem } from "../desc.js";
import { sumCandidates } from "../gemm.js";
import type { Sm90Config } from "./configs.js";
import { sm90Source } from "./kernel.js";
import { lowerSm90Gemms } from "./launch.js";
import { maxAddends, productsOf } from "./products.js";
import { listSumConfigs, prefersSum } from "./sum-configs.js";
import { pingPongTile, type Sm90Tile, tiles } from "./tiles.js";

const { large, wide, paired, small } = tiles;
const sumTiles = { large, wide, paired, small, pingPong: pingPongTile };
const hopper = { kind: "cuda", computeCapability: "9.0", parallelism: 132 } as const;

interface Sum {
  readonly m: number;
  readonly n: number;
  /** K of each product. */
  readonly ks: readonly number[];
  readonly isBTransposed?: boolean;
  readonly hasBias?: boolean;
  /** Elements between the rows of A of the addends, as of columns of a larger matrix. */
  readonly gap?: number;
}

/** The operands of a sum in step memory, and its result. */
function prepare(runtime: Runtime, { m, n, ks, isBTransposed = true, hasBias = false, gap = 0 }: Sum) {
  const half = (floats: Float64Array, name: string) => put(runtime, encodeFloats(floats, "bf16"), name);
  const products = ks.map((k, index) => {
    const stride = k + (index > 0 ? gap : 0);
    const [a, b] = [smallValues(m * stride, 1 + index), smallValues(n * k, 20 + index)];
    const operands = {
      a: { storage: half(a, "a"), rowStride: stride },
      b: { storage: half(b, "b"), rowStride: isBTransposed ? k : n, isTransposed: isBTransposed },
    };
    return { a, b, k, stride, operands };
  });
  const bias = smallValues(n, 40);
  const expected = new Float64Array(m * n);
  for (let row = 0; row < m; row++) {
    for (let column = 0; column < n; column++) {
      let sum = hasBias ? bias[column]! : 0;
      for (const { a, b, k, stride } of products)
        for (let e = 0; e < k; e++)
          sum += a[row * stride + e]! * b[isBTransposed ? column * k + e : e * n + column]!;
      expected[row * n + column] = sum;
    }
  }
  const [first, ...others] = products;
  const c = put(runtime, new Uint16Array(m * n), "c");
  const problem: GemmProblem<GemmInputDtype> = {
    ...({ dtype: "bf16", resultDtype: "bf16", m, n } as const),
    ...{ k: first!.k, ...first!.operands, c: { storage: c, rowStride: n } },
    ...(hasBias && { bias: put(runtime, Float32Array.from(bias), "bias"), biasDtype: "f32" as const }),
  };
  const addends = others.map(({ k, operands }) => ({ k, ...operands }));
  const resultBits = (): Uint16Array => new Uint16Array(runtime.read(c).slice().buffer);
  return { problem, addends, resultBits, expected: new Uint16Array(encodeFloats(expected, "bf16").buffer) };
}

function configOf(tile: Sm90Tile, { n, ks, isBTransposed = true, hasBias = false }: Sum): Sm90Config {
  return {
    ...{ element: "bf16", tile, isKMajor: { a: true, b: isBTransposed }, hasBias, isUnbatched: true },
    ...{ resultDtype: "bf16", products: productsOf(ks.slice(1).map((k) => ({ k }))) },
    ...(tile.isPingPong ? { maxCtas: 2 } : { constantN: n }),
  };
}

/** Wide and short products; K that ends within a k-tile, a step, and a stage of the ring. */
const kLists: readonly (readonly number[])[] = [
  [128, 16],
  [200, 72, 8, 24],
  [64, 64, 64],
  [328, 16, 200, 16],
];

describe("a sum of products", { skip: cudaMissing }, () => {
  const runtime = cudaMissing ? undefined! : openCudaKernelRuntime({ precision: "bf16" });

  /** True if a kernel computes the sum, with a change of its code or of its config. */
  function isRight(
    tile: Sm90Tile,
    sum: Sum,
    change: (code: string) => string = (code) => code,
    also: Partial<Sm90Config> = {},
  ): boolean {
    return runtime.step(() => {
      const { problem, addends, resultBits, expected } = prepare(runtime, sum);
      const config = { ...configOf(tile, sum), ...also };
      const command = lowerSm90Gemms([problem], config, "sum", undefined, addends);
      const { cuda } = command.source;
      const code = change(cuda!.code);
      submit(runtime, [{ ...command, source: { ...command.source, cuda: { ...cuda!, code } } }]);
      const actual = resultBits();
      return expected.every((bits, index) => bits === actual[index]);
    });
  }

  for (const [name, tile] of Object.entries(sumTiles)) {
    test(`is exact in the tile "${name}" for every edge, with its weights in either layout, and loads B early`, () => {
      for (const [index, ks] of kLists.entries()) {
        const layouts = { isBTransposed: index % 2 === 0, hasBias: index > 1, gap: 8 * index };
        const sum = { m: 137 + 32 * index, n: 136 + 8 * index, ks, ...layouts };
        assert.ok(isRight(tile, sum, undefined, { prefetchesB: index % 2 === 1 }), `${ks}`);
      }
    });
  }

  test("red proof: a product that is left out, begins too late, or is multiplied in part is noticed", () => {
    const sum = { m: 137, n: 136, ks: [128, 72, 16] };
    for (const tile of [paired, pingPongTile]) {
      assert.ok(isRight(tile, sum));
      const without = (code: string): string => code.replaceAll(">= end1)", ">= end2)");
      assert.ok(!isRight(tile, sum, without), "the last product");
      const later = (code: string): string => code.replaceAll("kTile - end0", "kTile + 1 - end0");
      assert.ok(!isRight(tile, sum, later), "the first k-tile of the second product");
      const products = productsOf([{ k: 72 }, { k: 16 }]);
      assert.ok(!isRight(tile, { ...sum, ks: [128, 72, 32] }, undefined, { products }), "half of the steps");
    }
  });

  test("is computed by the backend on Hopper, with each algorithm, and rejected elsewhere", () => {
    const isHopper = runtime.device.computeCapability === "9.0";
    runtime.step(() => {
      const { problem, addends, resultBits, expected } = prepare(runtime, {
        // Enough rows for a GPU with many SMs.
        m: 520 + 128 * Math.floor(runtime.device.parallelism / 8),
        n: 264,
        ks: [128, 16, 16],
      });
      const count = sumCandidates(runtime, problem, addends);
      assert.equal(count > 0, isHopper);
      for (let algorithm = 0; algorithm < count; algorithm++) {
        runtime.fill(problem.c.storage, 0xff);
        submit(runtime, backendOf(runtime).lowerGemmSum({ ...problem, algorithm }, addends, "sum"));
        assert.deepEqual(resultBits(), expected);
      }
      const lower = () => backendOf(runtime).lowerGemmSum({ ...problem, algorithm: count }, addends, "sum");
      assert.throws(lower, { code: "BAD_ARGUMENT" });
    });
  });
});

describe("selection", () => {
  const at = { span: { address: 4096, size: 2 ** 30 } } as GemmDesc["a"]["storage"];
  const matrix = (rowStride: number, isTransposed = false) => ({ storage: at, rowStride, isTransposed });
  const problem: GemmDesc = {
    ...{ dtype: "bf16", m: 8192, n: 4864, k: 896 },
    ...{ a: matrix(896), b: matrix(896, true), c: { storage: at, rowStride: 4864 } },
  };
  const addend = { k: 16, a: matrix(16), b: matrix(16, true) };
  const count = (changes: Partial<GemmDesc>, addends = [addend], device = hopper): number =>
    listSumConfigs(device, "bf16", { ...problem, ...changes }, addends).length;

  test("offers the ping-pong kernel first, then other tiles, and for few rows only the small one", () => {
    const configs = listSumConfigs(hopper, "bf16", problem, [addend]);
    assert.deepEqual(
      configs.map(({ tile }) => tile),
      [pingPongTile, large, paired, wide],
    );
    for (const { products } of configs) assert.deepEqual(products, productsOf([addend]));
    const [few, ...others] = listSumConfigs(hopper, "bf16", { ...problem, n: 128 }, [addend]);
    assert.deepEqual([few?.tile, others], [small, []]);
  });

  test("needs Hopper, 16 bits, one matrix, and addends that TMA reads with the same layouts", () => {
    assert.ok(count({}) > 0);
    const rejected: readonly number[] = [
      count({}, [addend], { ...hopper, computeCapability: "8.0" } as unknown as typeof hopper),
      count({ dtype: "f32" }),
      count({ batch: 2 }),
      count({ m: 64, n: 64 }),
      count({}, []),
      count(
        {},
        Array.from({ length: maxAddends + 1 }, () => addend),
      ),
      count({}, [{ ...addend, a: matrix(12) }]),
      count({}, [{ ...addend, b: matrix(4864) }]),
      count({}, [{ ...addend, a: matrix(16, true) }]),
    ];
    assert.deepEqual(
      rejected,
      rejected.map(() => 0),
    );
  });

  test("prefers one launch unless K is so large that cuBLASLt's mainloop saves more than a pass over C", () => {
    assert.ok(prefersSum(problem, [addend]));
    assert.ok(prefersSum({ ...problem, k: 4864 }, [addend]));
    assert.ok(!prefersSum({ ...problem, k: 40_000 }, [addend]));
    assert.ok(
      prefersSum(
        { ...problem, k: 40_000 },
        Array.from({ length: 4 }, () => addend),
      ),
    );
  });
});

test("NVIDIA's compiler accepts every sum, and needs no local memory", { skip: noCompiler() }, (t) => {
  const all = Object.values(sumTiles).flatMap((tile) =>
    kLists.slice(0, 2).flatMap((ks, index) => {
      const config = configOf(tile, { m: 8, n: 4864, ks, isBTransposed: index === 0, hasBias: index === 1 });
      return sm90Source({ ...config, prefetchesB: index === 0 }, ["out"]);
    }),
  );
  const { cases: sources, note } = sampleOfDay(all, 3);
  t.diagnostic(`${note} sums`);
  for (const [index, { stackBytes, spillBytes, isSerialized }] of compileWithNvcc(
    sources,
    "sm_90a",
  ).entries())
    assert.deepEqual([stackBytes, spillBytes, isSerialized], [0, 0, false], `source ${index}`);
});
