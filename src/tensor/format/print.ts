/**
 * Tensors as text: elements in NumPy's layout, and the facts that `Tensor.toString()` adds. The layout is exactly NumPy's; the
 * test compares a few dozen arrays. The words are JavaScript's; see element-words.ts. Of more than a thousand elements, only
 * three at each end of an axis are read and printed.
 */

import { HoldfastError } from "../../errors/index.js";
import type { Dtype } from "../../ir/index.js";
import { elementWords, integerWords, scalarWord } from "./element-words.js";

const lineWidth = 75;
const maxElementsShown = 1000;
const shownAtEachEnd = 3;

export interface PrintedElements {
  readonly shape: readonly number[];
  readonly dtype: Dtype;
  /** Row-major, numbers even for half floats; booleans may be 0 and 1, and i64 may be bigints. */
  readonly values: ArrayLike<number | boolean | bigint>;
  /** Number of columns before the first bracket; later lines are indented by it. Default: 0. */
  readonly indent?: number;
}

/**
 * The elements as NumPy prints an array: shape [2, 2] with the values 1, 2.5, 3, 4 is
 *
 *     [[1.  2.5]
 *      [3.  4. ]]
 */
export function formatElements({ shape, dtype, values, indent = 0 }: PrintedElements): string {
  const size = shape.reduce((product, length) => product * length, 1);
  if (values.length !== size) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `Got ${values.length} values to print for shape [${shape.join(", ")}], which has ${size} elements. Pass one value per element.`,
      { numbers: { values: values.length, size } },
    );
  }
  if (shape.length === 0) return dtype === "i64" ? String(values[0]) : scalarWord(Number(values[0]), dtype);
  if (size === 0) return "[]";

  const axes = shape.map((length) => shownIndices(length, size > maxElementsShown));
  const indices = flatIndices(shape, axes);
  const words =
    dtype === "i64"
      ? integerWords(indices.map((index) => String(values[index])))
      : elementWords(
          indices.map((index) => Number(values[index])),
          dtype,
        );
  return layOut(axes, words.values(), indent);
}

/** The indices of one axis that are printed; `...` replaces the others. */
type ShownIndices = readonly (number | "...")[];

function shownIndices(length: number, isSummary: boolean): ShownIndices {
  const range = (count: number, from = 0): number[] =>
    Array.from({ length: count }, (_, index) => from + index);
  if (!isSummary || length <= 2 * shownAtEachEnd) return range(length);
  return [...range(shownAtEachEnd), "...", ...range(shownAtEachEnd, length - shownAtEachEnd)];
}

/** The flat indices of the printed elements, in reading order. */
function flatIndices(shape: readonly number[], axes: readonly ShownIndices[]): number[] {
  let flat = [0];
  for (const [axis, shown] of axes.entries()) {
    const indices = shown.filter((index) => index !== "...");
    flat = flat.flatMap((start) => indices.map((index) => start * (shape[axis] ?? 0) + index));
  }
  return flat;
}

/** Adds brackets, blanks and line breaks to the words, which come in reading order. */
function layOut(axes: readonly ShownIndices[], words: Iterator<string, unknown>, indent: number): string {
  const nextWord = (): string => String(words.next().value);

  function block(axis: number): string {
    const indices = axes[axis] ?? [];
    const depth = axis + 1;
    const margin = " ".repeat(indent + depth);
    if (depth === axes.length) {
      // Every axis ends with a bracket, so the last line must leave columns for them.
      return `[${fill(
        indices.map((index) => (index === "..." ? index : nextWord())),
        margin,
        lineWidth - depth,
      )}]`;
    }
    const blocks = indices.map((index) => (index === "..." ? index : block(axis + 1)));
    // Rows are on consecutive lines. A blank line separates matrices, two separate stacks of matrices, and so on.
    return `[${blocks.join("\n".repeat(axes.length - depth) + margin)}]`;
  }
  return block(0);
}

/** Breaks words into lines of at most `width`; a longer word has a line of its own. The first line has no margin. */
function fill(words: readonly string[], margin: string, width: number): string {
  const lines: string[] = [];
  let line = "";
  for (const word of words) {
    const longer = line === "" ? word : `${line} ${word}`;
    const isFull = line !== "" && margin.length + longer.length > width;
    if (isFull) lines.push(line.trimEnd());
    line = isFull ? word : longer;
  }
  return [...lines, line].join(`\n${margin}`);
}

export interface DescribedTensor {
  readonly shape: readonly number[];
  readonly dtype: Dtype;
  readonly values: ArrayLike<number | boolean | bigint>;
  /** Its name: `cpu`, `cuda:0`. */
  readonly device?: string;
  readonly requiresGrad?: boolean;
}

/**
 * The text of `Tensor.toString()`. It has the shape even where the brackets show it: readers look for the shape first, and the
 * brackets of a summary or an empty tensor do not show it.
 *
 *     tensor([[1.  2.5]
 *             [3.  4. ]], shape [2, 2], f32, cuda:0, requires grad)
 */
export function describeTensor({
  shape,
  dtype,
  values,
  device,
  requiresGrad = false,
}: DescribedTensor): string {
  const opening = "tensor(";
  const margin = " ".repeat(opening.length);
  const body = opening + formatElements({ shape, dtype, values, indent: opening.length });
  const facts = [`shape [${shape.join(", ")}]`, dtype];
  if (device !== undefined) facts.push(device);
  if (requiresGrad) facts.push("requires grad");
  const tail = `${facts.join(", ")})`;
  const lastLine = body.slice(body.lastIndexOf("\n") + 1);
  const fits = lastLine.length + ", ".length + tail.length <= lineWidth;
  return `${body},${fits ? " " : `\n${margin}`}${tail}`;
}
