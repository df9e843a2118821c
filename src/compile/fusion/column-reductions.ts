/**
 * Adds up columns where their rows are at hand: a kernel of rows that has made or read what a sum is of begins that sum, and what it
 * leaves of each column takes a short kernel to add up. The gradients of a norm's gain and shift are made so, beside that of its
 * input, and memory that only such sums read is not written any more. A sum that begins so has the bits that it has alone; one that
 * begins in a product's kernel is added up in another order.
 */

import {
  type ColumnKernel,
  dtypes,
  type Expression,
  iterateRows,
  type RowKernel,
  term,
} from "../../ir/index.js";
import { canFuseEpilogue, canSumColumns, colsumRows, columnPartialCount } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { beat } from "../../units/index.js";
import { describeGemm } from "../autotune/gemm-desc.js";
import { maxFusionDistance } from "../program/dependency-graph.js";
import {
  accessesOf,
  type Buffer,
  type BufferSlice,
  type Call,
  type ColumnCall,
  type GemmEpilogueCall,
  isSameSlice,
  latestPhase,
} from "../program/program.js";
import { bufferMaker, isWriting, meets } from "../program/uses.js";
import { combine, rowsOf } from "./vertical/combine.js";
import { maxNodesWithAccumulators } from "./vertical/cost.js";
import { type FusionNode, fusionNodeOf } from "./vertical/fusion-node.js";
import { Interner } from "./vertical/interner.js";
import { joinNames } from "./vertical/kernel-memo.js";

export function fuseColumnReductions(runtime: Runtime, calls: readonly Call[]): readonly Call[] {
  if (runtime.device.kind !== "cuda") return calls;
  const makeBuffer = bufferMaker(calls);
  const readers = new Readers(calls);
  const made = [...calls];
  for (const sum of calls) {
    beat();
    if (!isSum(sum)) continue;
    const place = made.indexOf(sum);
    for (const { at, host } of hostsOf(sum.work, place, made)) {
      const isReadByOthers = (buffer: Buffer): boolean => readers.readBeside(buffer, [host, sum]);
      const begun = launchPartialsIn(runtime, host, sum, makeBuffer, isReadByOthers);
      if (!begun) continue;
      readers.replace([host, sum], [begun.host, begun.left]);
      made[at] = begun.host;
      made.splice(place, 1);
      // What is left stands where the sum did, or behind the call that it begins in, if that stands behind it.
      made.splice(Math.max(at, place), 0, begun.left);
      break;
    }
  }
  return made;
}

/** Who reads each buffer, while calls become others. */
class Readers {
  readonly #readers = new Map<Buffer, Set<Call>>();

  constructor(calls: readonly Call[]) {
    this.replace([], calls);
  }

  replace(gone: readonly Call[], come: readonly Call[]): void {
    for (const call of gone) for (const buffer of readBy(call)) this.#readers.get(buffer)?.delete(call);
    for (const call of come) {
      for (const buffer of readBy(call)) {
        const known = this.#readers.get(buffer);
        if (known) known.add(call);
        else this.#readers.set(buffer, new Set([call]));
      }
    }
  }

  /** Is a buffer read by others than these? */
  readBeside(buffer: Buffer, calls: readonly Call[]): boolean {
    return [...(this.#readers.get(buffer) ?? [])].some((call) => !calls.includes(call));
  }
}

const readBy = (call: Call): readonly Buffer[] =>
  accessesOf(call).flatMap(({ slice, reads }) => (reads ? [slice.buffer] : []));

type SumCall = Call & { readonly work: ColumnCall };

/** Sums of floats: those of other kinds are not made in kernels of rows. */
function isSum(call: Call): call is SumCall {
  const { work } = call;
  if (work.kind !== "column" || work.rows * work.columns === 0) return false;
  const { op, values, inputs } = work.kernel;
  return op === "add" && inputs.length > 0 && values.every(({ type }) => type === "f32");
}

interface Host {
  readonly at: number;
  readonly host: Call;
}

/** Where a sum could begin: in calls that have met its rows since these were last written, or will before they are written again. */
function hostsOf({ kernel, operands }: ColumnCall, place: number, calls: readonly Call[]): readonly Host[] {
  const [inputs, outputs] = [operands.slice(0, kernel.inputs.length), operands.slice(kernel.inputs.length)];
  const hosts: Host[] = [];
  const from = Math.max(0, place - maxFusionDistance);
  for (const [index, host] of [...calls.slice(from, place).entries()].reverse()) {
    if (meets(host, inputs)) hosts.push({ at: from + index, host });
    if (meets(host, inputs, isWriting)) break;
  }
  for (const [index, host] of calls.slice(place + 1, place + 1 + maxFusionDistance).entries()) {
    if (meets(host, inputs, isWriting) || meets(host, outputs)) break;
    if (meets(host, inputs)) hosts.push({ at: place + 1 + index, host });
  }
  return hosts;
}

/** The call that a sum begins in, and what is left of the sum; nothing where it can't begin there. */
function launchPartialsIn(
  runtime: Runtime,
  host: Call,
  sum: SumCall,
  makeBuffer: ReturnType<typeof bufferMaker>,
  isReadByOthers: (buffer: Buffer) => boolean,
): { readonly host: Call; readonly left: Call } | undefined {
  const { work } = sum;
  const count = host.work.kind === "gemm-epilogue" ? Math.ceil(work.rows / colsumRows) : columnPartialCount;
  const partials = work.kernel.values.map((): BufferSlice => {
    const size = count * work.columns * dtypes.f32.bytes;
    return { buffer: makeBuffer(size, `${sum.op} sums`), offset: 0, size };
  });
  const joined =
    host.work.kind === "gemm-epilogue"
      ? finishedWith(runtime, host, host.work, work, partials)
      : joinedOf(runtime, host, { ...sum, work: partialsIn(work, partials) }, isReadByOthers);
  if (!joined) return undefined;
  return {
    host: { ...joined, op: joinNames([host.op, sum.op]), phase: latestPhase([host, sum]) },
    left: { ...sum, work: leftOf(work, partials, count) },
  };
}

/** A kernel of rows and the beginning of a sum as one, where the first has all at hand that the second reads. */
function joinedOf(
  runtime: Runtime,
  rows: Call,
  begun: Call,
  isReadByOthers: (buffer: Buffer) => boolean,
): Call | undefined {
  if (rows.work.kind !== "row" || rows.isRematerialized || rows.isHoisted) return undefined;
  const [host, sum] = [fusionNodeOf(rows), fusionNodeOf(begun)];
  if (!host?.reduces || !sum || !hasAtHand(host, sum)) return undefined;
  const isNeeded = ({ buffer }: BufferSlice): boolean =>
    buffer.storage !== undefined ||
    sum.outputs.some(({ slice }) => slice.buffer === buffer) ||
    isReadByOthers(buffer);
  const draft = combine([host, sum], isNeeded, "cuda", maxNodesWithAccumulators);
  if (!draft || !canSumColumns(runtime.device, draft.kernel, draft.iteration)) return undefined;
  return { ...rows, work: rowsOf(draft) };
}

/** Is all that moves along a sum's rows read or made by the host? */
function hasAtHand(host: FusionNode, sum: FusionNode): boolean {
  const keys = new Set([...host.inputs, ...host.outputs].map(({ key }) => key));
  return sum.inputs.every(({ key, steps: [first] }) => keys.has(key) || first?.stride === 0);
}

const begunKernels = new WeakMap<ColumnKernel, RowKernel>();
const leftKernels = new WeakMap<ColumnKernel, ColumnKernel>();

/** The sum over all rows but the last joins, as a kernel of rows. */
function partialsIn(
  { kernel, rows, columns, strides, operands, scalars }: ColumnCall,
  partials: readonly BufferSlice[],
) {
  const begun: RowKernel = begunKernels.get(kernel) ?? {
    name: kernel.name,
    inputs: kernel.inputs,
    outputs: kernel.values.map(() => ({ dtype: "f32", per: "column" })),
    scalars: kernel.scalars,
    stages: kernel.values.map((value, output) => ({ kind: "store", output, value })),
  };
  begunKernels.set(kernel, begun);
  const ofInputs = strides.map(({ row, column }) => [row, column === "unit" ? 1 : 0]);
  return {
    kind: "row" as const,
    kernel: begun,
    iteration: iterateRows([rows, columns], [...ofInputs, ...partials.map(() => [0, 1])], 1),
    operands: [...operands.slice(0, kernel.inputs.length), ...partials],
    scalars,
  };
}

/** A product that adds up columns of what its finish makes. Sums of products have no bits that a column kernel would have to have. */
function finishedWith(
  runtime: Runtime,
  call: Call,
  { problem, epilogue: finish, operands, scalars }: GemmEpilogueCall,
  sum: ColumnCall,
  partials: readonly BufferSlice[],
): Call | undefined {
  const { inputs, outputs, stages } = finish.kernel;
  const [own, made] = [operands.slice(0, inputs.length), operands.slice(inputs.length)];
  const isPlain = sum.strides.every(({ row, column }) => row === problem.n && column === "unit");
  if (!isPlain || sum.rows !== problem.m || sum.columns !== problem.n || sum.scalars.length > 0)
    return undefined;
  const summed = sum.operands.slice(0, sum.kernel.inputs.length);
  const read = summed.map((slice) => made.findIndex((output) => isSameSlice(output, slice)));
  if (read.some((output, input) => outputs[output]?.dtype !== sum.kernel.inputs[input])) return undefined;
  const kernel: RowKernel = {
    ...finish.kernel,
    name: joinNames([finish.kernel.name, sum.kernel.name]),
    inputs: [...inputs, ...sum.kernel.inputs],
    outputs: [...outputs, ...partials.map(() => ({ dtype: "f32", per: "column" }) as const)],
    stages: [
      ...stages,
      ...sum.kernel.values.map((value, place) => ({
        ...{ kind: "store" as const, output: outputs.length + place },
        value: withInputsFrom(value, inputs.length),
      })),
    ],
  };
  const forwarded = [...inputs.map((_, input) => finish.forwarded?.[input]), ...read];
  const work: GemmEpilogueCall = {
    ...{ kind: "gemm-epilogue", problem, epilogue: { ...finish, kernel, forwarded }, scalars },
    operands: [...own, ...summed, ...made, ...partials],
  };
  return canFuseEpilogue(runtime, describeGemm(problem), work.epilogue) ? { ...call, work } : undefined;
}

/** The same value of inputs that stand behind others. */
function withInputsFrom(value: Expression, first: number): Expression {
  return new Interner().rewrite(value, {
    load: (input, type, at) => term.load(first + input, type, at),
    scalar: (index, type) => term.scalar(index, type),
    reduced: (stage, type) => term.reduced(stage, type),
  });
}

/** What is left to do: the partial sums are the rows. */
function leftOf(
  { kernel, columns, operands }: ColumnCall,
  partials: readonly BufferSlice[],
  rows: number,
): ColumnCall {
  const left: ColumnKernel = leftKernels.get(kernel) ?? {
    ...kernel,
    inputs: kernel.values.map(() => "f32"),
    scalars: [],
    values: kernel.values.map((_, input) => term.load(input, "f32")),
  };
  leftKernels.set(kernel, left);
  return {
    kind: "column",
    kernel: left,
    ...{ rows, columns, strides: partials.map(() => ({ row: columns, column: "unit" })) },
    operands: [...partials, ...operands.slice(kernel.inputs.length)],
    scalars: [],
  };
}
