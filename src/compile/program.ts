/**
 * A program: what a traced step comes to below its ops. Calls of kernels over buffers, in the order in which the step made
 * them; nothing in it has an address yet, except what is persistent. Passes turn one program into another.
 */

import type { Kernel } from "../driver/index.js";
import {
  type ColumnKernel,
  type ColumnLaunch,
  dtypes,
  type GemmProblem,
  type Iteration,
  type ProductDtype,
  type RowKernel,
} from "../kernels/index.js";
import type { Storage } from "../runtime/index.js";

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

/** A column kernel over parts: its inputs, then its output. */
export interface ColumnCall extends Pick<ColumnLaunch, "rows" | "columns" | "strides"> {
  readonly kind: "columns";
  readonly kernel: ColumnKernel;
  readonly operands: readonly Part[];
  readonly scalars: readonly number[];
}

/** A kernel of which only its parameters are known: a product, attention, a scan. */
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

export type Work = RowCall | ColumnCall | ProductCall | LaunchCall | FillCall | CopyCall;

export interface Call {
  /** The op that it is a part of, for messages, times and explain(). */
  readonly op: string;
  readonly work: Work;
}

/** How a call meets a part of a buffer. Reads come before writes. */
export interface Access {
  readonly part: Part;
  readonly reads: boolean;
  readonly writes: boolean;
}

/** What a call touches: each operand by itself, also where several are the same. */
export function accessesOf({ work }: Call): readonly Access[] {
  switch (work.kind) {
    case "rows": {
      const { inputs } = work.kernel;
      return work.operands.map((part, index) => accessOf(part, index < inputs.length ? "in" : "out"));
    }
    case "columns": {
      const { inputs } = work.kernel;
      return work.operands.map((part, index) => accessOf(part, index < inputs.length ? "in" : "out"));
    }
    case "product": {
      const { a, b, c, bias, scratch, beta = 0 } = work.problem;
      const isPartial = beta !== 0 || !isWholeResult(work);
      return [
        ...[a.part, b.part, ...(bias ? [bias] : [])].map((part) => accessOf(part, "in")),
        ...(scratch ? [accessOf(scratch, "out")] : []),
        accessOf(c.part, isPartial ? "inout" : "out"),
      ];
    }
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

/** Is every byte of the result's part written? Not where its rows have gaps between them. */
function isWholeResult({ problem }: ProductCall): boolean {
  const { m, n, batch = 1, c, dtype, resultDtype = dtype } = problem;
  return c.part.size === batch * m * n * dtypes[resultDtype].bytes;
}

/** A parameter that is neither only read nor only written is both, and so is one that nothing is known of. */
function accessOf(part: Part, parameter: string): Access {
  return { part, reads: parameter !== "out", writes: parameter !== "in" };
}

/** When a program's calls run: their order, and which of them side by side. */
export interface Schedule {
  readonly calls: readonly ScheduledCall[];
}

export interface ScheduledCall {
  readonly call: Call;
  /** Calls of one branch run in their order; 0 is the main one, where every other begins and ends. */
  readonly branch: number;
  /** The places in the schedule of earlier calls on other branches that it waits for. */
  readonly after: readonly number[];
}

/** Where step memory lies: each buffer's first byte, from the start of one block of memory. */
export interface Plan {
  readonly bytes: number;
  readonly offsets: ReadonlyMap<Buffer, number>;
}
