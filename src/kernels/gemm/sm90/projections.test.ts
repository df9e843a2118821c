/** Grouped projections to a few columns: exact for every edge and layout, scaled, in one launch. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { encodeFloats } from "../../../../test/support/encoded-values.js";
import { cudaMissing, openCudaKernelRuntime, put } from "../../../../test/support/kernel-runtime.js";
import { compileWithNvcc, noCompiler } from "../../../../test/support/nvcc.js";
import { smallValues } from "../../../../test/support/random-gemms.js";
import type { Runtime } from "../../../runtime/index.js";
import { backendOf } from "../../backend.js";
import { submit } from "../../submit.js";
import type { GemmDesc, GemmInputDtype, GemmProblem } from "../desc.js";
import { canGroupGemms, isProjection } from "../gemm.js";
import type { Sm90Config } from "./configs.js";
import { sm90Source } from "./kernel.js";
import { lowerSm90Gemms } from "./launch.js";
import { selectProjectionConfig } from "./projection-configs.js";

const hopper = { kind: "cuda", computeCapability: "9.0", parallelism: 132 } as const;

interface Shape {
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly alpha?: number;
}

interface Options {
  readonly isBTransposed: boolean;
  readonly resultDtype: "f32" | "bf16";
}

/** A projection in step memory, and its result. */
function prepare(runtime: Runtime, { m, n, k, alpha = 1 }: Shape, { isBTransposed, resultDtype }: Options) {
  const [a, b] = [smallValues(m * k, 1), smallValues(n * k, 2)];
  const half = (floats: Float64Array, name: string) => put(runtime, encodeFloats(floats, "bf16"), name);
  const expected = new Float64Array(m * n);
  for (let row = 0; row < m; row++) {
    for (let column = 0; column < n; column++) {
      let sum = 0;
      for (let e = 0; e < k; e++)
        sum += a[row * k + e]! * b[isBTransposed ? column * k + e : e * n + column]!;
      expected[row * n + column] = alpha * sum;
    }
  }
  const c = put(runtime, resultDtype === "f32" ? new Float32Array(m * n) : new Uint16Array(m * n), "c");
  const problem: GemmProblem<GemmInputDtype> = {
    ...{ dtype: "bf16", resultDtype, m, n, k, alpha },
    a: { storage: half(a, "a"), rowStride: k },
    b: { storage: half(b, "b"), rowStride: isBTransposed ? k : n, isTransposed: isBTransposed },
    c: { storage: c, rowStride: n },
  };
  const encoded = encodeFloats(expected, resultDtype);
  const isRight = (): boolean => {
    const bytes = runtime.read(c).slice();
    return bytes.every((byte, index) => byte === new Uint8Array(encoded.buffer)[index]);
  };
  return { problem, isRight };
}

const shapes: readonly Shape[] = [
  { m: 130, n: 16, k: 200, alpha: 2 },
  { m: 130, n: 8, k: 64 },
  { m: 257, n: 24, k: 648, alpha: 0.5 },
];

describe("projections to a few columns", { skip: cudaMissing }, () => {
  const runtime = cudaMissing ? undefined! : openCudaKernelRuntime({ precision: "bf16" });

  for (const isBTransposed of [true, false]) {
    for (const resultDtype of ["f32", "bf16"] as const) {
      test(`are exact in one launch, with a ${isBTransposed ? "K" : "N"}-major B and results in ${resultDtype}`, () => {
        const isHopper = runtime.device.computeCapability === "9.0";
        runtime.step(() => {
          // Enough rows for a GPU with many SMs.
          const moreRows = 64 * Math.floor(runtime.device.parallelism / 8);
          const group = shapes.map((shape) =>
            prepare(runtime, { ...shape, m: shape.m + moreRows }, { isBTransposed, resultDtype }),
          );
          const problems = group.map(({ problem }) => problem);
          assert.equal(canGroupGemms(runtime, problems), isHopper);
          if (!isHopper) return;
          submit(runtime, backendOf(runtime).lowerGroupedGemm(problems, "projections"));
          for (const { isRight } of group) assert.ok(isRight());
        });
      });
    }
  }

  test("red proof: the scale of another member is noticed", () => {
    runtime.step(() => {
      const options = { isBTransposed: true, resultDtype: "bf16" } as const;
      const group = shapes.map((shape) => prepare(runtime, shape, options));
      const problems = group.map(({ problem }) => problem);
      const config = selectProjectionConfig(
        hopper,
        "bf16",
        problems.map((one) => ({ ...one, m: 8192 })),
      )!;
      const command = lowerSm90Gemms(problems, config, "projections");
      const { cuda } = command.source;
      const run = (code: string): readonly boolean[] => {
        submit(runtime, [{ ...command, source: { ...command.source, cuda: { ...cuda!, code } } }]);
        return group.map(({ isRight }) => isRight());
      };
      assert.deepEqual(run(cuda!.code), [true, true, true]);
      const changed = cuda!.code.replaceAll("alpha = alpha1;", "alpha = alpha1 + 1.0f;");
      assert.notEqual(changed, cuda!.code);
      assert.deepEqual(run(changed), [true, false, true]);
    });
  });
});

describe("selection", () => {
  const at = { span: { address: 4096, size: 2 ** 30 } } as GemmDesc["a"]["storage"];
  const matrix = (rowStride: number, isTransposed = false) => ({ storage: at, rowStride, isTransposed });
  const projection: GemmDesc = {
    ...{ dtype: "bf16", m: 8192, n: 16, k: 896, alpha: 2 },
    ...{ a: matrix(896), b: matrix(896, true), c: { storage: at, rowStride: 16 } },
  };
  const select = (...changes: readonly Partial<GemmDesc>[]): Sm90Config | undefined =>
    selectProjectionConfig(
      hopper,
      "bf16",
      changes.map((change) => ({ ...projection, ...change })),
    );

  test("takes the columns of the widest member as the tile's, and 64 if B is N-major", () => {
    assert.equal(select({}, { n: 32 }, {})?.tile.tileN, 32);
    const isNMajor = { b: matrix(16) };
    assert.equal(select(isNMajor, isNMajor)?.tile.tileN, 64);
    assert.ok(isProjection({ device: hopper, settings: { precision: "bf16" } } as never, projection));
  });

  test("leaves wide results, other layouts and dtypes, few rows and sums to other kernels", () => {
    const rejected: readonly Partial<GemmDesc>[] = [
      { n: 72 },
      { n: 12 },
      { a: matrix(8192, true) },
      { b: matrix(16) },
      { dtype: "f16" },
      { dtype: "f32" },
      { resultDtype: "f32" },
      { beta: 1 },
      { batch: 2 },
      { bias: at },
      { a: matrix(900) },
    ];
    for (const change of rejected)
      assert.equal(select({}, change), undefined, JSON.stringify(Object.keys(change)));
    assert.equal(select({ m: 512 }, { m: 512 }), undefined);
  });
});

test("NVIDIA's compiler accepts the kernels, and they need no local memory", { skip: noCompiler() }, () => {
  const sources = [true, false].flatMap((isBTransposed) =>
    (["f32", "bf16"] as const).map((resultDtype) => {
      const config: Sm90Config = {
        ...{ element: "bf16", isKMajor: { a: true, b: isBTransposed }, hasBias: false, isUnbatched: true },
        tile: {
          tileM: 64,
          tileN: isBTransposed ? 16 : 64,
          stages: 8,
          warpgroupsM: 1,
          warpgroupsN: 1,
          ctasPerSm: 2,
        },
        ...{ hasAlpha: true, ...(resultDtype === "bf16" && { resultDtype }) },
      };
      return sm90Source(config, ["out", "out", "out"]);
    }),
  );
  for (const { stackBytes, spillBytes, isSerialized } of compileWithNvcc(sources, "sm_90a"))
    assert.deepEqual([stackBytes, spillBytes, isSerialized], [0, 0, false]);
});
