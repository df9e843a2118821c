/**
 * A program: what a traced step comes to below its ops. Calls of kernels over buffers, in the order in which the step made
 * them; nothing in it has an address yet, except what is persistent. Passes turn one program into another.
 */

import type { Kernel, Parameter } from "../../driver/index.js";
import {
  type ColumnKernel,
  dtypes,
  factsOf,
  type Iteration,
  loadsOf,
  type RowKernel,
} from "../../ir/index.js";
import type { ColumnLaunch, Epilogue, GemmInputDtype, GemmProblem } from "../../kernels/index.js";
import { type StepPhase, stepPhases } from "../../records/index.js";
import type { Storage } from "../../runtime/index.js";
import { type AttentionCall, isWritten, mapAttentionSlices } from "./attention-call.js";

/** Bytes that belong together: what one op has made, its scratch memory, or something persistent. */
export interface Buffer {
  readonly id: number;
  readonly bytes: number;
  /** The op that made it, or the tensor's name. */
  readonly label: string;
  /** Where it lies, if it is persistent; step memory gets its place from the plan. */
  readonly storage?: Storage;
}

/** Some of a buffer's bytes. */
export interface BufferSlice {
  readonly buffer: Buffer;
  readonly offset: number;
  readonly size: number;
}

/** A row kernel over parts: its inputs, then its outputs. */
export interface RowCall {
  readonly kind: "row";
  readonly kernel: RowKernel;
  readonly iteration: Iteration;
  readonly operands: readonly BufferSlice[];
  readonly scalars: readonly number[];
}

/** Row kernels in one launch: none of them meets what another one writes. */
export interface ComboCall {
  readonly kind: "combo";
  readonly rows: readonly RowCall[];
}

/** A column kernel over parts: its inputs, then its outputs. */
export interface ColumnCall extends Pick<ColumnLaunch, "rows" | "columns" | "strides"> {
  readonly kind: "column";
  readonly kernel: ColumnKernel;
  readonly operands: readonly BufferSlice[];
  readonly scalars: readonly number[];
}

/** Column kernels that run together; in two launches where there is memory for what the first leaves to the second. */
export interface GroupedReduceCall {
  readonly kind: "grouped-reduce";
  readonly columns: readonly ColumnCall[];
  readonly scratch?: BufferSlice;
  /** Those that an earlier call has begun: they are only joined here. */
  readonly begun?: PartialReduceCall;
}

/** The first step of column kernels, and where it leaves what a later call joins. */
export interface PartialReduceCall {
  readonly kind: "partial-reduce";
  readonly columns: readonly ColumnCall[];
  readonly scratch: BufferSlice;
}

/** A kernel of which only its parameters are known: a scan, a scatter. */
export interface LaunchCall {
  readonly kind: "launch";
  readonly kernel: Kernel;
  readonly blocks: number;
  readonly arguments: readonly (BufferSlice | number)[];
}

type Lying<T> = Omit<T, "storage"> & { readonly slice: BufferSlice };

/** A product of matrices, as `gemm` takes it, over parts. */
export interface GemmCall {
  readonly kind: "gemm";
  readonly problem: Omit<GemmProblem<GemmInputDtype>, "a" | "b" | "c" | "bias" | "scratch"> & {
    readonly a: Lying<GemmProblem["a"]>;
    readonly b: Lying<GemmProblem["b"]>;
    readonly c: Lying<GemmProblem["c"]>;
    readonly bias?: BufferSlice;
    readonly scratch?: BufferSlice;
  };
}

/** Products that one launch makes. */
export interface GroupedGemmCall {
  readonly kind: "grouped-gemm";
  readonly problems: readonly GemmCall["problem"][];
}

/** A product with elementwise work on its result: the operands are the finish's, C among them as the product's result. */
export interface GemmEpilogueCall {
  readonly kind: "gemm-epilogue";
  readonly problem: GemmCall["problem"];
  readonly finish: Epilogue;
  readonly operands: readonly BufferSlice[];
  readonly scalars: readonly number[];
}

export interface FillCall {
  readonly kind: "fill";
  readonly target: BufferSlice;
  readonly byte: number;
}

export interface CopyCall {
  readonly kind: "copy";
  readonly target: BufferSlice;
  readonly source: BufferSlice;
}

export type Work =
  | RowCall
  | ComboCall
  | ColumnCall
  | GroupedReduceCall
  | PartialReduceCall
  | GemmCall
  | GroupedGemmCall
  | GemmEpilogueCall
  | AttentionCall
  | LaunchCall
  | FillCall
  | CopyCall;

export interface Call {
  /** The op that it is a part of, for messages, times and explain(). */
  readonly op: string;
  readonly work: Work;
  /** The part of the step that it belongs to; "forward" unless it is said. Only for people: nothing depends on it. */
  readonly phase?: StepPhase | undefined;
  /** Does it make again what an earlier call has made, so that nobody has to hold it? Then it stays behind that one. */
  readonly isRematerialized?: boolean;
  /** Does it run before others that it could be fused with, so that its readers need not wait? Only calls of this kind join it. */
  readonly isHoisted?: boolean;
}

/** The part that a call belongs to which does the work of several: the latest of theirs. */
export function latestPhase(calls: readonly (Call | undefined)[]): StepPhase {
  const latest = calls.map((call) => stepPhases.indexOf(call?.phase ?? "forward"));
  return stepPhases[Math.max(0, ...latest)] ?? "forward";
}

/**
 * How a call meets a part of a buffer. Reads come before writes. What is written may have gaps: bytes of the part that
 * stay as they were.
 */
export interface Access {
  readonly slice: BufferSlice;
  readonly reads: boolean;
  readonly writes: boolean;
  /** Which bytes of the part are read, where it is known that some may not be; otherwise all may be. */
  readonly visits?: Visits;
}

/** The elements of an operand that an iteration comes to; the first one lies at the beginning of the operand's part. */
export interface Visits {
  readonly iteration: Iteration;
  readonly operand: number;
  readonly elementBytes: number;
}

/** What a call touches: each operand by itself, also where several are the same. */
export function accessesOf(call: Call): readonly Access[] {
  const { work } = call;
  switch (work.kind) {
    case "row":
      return rowAccesses(work);
    case "column":
      return columnAccesses(work);
    case "combo":
    case "grouped-reduce":
    case "partial-reduce":
    case "grouped-gemm":
      return membersOf(call).flat();
    case "gemm":
      return gemmAccesses(work.problem);
    case "gemm-epilogue":
      return gemmEpilogueAccesses(work);
    case "attention":
      return Object.entries(work.operands).map(([name, slice]) =>
        accessOf(slice, isWritten(work, name) ? "out" : "in"),
      );
    case "launch":
      return work.arguments.flatMap((one, index) =>
        typeof one === "number" ? [] : [accessOf(one, work.kernel.parameters[index] ?? "inout")],
      );
    case "fill":
      return [accessOf(work.target, "out")];
    case "copy":
      return [accessOf(work.source, "in"), accessOf(work.target, "out")];
  }
}

/**
 * What a launch runs without an order, each with what it touches; nothing where there is an order to all of it. Scratch memory is a
 * member of its own: all others pass on through it what is theirs.
 */
export function membersOf({ work }: Call): readonly (readonly Access[])[] {
  switch (work.kind) {
    case "combo":
      return work.rows.map(rowAccesses);
    case "grouped-gemm":
      return work.problems.map(gemmAccesses);
    case "partial-reduce": {
      const read = work.columns.map((one) => columnAccesses(one).filter(({ writes }) => !writes));
      return [...read, [accessOf(work.scratch, "out")]];
    }
    case "grouped-reduce": {
      const { columns, scratch, begun } = work;
      const results = begun?.columns.map((one) => columnAccesses(one).filter(({ writes }) => writes)) ?? [];
      return [
        ...(begun ? [[accessOf(begun.scratch, "in")], ...results] : []),
        ...columns.map(columnAccesses),
        ...(scratch ? [[accessOf(scratch, "out")]] : []),
      ];
    }
    default:
      return [];
  }
}

function rowAccesses(work: RowCall): Access[] {
  const { kernel, iteration } = work;
  const { inputs } = kernel;
  const { readsAtIndex } = factsOf(kernel);
  return work.operands.flatMap((slice, index): Access | [] => {
    const dtype = inputs[index];
    if (dtype === undefined) return accessOf(slice, "out");
    if (forwardedOutput(work, index) !== undefined) return [];
    if (readsAtIndex || isDense(iteration, index)) return accessOf(slice, "in");
    const visits = { iteration, operand: index, elementBytes: dtypes[dtype].bytes };
    return { slice, reads: true, writes: false, visits };
  });
}

/** Does an iteration come to one element after the other, so that there is nothing between them? */
function isDense({ outer, row }: Iteration, operand: number): boolean {
  return outer.length === 0 && (row.strides[operand] ?? 0) <= 1;
}

function columnAccesses({ kernel: { inputs }, operands }: ColumnCall): Access[] {
  return operands.map((slice, index) => accessOf(slice, index < inputs.length ? "in" : "out"));
}

function gemmAccesses({ a, b, c, bias, scratch, beta = 0 }: GemmCall["problem"]): Access[] {
  return [
    ...[a.slice, b.slice, ...(bias ? [bias] : [])].map((slice) => accessOf(slice, "in")),
    ...(scratch ? [accessOf(scratch, "out")] : []),
    accessOf(c.slice, beta === 0 ? "out" : "inout"),
  ];
}

/** C is written where it is kept, and read by nobody: the finish has it, and what it reads back, before that is stored. */
function gemmEpilogueAccesses({ problem, finish, operands }: GemmEpilogueCall): Access[] {
  const { kernel, product, storesC, forwarded = [] } = finish;
  const ofProduct = gemmAccesses(problem).filter(({ writes }) => !writes || storesC);
  const own = operands.map((slice, index) => accessOf(slice, index < kernel.inputs.length ? "in" : "out"));
  const isMet = (_: Access, index: number): boolean => index !== product && forwarded[index] === undefined;
  return [...ofProduct, ...own.filter(isMet)].sort((one, other) => Number(one.writes) - Number(other.writes));
}

function accessOf(slice: BufferSlice, parameter: Parameter): Access {
  return { slice, reads: parameter === "in" || parameter === "inout", writes: parameter !== "in" };
}

/** The output in which an input lies and that an earlier stage of the same kernel has stored: nothing from before the call is read. */
export function forwardedOutput({ kernel, operands }: RowCall, input: number): number | undefined {
  const own = operands[input];
  const place = operands.findIndex(
    (slice, index) => index >= kernel.inputs.length && own !== undefined && isSameSlice(slice, own),
  );
  const output = place - kernel.inputs.length;
  const { loads, stores } = stagesOf(kernel);
  return place >= 0 && (stores[output] ?? Infinity) < (loads[input] ?? Infinity) ? output : undefined;
}

export function isSameSlice(a: BufferSlice, b: BufferSlice): boolean {
  return a.buffer === b.buffer && a.offset === b.offset && a.size === b.size;
}

interface KernelStages {
  /** In which stage each input is first loaded, and each output stored. */
  readonly loads: readonly number[];
  readonly stores: readonly number[];
}

const knownStages = new WeakMap<RowKernel, KernelStages>();

function stagesOf(kernel: RowKernel): KernelStages {
  const known = knownStages.get(kernel);
  if (known) return known;
  const [loads, stores]: [number[], number[]] = [[], []];
  for (const [place, stage] of kernel.stages.entries()) {
    for (const { input } of loadsOf(stage.value)) loads[input] ??= place;
    if (stage.kind === "store") stores[stage.output] ??= place;
  }
  knownStages.set(kernel, { loads, stores });
  return { loads, stores };
}

/** The same work on other parts. */
export function mapSlices(work: Work, to: (slice: BufferSlice) => BufferSlice): Work {
  switch (work.kind) {
    case "row":
    case "column":
      return { ...work, operands: work.operands.map(to) };
    case "combo":
      return { kind: "combo", rows: work.rows.map((one) => ({ ...one, operands: one.operands.map(to) })) };
    case "grouped-reduce":
      return {
        kind: "grouped-reduce",
        columns: mapColumnSlices(work.columns, to),
        ...(work.scratch && { scratch: to(work.scratch) }),
        ...(work.begun && { begun: mapPartialReduce(work.begun, to) }),
      };
    case "partial-reduce":
      return mapPartialReduce(work, to);
    case "gemm":
      return { kind: "gemm", problem: mapGemmSlices(work.problem, to) };
    case "grouped-gemm":
      return { kind: "grouped-gemm", problems: work.problems.map((problem) => mapGemmSlices(problem, to)) };
    case "gemm-epilogue":
      return { ...work, problem: mapGemmSlices(work.problem, to), operands: work.operands.map(to) };
    case "attention":
      return mapAttentionSlices(work, to);
    case "launch":
      return {
        ...work,
        arguments: work.arguments.map((one) => (typeof one === "number" ? one : to(one))),
      };
    case "fill":
      return { ...work, target: to(work.target) };
    case "copy":
      return { kind: "copy", target: to(work.target), source: to(work.source) };
  }
}

function mapColumnSlices(
  columns: readonly ColumnCall[],
  to: (slice: BufferSlice) => BufferSlice,
): readonly ColumnCall[] {
  return columns.map((one) => ({ ...one, operands: one.operands.map(to) }));
}

function mapPartialReduce(
  { columns, scratch }: PartialReduceCall,
  to: (slice: BufferSlice) => BufferSlice,
): PartialReduceCall {
  return { kind: "partial-reduce", columns: mapColumnSlices(columns, to), scratch: to(scratch) };
}

function mapGemmSlices(
  { a, b, c, bias, scratch, ...rest }: GemmCall["problem"],
  to: (slice: BufferSlice) => BufferSlice,
): GemmCall["problem"] {
  return {
    ...rest,
    ...{ a: { ...a, slice: to(a.slice) }, b: { ...b, slice: to(b.slice) }, c: { ...c, slice: to(c.slice) } },
    ...(bias && { bias: to(bias) }),
    ...(scratch && { scratch: to(scratch) }),
  };
}

/** Is it sent as launches, and not as a fill or a copy? */
export function isLaunched({ work }: Call): boolean {
  return work.kind !== "fill" && work.kind !== "copy";
}

/** When a program's calls run: their order, and which of them side by side. */
export interface Schedule {
  readonly calls: readonly ScheduledCall[];
  /** Do calls of the main branch begin before others, where there is not room for all? */
  readonly isMainFirst?: boolean;
}

export interface ScheduledCall {
  readonly call: Call;
  /** Calls of one branch run in their order; 0 is the main one, where every other begins and ends. */
  readonly stream: number;
  /** The places in the schedule of earlier calls on other branches that it waits for. */
  readonly after: readonly number[];
  /**
   * Where it may begin before the call before it on its branch has ended: what it fetches then, before it waits. Nothing is written
   * before that, and nothing else read.
   */
  readonly prefetches?: readonly BufferSlice[];
}

/** Where step memory lies: each buffer's first byte, from the start of one block of memory. */
export interface Plan {
  readonly bytes: number;
  readonly offsets: ReadonlyMap<Buffer, number>;
}
