/** The common iteration space of fused calls: they run over the same points in the same order, or over the rows of one of them. */

import type { Dtype } from "../../../ir/index.js";
import { warpSize } from "../../../kernels/index.js";
import { alongRows, type FusionNode, isSameElement, neverMeet, type Operand } from "./fusion-node.js";

export interface IterationSpace {
  readonly elements: number;
  /** The row length, if some member depends on rows. */
  readonly rowSize: number | undefined;
  /** The members' operands, projected to the points of this space. */
  readonly seen: readonly Seen[];
}

export interface Seen {
  readonly member: FusionNode;
  readonly inputs: readonly Operand[];
  readonly outputs: readonly Operand<Dtype>[];
  /** True if it has one element for each row of the others. */
  readonly isOfRows: boolean;
}

/** Kernels of fewer elements take less time than a launch, even with idle lanes. */
const maxIdleElements = 2 ** 20;

/** Undefined if the members' points do not match, or if one accesses another's memory at another point. */
export function iterationSpaceOf(members: readonly FusionNode[]): IterationSpace | undefined {
  const elements = members.reduce((most, member) => Math.max(most, member.elements), 0);
  const lengths = new Set<number>();
  for (const member of members) {
    const isWhole = member.elements === elements;
    if (!isWhole && member.rowSize !== undefined) return undefined;
    const length = isWhole ? member.rowSize : elements / member.elements;
    if (length !== undefined) lengths.add(length);
  }
  const [rowSize] = lengths;
  // Nobody needs such rows, and most lanes of a warp would do nothing.
  const dependsOnRows = members.some((member) => member.rowSize !== undefined);
  const idles = !dependsOnRows && rowSize !== undefined && rowSize < warpSize;
  if (idles && elements > maxIdleElements) return undefined;
  if (lengths.size > 1 || (rowSize !== undefined && elements % rowSize !== 0)) return undefined;
  const seen = members.map((member) => seenFrom(member, elements, rowSize));
  return haveOwnPoints(seen) ? { elements, rowSize, seen } : undefined;
}

function seenFrom(member: FusionNode, elements: number, rowSize: number | undefined): Seen {
  const { inputs, outputs } = member;
  if (member.elements === elements || rowSize === undefined)
    return { member, inputs, outputs, isOfRows: false };
  return {
    member,
    inputs: inputs.map((operand) => alongRows(operand, rowSize, "element")),
    outputs: outputs.map((operand) => alongRows(operand, rowSize, "row")),
    isOfRows: true,
  };
}

/**
 * Rows run concurrently, and in a fused kernel all members process a row before the next one. So memory that one member stores and
 * another accesses must be accessed at the same point by both.
 */
function haveOwnPoints(all: readonly Seen[]): boolean {
  const spaces = new Map<
    Operand["extent"]["space"],
    { operand: Operand; member: number; isStored: boolean }[]
  >();
  for (const [member, { inputs, outputs }] of all.entries()) {
    for (const operand of [...inputs, ...outputs]) {
      const isStored = (outputs as readonly Operand[]).includes(operand);
      const others = spaces.get(operand.extent.space) ?? [];
      for (const other of others) {
        if (other.member === member || !(isStored || other.isStored)) continue;
        if (neverMeet(operand, other.operand) || isSameElement(operand, other.operand)) continue;
        return false;
      }
      others.push({ operand, member, isStored });
      spaces.set(operand.extent.space, others);
    }
  }
  return true;
}
