/**
 * Tensors as text: elements in NumPy's layout, and the one line more that `Tensor.toString()` adds. The layout is
 * NumPy's to the column (what it prints for a few dozen arrays stands in the test), the words are JavaScript's; see
 * element-words.ts. Above a thousand elements only three at each end of an axis are shown, and only these are read.
 */

import { HoldfastError } from "../../errors/index.js";
import type { Dtype } from "../../ir/index.js";
import { elementWords, scalarWord } from "./element-words.js";

const lineWidth = 75;
const maxElementsShown = 1000;
const shownAtEachEnd = 3;

export interface PrintedElements {
  readonly shape: readonly number[];
  readonly dtype: Dtype;
  /** Row-major, numbers even for half floats; booleans may be 0 and 1. */
  readonly values: ArrayLike<number | boolean>;
  /** How many columns stand before the first bracket: later lines begin behind as many blanks. */
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
      `${values.length} values were given to print for shape [${shape.join(", ")}], which has ${size}. Give one value an element.`,
      { numbers: { values: values.length, size } },
    );
  }
  if (shape.length === 0) return scalarWord(Number(values[0]), dtype);
  if (size === 0) return "[]";

  const axes = shape.map((length) => placesShown(length, size > maxElementsShown));
  const shown = indicesShown(shape, axes).map((index) => Number(values[index]));
  return layOut(axes, elementWords(shown, dtype).values(), indent);
}

/** One axis: the places that are shown, and where `...` stands for the others. */
type Places = readonly (number | "...")[];

function placesShown(length: number, isSummary: boolean): Places {
  const places = (count: number, from = 0): number[] =>
    Array.from({ length: count }, (_, place) => from + place);
  if (!isSummary || length <= 2 * shownAtEachEnd) return places(length);
  return [...places(shownAtEachEnd), "...", ...places(shownAtEachEnd, length - shownAtEachEnd)];
}

/** The flat indices of what is shown, in reading order. */
function indicesShown(shape: readonly number[], axes: readonly Places[]): number[] {
  let indices = [0];
  for (const [axis, places] of axes.entries()) {
    const numbers = places.filter((place) => place !== "...");
    indices = indices.flatMap((index) => numbers.map((place) => index * (shape[axis] ?? 0) + place));
  }
  return indices;
}

/** Brackets, blanks and line breaks around the words, which are taken in reading order. */
function layOut(axes: readonly Places[], words: Iterator<string, unknown>, indent: number): string {
  const nextWord = (): string => String(words.next().value);

  function block(axis: number): string {
    const places = axes[axis] ?? [];
    const depth = axis + 1;
    const margin = " ".repeat(indent + depth);
    if (depth === axes.length) {
      // Every axis closes with a bracket, for which the last line needs room.
      return `[${fill(
        places.map((place) => (place === "..." ? place : nextWord())),
        margin,
        lineWidth - depth,
      )}]`;
    }
    const blocks = places.map((place) => (place === "..." ? place : block(axis + 1)));
    // Rows follow each other; a matrix is set off by a blank line, what holds matrices by two, and so on.
    return `[${blocks.join("\n".repeat(axes.length - depth) + margin)}]`;
  }
  return block(0);
}

/** Words on lines no longer than `width`; a word that is longer by itself stands alone. The first line has no margin. */
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
  readonly values: ArrayLike<number | boolean>;
  /** As it should be read: `cpu`, `cuda:0`. */
  readonly device?: string;
  readonly requiresGrad?: boolean;
}

/**
 * What `Tensor.toString()` shows. The shape stands there even where the brackets tell it: it is what one looks for
 * first, and a summary or an empty tensor doesn't tell it.
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
