/** Groups of 16-bit weight gradients with K split over a cluster: correct for odd sizes, summed in the order of ranks, and well selected. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { encodeFloats } from "../../../../test/support/encoded-values.js";
import { cudaMissing, openCudaKernelRuntime, put } from "../../../../test/support/kernel-runtime.js";
import { compileWithNvcc, noCompiler } from "../../../../test/support/nvcc.js";
import type { LaunchCommand } from "../../../runtime/index.js";
import { span } from "../../../units/index.js";
import { backendOf } from "../../backend.js";
import { submit } from "../../submit.js";
import type { GemmDesc, GemmProblem } from "../desc.js";
import { groupedCandidates } from "../gemm.js";
import { reducesCluster, type Sm90Config } from "./configs.js";
import { listGroupedConfigs, maxGroupedConfigs } from "./grouped-configs.js";
import { sm90Source } from "./kernel.js";
import { lowerSm90Gemms } from "./launch.js";
import { gradientTile, type Sm90Tile, splitKTile, tiles } from "./tiles.js";

interface Gradient {
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly batch?: number;
}

type Halves = "bf16" | "f16";

const configOf = (element: Sm90Config["element"], tile: Sm90Tile): Sm90Config => ({
  ...{ element, tile, isKMajor: { a: false, b: false }, hasBias: false },
});

/** Elements between the rows of C, which nothing may write. */
const [gap, untouched] = [8, -7];

const aligned = (length: number): number => Math.ceil(length / 8) * 8;

/** Small integers, whose sums are exact in any order. */
const small = (row: number, column: number): number => ((row * 5 + column * 3) % 7) - 3;

describe("a group of weight gradients with split-K", { skip: cudaMissing }, () => {
  const runtime = cudaMissing ? undefined! : openCudaKernelRuntime({ precision: "bf16" });

  /** The GEMM Aᵀ · B on new memory, with the elements of A and B at [k, column]. */
  function gradient(
    { m, n, k, batch = 1 }: Gradient,
    dtype: Halves,
    { a = small, b = small }: { readonly a?: typeof small; readonly b?: typeof small } = {},
  ) {
    const operand = (columns: number, valueAt: typeof small, name: string) => {
      const rowStride = aligned(columns);
      const values = Array.from({ length: batch * k * rowStride }, (_, index) =>
        valueAt(Math.floor(index / rowStride), index % rowStride),
      );
      const storage = put(runtime, encodeFloats(values, dtype), name);
      return { storage, rowStride, batchStride: k * rowStride };
    };
    const stride = n + gap;
    const c = put(runtime, new Float32Array(batch * m * stride).fill(untouched), "c");
    const problem: GemmProblem<Halves | "f32"> = {
      ...{ dtype, resultDtype: "f32", m, n, k, batch },
      ...{ a: { ...operand(m, a, "a"), isTransposed: true }, b: operand(n, b, "b") },
      c: { storage: c, rowStride: stride, batchStride: m * stride },
    };
    const result = (): Float32Array => new Float32Array(runtime.read(c).slice().buffer);
    const prove = (): void => {
      const actual = result();
      for (let index = 0; index < actual.length; index++) {
        const [row, column] = [Math.floor(index / stride), index % stride];
        const [matrix, i] = [Math.floor(row / m), row % m];
        let sum = 0;
        for (let e = matrix * k; e < (matrix + 1) * k; e++) sum += a(e, i) * b(e, column);
        const expected = column < n ? sum : untouched;
        if (actual[index] !== expected)
          assert.fail(`C[${matrix}, ${i}, ${column}] is ${actual[index]}, and should be ${expected}`);
      }
    };
    return { problem, result, prove };
  }

  const launchOf = (group: readonly ReturnType<typeof gradient>[], config: Sm90Config): LaunchCommand =>
    lowerSm90Gemms(
      group.map(({ problem }) => problem),
      config,
      "gemms",
    );

  test("is correct for odd sizes, batches and ranks without a k-tile, and writes nothing but C", () => {
    const cases = [
      ["bf16", { ...gradientTile, splitsK: 3 }, { m: 130, n: 264, k: 193 }, { m: 61, n: 8, k: 97, batch: 2 }],
      ["f16", { ...tiles.square, splitsK: 2 }, { m: 8, n: 136, k: 64 }, { m: 137, n: 72, k: 130 }],
      ["bf16", gradientTile, { m: 61, n: 200, k: 130 }, { m: 8, n: 264, k: 72 }],
    ] as const;
    for (const [dtype, tile, ...sizes] of cases) {
      runtime.step(() => {
        const group = sizes.map((size) => gradient(size, dtype));
        submit(runtime, [launchOf(group, configOf(dtype, tile))]);
        for (const { prove } of group) prove();
      });
    }
  });

  /** One k-tile for each of three ranks: 2²⁴, 1 and −2²⁴. In the order of ranks the 1 is lost. */
  const tile: Sm90Tile = {
    ...{ tileM: 64, tileN: 64, stages: 2 },
    ...{ warpgroupsM: 1, warpgroupsN: 1 },
    splitsK: 3,
  };
  const ranked = () =>
    gradient({ m: 64, n: 64, k: 192 }, "bf16", {
      a: (k) => [4096, 1, -4096][k / 64] ?? 0,
      b: (k) => (k === 64 ? 1 : 4096),
    });

  /** (2²⁴ + 1) − 2²⁴ is 0 in float32. */
  function proveLost(c: Float32Array): void {
    for (const [index, sum] of c.entries())
      assert.equal(sum, index % (64 + gap) < 64 ? 0 : untouched, `element ${index}`);
  }

  test("adds the shares of K in the order of ranks, with the same bits in every run", () => {
    runtime.step(() => {
      const { problem, result } = ranked();
      for (let run = 0; run < 3; run++) {
        submit(runtime, [lowerSm90Gemms([problem], configOf("bf16", tile), "gemm")]);
        proveLost(result());
      }
    });
  });

  test("red proof: the checks detect another order, a missing share and a missing k-tile", () => {
    const [ofRanks, ofSmall] = [ranked, () => gradient({ m: 64, n: 64, k: 200 }, "bf16")];
    const faults = {
      order: [
        ofRanks,
        (code) =>
          code
            .replace("from == rank ?", "3 - from == rank ?")
            .replace("(from * slots", "((3 - from) * slots"),
      ],
      "a share": [ofSmall, (code) => code.replace("to == rank)", "to == rank || rank == 2)")],
      "a k-tile": [ofSmall, (code) => code.replace("1) * allKTiles /", "1) * (allKTiles - 1) /")],
    } satisfies Record<string, [() => ReturnType<typeof gradient>, (code: string) => string]>;
    for (const [what, [prepare, inject]] of Object.entries(faults)) {
      runtime.step(() => {
        const { problem, prove, result } = prepare();
        const launch = lowerSm90Gemms([problem], configOf("bf16", tile), "gemm");
        submit(runtime, [launch]);
        if (prepare === ofSmall) prove();
        const { cuda } = launch.source;
        assert.ok(cuda);
        const code = inject(cuda.code);
        assert.notEqual(code, cuda.code);
        submit(runtime, [{ ...launch, source: { ...launch.source, cuda: { ...cuda, code } } }]);
        assert.throws(prepare === ofSmall ? prove : () => proveLost(result()), what);
      });
    }
  });

  test("is an algorithm of a group, and one that does not exist is rejected", () => {
    runtime.step(() => {
      const { problem, prove } = gradient({ m: 64, n: 72, k: 1600 }, "bf16");
      const lower = (algorithm: number) => backendOf(runtime).lowerGroupedGemm([problem], "gemm", algorithm);
      const count = groupedCandidates(runtime, [problem]);
      assert.ok(runtime.device.computeCapability !== "9.0" || count > 1, `${count} algorithms`);
      if (count > 0) submit(runtime, lower(count - 1));
      if (count > 0) prove();
      assert.throws(() => lower(count), { code: "BAD_ARGUMENT" });
    });
  });
});

describe("the configs of a group of weight gradients", () => {
  const hopper = { kind: "cuda", computeCapability: "9.0", parallelism: 132 } as const;
  const matrixOf = (rowStride: number) => ({ storage: { span: span(256, 2 ** 30) }, rowStride });
  const gradientOf = (m: number, n: number, k: number, dtype: GemmDesc["dtype"] = "bf16"): GemmDesc => ({
    ...{ dtype, resultDtype: "f32", m, n, k },
    ...{ a: { ...matrixOf(m), isTransposed: true }, b: matrixOf(n), c: matrixOf(n) },
  });
  const tilesFor = (group: readonly GemmDesc[], precision: "bf16" | "tf32" = "bf16") =>
    listGroupedConfigs(hopper, precision, group).map(({ tile }) => tile);
  const layer = [
    [384, 1152],
    [384, 384],
    [384, 1536],
    [1536, 384],
  ].map(([m, n]) => gradientOf(m!, n!, 16_384));

  test("begin with the plain grid; then come tiles and splits of K that fill the SMs better", () => {
    const [first, second, ...others] = tilesFor(layer);
    assert.equal(first, tiles.square, "108 of 132 SMs");
    assert.deepEqual(second, { ...gradientTile, splitsK: 2 }, "126 of 132 SMs");
    assert.ok(others.length <= maxGroupedConfigs - 2);
    const small = tilesFor([gradientOf(256, 256, 8192), gradientOf(256, 256, 8192)]);
    assert.ok(small.length > 1 && small.slice(1).every(({ splitsK = 1 }) => splitsK >= 4), "8 of 132 SMs");
  });

  test("are the plain grid alone in TF32, or if a share of K would not fill the pipeline", () => {
    const floats = layer.map(({ m, n, k }) => gradientOf(m, n, k, "f32"));
    assert.deepEqual(tilesFor(floats, "tf32"), [splitKTile]);
    const short = layer.map(({ m, n }) => gradientOf(m, n, 1024));
    assert.ok(tilesFor(short).every(({ splitsK }) => splitsK === undefined));
    assert.deepEqual(tilesFor([]), []);
  });
});

describe("the code of split-K under nvcc", { skip: noCompiler() }, () => {
  test("needs no local memory, does not serialise wgmma, and fits the registers of an SM", () => {
    const config = configOf("bf16", { ...gradientTile, splitsK: 3 });
    assert.ok(reducesCluster(config));
    const source = sm90Source(config, Array(4).fill("out"));
    for (const { stackBytes, spillBytes, isSerialized, registers } of compileWithNvcc([source], "sm_90a")) {
      assert.deepEqual(
        { stackBytes, spillBytes, isSerialized },
        { stackBytes: 0, spillBytes: 0, isSerialized: false },
      );
      assert.ok(registers * source.cuda!.threads <= 65_536, `${registers} registers`);
      assert.ok((source.cuda!.sharedBytes ?? 0) <= 227 * 1024);
    }
  });
});
