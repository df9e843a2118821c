/** Finds the expressions that one approximate function of `intrinsics/fast-math.ts` computes as a whole. */

import { type Compute, type Expression, operandsOf, term } from "../../../ir/index.js";
import type { PreludeName } from "./prelude.js";

interface FastForm {
  readonly name: PreludeName;
  /** The function of `argument` that it computes. */
  readonly value: Expression;
}

/** Stands for any expression, the same one everywhere in a form. */
const argument = term.scalar(-1, "f32");

const square = term.mul(argument, argument);
/** Φ, the distribution function of a normal variable. */
const normalCdf = term.mul(0.5, term.add(1, term.erf(term.mul(argument, Math.SQRT1_2))));
const density = term.mul(1 / Math.sqrt(2 * Math.PI), term.exp(term.mul(-0.5, square)));
const cubic = 0.044715;
const rootTwoOverPi = Math.sqrt(2 / Math.PI);
const tanhCdf = term.sigmoid(
  term.mul(2 * rootTwoOverPi, term.add(argument, term.mul(cubic, term.mul(argument, square)))),
);
const tanhSlope = term.mul(tanhCdf, term.sub(1, tanhCdf));
const innerDerivative = term.mul(rootTwoOverPi, term.add(1, term.mul(3 * cubic, square)));

/** The expressions of GELU and of its derivative, as the ops state them. */
const forms: readonly FastForm[] = [
  { name: "fast_normal_cdf_f32", value: normalCdf },
  { name: "fast_tanh_cdf_f32", value: tanhCdf },
  {
    name: "fast_gelu_derivative_f32",
    value: term.add(normalCdf, term.select(term.gt(density, 0), term.mul(argument, density), 0)),
  },
  {
    name: "fast_gelu_tanh_derivative_f32",
    value: term.add(
      tanhCdf,
      term.select(
        term.gt(tanhSlope, 0),
        term.mul(argument, term.mul(term.mul(2, tanhSlope), innerDerivative)),
        0,
      ),
    ),
  },
];

/** The function that computes an expression, and what it is computed of; undefined if there is none. */
export function findFastForm(
  expression: Expression,
): { readonly name: PreludeName; readonly of: Expression } | undefined {
  if (expression.type !== "f32") return undefined;
  for (const { name, value } of forms) {
    const of = argumentIn(expression, value);
    if (of !== undefined && of !== "any") return { name, of };
  }
  return undefined;
}

/** What `argument` stands for if the expression has a form: "any" if the form has none; undefined if the expression differs. */
function argumentIn(expression: Expression, form: Expression): Expression | "any" | undefined {
  if (form === argument) return expression;
  if (!isSameNode(expression, form)) return undefined;
  const operands = operandsOf(expression);
  let found: Expression | "any" = "any";
  for (const [index, operand] of operandsOf(form).entries()) {
    const other = operands[index];
    const next = other && argumentIn(other, operand);
    if (next === undefined) return undefined;
    if (found === "any") found = next;
    else if (next !== "any" && !isSame(found, next)) return undefined;
  }
  return found;
}

function isSame(one: Expression, other: Expression): boolean {
  if (one === other) return true;
  const [operands, others] = [operandsOf(one), operandsOf(other)];
  return (
    isSameNode(one, other) &&
    operands.length === others.length &&
    operands.every((operand, index) => {
      const counterpart = others[index];
      return counterpart !== undefined && isSame(operand, counterpart);
    })
  );
}

const literalValue = ({ value, type }: { readonly value: number; readonly type: Compute }): number =>
  type === "f32" ? Math.fround(value) : value;

/** True if two expressions differ in their operands at most. Constants are compared as they are printed. */
function isSameNode(one: Expression, other: Expression): boolean {
  if (one.kind !== other.kind || one.type !== other.type) return false;
  switch (one.kind) {
    case "constant":
      return other.kind === "constant" && literalValue(one) === literalValue(other);
    case "unary":
    case "binary":
    case "compare":
      return "op" in other && one.op === other.op;
    case "load":
      return other.kind === "load" && one.input === other.input;
    case "scalar":
      return other.kind === "scalar" && one.index === other.index;
    case "reduced":
      return other.kind === "reduced" && one.stage === other.stage;
    default:
      return true;
  }
}
