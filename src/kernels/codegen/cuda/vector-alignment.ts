/** Which operands of a row kernel can be accessed in vectors: those whose rows are contiguous and begin on vector boundaries. */

import type { Iteration, RowFacts } from "../../../ir/index.js";
import { innerStrideOf } from "../../../ir/index.js";
import type { Storage } from "../../../runtime/index.js";
import { maxVectorBytes } from "../../cost-model.js";

/** Elements of a vector. */
export const vectorWidth = 4;
/** Elements of a vector of 16 bytes, in kernels whose operands have at most 16 bits. */
export const wideVectorWidth = 8;

/** True if every operand that varies along the row, and is not only read at an index, is contiguous and aligned for vectors. */
export function areVectorised(
  facts: RowFacts,
  iteration: Iteration,
  operands: readonly Storage[],
  width = vectorWidth,
): boolean {
  for (let operand = 0; operand < operands.length; operand++) {
    const inner = innerStrideOf(iteration.row, operand);
    if (inner === "none" || facts.isReadDirectly[operand] === false) continue;
    if (inner === "any" || !isAligned(operand, facts, iteration, operands, width)) return false;
  }
  return true;
}

/**
 * True if the kernel can take vectors of 16 bytes: half as many threads as with four elements each compute addresses, load and store.
 * Operands of more bytes need several accesses per vector anyway.
 */
export function areWide(facts: RowFacts, iteration: Iteration, operands: readonly Storage[]): boolean {
  const { row } = iteration;
  const maxBytes = maxVectorBytes / wideVectorWidth;
  return (
    row.size % wideVectorWidth === 0 &&
    facts.bytes.every((bytes, operand) => bytes <= maxBytes || innerStrideOf(row, operand) === "none") &&
    areVectorised(facts, iteration, operands, wideVectorWidth)
  );
}

/** True if every row of an operand begins on a vector boundary; of a draw, with the first number of a vector. */
export function isAligned(
  operand: number,
  facts: RowFacts,
  { outer }: Iteration,
  operands: readonly Storage[],
  width = vectorWidth,
): boolean {
  // A draw has no bytes: its address is that of the state.
  const alignment = Math.min(maxVectorBytes, width * (facts.bytes[operand] ?? 1)) || 1;
  const address = operands[operand]?.span.address ?? 1;
  if (address % alignment !== 0) return false;
  for (const { strides } of outer) if ((strides[operand] ?? 0) % width !== 0) return false;
  return true;
}
