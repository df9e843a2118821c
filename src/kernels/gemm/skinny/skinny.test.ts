/** GEMMs of a few rows: correct for odd sizes, alone and in groups, and offered to autotuning where they are supported. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Runtime } from "holdfast/internals";
import { withAlteredKernels } from "../../../../test/support/altered-kernels.js";
import { encodeFloats } from "../../../../test/support/encoded-values.js";
import { cudaMissing, openCudaKernelRuntime, put } from "../../../../test/support/kernel-runtime.js";
import { span } from "../../../units/index.js";
import { submit } from "../../submit.js";
import type { GemmDesc, GemmProblem } from "../desc.js";
import {
  listGroupedSkinnyConfigs,
  listSkinnyConfigs,
  type SkinnyConfig,
  skinnySharedBytes,
} from "./configs.js";
import { lowerSkinnyGemms, skinnyCandidates } from "./launch.js";

type Float = "f32" | "f16" | "bf16";

interface Skinny {
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly batch?: number;
  readonly dtype?: Float;
  readonly resultDtype?: Float;
  readonly biasDtype?: Float;
}

/** Elements between the rows of C, which nothing may write. */
const [gap, untouched] = [3, -7];

/** Small integers, whose sums are exact in any order; each sum is small enough for 16 bits. */
const small = (row: number, column: number): number =>
  ((row * 5 + column * 3 + ((row * column) % 11)) % 3) - 1;

/** A GEMM on new memory, with the elements of A and B at [row, k], and a check of its C. */
function gemm(
  runtime: Runtime,
  { m, n, k, batch = 1, dtype = "bf16", ...rest }: Skinny,
  activations = newActivations(),
) {
  const { resultDtype = dtype, biasDtype } = rest;
  const weights = Array.from({ length: batch * n * k }, (_, at) => small(Math.floor(at / k) + 1, at % k));
  const biases = Array.from({ length: batch * n }, (_, at) => (at % 5) - 2);
  const stride = n + gap;
  const result = (values: number[]) => put(runtime, encodeFloats(values, resultDtype), "c");
  const c = result(new Array(batch * m * stride).fill(untouched));
  const problem: GemmProblem<Float> = {
    ...{ dtype, resultDtype, m, n, k, batch },
    a: { storage: activations(runtime, m, k, dtype), rowStride: k },
    b: {
      storage: put(runtime, encodeFloats(weights, dtype), "b"),
      rowStride: k,
      batchStride: n * k,
      isTransposed: true,
    },
    c: { storage: c, rowStride: stride, batchStride: m * stride },
    ...(biasDtype && {
      biasDtype,
      bias: put(runtime, encodeFloats(biases, biasDtype), "bias"),
      biasBatchStride: n,
    }),
  };
  const prove = (): void => {
    const expected = Array.from({ length: batch * m * stride }, (_, index) => {
      const [row, column] = [Math.floor(index / stride), index % stride];
      const [matrix, i] = [Math.floor(row / m), row % m];
      if (column >= n) return untouched;
      let sum = biasDtype ? biases[matrix * n + column]! : 0;
      for (let e = 0; e < k; e++) sum += small(i, e) * weights[(matrix * n + column) * k + e]!;
      return sum;
    });
    const wanted = new Uint8Array(encodeFloats(expected, resultDtype).buffer);
    const bytes = wanted.length / expected.length;
    const found = runtime.read(c);
    const bad = wanted.findIndex((byte, at) => byte !== found[at]);
    const at = Math.floor(bad / bytes);
    assert.ok(bad < 0, `C[${Math.floor(at / stride)}, ${at % stride}] should be ${expected[at]}`);
  };
  return { problem, prove };
}

/** Makes A once, for all GEMMs of a group. */
function newActivations() {
  let storage: ReturnType<typeof put> | undefined;
  return (runtime: Runtime, m: number, k: number, dtype: Float) => {
    const values = Array.from({ length: m * k }, (_, at) => small(Math.floor(at / k), at % k));
    storage ??= put(runtime, encodeFloats(values, dtype), "a");
    return storage;
  };
}

/** One that reads A from registers, if A has few rows, and one that reads it from shared memory. */
const first = (configs: readonly SkinnyConfig[]): readonly SkinnyConfig[] =>
  [true, false].flatMap((isStreamed) => configs.find(({ streamsA }) => streamsA === isStreamed) ?? []);
const all = (configs: readonly SkinnyConfig[]): readonly SkinnyConfig[] =>
  configs.map((config, index) => ({ ...config, prefetchesB: index % 2 === 0 }));

/** So few CTAs that each has several tiles. */
const oneSm = ({ device }: Runtime) => ({ device: { ...device, parallelism: 1 } });

function check(runtime: Runtime, skinny: Skinny, configs = first): void {
  runtime.step(() => {
    for (const config of configs(skinnyCandidates(runtime, gemm(runtime, skinny).problem))) {
      const { problem, prove } = gemm(runtime, skinny);
      submit(runtime, [lowerSkinnyGemms(oneSm(runtime), [problem], config, "gemm")]);
      prove();
    }
  });
}

/** 21 rows of weights are three tiles, of which the last one is not full; K has steps of 32, and a part of one. */
const odd: Skinny = { m: 3, n: 21, k: 104 };

describe("a GEMM of a few rows", { skip: cudaMissing }, () => {
  const runtime = cudaMissing ? undefined! : openCudaKernelRuntime({ precision: "tf32" });

  test("is right with each config, for one row and for several tiles of rows", () => {
    for (const m of [1, 20]) check(runtime, { ...odd, m }, all);
    for (const m of [8, 9]) check(runtime, { ...odd, n: 37, m });
  });

  test("is right in each dtype, with a bias, and for a batch of weights", () => {
    check(runtime, { ...odd, dtype: "f16", biasDtype: "f16" });
    check(runtime, { ...odd, dtype: "f32", biasDtype: "f32", batch: 2 });
    check(runtime, { ...odd, resultDtype: "f32", biasDtype: "f32", batch: 3 });
    check(runtime, { ...odd, biasDtype: "f32", m: 1, k: 8 });
  });

  test("loads a long K in several parts", () => {
    check(runtime, { m: 2, n: 9, k: 9 * 32 * 16 + 40 });
  });

  test("a CTA takes several tiles, also those of another GEMM of its group", () => {
    runtime.step(() => {
      const activations = newActivations();
      const sizes: readonly Skinny[] = [
        { ...odd, n: 320 },
        { ...odd, batch: 2 },
        { ...odd, n: 8 },
      ];
      const gemms = sizes.map((skinny) => gemm(runtime, { ...skinny, biasDtype: "bf16" }, activations));
      const problems = gemms.map(({ problem }) => problem);
      const [config] = listGroupedSkinnyConfigs(runtime.device, "bf16", problems);
      assert.ok(config);
      const single = { ...config, ctasPerSm: 1 };
      submit(runtime, [lowerSkinnyGemms(oneSm(runtime), problems, single, "gemm")]);
      for (const { prove } of gemms) prove();
    });
  });

  for (const { fault, from, to, skinny } of [
    { fault: "a warp's share of K is left out", from: "other < warps", to: "other < warps - 1", skinny: odd },
    {
      fault: "the rows of the upper half are those of the lower one",
      from: "activationsOf(16 * i + 8 + group, vector)",
      to: "activationsOf(16 * i + group, vector)",
      skinny: { ...odd, m: 12 },
    },
    {
      fault: "rows after the last one are stored",
      from: "column < present.n",
      to: "column < present.n + 1",
      skinny: odd,
    },
    {
      fault: "both halves of a step have the same weights",
      from: "{weights.z, weights.w}",
      to: "{weights.x, weights.y}",
      skinny: odd,
    },
    {
      fault: "a CTA multiplies its first tile again",
      from: "if (isLast) pointTo(following);",
      to: "",
      skinny: { ...odd, n: 600 },
    },
  ] as const) {
    test(`red proof: it is found if ${fault}`, () => {
      withAlteredKernels({ from, to, precision: "tf32" }, (altered) =>
        assert.throws(() => check(altered, skinny), /should be/),
      );
    });
  }
});

describe("the configs of a GEMM of a few rows", () => {
  const at = (address: number) => ({ storage: { span: span(address, 2 ** 30) } });
  const desc = (fields: Partial<GemmDesc> = {}): GemmDesc => ({
    ...{ dtype: "bf16", m: 1, n: 896, k: 896 },
    ...{ a: { ...at(0), rowStride: 896 }, b: { ...at(0), rowStride: 896, isTransposed: true } },
    c: { ...at(0), rowStride: 896 },
    ...fields,
  });
  const h200 = { computeCapability: "9.0", parallelism: 132 };
  const count = (
    fields: Partial<GemmDesc>,
    capability = "9.0",
    precision: "f32" | "tf32" | "bf16" = "bf16",
  ): number => listSkinnyConfigs({ ...h200, computeCapability: capability }, precision, desc(fields)).length;

  test("are several for weights that are read row by row, from Ampere on", () => {
    for (const capability of ["8.0", "8.6", "8.9", "9.0", "10.0", "12.0", "12.1"])
      assert.ok(count({}, capability) > 2);
    assert.equal(count({}, "7.5"), 0);
    assert.ok(count({ dtype: "f32" }, "9.0", "tf32") > 0);
  });

  test("are none for other layouts, many rows, or f32 that may not be rounded", () => {
    for (const fields of [
      { m: 33 },
      { a: { ...at(0), rowStride: 896, isTransposed: true } },
      { b: { ...at(0), rowStride: 896 } },
      { b: { ...at(0), rowStride: 897, isTransposed: true } },
      { b: { ...at(8), rowStride: 896, isTransposed: true } },
      { k: 900 },
      { beta: 1 },
      { activation: "relu" as const },
      { batch: 2, a: { ...at(0), rowStride: 896, batchStride: 896 } },
    ])
      assert.equal(count(fields), 0, JSON.stringify(fields));
    assert.equal(count({ dtype: "f32" }, "9.0", "f32"), 0);
  });

  test("include some in which every tile has a CTA at the same time, if an SM has room for them", () => {
    const configsOf = (n: number, k: number) =>
      listSkinnyConfigs(h200, "bf16", desc({ n, k, a: { ...at(0), rowStride: k } }));
    const inOneRound = (n: number, k: number) =>
      configsOf(n, k).filter(({ groups, ctasPerSm }) => n / (8 * groups) <= 132 * ctasPerSm);
    assert.deepEqual(
      inOneRound(3584, 18944).map(({ warps, ctasPerSm, streamsA }) => [warps, ctasPerSm, streamsA]),
      [
        [8, 4, false],
        [4, 4, true],
        [4, 4, false],
      ],
    );
    assert.deepEqual(inOneRound(152064, 3584), []);
    // A group starts with them: 576 tiles.
    const group = [3584, 512, 512].map((n) =>
      desc({
        n,
        k: 3584,
        a: { ...at(0), rowStride: 3584 },
        b: { ...at(0), rowStride: 3584, isTransposed: true },
      }),
    );
    const [first] = listGroupedSkinnyConfigs(h200, "bf16", group);
    assert.deepEqual([first?.warps, first?.ctasPerSm, first?.streamsA], [4, 5, true]);
  });

  test("fit shared memory, so that there are none for many long rows", () => {
    const configs = listSkinnyConfigs(h200, "bf16", desc({ m: 32 }));
    assert.ok(configs.length > 0 && configs.every((config) => skinnySharedBytes(config) <= 227 * 1024));
    assert.equal(count({ m: 32, k: 4864 }), 0);
    assert.equal(
      listSkinnyConfigs({ ...h200, computeCapability: "8.6" }, "bf16", desc({ m: 9, k: 8960 })).length,
      0,
    );
  });
});
