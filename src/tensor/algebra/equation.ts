/** Parses the equation of `einsum`: "bij,bjk->bik", with ellipses, repeated letters and an implicit output. */

import { HoldfastError } from "../../errors/index.js";
import { formatShape, type Shape } from "../../ops/index.js";

/**
 * An axis by name: a letter, or a whole number for an axis of an ellipsis, counted from the last one, which is 0. Axes of one name have one
 * size, or size 1, which broadcasts.
 */
export type Label = string | number;

export interface Equation {
  /** For each operand, the labels of its axes. A label that is repeated selects a diagonal. */
  readonly operands: readonly (readonly Label[])[];
  readonly output: readonly Label[];
  /** The size of each label after broadcasting. */
  readonly sizes: ReadonlyMap<Label, number>;
}

const term = /^([a-zA-Z]*)(\.\.\.)?([a-zA-Z]*)$/;

export function parseEquation(text: string, shapes: readonly Shape[]): Equation {
  const compact = text.replaceAll(/\s/g, "");
  const [inputs = "", output, ...rest] = compact.split("->");
  if (rest.length > 0) throw badEquation(text, "it has more than one arrow.");
  const terms = inputs.split(",");
  if (terms.length !== shapes.length)
    throw badEquation(text, `it has ${terms.length} terms for ${shapes.length} operands.`);
  const operands = terms.map((operand, index) => labelOperand(text, operand, shapes[index] ?? [], index));
  const sizes = measure(text, operands, shapes);
  const ellipsisAxes = [...sizes.keys()].filter((label) => typeof label === "number").sort((a, b) => b - a);
  const result =
    output === undefined ? implicitOutput(terms, ellipsisAxes) : explicitOutput(text, output, ellipsisAxes);
  for (const [position, label] of result.entries()) {
    if (!sizes.has(label)) throw badEquation(text, `the output has "${label}", which no operand has.`);
    if (result.indexOf(label) !== position) throw badEquation(text, `the output has "${label}" twice.`);
  }
  return { operands, output: result, sizes };
}

function labelOperand(text: string, operand: string, shape: Shape, index: number): readonly Label[] {
  const match = term.exec(operand);
  if (!match) throw badEquation(text, `"${operand}" has characters other than letters and one ellipsis.`);
  const [, before = "", ellipsis, after = ""] = match;
  const letters = before.length + after.length;
  const count = shape.length - letters;
  if (ellipsis ? count < 0 : count !== 0) {
    throw badEquation(
      text,
      `"${operand}" has ${letters} letters, and operand ${index} has ${shape.length} axes: ${formatShape(shape)}.`,
    );
  }
  const hidden = Array.from({ length: count }, (_, axis) => count - 1 - axis);
  return [...before, ...hidden, ...after];
}

function measure(
  text: string,
  operands: readonly (readonly Label[])[],
  shapes: readonly Shape[],
): Map<Label, number> {
  const sizes = new Map<Label, number>();
  for (const [index, labels] of operands.entries()) {
    for (const [axis, label] of labels.entries()) {
      const size = shapes[index]?.[axis] ?? 1;
      const known = sizes.get(label) ?? 1;
      if (size === 1 || size === known || known === 1) {
        sizes.set(label, known === 1 ? size : known);
        continue;
      }
      const name = typeof label === "number" ? "an axis of the ellipsis" : `"${label}"`;
      throw new HoldfastError(
        "BAD_SHAPE",
        `einsum "${text}": ${name} has size ${known}, and size ${size} in operand ${index}, ${formatShape(shapes[index] ?? [])}.`,
        { numbers: { op: "einsum" } },
      );
    }
  }
  return sizes;
}

/** The axes of ellipses, then in alphabetic order the letters that occur once. */
function implicitOutput(terms: readonly string[], ellipsisAxes: readonly number[]): readonly Label[] {
  const letters = [...terms.join("").replaceAll(".", "")];
  const single = letters.filter((letter) => letters.indexOf(letter) === letters.lastIndexOf(letter));
  return [...ellipsisAxes, ...single.sort()];
}

function explicitOutput(text: string, output: string, ellipsisAxes: readonly number[]): readonly Label[] {
  const match = term.exec(output);
  if (!match)
    throw badEquation(text, `the output "${output}" has characters other than letters and one ellipsis.`);
  const [, before = "", ellipsis, after = ""] = match;
  return [...before, ...(ellipsis ? ellipsisAxes : []), ...after];
}

function badEquation(text: string, why: string): HoldfastError {
  return new HoldfastError("BAD_ARGUMENT", `einsum "${text}": ${why}`, { numbers: { op: "einsum" } });
}
