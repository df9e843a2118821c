/**
 * The arrays of a ping-pong kernel's epilogue in shared memory: operands that TMA loads, and results that it stores. They are boxes of
 * 16 rows and 64 columns, because a warp has 16 rows of each 64 × N block of accumulators. An operand and a result share their memory.
 */

import { loadsOf } from "../../../ir/index.js";
import type { Epilogue, Sm90Config } from "./configs.js";
import { storesResult } from "./epilogue-store.js";
import type { Sm90Tile } from "./tiles.js";

/** A kernel's parameter: an operand, an output, or C (`c0`). */
export interface StagedParameter {
  readonly name: string;
  /** The registers of its elements in the printed epilogue. */
  readonly registers: string;
  readonly dtype: "bf16" | "f16";
}

export interface StagedArray {
  readonly operand?: StagedParameter;
  readonly result?: StagedParameter;
  /** Where the array begins in a warp's memory, in bytes. */
  readonly offset: number;
  /** Boxes that a warp has: all of its tile if they are loaded, otherwise a ring. */
  readonly boxes: number;
}

/** Rows and columns of a box. Its columns have the 128 bytes of the swizzle. */
export const box = { rows: 16, columns: 64, bytes: 16 * 128 } as const;

/** While TMA stores one box, the next one is written. */
export const ringBoxes = 2;

/** The boxes of a warp's part of a tile. */
export const boxesOf = ({ tileM, tileN }: Sm90Tile): number => (tileM / 64) * (tileN / box.columns);

/** The arrays of a kernel; undefined if one of them has elements of other than 16 bits. */
export function stagedArrays(
  { tile, resultDtype = "f32" }: Pick<Sm90Config, "tile" | "resultDtype">,
  epilogue: Epilogue | undefined,
): readonly StagedArray[] | undefined {
  const { kernel, gemmInput = -1, forwarded = [] } = epilogue ?? {};
  const read = new Set(kernel?.stages.flatMap(({ value }) => loadsOf(value).map(({ input }) => input)));
  const operands = [...(kernel?.inputs ?? []).entries()]
    .filter(([index]) => index !== gemmInput && forwarded[index] === undefined && read.has(index))
    .map(([index, dtype]) => ({ name: `in${index}`, registers: `vec${index}`, dtype }));
  const results = [
    ...(storesResult(epilogue) ? [{ name: "c0", registers: "resultC", dtype: resultDtype }] : []),
    ...[...(kernel?.outputs ?? []).entries()]
      .filter(([, { per }]) => per === "element")
      .map(([index, { dtype }]) => ({ name: `out${index}`, registers: `result${index}`, dtype })),
  ];
  if (!operands.every(isHalf) || !results.every(isHalf)) return undefined;
  let offset = 0;
  return Array.from({ length: Math.max(operands.length, results.length) }, (_, index) => {
    const [operand, result] = [operands[index], results[index]];
    const boxes = operand ? boxesOf(tile) : ringBoxes;
    const array = { ...(operand && { operand }), ...(result && { result }), offset, boxes };
    offset += boxes * box.bytes;
    return array;
  });
}

function isHalf<P extends { readonly dtype: string }>(
  parameter: P,
): parameter is P & { readonly dtype: "bf16" | "f16" } {
  return parameter.dtype === "bf16" || parameter.dtype === "f16";
}

/** Shared memory of a warp for all arrays. */
export const warpBytesOf = (arrays: readonly StagedArray[]): number =>
  arrays.reduce((sum, { boxes }) => sum + boxes * box.bytes, 0);
