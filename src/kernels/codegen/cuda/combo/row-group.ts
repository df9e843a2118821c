/**
 * Several row kernels as one launch: each is a function that some of the blocks run. A small kernel takes a GPU little more than
 * the launch does, so beside another one it takes next to nothing. Its values are made as they are alone, and so have their bits.
 */

import type { Iteration, RowKernel } from "../../../../ir/index.js";
import { kernelKey } from "../../../../ir/index.js";
import type { Storage } from "../../../../runtime/index.js";
import { cudaRowConfig, groupThreads, hasGroupConfig } from "../row-config.js";
import { type ComboLaunch, maxArguments, runCombo, type Task } from "./combo-kernel.js";

export interface RowGroupMember {
  readonly kernel: RowKernel;
  readonly iteration: Iteration;
  /** The inputs, then the outputs. */
  readonly operands: readonly Storage[];
  readonly scalars?: readonly number[];
  /** As `RowLaunch` has it: of all members or of none. */
  readonly early?: readonly boolean[] | undefined;
}

/** Can one launch run these? Not where a row takes more threads than blocks have here, or a launch too few arguments. */
export function canGroupRows(members: readonly Omit<RowGroupMember, "operands">[]): boolean {
  const given = members.reduce((sum, one) => sum + argumentsOf(one), 0);
  return given <= maxArguments && members.every((one) => hasGroupConfig(one.kernel, one.iteration));
}

/** At the most: the operands with a step along each axis, the sizes, the scalars, and where its blocks end. */
function argumentsOf({ kernel, iteration: { outer } }: Omit<RowGroupMember, "operands">): number {
  const operands = kernel.inputs.length + kernel.outputs.length;
  return operands * (2 + outer.length) + 2 + outer.length + kernel.scalars.length + 1;
}

/** Of members that `canGroupRows` allows. */
export function rowGroupConfig(members: readonly RowGroupMember[]): ComboLaunch {
  return runCombo(inOrder(members.flatMap(taskOf)), {
    entry: "hf_rows_combo",
    threads: groupThreads,
  });
}

function taskOf({ kernel, iteration, operands, scalars = [], early }: RowGroupMember): Task[] {
  const { key, sizes, inGroup } = cudaRowConfig(kernel, iteration, operands, early);
  if (!inGroup) return [];
  return [
    {
      ...{ name: kernel.name, text: `${kernelKey(kernel)}/${key}`, blocks: inGroup.blocks },
      arguments: [...operands, ...sizes, ...scalars],
      print: inGroup.print,
    },
  ];
}

/** What has few blocks comes first: behind a large kernel's it would begin when all others end. Those of one text stay together. */
function inOrder(tasks: readonly Task[]): readonly Task[] {
  const blocks = new Map<string, number>();
  for (const task of tasks) blocks.set(task.text, task.blocks + (blocks.get(task.text) ?? 0));
  const blocksOf = ({ text }: Task): number => blocks.get(text) ?? 0;
  return [...tasks].sort(
    (a, b) => blocksOf(a) - blocksOf(b) || a.text.localeCompare(b.text) || a.blocks - b.blocks,
  );
}
