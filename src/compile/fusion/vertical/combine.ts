/**
 * Fuses several calls into one, if that is possible and pays. The operations and their operands stay the same, so that no bit
 * changes.
 */

import { factsOf, type Iteration, type RowKernel, subexpressionsOf } from "../../../ir/index.js";
import { type Capabilities, rowLanesOf } from "../../../kernels/index.js";
import type { BufferSlice, RowCall } from "../../program/program.js";
import { Combination } from "./combination.js";
import type { Compacted } from "./compact.js";
import { isCheap, maxExpressionNodes, maxMoving, maxOperands } from "./cost.js";
import type { FusionNode, Operand } from "./fusion-node.js";
import { type IterationSpace, iterationSpaceOf } from "./iteration-space.js";
import { joinNames, theKernel } from "./kernel-memo.js";
import { iterationOf } from "./strided-access.js";

/** A fused call before its kernel is replaced by the shared object of equal structure. */
export interface Draft {
  readonly kernel: RowKernel;
  /** The structure of the kernel, as text. */
  readonly structure: string;
  readonly iteration: Iteration;
  readonly operands: readonly BufferSlice[];
  readonly scalars: readonly number[];
}

/** The capabilities that decide whether a fusion pays. */
export type RowCapabilities = Pick<Capabilities, "reducesRowsByLengthAlone" | "sharesValuesOfStages">;

/** Undefined if the calls cannot be fused, or if it does not pay. `isNeeded` tells which memory others read. */
export function combine(
  members: readonly FusionNode[],
  isNeeded: (slice: BufferSlice) => boolean,
  capabilities: RowCapabilities,
  maxNodes = maxExpressionNodes,
): Draft | undefined {
  const frame = iterationSpaceOf(members);
  if (!frame) return undefined;
  const compacted = new Combination(frame, isNeeded, capabilities).rewrite();
  if (!compacted || isCrowded([...compacted.inputs, ...compacted.outputs])) return undefined;
  const nodes = compacted.stages.reduce((sum, { value }) => sum + subexpressionsOf(value).length, 0);
  if (nodes > maxNodes) return undefined;
  const draft = draftOf(joinNames(members.map(({ kernel }) => kernel.name)), frame, compacted);
  return draft && isWorthwhile(members, draft, capabilities) ? draft : undefined;
}

function isCrowded(operands: readonly Operand[]): boolean {
  const moving = operands.filter(({ steps: [first] }) => first !== undefined && first.stride !== 0);
  return moving.length > maxMoving || operands.length > maxOperands;
}

/** Undefined if no iteration has the strides of all operands. */
export function draftOf(name: string, frame: IterationSpace, compacted: Compacted): Draft | undefined {
  const { inputs, outputs, scalars, stages, structure } = compacted;
  const kernel: RowKernel = {
    name,
    inputs: inputs.map(({ dtype }) => dtype),
    outputs: outputs.map(({ dtype, per }) => ({ dtype, per })),
    scalars: scalars.map(({ type }) => type),
    stages,
  };
  const { isElementwise, usesPosition } = factsOf(kernel);
  const operands = [...inputs, ...outputs];
  const iteration = iterationOf(
    operands.map(({ steps }) => steps),
    frame.elements,
    isElementwise && !usesPosition ? undefined : frame.rowSize,
  );
  return (
    iteration && {
      ...{ kernel, structure, iteration },
      operands: operands.map(({ slice }) => slice),
      scalars: scalars.map(({ value }) => value),
    }
  );
}

/** A GPU runs a row on one block at most; with few rows, elementwise work needs more threads than that. */
const fewRows = 128;
const fewElements = 16_384;
/** Costly elementwise work needs them sooner: if a row has more elements than a block has threads. */
const longCostlyRow = 1024;

function isWorthwhile(
  members: readonly FusionNode[],
  { kernel, iteration }: Draft,
  { reducesRowsByLengthAlone }: RowCapabilities,
): boolean {
  const { rows, elements } = iteration;
  const { isElementwise } = factsOf(kernel);
  const isNarrow = !isElementwise && rows < fewRows;
  if (isNarrow && members.some((member) => member.elements === elements && deservesThreads(member, rows))) {
    return false;
  }
  // Such row kernels also vectorise each operand by itself.
  if (reducesRowsByLengthAlone && !isElementwise) return true;
  const lanes = rowLanesOf(kernel, iteration);
  return members.every((member) => {
    if (member.elements !== elements || member.lanes === lanes) return true;
    // A row's sum is added by lanes, and its bits must stay; otherwise more lanes are only faster.
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

/** The draft as work, with the shared kernel object. */
export function rowsOf({ kernel, structure, ...rest }: Draft): RowCall {
  return { kind: "row", kernel: theKernel(kernel, structure), ...rest };
}
