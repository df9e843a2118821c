/** Indexed loads: indexing, gather and flip. */

import type { Code, Local } from "../../../driver/index.js";
import { type Dtype, dtypes } from "../../../ir/index.js";
import { type Lanes, pushElements, pushGathered, pushSplat } from "./elements.js";

export interface IndexedLoad {
  readonly dtype: Dtype;
  /** The operand's address. */
  readonly cursor: Local;
  /** Elements from there to the first lane. */
  readonly first?: number;
  /** True if each lane is one element further; false if all lanes read the same element. */
  readonly isVarying: boolean;
  readonly lanes: Lanes;
  /** True if the index is the same in every lane: then neighbouring elements are one vector load. */
  readonly isUniform: boolean;
}

/** Pushes the elements at the index on the stack, relative to the operand's address. */
export function pushIndexed(
  code: Code,
  { dtype, cursor, first = 0, isVarying, lanes, isUniform }: IndexedLoad,
): void {
  const { bytes } = dtypes[dtype];
  const index = code.local("v128");
  code.set(index);
  // The address is computed in 32 bits, which wrap: an offset in the instruction would not, and a negative index would trap.
  const pushAddress = (lane: number): void => {
    code.get(cursor).get(index).lane("i32x4.extract_lane", lane).i32(Math.log2(bytes)).op("i32.shl");
    code.op("i32.add");
    const offset = first + (isVarying ? lane : 0);
    if (offset !== 0) code.i32(offset * bytes).op("i32.add");
  };
  if (!isUniform) {
    pushGathered(code, dtype, lanes, pushAddress);
    return;
  }
  pushAddress(0);
  if (isVarying) pushElements(code, dtype, lanes);
  else pushSplat(code, dtype);
}
