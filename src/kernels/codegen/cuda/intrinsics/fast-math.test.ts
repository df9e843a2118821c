/** The approximate functions against float64, over the whole range of float, on a GPU or on the emulator. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { effort } from "../../../../../test/support/effort.js";
import { cudaMissing, openCudaKernelRuntime, put } from "../../../../../test/support/kernel-runtime.js";
import { mathFunctions } from "../../../../driver/index.js";
import { type Expression, iterateElements, type RowKernel, term } from "../../../../ir/index.js";
import type { Storage } from "../../../../runtime/index.js";
import { span } from "../../../../units/index.js";
import { CudaBackend } from "../../../backends/cuda.js";
import type { Target } from "../../../target.js";
import { cudaRowConfig } from "../row-config.js";
import { fastMathErrors } from "./fast-math.js";

const x = term.load(0, "f32");
const normalCdf = term.mul(0.5, term.add(1, term.erf(term.mul(x, Math.SQRT1_2))));

const density = term.mul(1 / Math.sqrt(2 * Math.PI), term.exp(term.mul(-0.5, term.mul(x, x))));
const [root, cubic] = [Math.sqrt(2 / Math.PI), 0.044715];
const tanhCdf = term.sigmoid(term.mul(2 * root, term.add(x, term.mul(cubic, term.mul(x, term.mul(x, x))))));
const tanhSlope = term.mul(tanhCdf, term.sub(1, tanhCdf));
const innerSlope = term.mul(root, term.add(1, term.mul(3 * cubic, term.mul(x, x))));

const functions: Readonly<Record<keyof typeof fastMathErrors, Expression>> = {
  exp: term.exp(x),
  sigmoid: term.sigmoid(x),
  tanh: term.tanh(x),
  normalCdf,
  tanhCdf,
  geluDerivative: term.add(normalCdf, term.select(term.gt(density, 0), term.mul(x, density), 0)),
  geluTanhDerivative: term.add(
    tanhCdf,
    term.select(term.gt(tanhSlope, 0), term.mul(x, term.mul(term.mul(2, tanhSlope), innerSlope)), 0),
  ),
};
const names = Object.keys(functions) as (keyof typeof functions)[];

const sigmoid = (value: number): number =>
  value < 0 ? Math.exp(value) / (1 + Math.exp(value)) : 1 / (1 + Math.exp(-value));
const normalDensity = (value: number): number => Math.exp(-0.5 * value * value) / Math.sqrt(2 * Math.PI);
const logOdds = (value: number): number => 2 * root * (value + cubic * value ** 3);

/** The derivative of the sigmoid of `logOdds`. */
function tanhDensity(value: number): number {
  const odds = sigmoid(logOdds(value));
  const slope = odds * sigmoid(-logOdds(value));
  return slope === 0 ? 0 : 2 * slope * root * (1 + 3 * cubic * value * value);
}

const exact: Readonly<Record<keyof typeof functions, (value: number) => number>> = {
  exp: Math.exp,
  sigmoid,
  tanh: Math.tanh,
  normalCdf: exactCdf,
  tanhCdf: (value) => sigmoid(logOdds(value)),
  geluDerivative: (value) => exactCdf(value) + weighted(value, normalDensity),
  geluTanhDerivative: (value) => sigmoid(logOdds(value)) + weighted(value, tanhDensity),
};

/** A value times its density, 0 for an infinite value. */
const weighted = (value: number, densityOf: (value: number) => number): number =>
  densityOf(value) === 0 ? 0 : value * densityOf(value);

/** What an error is relative to, where that is not the exact result: the sum of the magnitudes of two terms that cancel. */
const magnitudes: Partial<typeof exact> = {
  geluDerivative: (value) => exactCdf(value) + Math.abs(weighted(value, normalDensity)),
  geluTanhDerivative: (value) => sigmoid(logOdds(value)) + Math.abs(weighted(value, tanhDensity)),
};

/** For |x| > 3 Laplace's continued fraction of the tail, because 1 + erf cancels. */
function exactCdf(value: number): number {
  if (!(Math.abs(value) > 3)) return 0.5 * (1 + mathFunctions.erf(value * Math.SQRT1_2));
  const distance = Math.abs(value);
  let fraction = distance;
  for (let level = 80; level > 0; level--) fraction = distance + level / fraction;
  const atValue = normalDensity(distance);
  const tail = atValue === 0 ? 0 : atValue / fraction;
  return value < 0 ? tail : 1 - tail;
}

/** Floats over all bit patterns, the range in which the functions vary, and neighbours of the points where they change their form. */
function operands(count: number): Float32Array {
  const bits = Uint32Array.from({ length: count }, (_, index) => Math.imul(index, 0x9e3779b1));
  const dense = Array.from({ length: count }, (_, index) => -105 + (210 * index) / count);
  const near = Array.from({ length: count }, (_, index) => -14 + (28 * index) / count);
  return Float32Array.from([...new Float32Array(bits.buffer), ...dense, ...near, 0.5, -0.5, 0.49999997]);
}

const kernel: RowKernel = {
  ...{ name: "approximate functions", inputs: ["f32"], scalars: [] },
  outputs: names.map(() => ({ dtype: "f32", per: "element" })),
  stages: names.map((name, output) => ({ kind: "store", output, value: functions[name] })),
};

/** The functions that the kernel's code names, alone and in a combo kernel. */
function calledIn(precision: "f32" | "tf32" | "bf16"): ReadonlySet<string> {
  const target = { device: { parallelism: 132 }, settings: { precision } } as Target;
  const backend = new CudaBackend(target);
  const strides = [0, ...names].map(() => [1]);
  const operands = strides.map((_, operand) => ({ span: span(256 * operand, 64) }) as Storage);
  const launch = { kernel, iteration: iterateElements([16], strides), operands };
  const commands = [...backend.lowerRow(launch), ...backend.lowerRowCombo([launch, launch], "rows")];
  const code = commands.map((command) => (command.kind === "launch" ? command.source.cuda?.code : "")).join();
  return new Set([...code.matchAll(/[a-z]\w*(?=\()/g)].map(([name]) => name));
}

test("approximate functions replace those of the CUDA library in TF32 and bf16, and nowhere else", () => {
  const replaced = ["erff", "expf", "tanhf", "sigmoid_f32"];
  const gelu = ["normal_cdf", "tanh_cdf", "gelu_derivative", "gelu_tanh_derivative"];
  const approximate = ["exp", "tanh", "sigmoid", ...gelu].map((name) => `fast_${name}_f32`);
  const isCalled = (called: ReadonlySet<string>) => (name: string) => called.has(name);
  for (const precision of ["f32", "tf32", "bf16"] as const) {
    const called = calledIn(precision);
    const [used, unused] = precision === "f32" ? [replaced, approximate] : [approximate, replaced];
    assert.ok(used.every(isCalled(called)), precision);
    assert.ok(!unused.some(isCalled(called)), precision);
  }
});

describe("approximate functions", { skip: cudaMissing }, () => {
  const runtime = openCudaKernelRuntime();

  function compute(values: Float32Array, replace: (code: string) => string = (code) => code): Float32Array[] {
    return runtime.step(() => {
      const outputs = names.map((name) => runtime.arena.allocate(values.byteLength, name));
      const all = [put(runtime, values, "operands"), ...outputs];
      const iteration = iterateElements(
        [values.length],
        all.map(() => [1]),
      );
      const { sizes, blocks, print } = cudaRowConfig(kernel, iteration, all, { usesFastMath: true });
      const { cuda, ...source } = print();
      assert.ok(cuda);
      const code = replace(cuda.code);
      const changed = { ...source, cuda: { ...cuda, code } };
      const command = { op: "functions", source: changed, blocks, arguments: [...all, ...sizes] } as const;
      runtime.submit(runtime.load([{ kind: "launch", ...command }]));
      return outputs.map((output) => new Float32Array(runtime.read(output).buffer));
    });
  }

  /** The largest relative error of each function. Results below 2^-126 may be zeros; other zeros, NaN and infinities are exact. */
  function errors(values: Float32Array, computed: readonly Float32Array[]): number[] {
    return names.map((name, which) => {
      let worst = 0;
      for (const [index, value] of values.entries()) {
        const [actual, expected] = [computed[which]![index]!, exact[name](value)];
        const magnitude = Math.abs(magnitudes[name]?.(value) ?? expected);
        // A derivative is a product with the density, which may be zero.
        const tiny = magnitudes[name] ? 2 ** -117 : 2 ** -125;
        const isTiny = magnitude < tiny && name !== "tanh";
        const isSame = Object.is(actual, Math.fround(expected)) || (isTiny && Math.abs(actual) < tiny);
        if (!isSame)
          worst = Math.max(worst, Math.abs(actual - expected) / magnitude || Number.POSITIVE_INFINITY);
      }
      return worst;
    });
  }

  const values = operands(effort({ quick: 20_000, thorough: 1_000_000 }));

  test("have at most their stated relative errors, and the limits and signs of the exact functions", (t) => {
    for (const [which, worst] of errors(values, compute(values)).entries()) {
      const name = names[which]!;
      t.diagnostic(`${name}: 2^${Math.log2(worst).toFixed(2)}`);
      assert.ok(worst <= fastMathErrors[name], `${name}: a relative error of 2^${Math.log2(worst)}`);
    }
    const { POSITIVE_INFINITY: inf, NaN: nan } = Number;
    const computed = compute(Float32Array.of(0, -0, 1e4, -1e4, inf, -inf, nan));
    assert.deepEqual(
      computed.map((results) => [...results]),
      [
        [1, 1, inf, 0, inf, 0, nan],
        [0.5, 0.5, 1, 0, 1, 0, nan],
        [0, -0, 1, -1, 1, -1, nan],
        ...[0, 0, -0, 0].map((zero, index) => {
          const middle = computed[index + 3]![0];
          return [middle, middle, 1, zero, 1, zero, nan];
        }),
      ],
    );
  });

  test("red proof: a wrong digit of a fit exceeds its stated error", () => {
    const faults: readonly (readonly [from: string, to: string, name: keyof typeof functions])[] = [
      ["0.132053535f", "0.133053535f", "tanh"],
      ["0.158008336f", "0.158108336f", "normalCdf"],
      ["0.734392861f", "0.734492861f", "geluDerivative"],
      ["0.214", "0.215", "geluTanhDerivative"],
    ];
    const computed = compute(values, (code) =>
      faults.reduce((now, [from, to]) => now.replace(from, to), code),
    );
    const worst = errors(values, computed);
    for (const [, , name] of faults) assert.ok(worst[names.indexOf(name)]! > fastMathErrors[name], name);
  });
});
