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
import type { ColumnLaunch, Finish, GemmProblem, ProductDtype } from "../../kernels/index.js";
import { type StepPart, stepParts } from "../../ops/index.js";
import type { Storage } from "../../runtime/index.js";
import { type AttentionCall, isWritten, onParts } from "./attention-call.js";

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
export interface Part {
  readonly buffer: Buffer;
  readonly offset: number;
  readonly size: number;
}

/** A row kernel over parts: its inputs, then its outputs. */
export interface RowCall {
  readonly kind: "rows";
  readonly kernel: RowKernel;
  readonly iteration: Iteration;
  readonly operands: readonly Part[];
  readonly scalars: readonly number[];
}

/** Row kernels in one launch: none of them meets what another one writes. */
export interface BesideCall {
  readonly kind: "beside";
  readonly rows: readonly RowCall[];
}

/** A column kernel over parts: its inputs, then its outputs. */
export interface ColumnCall extends Pick<ColumnLaunch, "rows" | "columns" | "strides"> {
  readonly kind: "columns";
  readonly kernel: ColumnKernel;
  readonly operands: readonly Part[];
  readonly scalars: readonly number[];
}

/** Column kernels that run together; in two launches where there is memory for what the first leaves to the second. */
export interface ReductionsCall {
  readonly kind: "reductions";
  readonly columns: readonly ColumnCall[];
  readonly scratch?: Part;
  /** Those that an earlier call has begun: they are only joined here. */
  readonly begun?: BegunCall;
}

/** The first step of column kernels, and where it leaves what a later call joins. */
export interface BegunCall {
  readonly kind: "begun";
  readonly columns: readonly ColumnCall[];
  readonly scratch: Part;
}

/** A kernel of which only its parameters are known: a scan, a scatter. */
export interface LaunchCall {
  readonly kind: "launch";
  readonly kernel: Kernel;
  readonly blocks: number;
  readonly arguments: readonly (Part | number)[];
}

type Lying<T> = Omit<T, "storage"> & { readonly part: Part };

/** A product of matrices, as `gemm` takes it, over parts. */
export interface ProductCall {
  readonly kind: "product";
  readonly problem: Omit<GemmProblem<ProductDtype>, "a" | "b" | "c" | "bias" | "scratch"> & {
    readonly a: Lying<GemmProblem["a"]>;
    readonly b: Lying<GemmProblem["b"]>;
    readonly c: Lying<GemmProblem["c"]>;
    readonly bias?: Part;
    readonly scratch?: Part;
  };
}

/** Products that one launch makes. */
export interface ProductsCall {
  readonly kind: "products";
  readonly problems: readonly ProductCall["problem"][];
}

/** A product with elementwise work on its result: the operands are the finish's, C among them as the product's result. */
export interface FinishedCall {
  readonly kind: "finished";
  readonly problem: ProductCall["problem"];
  readonly finish: Finish;
  readonly operands: readonly Part[];
  readonly scalars: readonly number[];
}

export interface FillCall {
  readonly kind: "fill";
  readonly target: Part;
  readonly byte: number;
}

export interface CopyCall {
  readonly kind: "copy";
  readonly target: Part;
  readonly source: Part;
}

export type Work =
  | RowCall
  | BesideCall
  | ColumnCall
  | ReductionsCall
  | BegunCall
  | ProductCall
  | ProductsCall
  | FinishedCall
  | AttentionCall
  | LaunchCall
  | FillCall
  | CopyCall;

export interface Call {
  /** The op that it is a part of, for messages, times and explain(). */
  readonly op: string;
  readonly work: Work;
  /** The part of the step that it belongs to; "forward" unless it is said. Only for people: nothing depends on it. */
  readonly part?: StepPart | undefined;
  /** Does it make again what an earlier call has made, so that nobody has to hold it? Then it stays behind that one. */
  readonly isRecomputed?: boolean;
  /** Does it run before others that it could be fused with, so that its readers need not wait? Only calls of this kind join it. */
  readonly isApart?: boolean;
}

/** The part that a call belongs to which does the work of several: the latest of theirs. */
export function partOfAll(calls: readonly (Call | undefined)[]): StepPart {
  const latest = calls.map((call) => stepParts.indexOf(call?.part ?? "forward"));
  return stepParts[Math.max(0, ...latest)] ?? "forward";
}

/**
 * How a call meets a part of a buffer. Reads come before writes. What is written may have gaps: bytes of the part that
 * stay as they were.
 */
export interface Access {
  readonly part: Part;
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
    case "rows":
      return accessesOfRows(work);
    case "columns":
      return accessesOfColumns(work);
    case "beside":
    case "reductions":
    case "begun":
    case "products":
      return membersOf(call).flat();
    case "product":
      return accessesOfProduct(work.problem);
    case "finished":
      return accessesOfFinished(work);
    case "attention":
      return Object.entries(work.operands).map(([name, part]) =>
        accessOf(part, isWritten(work, name) ? "out" : "in"),
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
    case "beside":
      return work.rows.map(accessesOfRows);
    case "products":
      return work.problems.map(accessesOfProduct);
    case "begun": {
      const read = work.columns.map((one) => accessesOfColumns(one).filter(({ writes }) => !writes));
      return [...read, [accessOf(work.scratch, "out")]];
    }
    case "reductions": {
      const { columns, scratch, begun } = work;
      const results =
        begun?.columns.map((one) => accessesOfColumns(one).filter(({ writes }) => writes)) ?? [];
      return [
        ...(begun ? [[accessOf(begun.scratch, "in")], ...results] : []),
        ...columns.map(accessesOfColumns),
        ...(scratch ? [[accessOf(scratch, "out")]] : []),
      ];
    }
    default:
      return [];
  }
}

function accessesOfRows(work: RowCall): Access[] {
  const { kernel, iteration } = work;
  const { inputs } = kernel;
  const { readsAtIndex } = factsOf(kernel);
  return work.operands.flatMap((part, index): Access | [] => {
    const dtype = inputs[index];
    if (dtype === undefined) return accessOf(part, "out");
    if (outputReadBack(work, index) !== undefined) return [];
    if (readsAtIndex || isDense(iteration, index)) return accessOf(part, "in");
    const visits = { iteration, operand: index, elementBytes: dtypes[dtype].bytes };
    return { part, reads: true, writes: false, visits };
  });
}

/** Does an iteration come to one element after the other, so that there is nothing between them? */
function isDense({ outer, row }: Iteration, operand: number): boolean {
  return outer.length === 0 && (row.strides[operand] ?? 0) <= 1;
}

function accessesOfColumns({ kernel: { inputs }, operands }: ColumnCall): Access[] {
  return operands.map((part, index) => accessOf(part, index < inputs.length ? "in" : "out"));
}

function accessesOfProduct({ a, b, c, bias, scratch, beta = 0 }: ProductCall["problem"]): Access[] {
  return [
    ...[a.part, b.part, ...(bias ? [bias] : [])].map((part) => accessOf(part, "in")),
    ...(scratch ? [accessOf(scratch, "out")] : []),
    accessOf(c.part, beta === 0 ? "out" : "inout"),
  ];
}

/** C is written where it is kept, and read by nobody: the finish has it, and what it reads back, before that is stored. */
function accessesOfFinished({ problem, finish, operands }: FinishedCall): Access[] {
  const { kernel, product, keepsResult, readBack = [] } = finish;
  const ofProduct = accessesOfProduct(problem).filter(({ writes }) => !writes || keepsResult);
  const own = operands.map((part, index) => accessOf(part, index < kernel.inputs.length ? "in" : "out"));
  const isMet = (_: Access, index: number): boolean => index !== product && readBack[index] === undefined;
  return [...ofProduct, ...own.filter(isMet)].sort((one, other) => Number(one.writes) - Number(other.writes));
}

function accessOf(part: Part, parameter: Parameter): Access {
  return { part, reads: parameter === "in" || parameter === "inout", writes: parameter !== "in" };
}

/** The output in which an input lies and that an earlier stage of the same kernel has stored: nothing from before the call is read. */
export function outputReadBack({ kernel, operands }: RowCall, input: number): number | undefined {
  const own = operands[input];
  const place = operands.findIndex(
    (part, index) => index >= kernel.inputs.length && own !== undefined && isSamePart(part, own),
  );
  const output = place - kernel.inputs.length;
  const { loads, stores } = stagesOf(kernel);
  return place >= 0 && (stores[output] ?? Infinity) < (loads[input] ?? Infinity) ? output : undefined;
}

export function isSamePart(a: Part, b: Part): boolean {
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
export function mapParts(work: Work, to: (part: Part) => Part): Work {
  switch (work.kind) {
    case "rows":
    case "columns":
      return { ...work, operands: work.operands.map(to) };
    case "beside":
      return { kind: "beside", rows: work.rows.map((one) => ({ ...one, operands: one.operands.map(to) })) };
    case "reductions":
      return {
        kind: "reductions",
        columns: mapColumns(work.columns, to),
        ...(work.scratch && { scratch: to(work.scratch) }),
        ...(work.begun && { begun: mapBegun(work.begun, to) }),
      };
    case "begun":
      return mapBegun(work, to);
    case "product":
      return { kind: "product", problem: mapProblem(work.problem, to) };
    case "products":
      return { kind: "products", problems: work.problems.map((problem) => mapProblem(problem, to)) };
    case "finished":
      return { ...work, problem: mapProblem(work.problem, to), operands: work.operands.map(to) };
    case "attention":
      return onParts(work, to);
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

function mapColumns(columns: readonly ColumnCall[], to: (part: Part) => Part): readonly ColumnCall[] {
  return columns.map((one) => ({ ...one, operands: one.operands.map(to) }));
}

function mapBegun({ columns, scratch }: BegunCall, to: (part: Part) => Part): BegunCall {
  return { kind: "begun", columns: mapColumns(columns, to), scratch: to(scratch) };
}

function mapProblem(
  { a, b, c, bias, scratch, ...rest }: ProductCall["problem"],
  to: (part: Part) => Part,
): ProductCall["problem"] {
  return {
    ...rest,
    ...{ a: { ...a, part: to(a.part) }, b: { ...b, part: to(b.part) }, c: { ...c, part: to(c.part) } },
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
  readonly branch: number;
  /** The places in the schedule of earlier calls on other branches that it waits for. */
  readonly after: readonly number[];
  /**
   * Where it may begin before the call before it on its branch has ended: what it fetches then, before it waits. Nothing is written
   * before that, and nothing else read.
   */
  readonly early?: readonly Part[];
}

/** Where step memory lies: each buffer's first byte, from the start of one block of memory. */
export interface Plan {
  readonly bytes: number;
  readonly offsets: ReadonlyMap<Buffer, number>;
}
