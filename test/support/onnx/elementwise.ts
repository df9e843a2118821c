/** Elementwise operators. */

import { dtypes } from "holdfast";
import {
  broadcastAt,
  broadcastShape,
  everyDtype,
  floats,
  generate,
  numeric,
  type Operator,
  type PlainArray,
  requireDtypes,
} from "./arrays.js";
import { dtypeOfNumber } from "./read-model.js";

/** The error function by its power series, and beyond 4 by its limit. */
function erf(x: number): number {
  if (Number.isNaN(x) || Math.abs(x) > 4) return Math.sign(x);
  let [term, sum] = [x, x];
  for (let n = 1; n < 120; n++) {
    term *= (-x * x) / n;
    sum += term / (2 * n + 1);
  }
  return (2 / Math.sqrt(Math.PI)) * sum;
}

type Dtypes = readonly PlainArray["dtype"][];

function unary(value: (x: number) => number, allowed: Dtypes = floats): Operator {
  return {
    inputs: [1, 1],
    run: ({ inputs }) => {
      const [x] = inputs as [PlainArray];
      requireDtypes([x], allowed);
      return { ...x, data: x.data.map((each) => generate(x.dtype, [], () => value(each)).data[0]!) };
    },
  };
}

function binary(value: (a: number, b: number) => number, allowed: Dtypes, isBool = false): Operator {
  return {
    inputs: [2, 2],
    run: ({ inputs }) => {
      const [a, b] = inputs as [PlainArray, PlainArray];
      requireDtypes([a, b], allowed);
      return generate(isBool ? "bool" : a.dtype, broadcastShape(a.shape, b.shape), (at) =>
        value(broadcastAt(a, at), broadcastAt(b, at)),
      );
    },
  };
}

/** An activation with numbers as attributes. */
function activation(
  defaults: Readonly<Record<string, number>>,
  value: (x: number, ...numbers: number[]) => number,
): Operator {
  const names = Object.keys(defaults);
  return {
    inputs: [1, 1],
    attributes: Object.fromEntries(names.map((name) => [name, "float" as const])),
    run: (call) => {
      const numbers = names.map((name) => Number(call.attributes[name] ?? defaults[name]));
      return unary((x) => value(x, ...numbers)).run(call);
    },
  };
}

const softplus = (x: number): number => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));
const roundHalfEven = (x: number): number => {
  const floor = Math.floor(x);
  if (x - floor !== 0.5) return Math.round(x);
  return floor % 2 === 0 ? floor : floor + 1;
};

export const elementwiseOperators: Readonly<Record<string, Operator>> = {
  Add: binary((a, b) => a + b, numeric),
  Sub: binary((a, b) => a - b, numeric),
  Mul: {
    inputs: [2, 2],
    run: (call) => binary(call.inputs[0]!.dtype === "i32" ? Math.imul : (a, b) => a * b, numeric).run(call),
  },
  Div: {
    inputs: [2, 2],
    run: (call) => {
      const isFloat = dtypes[call.inputs[0]!.dtype].kind === "float";
      return binary((a, b) => (isFloat ? a / b : Math.trunc(a / b)), numeric).run(call);
    },
  },
  Pow: binary((a, b) => a ** b, numeric),
  Min: binary(Math.min, numeric),
  Max: binary(Math.max, numeric),
  Mod: { ...binary((a, b) => a % b, numeric), attributes: { fmod: "int" } },
  BitwiseAnd: binary((a, b) => Number(BigInt(a) & BigInt(b)), ["i32", "i64"]),
  And: binary((a, b) => a & b, ["bool"]),
  Or: binary((a, b) => a | b, ["bool"]),
  Xor: binary((a, b) => a ^ b, ["bool"]),
  Equal: binary((a, b) => Number(a === b), everyDtype, true),
  Less: binary((a, b) => Number(a < b), numeric, true),
  LessOrEqual: binary((a, b) => Number(a <= b), numeric, true),
  Greater: binary((a, b) => Number(a > b), numeric, true),
  GreaterOrEqual: binary((a, b) => Number(a >= b), numeric, true),
  Not: unary((x) => 1 - x, ["bool"]),
  IsNaN: {
    inputs: [1, 1],
    run: ({ inputs }) => {
      const [x] = inputs as [PlainArray];
      requireDtypes([x], floats);
      return { dtype: "bool", shape: x.shape, data: x.data.map((value) => Number(Number.isNaN(value))) };
    },
  },
  Where: {
    inputs: [3, 3],
    run: ({ inputs }) => {
      const [condition, a, b] = inputs as [PlainArray, PlainArray, PlainArray];
      requireDtypes([condition], ["bool"]);
      requireDtypes([a, b], everyDtype);
      return generate(a.dtype, broadcastShape(condition.shape, a.shape, b.shape), (at) =>
        broadcastAt(broadcastAt(condition, at) ? a : b, at),
      );
    },
  },
  Cast: {
    inputs: [1, 1],
    attributes: { to: "int" },
    run: ({ inputs, attributes }) => {
      const [x] = inputs as [PlainArray];
      const dtype = dtypeOfNumber[Number(attributes["to"])]!;
      const fromFloat = dtypes[x.dtype].kind === "float" && dtypes[dtype].kind === "integer";
      return generate(dtype, x.shape, (at) => {
        const value = broadcastAt(x, at);
        if (!fromFloat) return value;
        return Number.isNaN(value) ? 0 : Math.max(-(2 ** 31), Math.min(2 ** 31 - 1, Math.trunc(value)));
      });
    },
  },
  ...{ Neg: unary((x) => -x, numeric), Abs: unary(Math.abs, numeric), Sqrt: unary(Math.sqrt) },
  Sign: unary(Math.sign, numeric),
  ...{ Floor: unary(Math.floor), Ceil: unary(Math.ceil), Round: unary(roundHalfEven) },
  ...{ Exp: unary(Math.exp), Log: unary(Math.log), Reciprocal: unary((x) => 1 / x) },
  ...{ Sin: unary(Math.sin), Cos: unary(Math.cos), Tan: unary(Math.tan) },
  ...{ Asin: unary(Math.asin), Acos: unary(Math.acos), Atan: unary(Math.atan) },
  ...{ Sinh: unary(Math.sinh), Cosh: unary(Math.cosh), Tanh: unary(Math.tanh) },
  ...{ Asinh: unary(Math.asinh), Acosh: unary(Math.acosh), Atanh: unary(Math.atanh) },
  Sigmoid: unary((x) => 1 / (1 + Math.exp(-x))),
  Erf: unary(erf),
  Softplus: unary(softplus),
  Softsign: unary((x) => x / (1 + Math.abs(x))),
  Relu: unary((x) => Math.max(x, 0), numeric),
  Mish: unary((x) => x * Math.tanh(softplus(x))),
  HardSwish: unary((x) => x * Math.max(0, Math.min(1, x / 6 + 0.5))),
  LeakyRelu: activation({ alpha: 0.01 }, (x, alpha) => (x < 0 ? alpha! * x : x)),
  Elu: activation({ alpha: 1 }, (x, alpha) => (x < 0 ? alpha! * Math.expm1(x) : x)),
  Selu: activation({ alpha: 1.67326319, gamma: 1.05070102 }, (x, alpha, gamma) =>
    x <= 0 ? gamma! * alpha! * Math.expm1(x) : gamma! * x,
  ),
  Gelu: {
    inputs: [1, 1],
    attributes: { approximate: "text" },
    run: (call) => {
      const isTanh = call.attributes["approximate"] === "tanh";
      const inner = (x: number): number => Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3));
      return unary((x) => 0.5 * x * (1 + (isTanh ? inner(x) : erf(x * Math.SQRT1_2)))).run(call);
    },
  },
};
