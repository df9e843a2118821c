/**
 * N1: a tanh compiled with fast-math did not saturate, and gave 1e27. Every elementwise op at the ends of its
 * range, compared with the same function in float64.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { mathFunctions } from "../../src/driver/index.js";
import { activations, comparisons, functions, opTable } from "../../src/ops/index.js";
import type { Tensor } from "../../src/tensor/index.js";
import { openDevice } from "../support/devices.js";
import { regressionRow } from "../support/regressions.js";
import { ulpError } from "../support/vector-math.js";

const cpu = openDevice({ threads: 1 });
const inf = Number.POSITIVE_INFINITY;

/** More than one vector, so that the test covers the vector code and the code for the tail. */
const extremes = [0, 1e-38, 1, 1e4, 3e38, inf].flatMap((x) => [x, -x]).concat(Number.NaN);
const inF32 = extremes.map(Math.fround);

const sigmoid = (x: number): number => (x >= 0 ? 1 / (1 + Math.exp(-x)) : Math.exp(x) / (1 + Math.exp(x)));
const erf = mathFunctions.erf;
const sign = (x: number): number => (Number.isNaN(x) ? x : x > 0 ? 1 : x < 0 ? -1 : 0);

/**
 * The functions of one operand in float64. At −∞ products with a fraction are −∞ · 0, which is NaN, as in
 * PyTorch.
 */
const inFloat64: Readonly<Record<string, (x: number) => number>> = {
  neg: (x) => -x,
  abs: Math.abs,
  sign,
  floor: Math.floor,
  ceil: Math.ceil,
  exp: Math.exp,
  expm1: Math.expm1,
  log: Math.log,
  log1p: Math.log1p,
  sqrt: Math.sqrt,
  rsqrt: (x) => 1 / Math.sqrt(x),
  square: (x) => x * x,
  reciprocal: (x) => 1 / x,
  sin: Math.sin,
  cos: Math.cos,
  erf,
  clamp: (x) => Math.min(Math.max(x, -0.5), 2),
  fill: () => 7,
  relu: (x) => Math.max(x, 0),
  leakyRelu: (x) => (x > 0 ? x : 0.1 * x),
  tanh: Math.tanh,
  sigmoid,
  silu: (x) => x * sigmoid(x),
  softplus: (x) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x))),
  gelu: (x) => x * ((1 + erf(x * Math.SQRT1_2)) / 2),
  geluTanh: (x) => x * sigmoid(2 * Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)),
};

const attributes: Readonly<Record<string, Readonly<Record<string, number>>>> = {
  clamp: { min: -0.5, max: 2 },
  leakyRelu: { negativeSlope: 0.1 },
  fill: { value: 7 },
};

for (const name of [...Object.keys(functions), ...Object.keys(activations)]) {
  test(`N1: ${name} of zeros, subnormals, huge numbers, infinities and NaN equals float64`, () => {
    const expected = inFloat64[name] ?? assert.fail(`no reference in float64 for ${name}: add it`);
    checkEach(name, (x) => cpu.apply(opTable[name]!, [x], attributes[name] ?? {}), expected);
  });
}

type Pair = (a: number, b: number) => number;
const pairs: Readonly<Record<string, Pair>> = {
  add: (a, b) => a + b,
  sub: (a, b) => a - b,
  mul: (a, b) => a * b,
  div: (a, b) => a / b,
  maximum: Math.max,
  minimum: Math.min,
  // C99's pow, unlike JavaScript's: 1 to any power is 1, and so is −1 to an infinite one.
  pow: (a, b) => (a === 1 || (a === -1 && Math.abs(b) === inf) ? 1 : a ** b),
  eq: (a, b) => Number(a === b),
  ne: (a, b) => Number(a !== b),
  lt: (a, b) => Number(a < b),
  le: (a, b) => Number(a <= b),
  gt: (a, b) => Number(a > b),
  ge: (a, b) => Number(a >= b),
};

for (const [name, expected] of Object.entries(pairs)) {
  test(`N1: ${name} of every two extremes equals float64`, () => {
    cpu.step(() => {
      const [left, right] = [inF32.flatMap((a) => inF32.map(() => a)), inF32.flatMap(() => inF32)];
      const [a, b] = [left, right].map((values) => cpu.fromHost(values, [values.length], "f32")) as [
        Tensor,
        Tensor,
      ];
      const actual = cpu.apply(opTable[name]!, [a, b]).dataSync();
      for (const [at, x] of left.entries()) {
        requireSame(`${name}(${x}, ${right[at]})`, actual[at]!, expected(x, right[at]!));
      }
    });
  });
}

test("N1: isnan and isfinite classify the extremes", () => {
  cpu.step(() => {
    const x = cpu.fromHost(inF32, [inF32.length], "f32");
    const [nan, finite] = [comparisons.isnan, comparisons.isfinite].map((op) => [
      ...cpu.apply(op, [x]).dataSync(),
    ]);
    assert.deepEqual(
      nan,
      inF32.map((value) => Number(Number.isNaN(value))),
    );
    assert.deepEqual(
      finite,
      inF32.map((value) => Number(Number.isFinite(value))),
    );
  });
});

test("N1: the slopes of the activations saturate too: 0 or 1 at ±1e4 and ±3e38, never NaN", () => {
  const slopes: Readonly<Record<string, readonly [atPlus: number, atMinus: number]>> = {
    relu: [1, 0],
    leakyRelu: [1, 0.1],
    tanh: [0, 0],
    sigmoid: [0, 0],
    silu: [1, 0],
    softplus: [1, 0],
    gelu: [1, 0],
    geluTanh: [1, 0],
  };
  assert.deepEqual(Object.keys(slopes).sort(), Object.keys(activations).sort());
  for (const [name, [atPlus, atMinus]] of Object.entries(slopes)) {
    cpu.step(() => {
      const x = cpu.fromHost([1e4, -1e4, 3e38, -3e38, 1e4], [5], "f32");
      x.requiresGrad = true;
      cpu
        .apply(opTable[name]!, [x], attributes[name] ?? {})
        .backward(cpu.fromHost([1, 1, 1, 1, 1], [5], "f32"));
      const actual = [...x.grad!.dataSync()].map((value) => value + 0);
      assert.deepEqual(actual, [atPlus, atMinus, atPlus, atMinus, atPlus].map(Math.fround), name);
    });
  }
});

/** A function of tensors, composed of others or an op itself. */
type Candidate = (x: Tensor) => Tensor;

function saturates(name: string, sound: Candidate, faults: Readonly<Record<string, Candidate>>): void {
  const expected = inFloat64[name]!;
  regressionRow<Candidate>({
    row: "N1",
    rule: `${name} saturates: at ±1e4 and at all extremes it equals float64`,
    sound,
    faults,
    check: (candidate) => checkEach(name, candidate, expected),
  });
}

saturates("tanh", (x) => x.tanh(), {
  "by (e²ˣ − 1)/(e²ˣ + 1)": (x) => {
    const power = x.mul(2).exp();
    return power.sub(1).div(power.add(1));
  },
});
saturates("sigmoid", (x) => x.sigmoid(), {
  "by eˣ/(1 + eˣ)": (x) => x.exp().div(x.exp().add(1)),
});
saturates("softplus", (x) => x.softplus(), {
  "by log(1 + eˣ)": (x) => x.exp().add(1).log(),
});

test("N1: tanh(±1e4) = ±1, exactly, in every float dtype", () => {
  cpu.step(() => {
    for (const dtype of ["f32", "f64", "bf16", "f16"] as const) {
      const x = cpu.fromHost([1e4, -1e4], [2], dtype);
      assert.deepEqual([...x.tanh().dataSync()], [1, -1], dtype);
    }
  });
});

/** All extremes at once, and one by one. */
function checkEach(name: string, candidate: Candidate, expected: (x: number) => number): void {
  cpu.step(() => {
    const batched = candidate(cpu.fromHost(inF32, [inF32.length], "f32")).dataSync();
    for (const [at, x] of inF32.entries()) {
      const alone = candidate(cpu.fromHost([x], [1], "f32")).item();
      requireSame(`${name}(${x})`, batched[at]!, expected(x));
      requireSame(`${name}(${x}) alone`, alone, expected(x));
    }
  });
}

/** Zeros with their signs, infinities and NaN exactly; everything else within a few units in the last place of f32. */
function requireSame(what: string, actual: number, expected: number): void {
  const rounded = Math.fround(expected);
  const isExact = Object.is(actual, rounded);
  const isSpecial = rounded === 0 || !Number.isFinite(rounded);
  assert.ok(
    isExact || (!isSpecial && ulpError(actual, expected) <= 3),
    `${what} = ${actual}, and float64 has ${expected}`,
  );
}
