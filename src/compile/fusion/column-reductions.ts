/**
 * Column reductions as epilogues: a kernel that produces or reads the rows of a column sum also writes its partials, and a short
 * kernel combines them. So the gradients of a norm's weight and bias are made with that of its input, and memory that only such sums
 * read is not written. In a row kernel a sum keeps its bits; in a GEMM epilogue it is added in another order.
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
  canFuseEpilogue,
  canSumColumns,
  capabilitiesOf,
  colsumRows,
  columnPartialCount,
} from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { beat } from "../../units/index.js";
import { describeGemm } from "../autotune/gemm-desc.js";
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
} from "../program/program.js";
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
    for (const host of hostsOf(program, node, call.work)) {
      const phases = launchPartialsIn(runtime, program, host, node, call);
      if (!phases) continue;
      program.replace(host, phases.host);
      program.replace(node, phases.secondPhase);
      if (node.isBefore(host)) program.moveAfter(node, host);
      break;
    }
  }
}

type SumCall = Call & { readonly work: ColumnCall };

function isSum(call: Call): call is SumCall {
  return call.work.kind === "column" && isF32Sum(call.work);
}

/** Sums of f32: no other column reductions have partials. */
export function isF32Sum({ kernel, rows, columns }: ColumnCall): boolean {
  const { op, values, inputs } = kernel;
  return (
    rows * columns > 0 && op === "add" && inputs.length > 0 && values.every(({ type }) => type === "f32")
  );
}

/** Calls that could host the first phase: those that access the sum's inputs between two writes of them. */
function hostsOf(program: Program, sum: Node, { kernel, operands }: ColumnCall): readonly Node[] {
  const [inputs, outputs] = [operands.slice(0, kernel.inputs.length), operands.slice(kernel.inputs.length)];
  const hosts: Node[] = [];
  let host = program.previous(sum);
  for (let distance = 1; host && distance <= maxFusionDistance; distance++) {
    if (touches(host.accesses, inputs)) hosts.push(host);
    if (touches(host.accesses, inputs, isWriting)) break;
    host = program.previous(host);
  }
  host = program.next(sum);
  for (let distance = 1; host && distance <= maxFusionDistance; distance++) {
    if (touches(host.accesses, inputs, isWriting) || touches(host.accesses, outputs)) break;
    if (touches(host.accesses, inputs)) hosts.push(host);
    host = program.next(host);
  }
  return hosts;
}

/** The host with the first phase of the sum, and the second phase; undefined if the host cannot take it. */
function launchPartialsIn(
  runtime: Runtime,
  program: Program,
  hostNode: Node,
  sumNode: Node,
  sum: SumCall,
): { readonly host: Call; readonly secondPhase: Call } | undefined {
  const { work } = sum;
  const host = hostNode.call;
  const count = host.work.kind === "gemm-epilogue" ? Math.ceil(work.rows / colsumRows) : columnPartialCount;
  const partials = work.kernel.values.map((): BufferSlice => {
    const size = count * work.columns * dtypes.f32.bytes;
    return { buffer: program.makeBuffer(size, `${sum.op} sums`), offset: 0, size };
  });
  const isReadElsewhere = (buffer: Buffer): boolean => isReadByOthers(program, buffer, [hostNode, sumNode]);
  const fused =
    host.work.kind === "gemm-epilogue"
      ? epilogueWithSum(runtime, host, host.work, work, partials)
      : rowsWithSum(runtime, host, { ...sum, work: firstPhaseOf(work, partials) }, isReadElsewhere);
  if (!fused) return undefined;
  return {
    host: { ...fused, op: joinNames([host.op, sum.op]), phase: latestPhase([host, sum]) },
    secondPhase: { ...sum, work: secondPhaseOf(work, partials, count) },
  };
}

/** A row kernel fused with the first phase of a sum, if it has all inputs of the sum. */
function rowsWithSum(
  runtime: Runtime,
  rows: Call,
  firstPhase: Call,
  isReadElsewhere: (buffer: Buffer) => boolean,
): Call | undefined {
  if (rows.work.kind !== "row" || rows.isRematerialized || rows.isHoisted) return undefined;
  const [host, sum] = [fusionNodeOf(rows), fusionNodeOf(firstPhase)];
  if (!host?.reduces || !sum || !hasInputsOf(host, sum)) return undefined;
  const isNeeded = ({ buffer }: BufferSlice): boolean =>
    buffer.storage !== undefined ||
    sum.outputs.some(({ slice }) => slice.buffer === buffer) ||
    isReadElsewhere(buffer);
  const draft = combine([host, sum], isNeeded, capabilitiesOf(runtime), maxNodesWithAccumulators);
  if (!draft || !canSumColumns(runtime.device, draft.kernel, draft.iteration)) return undefined;
  return { ...rows, work: rowsOf(draft) };
}

/** True if the host reads or writes every input that varies along the sum's rows. */
function hasInputsOf(host: FusionNode, sum: FusionNode): boolean {
  const keys = new Set([...host.inputs, ...host.outputs].map(({ key }) => key));
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
  call: Call,
  { problem, epilogue, operands, scalars }: GemmEpilogueCall,
  sum: ColumnCall,
  partials: readonly BufferSlice[],
): Call | undefined {
  const { inputs, outputs, stages } = epilogue.kernel;
  const [inputSlices, outputSlices] = [operands.slice(0, inputs.length), operands.slice(inputs.length)];
  const isPlain = sum.strides.every(({ row, column }) => row === problem.n && column === "unit");
  if (!isPlain || sum.rows !== problem.m || sum.columns !== problem.n || sum.scalars.length > 0)
    return undefined;
  const summed = sum.operands.slice(0, sum.kernel.inputs.length);
  const read = summed.map((slice) => outputSlices.findIndex((output) => isSameSlice(output, slice)));
  if (read.some((output, input) => outputs[output]?.dtype !== sum.kernel.inputs[input])) return undefined;
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
  return canFuseEpilogue(runtime, describeGemm(problem), work.epilogue) ? { ...call, work } : undefined;
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
