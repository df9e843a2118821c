/** A call as a node of vertical fusion: its kernel, and the strided access of each operand. */

import {
  type Dtype,
  dtypes,
  factsOf,
  type InputDtype,
  inputDtypes,
  isFloat8,
  type Output,
  type RowKernel,
} from "../../../ir/index.js";
import { rowLanesOf } from "../../../kernels/index.js";
import type { BufferSlice, Call, CopyCall, RowCall } from "../../program/program.js";
import { areDisjoint, type Extent, extentOf, placeOf } from "../../program/slices.js";
import {
  areDistinct,
  areInterleaved,
  areRowInvariant,
  type PlacedAccess,
  type StridedAccess,
  stridedAccess,
} from "./strided-access.js";

export interface Operand<D extends InputDtype = InputDtype> {
  readonly slice: BufferSlice;
  readonly extent: Extent;
  readonly dtype: D;
  readonly steps: StridedAccess;
  /** Equal for operands with the same element at every point. */
  readonly key: string;
  /** True if it is loaded by index, so that any of its elements may be read. */
  readonly isIndexed: boolean;
  readonly per: Output["per"];
}

export interface FusionNode {
  readonly call: Call;
  readonly kernel: RowKernel;
  readonly scalars: readonly number[];
  readonly inputs: readonly Operand[];
  readonly outputs: readonly Operand<Dtype>[];
  readonly elements: number;
  /** The row length, if its values depend on rows. */
  readonly rowSize: number | undefined;
  readonly reduces: boolean;
  readonly lanes: number;
}

/** Undefined if the call can never be fused. */
export function fusionNodeOf(call: Call): FusionNode | undefined {
  return call.work.kind === "row" ? memberOfRows(call, call.work) : undefined;
}

function memberOfRows(call: Call, { kernel, iteration, operands, scalars }: RowCall): FusionNode | undefined {
  if (iteration.elements === 0) return undefined;
  const { isElementwise, usesPosition, isReadAtIndex } = factsOf(kernel);
  const inputs = kernel.inputs.flatMap((dtype, index): Operand | [] => {
    const slice = operands[index];
    const steps = stridedAccess(iteration, index, "element");
    return slice ? operandOf(slice, dtype, steps, isReadAtIndex[index] ?? false, "element") : [];
  });
  const outputs = kernel.outputs.flatMap(({ dtype, per }, output): Operand<Dtype> | [] => {
    const index = kernel.inputs.length + output;
    const slice = operands[index];
    return slice ? operandOf(slice, dtype, stridedAccess(iteration, index, per), false, per) : [];
  });
  const member: FusionNode = {
    ...{ call, kernel, scalars, inputs, outputs },
    elements: iteration.elements,
    rowSize: isElementwise && !usesPosition ? undefined : iteration.row.size,
    reduces: kernel.stages.some(({ kind }) => kind === "reduce"),
    lanes: rowLanesOf(kernel, iteration),
  };
  return isOrderly(member) ? member : undefined;
}

/** A plain copy as a move of elements of a dtype; undefined if bits might change or the copy is misaligned. */
export function fusionNodeOfCopy(
  call: Call,
  { source, target }: CopyCall,
  dtype: Dtype,
): FusionNode | undefined {
  const { bytes } = dtypes[dtype];
  const elements = target.size / bytes;
  const [from, to] = [extentOf(source), extentOf(target)];
  // Half floats and 8-bit ones are converted to f32 and back, which changes NaNs.
  if (
    dtype === "bf16" ||
    dtype === "f16" ||
    isFloat8(dtype) ||
    source.size !== target.size ||
    !areDisjoint(from, to)
  )
    return undefined;
  if (!Number.isInteger(elements) || elements < 1 || from.from % bytes !== 0 || to.from % bytes !== 0)
    return undefined;
  const steps: StridedAccess = elements === 1 ? [] : [{ size: elements, stride: 1 }];
  return {
    ...{ call, elements, scalars: [], kernel: copyKernel(dtype) },
    inputs: [operandOf(source, dtype, steps, false, "element")],
    outputs: [operandOf(target, dtype, steps, false, "element")],
    ...{ rowSize: undefined, reduces: false, lanes: bytes === 8 ? 2 : 4 },
  };
}

const copyKernels = new Map<Dtype, RowKernel>();

function copyKernel(dtype: Dtype): RowKernel {
  const kernel: RowKernel = copyKernels.get(dtype) ?? {
    name: "copy",
    inputs: [dtype],
    outputs: [{ dtype, per: "element" }],
    scalars: [],
    stages: [{ kind: "store", output: 0, value: { kind: "load", input: 0, type: dtypes[dtype].compute } }],
  };
  copyKernels.set(dtype, kernel);
  return kernel;
}

function operandOf<D extends InputDtype>(
  slice: BufferSlice,
  dtype: D,
  steps: StridedAccess,
  isIndexed: boolean,
  per: Operand["per"],
): Operand<D> {
  const extent = extentOf(slice);
  return { slice, extent, dtype, steps, key: keyOf(extent, dtype, steps), isIndexed, per };
}

function keyOf(extent: Extent, dtype: InputDtype, steps: StridedAccess): string {
  let key = `${placeOf(extent)} ${dtype}`;
  for (const { size, stride } of steps) key += ` ${size}:${stride}`;
  return key;
}

/** The operand of a call that has an element for each row of another: it stands still along that one's rows. */
export function alongRows<D extends InputDtype>(
  operand: Operand<D>,
  rowSize: number,
  per: Operand["per"],
): Operand<D> {
  const steps = areRowInvariant(operand.steps, rowSize);
  return { ...operand, steps, per, key: keyOf(operand.extent, operand.dtype, steps) };
}

/** Does the call store each element once, and read of what it stores only that very element? */
function isOrderly({ inputs, outputs, kernel, call }: FusionNode): boolean {
  const rowSize = call.work.kind === "row" ? call.work.iteration.row.size : 1;
  const { readAfterStores } = factsOf(kernel);
  return outputs.every((output, index) => {
    const { per } = kernel.outputs[index] ?? {};
    const isPerRow = per === "row";
    const access = isPerRow ? withoutRow(output.steps, rowSize) : output.steps;
    return (
      (per === "column" || areDistinct(access)) &&
      inputs.every((input, number) => {
        if (neverMeet(input, output)) return true;
        // Whether a row's value is read before or after it is stored depends on the row length.
        return isSameElement(input, output) && !(isPerRow && readAfterStores.includes(number));
      }) &&
      outputs.every((other) => other === output || neverMeet(other, output))
    );
  });
}

/** True if two operands are the same element at every point, and neither is loaded by index. */
export function isSameElement(a: Operand, b: Operand): boolean {
  return a.key === b.key && !a.isIndexed && !b.isIndexed;
}

/** True if two operands have no element in common: their memory is disjoint, or they interleave. */
export function neverMeet(a: Operand, b: Operand): boolean {
  if (areDisjoint(a.extent, b.extent)) return true;
  return !a.isIndexed && !b.isIndexed && areInterleaved(placedAccess(a), placedAccess(b));
}

function placedAccess({ extent, steps, dtype }: Operand): PlacedAccess {
  return { from: extent.from, steps, elementBytes: inputDtypes[dtype].bytes };
}

/** The access of a per-row value: without the stride along the row. */
function withoutRow(steps: StridedAccess, rowSize: number): StridedAccess {
  return rowSize > 1 && steps[0]?.size === rowSize ? steps.slice(1) : steps;
}
