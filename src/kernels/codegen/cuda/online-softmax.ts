/**
 * Online softmax (Milakov and Gimelshein 2018): the maximum of a long row and the sum of exp(value − maximum) in one pass. A thread rescales
 * its sum when its maximum grows, and once more to the maximum of the row. The order depends only on the row's length, so the bits are
 * always the same. They differ from those of two passes in the last digits, so only kernels with approximate functions do this.
 */

import { type Expression, identityOf, type Stage } from "../../../ir/index.js";
import { literalKey } from "../../../units/index.js";
import { binary, literal } from "./expressions.js";
import type { KernelText } from "./kernel-text.js";

/** The value whose maximum the stage computes, if the next stage sums exp(value − maximum), in f32. */
export function onlineSoftmaxAt(stages: readonly Stage[], index: number): Expression | undefined {
  const [max, sum] = [stages[index], stages[index + 1]];
  if (max?.kind !== "reduce" || max.op !== "max" || sum?.kind !== "reduce" || sum.op !== "add")
    return undefined;
  const power = sum.value;
  const shifted = power.kind === "unary" && power.op === "exp" && power.type === "f32" ? power.a : undefined;
  if (shifted?.kind !== "binary" || shifted.op !== "sub") return undefined;
  const { a, b } = shifted;
  const isShiftedByMax = b.kind === "reduced" && b.stage === index && literalKey(a) === literalKey(max.value);
  return isShiftedByMax ? max.value : undefined;
}

/** The names of a thread's maximum and sum in the generated code. */
export interface OnlineSums {
  readonly max: string;
  readonly sum: string;
}

const minusInfinity = literal("f32", identityOf("max", "f32"));

export function declareOnlineSums(text: KernelText, { max, sum }: OnlineSums): void {
  text.line(`float ${max} = ${minusInfinity}, ${sum} = 0.0f;`);
}

/** Declares an array for the elements of a vector. Those after the end of the row stay −∞, which adds nothing. */
export function declareElements(text: KernelText, name: string, width: number): void {
  text.line(`float ${name}[${width}] = {${Array(width).fill(minusInfinity).join(", ")}};`);
}

/** Adds the elements of a vector, which it overwrites. */
export function addOnline(text: KernelText, { max, sum }: OnlineSums, elements: string, width: number): void {
  const values = Array.from({ length: width }, (_, index) => `${elements}[${index}]`);
  const largest = text.keep(
    "float",
    treeOf(values, (a, b) => binary(text, "max", "f32", a, b)),
  );
  const next = text.keep("float", binary(text, "max", "f32", max, largest));
  // While all values are −∞, a shift by their maximum would make them NaN.
  const shift = text.keep("float", `${next} == ${minusInfinity} ? 0.0f : ${next}`);
  text.unrolled("k", width, () => {
    text.line(`${elements}[k] = ${text.call("fast_exp_f32", `${elements}[k] - ${shift}`)};`);
  });
  const added = treeOf(values, (a, b) => binary(text, "add", "f32", a, b));
  text.line(`${sum} = ${sum} * ${text.call("fast_exp_f32", `${max} - ${shift}`)} + ${added};`);
  text.line(`${max} = ${next};`);
}

/** C++: a thread's sum, for the maximum of the row. */
export function rescaledSum(text: KernelText, { max, sum }: OnlineSums, rowMax: string): string {
  return `${sum} * ${text.call("fast_exp_f32", `${max} - ${rowMax}`)}`;
}

function treeOf(values: readonly string[], combine: (a: string, b: string) => string): string {
  const [first = ""] = values;
  if (values.length === 1) return first;
  const half = values.length / 2;
  return combine(treeOf(values.slice(0, half), combine), treeOf(values.slice(half), combine));
}
