/**
 * Groups of row kernels in one combo launch. A small kernel takes little longer than its launch, so that it is almost free as a member of a
 * group. Results have the same bits as with separate launches.
 */

import type { Iteration, RowKernel } from "../../../../ir/index.js";
import { kernelKey } from "../../../../ir/index.js";
import type { Storage } from "../../../../runtime/index.js";
import { canBeMember, comboThreads, cudaRowConfig, type RowOptions } from "../row-config.js";
import { type ComboLaunch, type ComboMember, combineMembers, maxArguments } from "./combo-kernel.js";

export interface RowGroupMember {
  readonly kernel: RowKernel;
  readonly iteration: Iteration;
  /** The inputs, then the outputs. */
  readonly operands: readonly Storage[];
  readonly scalars?: readonly number[];
  /** See `RowLaunch`. All members have it, or none. */
  readonly prefetchable?: readonly boolean[] | undefined;
}

/** True if one launch can run these members: their rows fit into the blocks of a combo kernel, and the arguments into a launch. */
export function canGroupRows(members: readonly Omit<RowGroupMember, "operands">[]): boolean {
  const argumentCount = members.reduce((sum, member) => sum + argumentsOf(member), 0);
  return (
    argumentCount <= maxArguments && members.every((member) => canBeMember(member.kernel, member.iteration))
  );
}

/** An upper bound: the operands with a stride along each axis, the sizes, the scalars, and the end of the member's blocks. */
function argumentsOf({ kernel, iteration: { outer } }: Omit<RowGroupMember, "operands">): number {
  const operands = kernel.inputs.length + kernel.outputs.length;
  return operands * (2 + outer.length) + 2 + outer.length + kernel.scalars.length + 1;
}

/** For members that `canGroupRows` allows. */
export function rowGroupConfig(
  members: readonly RowGroupMember[],
  options: Pick<RowOptions, "usesFastMath"> = {},
): ComboLaunch {
  return combineMembers(smallestGridFirst(members.flatMap((member) => memberOf(member, options))), {
    entry: "hf_rows_combo",
    threads: comboThreads,
  });
}

function memberOf(
  { kernel, iteration, operands, scalars = [], prefetchable }: RowGroupMember,
  options: Pick<RowOptions, "usesFastMath">,
): ComboMember[] {
  const { key, sizes, member } = cudaRowConfig(kernel, iteration, operands, { ...options, prefetchable });
  if (!member) return [];
  return [
    {
      ...{ name: kernel.name, codeKey: `${kernelKey(kernel)}/${key}`, blocks: member.blocks },
      arguments: [...operands, ...sizes, ...scalars],
      print: member.print,
    },
  ];
}

/** Small members first: after a large member they would start last. Members with the same code are neighbours. */
function smallestGridFirst(members: readonly ComboMember[]): readonly ComboMember[] {
  const blocks = new Map<string, number>();
  for (const member of members) blocks.set(member.codeKey, member.blocks + (blocks.get(member.codeKey) ?? 0));
  const blocksOf = ({ codeKey }: ComboMember): number => blocks.get(codeKey) ?? 0;
  return [...members].sort(
    (a, b) => blocksOf(a) - blocksOf(b) || a.codeKey.localeCompare(b.codeKey) || a.blocks - b.blocks,
  );
}
