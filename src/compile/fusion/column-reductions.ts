/**
 * Column reductions as epilogues: a kernel that produces or reads the rows of a column sum also writes its partials, and a short
 * kernel combines them. So the gradients of a norm's weight and bias are made with that of its input, and memory that only such sums
 * read is not written. In float32 a sum keeps its bits; in other precisions it may be added in another order.
 */

import {
  type ColumnKernel,
  dtypes,
  type Expression,
  iterateRows,
  type RowKernel,
  term,
} from "../../ir/index.js";
import {
  type ColumnSumLayout,
  canFuseEpilogue,
  capabilitiesOf,
  colsumRows,
  columnSumLayout,
  columnSumSlowdown,
  columnSumTarget,
  defaultColumnPartials,
} from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { beat } from "../../units/index.js";
import { describeGemm } from "../autotune/gemm-desc.js";
import { comboLimits } from "../cost-model.js";
import {
  type Buffer,
  type BufferSlice,
  type Call,
  type ColumnCall,
  type GemmEpilogueCall,
  isSameSlice,
  latestPhase,
  maxFusionDistance,
  type Node,
  type Program,
  type RowCall,
  type Work,
} from "../program/program.js";
import { bytesOf } from "../program/traffic.js";
import { isReadByOthers, isWriting, touches } from "../program/uses.js";
import { combine, rowsOf } from "./vertical/combine.js";
import { maxNodesWithAccumulators } from "./vertical/cost.js";
import { type FusionNode, fusionNodeOf } from "./vertical/fusion-node.js";
import { Interner } from "./vertical/interner.js";
import { joinNames } from "./vertical/kernel-memo.js";

export function fuseColumnReductions(runtime: Runtime, program: Program): void {
  if (!capabilitiesOf(runtime).sumsColumnsInRowKernels) return;
  for (const node of program.nodes) {
    beat();
    const { call } = node;
    if (!isSum(call)) continue;
    for (const candidate of candidatesFor(program, node, call.work)) {
      const phases = fuseFirstPhase(runtime, program, candidate, node, call);
      if (!phases) continue;
      program.replace(candidate, phases.fused);
      program.replace(node, phases.secondPhase);
      if (node.isBefore(candidate)) program.moveAfter(node, candidate);
      break;
    }
  }
}

type SumCall = Call & { readonly work: ColumnCall };

function isSum(call: Call): call is SumCall {
  return call.work.kind === "column" && isF32Sum(call.work);
}

/** Sums of f32 over one run of columns: no other column reductions have partials. */
export function isF32Sum({ kernel, rows, columns, runs }: ColumnCall): boolean {
  const { op, values, inputs } = kernel;
  return (
    !runs &&
    rows * columns > 0 &&
    op === "add" &&
    inputs.length > 0 &&
    values.every(({ type }) => type === "f32")
  );
}

/** Calls that the first phase could be fused with: those that access the sum's inputs between two writes of them. */
function candidatesFor(program: Program, sum: Node, { kernel, operands }: ColumnCall): readonly Node[] {
  const [inputs, outputs] = [operands.slice(0, kernel.inputs.length), operands.slice(kernel.inputs.length)];
  const candidates: Node[] = [];
  let node = program.previous(sum);
  for (let distance = 1; node && distance <= maxFusionDistance; distance++) {
    if (touches(node.accesses, inputs)) candidates.push(node);
    if (touches(node.accesses, inputs, isWriting)) break;
    node = program.previous(node);
  }
  node = program.next(sum);
  for (let distance = 1; node && distance <= maxFusionDistance; distance++) {
    if (touches(node.accesses, inputs, isWriting) || touches(node.accesses, outputs)) break;
    if (touches(node.accesses, inputs)) candidates.push(node);
    node = program.next(node);
  }
  return candidates;
}

interface TwoPhases {
  /** A call that also writes the partials. */
  readonly fused: Call;
  readonly secondPhase: Call;
}

/** A call fused with the first phase of the sum, and the second phase; undefined if they cannot be fused, or if that does not pay. */
function fuseFirstPhase(
  runtime: Runtime,
  program: Program,
  candidate: Node,
  sumNode: Node,
  sum: SumCall,
): TwoPhases | undefined {
  const { work } = sum;
  const { call } = candidate;
  const isReadElsewhere = (buffer: Buffer): boolean => isReadByOthers(program, buffer, [candidate, sumNode]);
  const makePartials = (count: number): readonly BufferSlice[] =>
    work.kernel.values.map(() => {
      const size = count * work.columns * dtypes.f32.bytes;
      return { buffer: program.makeBuffer(size, `${sum.op} sums`), offset: 0, size };
    });
  const fused =
    call.work.kind === "gemm-epilogue"
      ? epilogueWithSum(runtime, call.work, work, makePartials)
      : rowsWithSum(runtime, call, sum, makePartials, isReadElsewhere);
  if (!fused) return undefined;
  const { count, partials } = fused;
  return {
    fused: { ...call, work: fused.work, op: joinNames([call.op, sum.op]), phase: latestPhase([call, sum]) },
    secondPhase: { ...sum, work: secondPhaseOf(work, partials, count) },
  };
}

/** Work that includes the first phase of a sum: `count` partials of each column. */
interface Fused {
  readonly work: Work;
  readonly count: number;
  readonly partials: readonly BufferSlice[];
}

type MakePartials = (count: number) => readonly BufferSlice[];

/** A row kernel fused with the first phase of a sum, if it has all inputs of the sum. */
function rowsWithSum(
  runtime: Runtime,
  rows: Call,
  sum: SumCall,
  makePartials: MakePartials,
  isReadElsewhere: (buffer: Buffer) => boolean,
): Fused | undefined {
  if (rows.work.kind !== "row" || rows.isRematerialized || rows.isHoisted) return undefined;
  const member = fusionNodeOf(rows);
  if (!member) return undefined;
  const fuse = (count: number): (Fused & { readonly layout: ColumnSumLayout }) | undefined => {
    const partials = makePartials(count);
    const firstPhase = fusionNodeOf({ ...sum, work: firstPhaseOf(sum.work, partials) });
    if (!firstPhase || !hasInputsOf(member, firstPhase)) return undefined;
    const isNeeded = ({ buffer }: BufferSlice): boolean =>
      buffer.storage !== undefined ||
      partials.some((partial) => partial.buffer === buffer) ||
      isReadElsewhere(buffer);
    const draft = combine([member, firstPhase], isNeeded, capabilitiesOf(runtime), maxNodesWithAccumulators);
    const layout = draft && columnSumLayout(columnSumTarget(runtime), draft.kernel, draft.iteration);
    return layout && { work: rowsOf(draft), count, partials, layout };
  };
  // All sums of a kernel have the same number of partials, which follows from the kernel.
  const present = columnSumsOf(runtime, rows.work);
  const first = fuse(present?.blocks ?? defaultColumnPartials);
  if (!first || (present && first.layout.blocks !== present.blocks)) return undefined;
  const fused = first.layout.blocks === first.count ? first : fuse(first.layout.blocks);
  return fused && pays(runtime, rows, sum, fused.work, fused.layout) ? fused : undefined;
}

/** True if a row kernel that replaces another one computes its column sums, with as many partials. */
export function keepsColumnSums(runtime: Runtime, before: Work, after: RowCall): boolean {
  const present = before.kind === "row" ? columnSumsOf(runtime, before) : undefined;
  return !present || columnSumsOf(runtime, after)?.blocks === present.blocks;
}

/** The layout of the column sums of a row kernel, if it has any. */
function columnSumsOf(runtime: Runtime, { kernel, iteration }: RowCall): ColumnSumLayout | undefined {
  const hasSums = kernel.outputs.some(({ per }) => per === "column");
  return hasSums ? columnSumLayout(columnSumTarget(runtime), kernel, iteration) : undefined;
}

/**
 * True if the traffic of the fused kernel takes less time than that of both calls. A kernel whose teams loop over rows has fewer threads
 * than it would have without sums. So it does not become such a kernel for a sum that is short by itself, which shares a launch with
 * others or runs on a side stream.
 */
function pays(runtime: Runtime, rows: Call, sum: SumCall, fused: Work, layout: ColumnSumLayout): boolean {
  if (!layout.isLoop) return true;
  const hasSums = rows.work.kind === "row" && columnSumsOf(runtime, rows.work) !== undefined;
  if (!hasSums && trafficOf(sum) < comboLimits(runtime.device).largeBytes) return false;
  const timeOf = (call: Call): number => {
    const own = call.work.kind === "row" ? columnSumsOf(runtime, call.work) : undefined;
    if (call.work.kind !== "row" || !own) return trafficOf(call);
    const { kernel, iteration } = call.work;
    return trafficOf(call) * columnSumSlowdown(columnSumTarget(runtime), kernel, iteration, own);
  };
  const partialBytes = layout.blocks * sum.work.columns * dtypes.f32.bytes * sum.work.kernel.values.length;
  return timeOf({ ...rows, work: fused }) + partialBytes < timeOf(rows) + trafficOf(sum);
}

function trafficOf(call: Call): number {
  const { read, written } = bytesOf(call);
  return read + written;
}

/** True if a call reads or writes every input that varies along the sum's rows. */
function hasInputsOf(member: FusionNode, sum: FusionNode): boolean {
  const keys = new Set([...member.inputs, ...member.outputs].map(({ key }) => key));
  return sum.inputs.every(({ key, steps: [first] }) => keys.has(key) || first?.stride === 0);
}

const firstPhaseKernels = new WeakMap<ColumnKernel, RowKernel>();
const secondPhaseKernels = new WeakMap<ColumnKernel, ColumnKernel>();

/** The first phase of a sum as a row kernel. */
function firstPhaseOf(
  { kernel, rows, columns, strides, operands, scalars }: ColumnCall,
  partials: readonly BufferSlice[],
) {
  const rowKernel: RowKernel = firstPhaseKernels.get(kernel) ?? {
    name: kernel.name,
    inputs: kernel.inputs,
    outputs: kernel.values.map(() => ({ dtype: "f32", per: "column" })),
    scalars: kernel.scalars,
    stages: kernel.values.map((value, output) => ({ kind: "store", output, value })),
  };
  firstPhaseKernels.set(kernel, rowKernel);
  const ofInputs = strides.map(({ row, column }) => [row, column === "unit" ? 1 : 0]);
  return {
    kind: "row" as const,
    kernel: rowKernel,
    iteration: iterateRows([rows, columns], [...ofInputs, ...partials.map(() => [0, 1])], 1),
    operands: [...operands.slice(0, kernel.inputs.length), ...partials],
    scalars,
  };
}

/** A GEMM epilogue that also sums columns of its outputs. GEMM results depend on the algorithm anyway, so another order is allowed. */
function epilogueWithSum(
  runtime: Runtime,
  { problem, epilogue, operands, scalars }: GemmEpilogueCall,
  sum: ColumnCall,
  makePartials: MakePartials,
): Fused | undefined {
  const { inputs, outputs, stages } = epilogue.kernel;
  const [inputSlices, outputSlices] = [operands.slice(0, inputs.length), operands.slice(inputs.length)];
  const isPlain = sum.strides.every(({ row, column }) => row === problem.n && column === "unit");
  if (!isPlain || sum.rows !== problem.m || sum.columns !== problem.n || sum.scalars.length > 0)
    return undefined;
  const summed = sum.operands.slice(0, sum.kernel.inputs.length);
  const read = summed.map((slice) => outputSlices.findIndex((output) => isSameSlice(output, slice)));
  if (read.some((output, input) => outputs[output]?.dtype !== sum.kernel.inputs[input])) return undefined;
  const count = Math.ceil(sum.rows / colsumRows);
  const partials = makePartials(count);
  const kernel: RowKernel = {
    ...epilogue.kernel,
    name: joinNames([epilogue.kernel.name, sum.kernel.name]),
    inputs: [...inputs, ...sum.kernel.inputs],
    outputs: [...outputs, ...partials.map(() => ({ dtype: "f32", per: "column" }) as const)],
    stages: [
      ...stages,
      ...sum.kernel.values.map((value, index) => ({
        ...{ kind: "store" as const, output: outputs.length + index },
        value: withInputsFrom(value, inputs.length),
      })),
    ],
  };
  const forwarded = [...inputs.map((_, input) => epilogue.forwarded?.[input]), ...read];
  const work: GemmEpilogueCall = {
    ...{ kind: "gemm-epilogue", problem, epilogue: { ...epilogue, kernel, forwarded }, scalars },
    operands: [...inputSlices, ...summed, ...outputSlices, ...partials],
  };
  return canFuseEpilogue(runtime, describeGemm(problem), work.epilogue)
    ? { work, count, partials }
    : undefined;
}

/** The same value with its inputs renumbered from `first`. */
function withInputsFrom(value: Expression, first: number): Expression {
  return new Interner().rewrite(value, {
    load: (input, type, at) => term.load(first + input, type, at),
    scalar: (index, type) => term.scalar(index, type),
    reduced: (stage, type) => term.reduced(stage, type),
  });
}

/** The second phase: a column sum over the partials. */
export function secondPhaseOf(
  { kernel, columns, operands }: ColumnCall,
  partials: readonly BufferSlice[],
  rows: number,
): ColumnCall {
  const left: ColumnKernel = secondPhaseKernels.get(kernel) ?? {
    ...kernel,
    inputs: kernel.values.map(() => "f32"),
    scalars: [],
    values: kernel.values.map((_, input) => term.load(input, "f32")),
  };
  secondPhaseKernels.set(kernel, left);
  return {
    kind: "column",
    kernel: left,
    ...{ rows, columns, strides: partials.map(() => ({ row: columns, column: "unit" })) },
    operands: [...partials, ...operands.slice(kernel.inputs.length)],
    scalars: [],
  };
}
