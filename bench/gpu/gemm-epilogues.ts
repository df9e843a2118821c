/**
 * GEMMs with a GELU or its gradient in their epilogue, in bf16: the time of every candidate, and whether it has the bits of the default.
 *
 *   node --conditions=holdfast-source dist/bench/gpu/gemm-epilogues.js [--shapes 8192x3072x768,…] [--only "gradient"] [--form tanh]
 *     [--tiles 192x128,64x128] [--ablations] [--rounds 7] [--launches 20]
 *
 * A time is that of one launch in a graph of several, in microseconds: the minimum over rounds in which all candidates alternate. The column
 * "GEMM" is cuBLASLt's fastest algorithm with a bf16 result and no epilogue; "traffic" is the estimated time of the epilogue's reads and writes.
 */

import { timeCandidates } from "../../src/compile/autotune/gemm-times.js";
import { Device } from "../../src/index.js";
import { type Expression, narrowToBf16, type RowKernel, term } from "../../src/ir/index.js";
import { lowerSm90Gemms, type Sm90Config, sm90EpilogueConfigs } from "../../src/kernels/gemm/sm90/index.js";
import { canPingPong } from "../../src/kernels/gemm/sm90/ping-pong.js";
import {
  colsumRows,
  type Epilogue,
  firstNativeAlgorithm,
  type GemmInputDtype,
  type GemmProblem,
  trafficUs,
} from "../../src/kernels/index.js";
import type { Replayable, Runtime, Storage } from "../../src/runtime/index.js";
import { systemClock } from "../../src/units/index.js";
import { readOptions } from "../../test/support/command-line.js";

const options = readOptions(import.meta.url, {
  shapes: {
    type: "string",
    default:
      "16384x1536x384,16384x384x1536,8192x3072x768,8192x768x3072,25088x1536x384,6000x1600x400,1024x4096x4096,32768x2048x512",
  },
  /** Epilogues whose names contain this. */
  only: { type: "string", default: "" },
  /** Of GELU: exact or tanh. */
  form: { type: "string", default: "exact" },
  /** Tiles of more ping-pong kernels to try, which autotuning does not. */
  tiles: { type: "string", default: "192x128,64x128" },
  /** Also times the ping-pong kernel without parts of its work. The results of these are wrong. */
  ablations: { type: "boolean", default: false },
  rounds: { type: "string", default: "7" },
  launches: { type: "string", default: "20" },
});

interface Shape {
  readonly m: number;
  readonly n: number;
  readonly k: number;
}

const shapes = options.shapes.split(",").map((text): Shape => {
  const [m = Number.NaN, n = Number.NaN, k = Number.NaN] = text.split("x").map(Number);
  return { m, n, k };
});

const isTanh = options.form === "tanh";

/** Φ(x), or the sigmoid that the tanh form of GELU takes for it. */
function cdf(x: Expression): Expression {
  if (!isTanh) return term.mul(0.5, term.add(1, term.erf(term.mul(x, Math.SQRT1_2))));
  const cube = term.mul(x, term.mul(x, x));
  return term.sigmoid(term.mul(2 * Math.sqrt(2 / Math.PI), term.add(x, term.mul(0.044715, cube))));
}

function derivative(x: Expression): Expression {
  const zero = term.constant(0, x.type);
  if (!isTanh) {
    const density = term.mul(1 / Math.sqrt(2 * Math.PI), term.exp(term.mul(-0.5, term.mul(x, x))));
    return term.add(cdf(x), term.select(term.gt(density, 0), term.mul(x, density), zero));
  }
  const s = cdf(x);
  const inner = term.mul(Math.sqrt(2 / Math.PI), term.add(1, term.mul(3 * 0.044715, term.mul(x, x))));
  const slope = term.mul(term.mul(2, term.mul(s, term.sub(1, s))), inner);
  return term.add(s, term.select(term.gt(term.mul(s, term.sub(1, s)), 0), term.mul(x, slope), zero));
}

const [x, y] = [term.load(0, "f32"), term.load(1, "f32")];

const forward: RowKernel = {
  ...{ name: "gelu", inputs: ["f32"], outputs: [{ dtype: "bf16", per: "element" }], scalars: [] },
  stages: [{ kind: "store", output: 0, value: term.mul(x, cdf(x)) }],
};

const gradient: RowKernel = {
  ...{ name: "gelu gradient", inputs: ["bf16", "f32"], scalars: [] },
  outputs: [{ dtype: "bf16", per: "element" }],
  stages: [{ kind: "store", output: 0, value: term.mul(y, derivative(x)) }],
};

const withSums: RowKernel = {
  ...{ ...gradient, inputs: ["bf16", "f32", "bf16"] },
  outputs: [...gradient.outputs, { dtype: "f32", per: "column" }],
  stages: [...gradient.stages, { kind: "store", output: 1, value: term.load(2, "f32") }],
};

interface Case {
  readonly name: string;
  readonly epilogue: Epilogue;
  /** A layer's weights are K-major in the forward direction. */
  readonly isBTransposed: boolean;
  readonly hasBias: boolean;
}

const cases: readonly Case[] = [
  {
    ...{ name: "forward", isBTransposed: true, hasBias: true },
    epilogue: { kernel: forward, gemmInput: 0, storesC: true },
  },
  {
    ...{ name: "gradient", isBTransposed: false, hasBias: false },
    epilogue: { kernel: gradient, gemmInput: 1, storesC: false },
  },
  {
    ...{ name: "gradient, column sums", isBTransposed: false, hasBias: false },
    epilogue: {
      ...{ kernel: withSums, gemmInput: 1, storesC: false },
      forwarded: [undefined, undefined, 0],
    },
  },
].filter(({ name }) => name.includes(options.only));

/** Normal numbers of bf16 that repeat after a prime count, so that no two rows are equal. */
const pool = (() => {
  const floats = new Float32Array(1_000_003);
  let state = 1;
  const uniform = (): number => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return (state + 0.5) / 2 ** 32;
  };
  for (let index = 0; index < floats.length; index++)
    floats[index] = Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform());
  return floats;
})();

function values(count: number, scale: number): Uint16Array {
  const bits = narrowToBf16(pool.map((value) => value * scale));
  const result = new Uint16Array(count);
  for (let at = 0; at < count; at += bits.length) result.set(bits.subarray(0, count - at), at);
  return result;
}

/** Bytes that no result has: NaN. */
const unwritten = 0xff;

interface Memory {
  readonly problem: Omit<GemmProblem<GemmInputDtype>, "c"> & Pick<Partial<GemmProblem>, "c">;
  readonly operands: readonly (Storage | undefined)[];
  /** What a launch writes. */
  readonly results: readonly Storage[];
  readonly all: readonly Storage[];
}

function allocate(runtime: Runtime, { m, n, k }: Shape, { epilogue, isBTransposed, hasBias }: Case): Memory {
  const all: Storage[] = [];
  const place = (bytes: number, label: string): Storage => {
    const storage = runtime.arena.allocate(bytes, label);
    all.push(storage);
    return storage;
  };
  const put = (source: ArrayBufferView, label: string): Storage => {
    const target = place(source.byteLength, label);
    runtime.upload([{ source, target }]);
    return target;
  };
  const a = put(values(m * k, 1), "a");
  const b = put(values(n * k, 1 / Math.sqrt(k)), "b");
  const bias = hasBias ? put(pool.slice(0, n), "bias") : undefined;
  const c = epilogue.storesC ? place(2 * m * n, "c") : undefined;
  const { kernel, gemmInput, forwarded = [] } = epilogue;
  const outputs = kernel.outputs.map(({ per, dtype }, index) =>
    place(
      per === "column" ? 4 * n * Math.ceil(m / colsumRows) : (dtype === "f32" ? 4 : 2) * m * n,
      `out${index}`,
    ),
  );
  const inputs = kernel.inputs.map((_, index) => {
    const forwardedFrom = forwarded[index];
    if (forwardedFrom !== undefined) return outputs[forwardedFrom];
    return index === gemmInput ? undefined : put(values(m * n, 1.5), `in${index}`);
  });
  return {
    problem: {
      ...{ dtype: "bf16", m, n, k, resultDtype: epilogue.storesC ? "bf16" : "f32" },
      ...{ a: { storage: a, rowStride: k } },
      b: { storage: b, rowStride: isBTransposed ? k : n, isTransposed: isBTransposed },
      ...(c && { c: { storage: c, rowStride: n } }),
      ...(bias && { bias, biasDtype: "f32" }),
    },
    ...{ operands: [...inputs, ...outputs], results: [...(c ? [c] : []), ...outputs], all },
  };
}

function nameOf({ tile, loadsOperandsEarly, clusterN }: Sm90Config): string {
  const { tileM, tileN, ctasPerSm, isPingPong, swapsAB } = tile;
  const traits = [
    ...(isPingPong ? ["ping-pong"] : []),
    ...(ctasPerSm ? [`${ctasPerSm} per SM`] : []),
    ...(loadsOperandsEarly ? ["early"] : []),
    ...(swapsAB ? ["swapAB"] : []),
    ...(clusterN ? ["cluster"] : []),
  ];
  return [`${tileM}x${tileN}`, ...traits].join(" ");
}

/** cuBLASLt's fastest algorithm for the GEMM alone, in microseconds. */
function timeLibrary(runtime: Runtime, { m, n, k }: Shape, isBTransposed: boolean): number {
  let id = 0;
  const slice = (size: number) => ({
    ...{ buffer: { id: id++, bytes: size, label: "gemm" }, offset: 0, size },
  });
  const times = timeCandidates(
    runtime,
    {
      ...{ dtype: "bf16", resultDtype: "bf16", m, n, k },
      a: { slice: slice(2 * m * k), rowStride: k },
      b: { slice: slice(2 * n * k), rowStride: isBTransposed ? k : n, isTransposed: isBTransposed },
      c: { slice: slice(2 * m * n), rowStride: n },
    },
    { limitMs: 200, clock: systemClock },
  );
  return Math.min(...[...times].flatMap(([algorithm, us]) => (algorithm > firstNativeAlgorithm ? [us] : [])));
}

interface Candidate {
  readonly name: string;
  readonly burst: Replayable;
  /** Wrong results, by their labels; empty if all bits are those of the default. */
  readonly differences: readonly string[];
  readonly isAblated: boolean;
}

/** A kernel to time: that of a config, with changes of its code. */
interface Variant {
  readonly name: string;
  readonly config: Sm90Config;
  readonly changes?: readonly (readonly [from: string | RegExp, to: string])[];
}

/** The condition is never true, and the compiler does not know that. */
const ablations: Readonly<Record<string, NonNullable<Variant["changes"]>>> = {
  "no stores": [["tmaStore(&", "if (n < 0) tmaStore(&"]],
  "no epilogue": [[/#pragma unroll\n +for \(unsigned half/g, "if (n < 0)\n$&"]],
  "no products": [["wgmmaSs<Element, mmaN", "if (n < 0) wgmmaSs<Element, mmaN"]],
};

/** The candidates of autotuning, and what the options add. */
function variantsOf(
  runtime: Runtime,
  problem: Parameters<typeof sm90EpilogueConfigs>[1],
  epilogue: Epilogue,
): readonly Variant[] {
  const configs = sm90EpilogueConfigs(runtime, problem, epilogue);
  const candidates = configs.map((config): Variant => ({ name: nameOf(config), config }));
  const pingPong = configs.find(({ tile }) => tile.isPingPong);
  if (!pingPong) return candidates;
  const others = options.tiles.split(",").flatMap((text): Variant[] => {
    const [tileM = 0, tileN = 0] = text.split("x").map(Number);
    const config = { ...pingPong, tile: { ...pingPong.tile, tileM, tileN, stages: 8 } };
    return text !== "" && canPingPong(config, epilogue) ? [{ name: `(${nameOf(config)})`, config }] : [];
  });
  const ablated = Object.entries(ablations).map(
    ([name, changes]): Variant => ({ name: `(${nameOf(pingPong)}, ${name})`, config: pingPong, changes }),
  );
  return [...candidates, ...others, ...(options.ablations ? ablated : [])];
}

function prepare(runtime: Runtime, { problem, operands, results }: Memory, { epilogue }: Case): Candidate[] {
  const launches = Number(options.launches);
  const described = { ...problem, c: problem.c ?? { storage: results[0] as Storage, rowStride: problem.n } };
  let expected: readonly Uint8Array[] | undefined;
  return variantsOf(runtime, described, epilogue).map(({ name, config, changes }): Candidate => {
    const command = lowerSm90Gemms([problem], config, "gemm", { ...epilogue, operands, scalars: [] });
    const { cuda } = command.source;
    if (!cuda) throw new Error("a kernel without CUDA code");
    const code = (changes ?? []).reduce((before, [from, to]) => before.replaceAll(from, to), cuda.code);
    const loaded = runtime.load([{ ...command, source: { ...command.source, cuda: { ...cuda, code } } }]);
    for (const result of results) runtime.fill(result, unwritten);
    runtime.submit(loaded);
    const actual = results.map((result) => runtime.read(result).slice());
    const isFirst = expected === undefined;
    expected ??= actual;
    const differences = actual.flatMap((bytes, index) => {
      const label = results[index]?.label ?? "";
      if (changes) return [];
      if (isFirst)
        return new Uint16Array(bytes.buffer).every((bits) => bits === 0xffff) ? [`${label} unwritten`] : [];
      return Buffer.compare(bytes, expected?.[index] ?? new Uint8Array()) === 0 ? [] : [label];
    });
    const burst = runtime.captureForTiming("gemm epilogue", () => {
      for (let count = 0; count < launches; count++) runtime.submit(loaded);
    });
    return { name, burst, differences, isAblated: changes !== undefined };
  });
}

/** Microseconds of a launch of each candidate. */
function time(runtime: Runtime, candidates: readonly Candidate[]): readonly number[] {
  const bestMs = candidates.map(() => Number.POSITIVE_INFINITY);
  for (let round = 0; round <= Number(options.rounds); round++) {
    for (const [index, { burst }] of candidates.entries()) {
      runtime.synchronize();
      const startMs = systemClock.nowMs();
      burst.replay();
      runtime.synchronize();
      const elapsedMs = systemClock.nowMs() - startMs;
      // The first round warms up.
      if (round > 0) bestMs[index] = Math.min(elapsedMs, bestMs[index] ?? elapsedMs);
    }
  }
  return bestMs.map((ms) => (ms * 1000) / Number(options.launches));
}

const rows: string[][] = [];
let wrong = 0;
const device = new Device("cuda", { precision: "bf16", print: () => {} });
const { runtime } = device;
for (const shape of shapes) {
  for (const each of cases) {
    const { m, n, k } = shape;
    const library = timeLibrary(runtime, shape, each.isBTransposed);
    const memory = allocate(runtime, shape, each);
    const candidates = prepare(runtime, memory, each);
    const times = time(runtime, candidates);
    const traffic = trafficUs(runtime.device, 4 * m * n);
    const fastest = Math.min(...times.filter((_, index) => !candidates[index]?.isAblated));
    for (const [index, { name, burst, differences, isAblated }] of candidates.entries()) {
      const us = times[index] ?? Number.NaN;
      if (differences.length > 0) wrong++;
      rows.push([
        ...[index === 0 ? `${m}x${n}x${k} ${each.name}` : "", name],
        ...[us.toFixed(1), us === fastest ? "*" : "", ((2 * m * n * k) / us / 1e6).toFixed(0)],
        ...(index === 0 ? [library.toFixed(1), traffic.toFixed(1)] : ["", ""]),
        isAblated ? "" : differences.length === 0 ? "same" : `DIFFERS: ${differences.join(", ")}`,
      ]);
      burst.close();
    }
    for (const storage of memory.all) runtime.arena.free(storage);
  }
}
device.close();

const table = [["case", "candidate", "µs", "", "TFLOP/s", "GEMM µs", "traffic µs", "bits"], ...rows];
const widths =
  table[0]?.map((_, column) => Math.max(...table.map((row) => (row[column] ?? "").length))) ?? [];
for (const row of table)
  console.log(
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join("  ")
      .trimEnd(),
  );
if (wrong > 0) {
  console.log(`${wrong} candidates have other bits than the default.`);
  process.exitCode = 1;
}
