/**
 * Splits an elementwise call over a buffer that a few calls wrote as interleaved views, such as the gradient of a pool: one call for each
 * view. Vertical fusion then combines each with the call that wrote its view, and the buffer need not be stored.
 */

import { type Axis, dtypes, factsOf, type Iteration, inputDtypes } from "../../ir/index.js";
import { isFlat } from "../program/flat.js";
import {
  type Buffer,
  type BufferSlice,
  isSameSlice,
  type Node,
  type Program,
  type RowCall,
} from "../program/program.js";
import { areInterleaved, type PlacedAccess, stridedAccess } from "./vertical/strided-access.js";

/** One kernel has an operand of each view in registers. */
const maxViews = 4;

export function splitElementwise(program: Program): void {
  // The results of split calls: their writers can share a kernel, because those of the views can.
  const split = new Set<Buffer>();
  for (const node of program.nodes) {
    const { call } = node;
    if (call.work.kind !== "row" || call.isRematerialized) continue;
    const parts = partsOf(program, node, call.work, split);
    if (!parts) continue;
    for (const { buffer } of call.work.operands.slice(call.work.kernel.inputs.length)) split.add(buffer);
    for (const work of parts) program.insertBefore(node, { ...call, work });
    program.remove(node);
  }
}

/** The same work, view by view; undefined if it is not over such a buffer. */
function partsOf(
  program: Program,
  node: Node,
  work: RowCall,
  split: ReadonlySet<Buffer>,
): readonly RowCall[] | undefined {
  if (!isFlat(work)) return undefined;
  for (const [input, dtype] of work.kernel.inputs.entries()) {
    const source = work.operands[input];
    if (!source || work.iteration.row.strides[input] !== 1) continue;
    const views = viewsOf(program, node, source, inputDtypes[dtype].bytes, split);
    if (views) return views.map((view) => partOf(work, source, view));
  }
  return undefined;
}

interface View {
  readonly slice: BufferSlice;
  /** The axes of the call that writes it, with the view's stride alone. */
  readonly outer: readonly Axis[];
  readonly row: Axis;
  readonly elementBytes: number;
}

/** The views that make up a slice, if the calls that wrote them read the same memory and can share a kernel. */
function viewsOf(
  program: Program,
  node: Node,
  source: BufferSlice,
  elementBytes: number,
  split: ReadonlySet<Buffer>,
): readonly View[] | undefined {
  const { buffer } = source;
  const { writers } = program.uses(buffer);
  if (buffer.storage || writers.length < 2 || writers.length > maxViews) return undefined;
  const calls = writers.flatMap((writer) => {
    const { work } = writer.call;
    return work.kind === "row" && writer.isBefore(node) ? [work] : [];
  });
  const [first] = calls;
  if (!first || calls.length !== writers.length) return undefined;
  const views = calls.flatMap((call) => viewIn(call, buffer, elementBytes) ?? []);
  const canShare = split.has(buffer) || calls.every((call) => readsAlike(call, first));
  if (views.length !== calls.length || !canShare) return undefined;
  const elements = calls.reduce((sum, { iteration }) => sum + iteration.elements, 0);
  const isWhole = isSameSlice(source, { buffer, offset: 0, size: elements * elementBytes });
  return isWhole && areApart(views) ? views : undefined;
}

/** The one view of a buffer that an elementwise call writes, in vectors. */
function viewIn(
  { kernel, iteration, operands }: RowCall,
  buffer: Buffer,
  elementBytes: number,
): View | undefined {
  const written = operands.flatMap((slice, operand) =>
    slice.buffer === buffer && operand >= kernel.inputs.length ? [operand] : [],
  );
  const isRead = operands.some((slice, operand) => slice.buffer === buffer && operand < kernel.inputs.length);
  const [operand] = written;
  const slice = operand === undefined ? undefined : operands[operand];
  if (operand === undefined || !slice || written.length !== 1 || isRead) return undefined;
  const output = kernel.outputs[operand - kernel.inputs.length];
  const { isElementwise, usesPosition } = factsOf(kernel);
  const isPlain = isElementwise && !usesPosition && iteration.row.strides[operand] === 1;
  if (!isPlain || !output || dtypes[output.dtype].bytes !== elementBytes) return undefined;
  const along = ({ size, strides }: Axis): Axis => ({ size, strides: [strides[operand] ?? 0] });
  return { slice, outer: iteration.outer.map(along), row: along(iteration.row), elementBytes };
}

/** True if both calls run over as many points and have an input in common. */
function readsAlike(a: RowCall, b: RowCall): boolean {
  const inputs = ({ operands, kernel }: RowCall) => operands.slice(0, kernel.inputs.length);
  return (
    a.iteration.elements === b.iteration.elements &&
    inputs(a).some((slice) => inputs(b).some((other) => isSameSlice(slice, other)))
  );
}

function areApart(views: readonly View[]): boolean {
  const placed = views.map(
    ({ slice, elementBytes, ...axes }): PlacedAccess => ({
      ...{ from: slice.offset, elementBytes },
      steps: stridedAccess(iterationOf(axes.outer, axes.row), 0, "element"),
    }),
  );
  return placed.every((one, index) => placed.slice(index + 1).every((other) => areInterleaved(one, other)));
}

/** All operands are contiguous in the same order, so that they have the strides of the view. */
function partOf(work: RowCall, source: BufferSlice, { slice, outer, row, elementBytes }: View): RowCall {
  const { kernel, iteration, operands } = work;
  const along = ({ size, strides: [stride = 0] }: Axis): Axis => ({
    size,
    strides: iteration.row.strides.map((flat) => flat * stride),
  });
  const [first, extent] = [(slice.offset - source.offset) / elementBytes, slice.size / elementBytes];
  return {
    ...work,
    iteration: iterationOf(outer.map(along), along(row)),
    operands: operands.map((operand, index) => {
      if (iteration.row.strides[index] === 0) return operand;
      const { bytes } =
        inputDtypes[kernel.inputs[index] ?? kernel.outputs[index - kernel.inputs.length]?.dtype ?? "f32"];
      return { buffer: operand.buffer, offset: operand.offset + first * bytes, size: extent * bytes };
    }),
  };
}

function iterationOf(outer: readonly Axis[], row: Axis): Iteration {
  const rows = outer.reduce((count, { size }) => count * size, 1);
  return { kind: "elements", outer, row, rows, elements: rows * row.size };
}
