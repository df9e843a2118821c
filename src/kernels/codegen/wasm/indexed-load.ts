/** Loads from places that an expression tells: what indexing, gathering and flipping are made of. */

import type { Code, Local } from "../../../driver/index.js";
import { type Dtype, dtypes } from "../../../ir/index.js";
import { type Lanes, pushElements, pushGathered, pushSplat } from "./elements.js";

export interface IndexedLoad {
  readonly dtype: Dtype;
  /** Where the operand stands. */
  readonly cursor: Local;
  /** Elements from there to the first lane's place. */
  readonly first?: number;
  /** Does each lane stand one element further on, or do all of them stand in one place? */
  readonly isMoving: boolean;
  readonly lanes: Lanes;
  /** Is the index the same in every lane? Then what lies side by side is loaded as a whole. */
  readonly isUniform: boolean;
}

/** Pushes the elements that lie as far from the operand's place as the index on the stack says. */
export function pushIndexed(
  code: Code,
  { dtype, cursor, first = 0, isMoving, lanes, isUniform }: IndexedLoad,
): void {
  const { bytes } = dtypes[dtype];
  const index = code.local("v128");
  code.set(index);
  // The sum is taken in 32 bits, which wrap round: an offset in the instruction would not, and trap behind a negative index.
  const pushAddress = (lane: number): void => {
    code.get(cursor).get(index).lane("i32x4.extract_lane", lane).i32(Math.log2(bytes)).op("i32.shl");
    code.op("i32.add");
    const beside = first + (isMoving ? lane : 0);
    if (beside !== 0) code.i32(beside * bytes).op("i32.add");
  };
  if (!isUniform) {
    pushGathered(code, dtype, lanes, pushAddress);
    return;
  }
  pushAddress(0);
  if (isMoving) pushElements(code, dtype, lanes);
  else pushSplat(code, dtype);
}
