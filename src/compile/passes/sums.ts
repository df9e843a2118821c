/**
 * Adds up columns where their rows are at hand: a kernel of rows that has made or read what a sum is of begins that sum, and what it
 * leaves of each column takes a short kernel to add up. The gradients of a norm's gain and shift are made so, beside that of its
 * input, and memory that only such sums read is not written any more. Each sum has the bits that it has alone.
 */

import {
  type ColumnKernel,
  canSumColumns,
  dtypes,
  type Expression,
  gemmFinishes,
  iterateRows,
  type RowKernel,
  sumBlocks,
  summedRows,
  term,
} from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { combine, rowsOf } from "../fuse/combine.js";
import { mostPartsWithSums } from "../fuse/cost.js";
import { Interner } from "../fuse/interner.js";
import { joinNames } from "../fuse/kernel-memo.js";
import { type Member, memberOf } from "../fuse/member.js";
import { areApart, extentOf } from "../fuse/memory.js";
import { outlineOf } from "../product-times.js";
import {
  type Access,
  accessesOf,
  type Buffer,
  type Call,
  type ColumnCall,
  type FinishedCall,
  isSamePart,
  type Part,
  partOfAll,
} from "../program.js";
import { bufferMaker } from "../uses.js";

export function sumWithRows(runtime: Runtime, calls: readonly Call[]): readonly Call[] {
  if (runtime.device.kind !== "cuda") return calls;
  const makeBuffer = bufferMaker(calls);
  const made = [...calls];
  for (const call of calls) {
    const { work } = call;
    if (work.kind !== "columns" || !isSum(work)) continue;
    const place = made.indexOf(call);
    for (const at of hostsOf(work, place, made)) {
      const begun = beginAt(runtime, made, at, { ...call, work }, makeBuffer);
      if (!begun) continue;
      made[at] = begun.host;
      made.splice(place, 1);
      // Behind its beginning, and not before it was made so far.
      made.splice(at < place ? place : at, 0, begun.left);
      break;
    }
  }
  return made;
}

/** Where a sum could begin: in calls that have met its rows since these were last written, or will before they are written again. */
function hostsOf(sum: ColumnCall, place: number, calls: readonly Call[]): readonly number[] {
  const inputs = sum.operands.slice(0, sum.kernel.inputs.length);
  const outputs = sum.operands.slice(sum.kernel.inputs.length);
  const hosts: number[] = [];
  for (let at = place - 1; at >= 0; at--) {
    const call = calls[at];
    if (!call) break;
    if (meets(call, inputs)) hosts.push(at);
    if (meets(call, inputs, isWriting)) break;
  }
  for (let at = place + 1; at < calls.length; at++) {
    const call = calls[at];
    if (!call || meets(call, inputs, isWriting) || meets(call, outputs)) break;
    if (meets(call, inputs)) hosts.push(at);
  }
  return hosts;
}

const isWriting = ({ writes }: Access): boolean => writes;

/** Does a call touch some of these, in a way? */
function meets(
  call: Call,
  parts: readonly Part[],
  isMeant: (access: Access) => boolean = () => true,
): boolean {
  const extents = parts.map(extentOf);
  return accessesOf(call).some(
    (access) => isMeant(access) && extents.some((extent) => !areApart(extent, extentOf(access.part))),
  );
}

/** The call that a sum begins in, and what is left of the sum; nothing where it can't begin there. */
function beginAt(
  runtime: Runtime,
  calls: readonly Call[],
  at: number,
  sum: Call & { readonly work: ColumnCall },
  makeBuffer: ReturnType<typeof bufferMaker>,
): { readonly host: Call; readonly left: Call } | undefined {
  const host = calls[at];
  if (!host) return undefined;
  const { work } = sum;
  const count = host.work.kind === "finished" ? Math.ceil(work.rows / summedRows) : sumBlocks;
  const partials = work.kernel.values.map((): Part => {
    const size = count * work.columns * dtypes.f32.bytes;
    return { buffer: makeBuffer(size, `${sum.op} sums`), offset: 0, size };
  });
  const isReadByOthers = (buffer: Buffer): boolean =>
    calls.some((other) => other !== host && other.work !== work && reads(other, buffer));
  const joined =
    host.work.kind === "finished"
      ? finishedWith(runtime, host, host.work, work, partials)
      : joinedOf(runtime, host, { ...sum, work: begunOf(work, partials) }, isReadByOthers);
  if (!joined) return undefined;
  return {
    host: { ...joined, op: joinNames([host.op, sum.op]), part: partOfAll([host, sum]) },
    left: { ...sum, work: leftOf(work, partials, count) },
  };
}

/** Sums of floats: those of other kinds are not made in kernels of rows. */
function isSum({ kernel, rows, columns }: ColumnCall): boolean {
  const { op, values, inputs } = kernel;
  return (
    op === "add" && rows * columns > 0 && inputs.length > 0 && values.every(({ type }) => type === "f32")
  );
}

const reads = (call: Call, buffer: Buffer): boolean =>
  accessesOf(call).some((access) => access.reads && access.part.buffer === buffer);

/** A kernel of rows and the beginning of a sum as one, where the first has all at hand that the second reads. */
function joinedOf(
  runtime: Runtime,
  rows: Call,
  begun: Call,
  isReadByOthers: (buffer: Buffer) => boolean,
): Call | undefined {
  if (rows.work.kind !== "rows" || rows.isRecomputed || rows.isApart) return undefined;
  const [host, sum] = [memberOf(rows), memberOf(begun)];
  if (!host?.reduces || !sum || !hasAtHand(host, sum)) return undefined;
  const isNeeded = ({ buffer }: Part): boolean =>
    buffer.storage !== undefined ||
    sum.outputs.some(({ part }) => part.buffer === buffer) ||
    isReadByOthers(buffer);
  const draft = combine([host, sum], isNeeded, "cuda", mostPartsWithSums);
  if (!draft || !canSumColumns(runtime.device, draft.kernel, draft.iteration)) return undefined;
  return { ...rows, work: rowsOf(draft) };
}

/** Is all that moves along a sum's rows read or made by the host? */
function hasAtHand(host: Member, sum: Member): boolean {
  const keys = new Set([...host.inputs, ...host.outputs].map(({ key }) => key));
  return sum.inputs.every(({ key, steps: [first] }) => keys.has(key) || first?.stride === 0);
}

const begunKernels = new WeakMap<ColumnKernel, RowKernel>();
const leftKernels = new WeakMap<ColumnKernel, ColumnKernel>();

/** The sum over all rows but the last joins, as a kernel of rows. */
function begunOf(
  { kernel, rows, columns, strides, operands, scalars }: ColumnCall,
  partials: readonly Part[],
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
    kind: "rows" as const,
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
  { problem, finish, operands, scalars }: FinishedCall,
  sum: ColumnCall,
  partials: readonly Part[],
): Call | undefined {
  const { inputs, outputs, stages } = finish.kernel;
  const [own, made] = [operands.slice(0, inputs.length), operands.slice(inputs.length)];
  const isPlain = sum.strides.every(({ row, column }) => row === problem.n && column === "unit");
  if (!isPlain || sum.rows !== problem.m || sum.columns !== problem.n || sum.scalars.length > 0)
    return undefined;
  const summed = sum.operands.slice(0, sum.kernel.inputs.length);
  const read = summed.map((part) => made.findIndex((output) => isSamePart(output, part)));
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
  const readBack = [...inputs.map((_, input) => finish.readBack?.[input]), ...read];
  const work: FinishedCall = {
    ...{ kind: "finished", problem, finish: { ...finish, kernel, readBack }, scalars },
    operands: [...own, ...summed, ...made, ...partials],
  };
  return gemmFinishes(runtime, outlineOf(problem), work.finish) ? { ...call, work } : undefined;
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
  partials: readonly Part[],
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
    kind: "columns",
    kernel: left,
    ...{ rows, columns, strides: partials.map(() => ({ row: columns, column: "unit" })) },
    operands: [...partials, ...operands.slice(kernel.inputs.length)],
    scalars: [],
  };
}
