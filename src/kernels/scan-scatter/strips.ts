/**
 * How a walk is cut into blocks: every index of the outer axes with every stripe of neighbouring columns is a piece of
 * its own, and a block is as many pieces as are worth handing to a thread. The cut does not change any element's sums.
 */

import type { Code, Local, Parameter } from "../../driver/index.js";
import { HoldfastError } from "../../errors/index.js";
import { dtypes } from "../../ir/index.js";
import type { Storage } from "../../runtime/index.js";
import { elementsPerBlock, forRange, limitTo, push } from "../codegen/wasm/loops.js";
import { localsOf } from "../codegen/wasm/wasm-function.js";
import type { WalkDtype } from "./element.js";

/** The parameters of a kernel that walks in stripes, with the array's columns. */
export const stripParameters = {
  inner: "u32",
  strips: "u32",
  pieces: "u32",
  piecesPerBlock: "u32",
} as const satisfies Record<string, Parameter>;

export interface StripPlan {
  readonly blocks: number;
  /** The arguments for `stripParameters`. */
  readonly arguments: Readonly<Record<keyof typeof stripParameters, number>>;
}

/** Cuts `outer` × `inner` columns, each `steps` long, into stripes of `width`. */
export function planStrips(outer: number, inner: number, steps: number, width: number): StripPlan {
  const strips = Math.ceil(inner / width);
  const pieces = outer * strips;
  const elementsPerPiece = Math.max(1, steps * Math.min(inner, width));
  const piecesPerBlock = Math.max(1, Math.floor(elementsPerBlock / elementsPerPiece));
  return {
    blocks: Math.ceil(pieces / piecesPerBlock),
    arguments: { inner, strips, pieces, piecesPerBlock },
  };
}

type StripLocals = Readonly<Record<keyof typeof stripParameters | "firstBlock" | "endBlock", Local>>;

/** A piece of the work: one index of the outer axes, and the columns from `column` up to `end`. */
export interface Piece {
  readonly outer: Local;
  readonly column: Local;
  readonly end: Local;
}

/** Runs the body for each piece of the kernel's blocks; it may move `column`. */
export function forEachPiece(
  code: Code,
  { firstBlock, endBlock, inner, strips, pieces, piecesPerBlock }: StripLocals,
  width: number,
  body: (piece: Piece) => void,
): void {
  const { piece, endPiece, ...own } = localsOf(code, "i32", "piece", "endPiece", "outer", "column", "end");
  code.get(firstBlock).get(piecesPerBlock).op("i32.mul").set(piece);
  code.get(endBlock).get(piecesPerBlock).op("i32.mul").set(endPiece);
  limitTo(code, endPiece, pieces);
  forRange(code, piece, endPiece, 1, () => {
    code.get(piece).get(strips).op("i32.div_u").set(own.outer);
    code.get(piece).get(strips).op("i32.rem_u").i32(width).op("i32.mul").tee(own.column);
    code.i32(width).op("i32.add").set(own.end);
    limitTo(code, own.end, inner);
    body(own);
  });
}

/** A place in an array [outer, length, inner]. */
interface Place {
  readonly base: Local;
  readonly outer: Local;
  readonly length: Local;
  readonly row: Local | number;
  readonly inner: Local;
  readonly column: Local;
  readonly bytes: number;
}

/** `local = base + ((outer · length + row) · inner + column) · bytes` */
export function setToPlace(code: Code, local: Local, place: Place): void {
  const { base, outer, length, row, inner, column, bytes } = place;
  push(code.get(outer).get(length).op("i32.mul"), row).op("i32.add");
  code.get(inner).op("i32.mul").get(column).op("i32.add");
  code.i32(bytes).op("i32.mul").get(base).op("i32.add").set(local);
}

/** Rejects sizes that are no counts, and storages that are too small for what they are said to hold. */
export function requireAvailable(
  op: string,
  sizes: Readonly<Record<string, number>>,
  arrays: Readonly<Record<string, { storage: Storage; dtype: WalkDtype; shape: readonly number[] }>>,
): void {
  for (const [name, size] of Object.entries(sizes)) {
    if (Number.isSafeInteger(size) && size >= 0 && size < 2 ** 31) continue;
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `${op}: ${name} is ${size}; give a whole number from 0 to 2³¹ − 1.`,
    );
  }
  for (const [name, { storage, dtype, shape }] of Object.entries(arrays)) {
    const neededBytes = shape.reduce((product, size) => product * size, dtypes[dtype].bytes);
    if (neededBytes <= storage.span.size) continue;
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `${op}: ${name} takes ${neededBytes} bytes ([${shape.join(", ")}] of ${dtype}), and "${storage.label}" has ${storage.span.size}. Pass a larger storage.`,
      { numbers: { neededBytes, size: storage.span.size } },
    );
  }
}
