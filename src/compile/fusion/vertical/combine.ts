/**
 * Makes one call of several, if that is possible and worth it. Its values are made of the same operations on the same
 * numbers as before, so that no bit changes.
 */

import type { DeviceInfo } from "../../../driver/index.js";
import { factsOf, type Iteration, type RowKernel, subexpressionsOf } from "../../../ir/index.js";
import { rowLanesOf } from "../../../kernels/index.js";
import type { BufferSlice, RowCall } from "../../program/program.js";
import { Combination } from "./combination.js";
import type { Compacted } from "./compact.js";
import { isCheap, maxExpressionNodes, maxMoving, maxOperands } from "./cost.js";
import type { FusionNode, Operand } from "./fusion-node.js";
import { type IterationSpace, iterationSpaceOf } from "./iteration-space.js";
import { joinNames, theKernel } from "./kernel-memo.js";
import { iterationOf } from "./strided-access.js";

/** What the fused call will be; its kernel is not the one of its kind yet. */
export interface Draft {
  readonly kernel: RowKernel;
  /** What the kernel follows from, as text. */
  readonly structure: string;
  readonly iteration: Iteration;
  readonly operands: readonly BufferSlice[];
  readonly scalars: readonly number[];
}

/** Nothing where the calls can't be one, or had better not. `isNeeded` tells which memory others read; `most`, how many parts there may be. */
export function combine(
  members: readonly FusionNode[],
  isNeeded: (slice: BufferSlice) => boolean,
  device: DeviceInfo["kind"],
  most = maxExpressionNodes,
): Draft | undefined {
  const frame = iterationSpaceOf(members);
  if (!frame) return undefined;
  const compacted = new Combination(frame, isNeeded).rewrite();
  if (!compacted || isCrowded([...compacted.inputs, ...compacted.outputs])) return undefined;
  const slices = compacted.stages.reduce((sum, { value }) => sum + subexpressionsOf(value).length, 0);
  if (slices > most) return undefined;
  return draftOf(members, frame, compacted, device);
}

function isCrowded(operands: readonly Operand[]): boolean {
  const moving = operands.filter(({ steps: [first] }) => first !== undefined && first.stride !== 0);
  return moving.length > maxMoving || operands.length > maxOperands;
}

function draftOf(
  members: readonly FusionNode[],
  frame: IterationSpace,
  compacted: Compacted,
  device: DeviceInfo["kind"],
): Draft | undefined {
  const { inputs, outputs, scalars, stages } = compacted;
  const kernel: RowKernel = {
    name: joinNames(members.map((member) => member.kernel.name)),
    inputs: inputs.map(({ dtype }) => dtype),
    outputs: outputs.map(({ dtype, per }) => ({ dtype, per })),
    scalars: scalars.map(({ type }) => type),
    stages,
  };
  const { isElementwise, usesPlace } = factsOf(kernel);
  const operands = [...inputs, ...outputs];
  const iteration = iterationOf(
    operands.map(({ steps }) => steps),
    frame.elements,
    isElementwise && !usesPlace ? undefined : frame.rowSize,
  );
  if (!iteration || !isWorthwhile(members, kernel, iteration, device)) return undefined;
  return {
    kernel,
    structure: compacted.structure,
    iteration,
    operands: operands.map(({ slice }) => slice),
    scalars: scalars.map(({ value }) => value),
  };
}

/** A GPU shares a row among the threads of a block at most; elements that need no row deserve more of them. */
const fewRows = 128;
const fewElements = 16_384;
/** Those with functions to compute sooner: where a row has more than a block takes at a time. */
const longCostlyRow = 1024;

function isWorthwhile(
  members: readonly FusionNode[],
  kernel: RowKernel,
  iteration: Iteration,
  device: DeviceInfo["kind"],
): boolean {
  const { rows, elements } = iteration;
  const { isElementwise } = factsOf(kernel);
  const isNarrow = !isElementwise && rows < fewRows;
  if (isNarrow && members.some((member) => member.elements === elements && deservesThreads(member, rows))) {
    return false;
  }
  // On a GPU a row's sum follows from its length alone, and where rows are reduced each operand is moved by itself.
  if (device === "cuda" && !isElementwise) return true;
  const lanes = rowLanesOf(kernel, iteration);
  return members.every((member) => {
    if (member.elements !== elements || member.lanes === lanes) return true;
    // A row's sum is added up by lanes, and its bits must stay; elsewhere more lanes are only faster.
    return (
      !member.reduces && (member.lanes < lanes || member.kernel.stages.every(({ value }) => isCheap(value)))
    );
  });
}

function deservesThreads({ elements, rowSize, kernel }: FusionNode, rows: number): boolean {
  if (rowSize !== undefined) return false;
  const isCostly = !kernel.stages.every(({ value }) => isCheap(value));
  return elements > fewElements || (isCostly && elements > longCostlyRow * rows);
}

/** The draft as work: its kernel is the one of its kind now. */
export function rowsOf({ kernel, structure, ...rest }: Draft): RowCall {
  return { kind: "row", kernel: theKernel(kernel, structure), ...rest };
}
