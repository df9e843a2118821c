/** Ping-pong GEMMs: correct for every edge and number of tiles, with the bits of the other tiles, and without races that the emulator can find. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { effort } from "../../../../test/support/effort.js";
import { openEmulator } from "../../../../test/support/emulator.js";
import { encodeFloats } from "../../../../test/support/encoded-values.js";
import { cudaMissing, openCudaKernelRuntime, put } from "../../../../test/support/kernel-runtime.js";
import { compileWithNvcc, noCompiler } from "../../../../test/support/nvcc.js";
import { smallValues } from "../../../../test/support/random-gemms.js";
import { sampleOfDay } from "../../../../test/support/sample-of-day.js";
import { openTestGpu, testDevice } from "../../../../test/support/test-device.js";
import { type RowKernel, term } from "../../../ir/index.js";
import { openRuntime, type Runtime, type Storage } from "../../../runtime/index.js";
import { span } from "../../../units/index.js";
import { submit } from "../../submit.js";
import type { GemmDesc } from "../desc.js";
import type { Epilogue, Sm90Config } from "./configs.js";
import { colsumRows } from "./epilogue-store.js";
import { sm90Source } from "./kernel.js";
import { lowerSm90Gemms } from "./launch.js";
import { canPingPong } from "./ping-pong.js";
import { listCandidates, listEpilogueConfigs } from "./select-config.js";
import { pingPongTile, tiles } from "./tiles.js";

const onlyOnEmulator = testDevice === "cuda" ? "only the emulator can be told to run in reverse" : false;

const [x, y] = [term.load(0, "f32"), term.load(1, "f32")];
const bf16 = { dtype: "bf16", per: "element" } as const;
const columnSum = { dtype: "f32", per: "column" } as const;
const store = (output: number, value: typeof x) => ({ kind: "store", output, value }) as const;

/** Of the GEMM's result x. */
const cube: RowKernel = {
  ...{ name: "cube", inputs: ["f32"], outputs: [bf16], scalars: ["f32"] },
  stages: [store(0, term.mul(term.scalar(0, "f32"), term.mul(x, x)))],
};

/** Of an input x and the GEMM's result y. */
const product: RowKernel = {
  ...{ name: "product", inputs: ["bf16", "f32"], outputs: [bf16], scalars: [] },
  stages: [store(0, term.mul(x, y))],
};

const epilogues = {
  /** As an activation: C and a function of it. */
  "two results": { kernel: cube, gemmInput: 0, storesC: true },
  "one result": { kernel: cube, gemmInput: 0, storesC: false },
  /** As the gradient of an activation. */
  "an operand": { kernel: product, gemmInput: 1, storesC: false },
  "an operand and column sums": {
    ...{ gemmInput: 1, storesC: false, forwarded: [undefined, undefined, 0] },
    kernel: {
      ...{ ...product, inputs: ["bf16", "f32", "bf16"], outputs: [bf16, columnSum] },
      stages: [...product.stages, store(1, term.load(2, "f32"))],
    },
  },
  "an operand and two results": {
    ...{ gemmInput: 1, storesC: true, forwarded: [undefined, undefined, 0] },
    kernel: {
      ...{ ...product, inputs: ["bf16", "f32", "bf16"], outputs: [bf16, bf16, columnSum, columnSum] },
      stages: [
        ...product.stages,
        store(1, term.add(x, term.mul(2, term.load(2, "f32")))),
        store(2, term.load(2, "f32")),
        store(3, term.mul(2, term.load(2, "f32"))),
      ],
    },
  },
  "more operands than results": {
    ...{ gemmInput: 2, storesC: false },
    kernel: {
      ...{ name: "sum", inputs: ["bf16", "bf16", "f32"], outputs: [bf16], scalars: [] },
      stages: [store(0, term.add(x, term.mul(y, term.load(2, "f32"))))],
    },
  },
} satisfies Record<string, Epilogue>;

interface Shape {
  readonly m: number;
  readonly n: number;
  readonly k: number;
}

interface Problem extends Shape {
  readonly isBTransposed?: boolean;
  readonly bias?: "none" | "f32" | "bf16";
  /** Of C, if there is no epilogue. */
  readonly gap?: number;
  readonly element?: "bf16" | "f16";
}

/** A config for a problem. */
function configOf(problem: Problem, tile: Sm90Config["tile"], storesC: boolean, ctas: number): Sm90Config {
  const { isBTransposed = true, bias = "none", element = "bf16" } = problem;
  return {
    ...{
      element,
      tile,
      isKMajor: { a: true, b: isBTransposed },
      hasBias: bias !== "none",
      isUnbatched: true,
    },
    ...(storesC && { resultDtype: element }),
    ...(bias === "bf16" && { biasDtype: element }),
    ...(tile.isPingPong && { maxCtas: ctas }),
  };
}

const bitsOf = (runtime: Runtime, storage: Storage): Uint16Array =>
  new Uint16Array(runtime.read(storage).slice().buffer);
const floatsOf = (runtime: Runtime, storage: Storage): Float32Array =>
  new Float32Array(runtime.read(storage).slice().buffer);

/** The product of a row that begins at `start` with a column. */
function dot(rows: Float64Array, start: number, column: Float64Array): number {
  let sum = 0;
  for (let e = 0; e < column.length; e++) sum += rows[start + e]! * column[e]!;
  return sum;
}

/** A problem in step memory, and its results. `valueAt`: the elements of all operands. */
function prepare(runtime: Runtime, problem: Problem, epilogue: Epilogue | undefined, values = smallValues) {
  const { m, n, k, isBTransposed = true, bias = "none", gap = 0, element = "bf16" } = problem;
  const of = (length: number, seed: number) => values(length, seed);
  const [a, b] = [of(m * k, 1), of(n * k, 2)];
  const biases = of(n, 4);
  const half = (floats: Float64Array, name: string) => put(runtime, encodeFloats(floats, element), name);
  const inputs = (epilogue?.kernel.inputs ?? []).map((_, index) => of(m * n, 10 + index));
  const storesC = !epilogue || epilogue.storesC;
  const c = storesC ? put(runtime, new Uint16Array(m * (n + gap)).fill(7), "c") : undefined;
  const groups = Math.ceil(m / colsumRows);
  const outputs = (epilogue?.kernel.outputs ?? []).map(({ per }) =>
    per === "column"
      ? put(runtime, new Float32Array(groups * n).fill(Number.NaN), "sums")
      : put(runtime, new Uint16Array(m * n).fill(7), "out"),
  );
  const operands = [
    ...inputs.map((floats, index) => {
      const from = epilogue?.forwarded?.[index];
      if (from !== undefined) return outputs[from];
      return index === epilogue?.gemmInput ? undefined : half(floats, "in");
    }),
    ...outputs,
  ];
  const target = {
    ...{ dtype: element, resultDtype: element, m, n, k },
    ...{ a: { storage: half(a, "a"), rowStride: k } },
    b: { storage: half(b, "b"), rowStride: isBTransposed ? k : n, isTransposed: isBTransposed },
    ...(c && { c: { storage: c, rowStride: n + gap } }),
    ...(bias !== "none" && {
      bias: bias === "f32" ? put(runtime, Float32Array.from(biases), "bias") : half(biases, "bias"),
      biasDtype: bias === "f32" ? ("f32" as const) : element,
    }),
  };
  const results = [...(c ? [c] : []), ...outputs];
  function run(
    { tile = pingPongTile, ctas = 2, prefetchesB = false } = {} as {
      tile?: Sm90Config["tile"];
      ctas?: number;
      prefetchesB?: boolean;
    },
    change: (code: string) => string = (code) => code,
  ): readonly Uint16Array[] {
    for (const result of results) runtime.fill(result, 0xff);
    const config = { ...configOf(problem, tile, storesC, ctas), ...(prefetchesB && { prefetchesB }) };
    const on = epilogue && { ...epilogue, operands, scalars: epilogue.kernel.scalars.map(() => 3) };
    const command = lowerSm90Gemms([target], config, "gemm", on);
    const { cuda } = command.source;
    const code = change(cuda!.code);
    submit(runtime, [{ ...command, source: { ...command.source, cuda: { ...cuda!, code } } }]);
    return results.map((result) => bitsOf(runtime, result));
  }
  /** The sums of the GEMM, exact. */
  function sums(): Float64Array {
    const result = new Float64Array(m * n);
    // [N, K]: neighbours in memory are multiplied one after the other.
    const columns = isBTransposed ? b : b.map((_, at) => b[(at % k) * n + Math.floor(at / k)]!);
    for (let column = 0; column < n; column++) {
      const values = columns.subarray(column * k, (column + 1) * k);
      for (let row = 0; row < m; row++) result[row * n + column] = dot(a, row * k, values);
      if (bias !== "none") for (let row = 0; row < m; row++) result[row * n + column]! += biases[column]!;
    }
    return result;
  }
  return { run, sums, inputs, results };
}

function inReverse<T>(isReversed: boolean, body: () => T): T {
  if (!isReversed) return body();
  const emulator = openEmulator();
  emulator.set("reversed", 1);
  try {
    return body();
  } finally {
    emulator.set("reversed", 0);
  }
}

describe("a ping-pong GEMM", { skip: cudaMissing }, () => {
  const runtime = cudaMissing ? undefined! : openCudaKernelRuntime({ precision: "bf16" });

  /** Edges of tiles, k-tiles and rows of warps; one tile, fewer tiles than CTAs, and several for each CTA. */
  const shapes: readonly (Shape & { readonly ctas: number })[] = [
    { m: 128, n: 128, k: 64, ctas: 1 },
    { m: 61, n: 8, k: 24, ctas: 4 },
    { m: 300, n: 200, k: 72, ctas: 1 },
    ...effort({
      quick: [{ m: 700, n: 136, k: 400, ctas: 2 }],
      thorough: [
        { m: 1100, n: 136, k: 400, ctas: 3 },
        { m: 1300, n: 392, k: 136, ctas: 5 },
        { m: 257, n: 1000, k: 320, ctas: 132 },
        { m: 136, n: 264, k: 1096, ctas: 2 },
      ],
    }),
  ];

  test("stores a 16-bit C for every edge, and nothing else", () => {
    for (const [index, { ctas, ...shape }] of shapes.entries()) {
      for (const isReversed of [false, ...(onlyOnEmulator ? [] : [true])]) {
        runtime.step(() =>
          inReverse(isReversed, () => {
            const bias = (["none", "f32", "bf16"] as const)[index % 3]!;
            const element = index % 2 === 0 ? "bf16" : "f16";
            const problem = { ...shape, bias, gap: 8, isBTransposed: index % 2 === 1, element } as const;
            const { run, sums } = prepare(runtime, problem, undefined);
            const expected = new Uint16Array(encodeFloats(sums(), element).buffer);
            const [actual] = run({ ctas, prefetchesB: isReversed });
            for (const [at, bits] of actual!.entries()) {
              const [row, column] = [Math.floor(at / (shape.n + 8)), at % (shape.n + 8)];
              assert.equal(
                bits,
                column < shape.n ? expected[row * shape.n + column] : 0xffff,
                `[${row}, ${column}]`,
              );
            }
          }),
        );
      }
    }
  });

  test("applies an epilogue for every edge: an activation with its input, in every order of threads", () => {
    for (const [index, { ctas, ...shape }] of shapes.entries()) {
      for (const isReversed of [false, ...(onlyOnEmulator ? [] : [true])]) {
        runtime.step(() =>
          inReverse(isReversed, () => {
            const bias = (["f32", "bf16", "none"] as const)[index % 3]!;
            const { run, sums } = prepare(runtime, { ...shape, bias }, epilogues["two results"]);
            const [c, cubed] = run({ ctas });
            const exact = sums();
            const threefold = exact.map((sum) => 3 * sum * sum);
            assert.deepEqual(c, new Uint16Array(encodeFloats(exact, "bf16").buffer));
            assert.deepEqual(cubed, new Uint16Array(encodeFloats(threefold, "bf16").buffer));
          }),
        );
      }
    }
  });

  test("applies an epilogue for every edge: an operand, and column sums over sixteen rows each", () => {
    for (const { ctas, ...shape } of shapes) {
      for (const isReversed of [false, ...(onlyOnEmulator ? [] : [true])]) {
        runtime.step(() =>
          inReverse(isReversed, () => {
            const { m, n } = shape;
            const problem = { ...shape, isBTransposed: false };
            const { run, sums, inputs, results } = prepare(
              runtime,
              problem,
              epilogues["an operand and column sums"],
            );
            const [multiplied] = run({ ctas, prefetchesB: isReversed });
            const exact = sums().map((sum, at) => sum * inputs[0]![at]!);
            const expected = new Uint16Array(encodeFloats(exact, "bf16").buffer);
            assert.deepEqual(multiplied, expected);
            const columns = new Float32Array(Math.ceil(m / colsumRows) * n);
            for (const [at, bits] of expected.entries()) {
              const value = new Float32Array(Uint32Array.of(bits << 16).buffer)[0]!;
              columns[Math.floor(at / n / colsumRows) * n + (at % n)]! += value;
            }
            assert.deepEqual(floatsOf(runtime, results[1]!), columns);
          }),
        );
      }
    }
  });

  /** Numbers with as many digits as bf16 has. */
  function rough(length: number, seed: number): Float64Array {
    let state = seed;
    return new Float64Array(length).map(() => {
      state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0;
      return (((state >>> 16) % 255) - 127) / 64;
    });
  }

  test("has the bits of other tiles in every epilogue", () => {
    for (const [name, epilogue] of Object.entries<Epilogue>(epilogues)) {
      runtime.step(() => {
        const problem: Problem = {
          ...{ m: 300, n: 136, k: 200, isBTransposed: name.length % 2 === 0 },
          bias: epilogue.storesC ? "f32" : "none",
        };
        const { run } = prepare(runtime, problem, epilogue, rough);
        const expected = run({ tile: tiles.paired });
        const actual = run();
        for (const [index, bits] of actual.entries())
          assert.deepEqual(bits, expected[index], `${name}, result ${index}`);
      });
    }
  });

  describe("red proof: the emulator finds", { skip: onlyOnEmulator }, () => {
    const problem: Problem = { m: 400, n: 136, k: 400, bias: "f32" };

    const expectedOf = new Map<Epilogue, readonly Uint16Array[]>();
    /** The results without a fault. */
    function expect(epilogue: Epilogue): readonly Uint16Array[] {
      const known = expectedOf.get(epilogue);
      if (known) return known;
      const results = runtime.step(() => prepare(runtime, problem, epilogue, rough).run({ ctas: 1 }));
      expectedOf.set(epilogue, results);
      return results;
    }

    /** The difference that a fault makes: "none", "wrong" or the message of the kernel's fault. */
    function difference(
      epilogue: Epilogue,
      isReversed: boolean,
      before: string | RegExp,
      after: string,
    ): string {
      const expected = expect(epilogue);
      const emulator = openEmulator();
      // A fault ends the work of a runtime, so each has its own.
      const driver = openTestGpu();
      const faulty = openRuntime({
        ...{
          driver,
          precision: "bf16",
          memory: "64MiB",
          stallAfter: "off",
          environment: {},
          print: () => {},
        },
      });
      let hasFault = false;
      const change = (code: string): string => {
        const changed = code.replaceAll(before, after);
        hasFault = changed !== code;
        return changed;
      };
      let found = "none";
      try {
        faulty.step(() => {
          const { run } = prepare(faulty, problem, epilogue, rough);
          const actual = inReverse(isReversed, () => run({ ctas: 1 }, change));
          const isSame = actual.every((bits, index) =>
            bits.every((value, at) => value === expected[index]![at]),
          );
          found = isSame ? "none" : "wrong";
        });
        faulty.close();
        driver.close();
      } catch (error) {
        found = emulator.lastFault();
        if (found === "") throw error;
      }
      emulator.reset();
      assert.ok(hasFault, `the kernel has no ${before}`);
      return found;
    }

    test("no difference without a fault", () => {
      const epilogue = epilogues["an operand and two results"];
      assert.equal(
        difference(epilogue, true, "gridDependencyWait();\n", "gridDependencyWait();\n\n"),
        "none",
      );
    });

    test("a warpgroup that does not wait for its turn, and so takes an older phase for its own", () => {
      const turn = "mbarrierWait(turn + warpgroup, round ^ warpgroup ^ 1);";
      assert.notEqual(difference(epilogues["two results"], false, turn, ""), "none");
    });

    test("a turn with the wrong parity", () => {
      const wrong = difference(epilogues["two results"], false, "round ^ warpgroup ^ 1", "round ^ warpgroup");
      assert.notEqual(wrong, "none");
    });

    test("a tile whose first products are added to the sums of the warpgroup's last one", () => {
      const found = difference(epilogues["two results"], false, "kTile > 0 || kStep > 0", "true");
      assert.equal(found, "wrong");
    });

    test("stages of the other warpgroup that are not skipped", () => {
      assert.notEqual(difference(epilogues["two results"], false, "stage += kTiles;", ""), "none");
    });

    test("a box that is overwritten while TMA still reads it", () => {
      assert.equal(
        difference(epilogues["two results"], true, "bulkWaitRead<1>()", "bulkWaitRead<2>()"),
        "wrong",
      );
    });

    test("operands that are read before they have arrived", () => {
      const wait = "mbarrierWait(loaded + warp, round);";
      assert.notEqual(difference(epilogues["an operand"], true, wait, ""), "none");
    });

    test("operands that overwrite results which TMA still reads", () => {
      const wait = "bulkWaitRead<0>();\n      mbarrierArriveExpectTx";
      assert.equal(difference(epilogues["an operand"], true, wait, "mbarrierArriveExpectTx"), "wrong");
    });

    test("a store by TMA without a fence", () => {
      assert.match(difference(epilogues["an operand"], false, "fenceProxyAsync();", ""), /without a fence/);
    });

    test("a store by TMA before other lanes have written their rows", () => {
      const fence = "fenceProxyAsync();\n        __syncwarp();";
      assert.match(
        difference(epilogues["an operand"], false, fence, "fenceProxyAsync();"),
        /without a fence/,
      );
    });

    test("a warp that ends while TMA still reads its memory", () => {
      const end = /if \(lane == 0\) bulkWaitRead<0>\(\);\n\}/g;
      assert.match(difference(epilogues["two results"], true, end, "}"), /before its copies had read/);
    });
  });
});

describe("a ping-pong config", () => {
  const hopper = { kind: "cuda", computeCapability: "9.0", parallelism: 132 } as const;
  const matrixOf = (rowStride: number) => ({ storage: { span: span(256, 2 ** 30) }, rowStride });
  const gemmOf = ({ m, n, k }: Shape): GemmDesc => ({
    ...{ dtype: "bf16", resultDtype: "f32", m, n, k },
    ...{ a: matrixOf(k), b: { ...matrixOf(k), isTransposed: true }, c: matrixOf(n) },
  });
  const isListed = (shape: Shape, epilogue: Epilogue = epilogues["an operand"]): boolean =>
    listEpilogueConfigs(hopper, "bf16", gemmOf(shape), epilogue).some(({ tile }) => tile.isPingPong);

  test("is the last candidate of a large GEMM", () => {
    const large = { m: 16_384, n: 1536, k: 384 };
    const configs = listEpilogueConfigs(hopper, "bf16", gemmOf(large), epilogues["an operand"]);
    assert.deepEqual(
      configs.map(({ tile }) => tile === pingPongTile),
      [...Array<boolean>(configs.length - 1).fill(false), true],
    );
    assert.equal(configs.at(-1)?.maxCtas, 132);
    assert.ok(isListed({ ...large, m: 11 * 128, n: 12 * 128 }));
    assert.ok(!isListed({ ...large, m: 11 * 128, n: 11 * 128 }), "fewer tiles than multiprocessors");
  });

  test("is a candidate of a plain GEMM whose C has 16 bits and whole vectors", () => {
    const large = { m: 16_384, n: 1536, k: 384 };
    const isCandidate = (shape: Shape, more: Partial<GemmDesc> = {}): boolean =>
      listCandidates(hopper, "bf16", { ...gemmOf(shape), resultDtype: "bf16", ...more }).at(-1)?.tile ===
      pingPongTile;
    assert.ok(isCandidate(large));
    assert.ok(isCandidate(large, { b: matrixOf(1536) }), "N-major B");
    assert.ok(!isCandidate(large, { resultDtype: "f32" }));
    assert.ok(!isCandidate({ ...large, n: 1540 }));
    assert.ok(!isCandidate(large, { batch: 2, c: { ...matrixOf(1536), batchStride: 2 ** 26 } }));
    assert.ok(!isCandidate({ ...large, m: 11 * 128, n: 11 * 128 }), "fewer tiles than multiprocessors");
  });

  test("exists for operands and results of 16 bits, and for column sums of results", () => {
    for (const epilogue of Object.values<Epilogue>(epilogues))
      assert.ok(canPingPong({ tile: pingPongTile, resultDtype: "bf16" }, epilogue));
    const [one, summed] = [epilogues["one result"], epilogues["an operand and column sums"]];
    const can = (epilogue: Epilogue, resultDtype: "f32" | "bf16" = "f32") =>
      canPingPong({ tile: pingPongTile, resultDtype }, epilogue);
    assert.ok(can(one));
    assert.ok(!can({ ...one, storesC: true }), "C in f32");
    const wide = { dtype: "f32", per: "element" } as const;
    assert.ok(!can({ ...one, kernel: { ...cube, outputs: [wide] } }), "a result in f32");
    const dropped: RowKernel = { ...product, inputs: ["draw", "f32"] };
    assert.ok(!can({ kernel: dropped, gemmInput: 1, storesC: false }), "drawn numbers");
    const exact: RowKernel = {
      ...summed.kernel,
      stages: [...product.stages, store(1, term.load(1, "f32"))],
    };
    assert.ok(!can({ ...summed, kernel: exact }), "column sums before rounding");
    const fourResults: RowKernel = {
      ...{ ...product, inputs: ["bf16", "bf16", "f32"], outputs: [bf16, bf16, bf16, bf16] },
      stages: [0, 1, 2, 3].map((output) => store(output, term.add(x, y))),
    };
    assert.ok(!can({ kernel: fourResults, gemmInput: 2, storesC: false }), "too much shared memory");
  });
});

describe("the code of ping-pong GEMMs under nvcc", { skip: noCompiler() }, () => {
  test("compiles without a warning, needs no local memory, and does not serialise wgmma", (t) => {
    const all = Object.values<Epilogue | undefined>({ ...epilogues, none: undefined }).map(
      (epilogue, index) => {
        const storesC = !epilogue || epilogue.storesC;
        const bias = (["f32", "none", "bf16"] as const)[index % 3]!;
        const problem = { m: 1, n: 1, k: 1, isBTransposed: index % 2 === 0, bias };
        const config = configOf(problem, pingPongTile, storesC, 132);
        return sm90Source({ ...config, ...(index > 3 && { prefetchesB: true }) }, ["out"], epilogue);
      },
    );
    const { cases: sources, note } = sampleOfDay(all, 3);
    t.diagnostic(`${note} epilogues`);
    for (const [index, cost] of compileWithNvcc(sources, "sm_90a").entries()) {
      const { stackBytes, spillBytes, isSerialized, registers } = cost;
      const actual = { stackBytes, spillBytes, isSerialized };
      assert.deepEqual(actual, { stackBytes: 0, spillBytes: 0, isSerialized: false }, `source ${index}`);
      // 2 · 240 + 24, which setmaxnreg distributes.
      assert.equal(registers, 168);
      assert.ok((sources[index]!.cuda!.sharedBytes ?? 0) <= 227 * 1024);
    }
  });
});
