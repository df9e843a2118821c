/** Translates the expression of an elementwise kernel to ONNX nodes. */

import { type BinaryOp, type Dtype, dtypes, type Expression, term, type UnaryOp } from "../../ir/index.js";
import { isSameSize, type Size } from "../sizes.js";
import type { CallContext, Translation } from "./call-context.js";

/** An ONNX value and its dtype. A condition is bool; the expression uses it as 0 or 1 of i32. */
interface Translated {
  readonly name: string;
  readonly dtype: Dtype;
}

/** Any op whose lowering is one kernel with one store for each element. */
export const translateElementwise: Translation = (at) => {
  const { elementwise } = at.call;
  const [stage] = elementwise?.kernel.stages ?? [];
  if (!elementwise || stage?.kind !== "store") return at.reject("it has no elements");
  const translated = new ExpressionTranslator(at).convertTo(stage.value, at.output.dtype);
  return fillShape(at, translated);
};

/** A value that does not have every operand in it, such as a fill, is expanded to the output's shape. */
function fillShape(at: CallContext, name: string): string {
  const { elementwise, operands } = at.call;
  const loads = new Set<number>();
  const visit = (expression: Expression): void => {
    if (expression.kind === "load") loads.add(expression.input);
    for (const part of partsOf(expression)) visit(part);
  };
  for (const stage of elementwise?.kernel.stages ?? []) visit(stage.value);
  const tensors = operands.flatMap((operand, index) => (isTensor(operand) ? [at.value(index)] : []));
  const read = tensors.filter((_, input) => loads.has(input));
  const { shape } = at.output;
  const covers = shape.every((size, axis) =>
    read.some(
      (value) => isSameSize(value.shape[axis + value.shape.length - shape.length], size) || size === 1,
    ),
  );
  const hasRank = read.some((value) => value.shape.length === shape.length);
  if (shape.length === 0 || (covers && hasRank)) return name;
  return at.node("Expand", [name, at.ints(shape)]);
}

function isTensor(operand: unknown): boolean {
  return typeof operand === "object" && operand !== null && "source" in operand;
}

function partsOf(expression: Expression): readonly Expression[] {
  switch (expression.kind) {
    case "unary":
    case "convert":
      return [expression.a];
    case "binary":
    case "compare":
      return [expression.a, expression.b];
    case "select":
      return [expression.condition, expression.a, expression.b];
    default:
      return [];
  }
}

class ExpressionTranslator {
  readonly #at: CallContext;
  readonly #tensors: readonly number[];
  readonly #known = new Map<Expression, Translated>();

  constructor(at: CallContext) {
    this.#at = at;
    this.#tensors = at.call.operands.flatMap((operand, index) => (isTensor(operand) ? [index] : []));
  }

  convertTo(expression: Expression, dtype: Dtype): string {
    const { name, dtype: from } = this.translate(expression);
    return this.#at.cast(name, from, dtype);
  }

  translate(expression: Expression): Translated {
    const known = this.#known.get(expression);
    if (known) return known;
    const translated = this.#translate(expression);
    this.#known.set(expression, translated);
    return translated;
  }

  #translate(expression: Expression): Translated {
    const at = this.#at;
    switch (expression.kind) {
      case "load": {
        if (expression.at) return at.reject("it reads other elements");
        const operand = this.#tensors[expression.input] ?? 0;
        const { dtype } = at.value(operand);
        if (dtype === "bool") return { name: at.input(operand), dtype };
        return { name: at.input(operand, expression.type), dtype: expression.type };
      }
      case "scalar": {
        const value = at.call.elementwise?.scalars[expression.index] ?? 0;
        if (typeof value !== "number") return this.#symbolicScalar(value, expression.type);
        return { name: at.graph.scalar(expression.type, value), dtype: expression.type };
      }
      case "constant":
        return { name: at.graph.scalar(expression.type, expression.value), dtype: expression.type };
      case "unary":
        return this.#unary(expression.op, expression.a);
      case "binary":
        return this.#binary(expression.op, expression.a, expression.b);
      case "compare":
        return this.#compare(expression);
      case "select": {
        const condition = this.#condition(expression.condition);
        const [a, b] = [this.#as(expression.a, expression.type), this.#as(expression.b, expression.type)];
        return { name: at.node("Where", [condition, a, b]), dtype: expression.type };
      }
      case "convert":
        return { name: this.convertTo(expression.a, expression.type), dtype: expression.type };
      default:
        return at.reject(`its kernel reads a ${expression.kind}`);
    }
  }

  #symbolicScalar(value: Exclude<Size, number>, dtype: Dtype): Translated {
    const at = this.#at;
    const scalar = at.node("Reshape", [at.ints([value]), at.ints([])]);
    return { name: at.cast(scalar, "i64", dtype), dtype };
  }

  #as(expression: Expression, dtype: Dtype): string {
    return this.convertTo(expression, dtype);
  }

  /** As bool. */
  #condition(expression: Expression): string {
    const { name, dtype } = this.translate(expression);
    return this.#at.cast(name, dtype, "bool");
  }

  #isBoolean(expression: Expression): boolean {
    return this.translate(expression).dtype === "bool";
  }

  #unary(op: UnaryOp, a: Expression): Translated {
    const at = this.#at;
    const composed = composedUnary[op]?.(a);
    if (composed) return this.translate(composed);
    const type = unaryNodes[op];
    if (!type) return at.reject(`ONNX has no ${op}`);
    return { name: at.node(type, [this.#as(a, a.type)]), dtype: a.type };
  }

  #binary(op: BinaryOp, a: Expression, b: Expression): Translated {
    const at = this.#at;
    if ((op === "min" || op === "max") && this.#isBoolean(a) && this.#isBoolean(b)) {
      const type = op === "min" ? "And" : "Or";
      return { name: at.node(type, [this.#condition(a), this.#condition(b)]), dtype: "bool" };
    }
    const composed = composedBinary[op]?.(a, b);
    if (composed) return this.translate(composed);
    const inputs = [this.#as(a, a.type), this.#as(b, a.type)];
    if (op === "shr") {
      // Only of numbers that are not negative, and by constants.
      const power = b.kind === "constant" ? 2 ** b.value : at.reject("it shifts by a variable");
      return { name: at.node("Div", [inputs[0] as string, at.graph.scalar(a.type, power)]), dtype: a.type };
    }
    if (op === "fmod") return { name: at.node("Mod", inputs, { fmod: { int: 1 } }), dtype: a.type };
    const type = binaryNodes[op];
    if (!type) return at.reject(`ONNX has no ${op}`);
    return { name: at.node(type, inputs), dtype: a.type };
  }

  #compare({ op, a, b }: Extract<Expression, { kind: "compare" }>): Translated {
    const at = this.#at;
    const bool = (name: string): Translated => ({ name, dtype: "bool" });
    if (op === "ne" && a === b && dtypes[a.type].kind === "float")
      return bool(at.node("IsNaN", [this.#as(a, a.type)]));
    if ((op === "eq" || op === "ne") && this.#isBoolean(a)) {
      const isZero = b.kind === "constant" && b.value === 0;
      if (isZero) return bool(op === "ne" ? this.#condition(a) : at.node("Not", [this.#condition(a)]));
      if (this.#isBoolean(b)) {
        const differs = at.node("Xor", [this.#condition(a), this.#condition(b)]);
        return bool(op === "ne" ? differs : at.node("Not", [differs]));
      }
    }
    const inputs = [this.#as(a, a.type), this.#as(b, a.type)];
    if (op === "ne") return bool(at.node("Not", [at.node("Equal", inputs)]));
    return bool(at.node(compareNodes[op], inputs));
  }
}

const compareNodes = {
  eq: "Equal",
  lt: "Less",
  le: "LessOrEqual",
  gt: "Greater",
  ge: "GreaterOrEqual",
} as const;

const unaryNodes: Partial<Record<UnaryOp, string>> = {
  ...{ neg: "Neg", abs: "Abs", sqrt: "Sqrt", floor: "Floor", ceil: "Ceil", round: "Round" },
  ...{ exp: "Exp", log: "Log", sin: "Sin", cos: "Cos", tan: "Tan", asin: "Asin", acos: "Acos", atan: "Atan" },
  ...{ sinh: "Sinh", cosh: "Cosh", tanh: "Tanh", asinh: "Asinh", acosh: "Acosh", atanh: "Atanh" },
  ...{ sigmoid: "Sigmoid", erf: "Erf", softplus: "Softplus" },
};

const binaryNodes: Partial<Record<BinaryOp, string>> = {
  ...{ add: "Add", sub: "Sub", mul: "Mul", div: "Div", min: "Min", max: "Max", pow: "Pow" },
  and: "BitwiseAnd",
};

const likeOne = (x: Expression): Expression => term.constant(1, x.type);

/** Functions that ONNX lacks. */
const composedUnary: Partial<Record<UnaryOp, (x: Expression) => Expression>> = {
  trunc: (x) => term.select(term.lt(x, 0), term.ceil(x), term.floor(x)),
  rsqrt: (x) => term.div(likeOne(x), term.sqrt(x)),
  exp2: (x) => term.pow(term.constant(2, x.type), x),
  // Near 0, where eˣ − 1 cancels: eˣ − 1 = tanh(x/2) · (eˣ + 1).
  expm1: (x) => {
    const power = term.exp(x);
    const near = term.mul(term.tanh(term.mul(x, 0.5)), term.add(power, 1));
    return term.select(term.lt(term.abs(x), 1), near, term.sub(power, 1));
  },
  log2: (x) => term.mul(term.log(x), Math.LOG2E),
  log10: (x) => term.mul(term.log(x), Math.LOG10E),
  // With u = 1 + x rounded, ln(u) · x / (u − 1) corrects the rounding.
  log1p: (x) => {
    const u = term.add(x, 1);
    const distance = term.sub(u, 1);
    const isSmall = term.lt(term.abs(x), 0.5);
    const divisor = term.select(term.eq(distance, 0), likeOne(x), distance);
    const near = term.select(term.eq(distance, 0), x, term.div(term.mul(term.log(u), x), divisor));
    return term.select(isSmall, near, term.log(u));
  },
  erfc: (x) => term.sub(1, term.erf(x)),
  lgamma: lgammaOf,
};

const lanczos = [
  76.18009172947146, -86.50532032941678, 24.01409824083091, -1.231739572450155, 0.001208650973866179,
  -5.395239384953e-6,
];

/** ln Γ by Lanczos' sum for x ≥ 0.5, and by reflection below. */
function lgammaOf(x: Expression): Expression {
  const isLeft = term.lt(x, 0.5);
  const right = term.select(isLeft, term.sub(1, x), x);
  const base = term.add(right, 4.5);
  const series = lanczos.reduce<Expression>(
    (sum, coefficient, index) =>
      term.add(sum, term.div(term.constant(coefficient, x.type), term.add(right, index))),
    term.constant(1.000000000190015, x.type),
  );
  const power = term.sub(term.mul(term.sub(right, 0.5), term.log(base)), base);
  const value = term.add(power, term.log(term.mul(Math.sqrt(2 * Math.PI), series)));
  const sine = term.abs(term.sin(term.mul(Math.PI, term.sub(x, term.round(x)))));
  const reflected = term.sub(Math.log(Math.PI), term.add(term.log(sine), value));
  const isInfinite = term.eq(term.abs(x), Number.POSITIVE_INFINITY);
  return term.select(isInfinite, term.abs(x), term.select(isLeft, reflected, value));
}

const composedBinary: Partial<Record<BinaryOp, (a: Expression, b: Expression) => Expression>> = {
  /** By the angle in the first quadrant. */
  atan2: (y, x) => {
    const [up, right] = [term.abs(y), term.abs(x)];
    const areInfinite = term.eq(term.min(up, right), Number.POSITIVE_INFINITY);
    const areZero = term.eq(term.max(up, right), 0);
    const slope = term.select(areInfinite, likeOne(y), term.div(up, right));
    const angle = term.select(areZero, term.constant(0, y.type), term.atan(slope));
    const turned = term.select(isNegative(x), term.sub(Math.PI, angle), angle);
    return term.select(isNegative(y), term.neg(turned), turned);
  },
};

/** Also of −0. */
function isNegative(x: Expression): Expression {
  const isMinusZero = term.lt(term.div(likeOne(x), x), 0);
  return term.select(term.eq(x, 0), isMinusZero, term.lt(x, 0));
}
