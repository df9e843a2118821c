/**
 * Kernel calls: the work of an op as plain records, before code is generated. A trace keeps them as they are; a backend lowers them to
 * commands.
 */

import type { Parameter } from "../driver/index.js";
import { HoldfastError } from "../errors/index.js";
import type { ColumnKernel, Iteration, RowKernel } from "../ir/index.js";
import { factsOf } from "../ir/index.js";
import type { Command, Storage } from "../runtime/index.js";
import type { BackwardProblem, ForwardProblem } from "./attention/problem.js";
import type { ConvolutionProblem } from "./convolution/problem.js";
import type { GemmInputDtype, GemmProblem } from "./gemm/desc.js";
import type { Columns } from "./launch-config.js";
import type { ChunkedReduceLaunch } from "./multi-tensor/reduce-problem.js";
import type { ScatterAdd } from "./scan-scatter/problem.js";

interface Operands {
  /** The inputs, then the outputs. */
  readonly operands: readonly Storage[];
  readonly scalars?: readonly number[];
}

export interface RowLaunch extends Operands {
  readonly kernel: RowKernel;
  readonly iteration: Iteration;
  /** Programmatic dependent launch: the inputs that the preceding launch does not write, to be loaded before the grid dependency wait. */
  readonly prefetchable?: readonly boolean[] | undefined;
}

export interface ColumnLaunch extends Operands, Columns {
  readonly kernel: ColumnKernel;
}

/** Memory of a loop. In each iteration the views of it are `stride` bytes further on; the stride may be negative. */
export interface LoopOperand {
  readonly storage: Storage;
  readonly access: Parameter;
  readonly stride: number;
}

/** Where a view of a loop's operand begins in the first iteration, in bytes. */
export interface LoopView {
  readonly operand: number;
  readonly offset: number;
}

/** Calls that run several times, one iteration after the other. A trace keeps it as one call, whatever the number of iterations. */
export interface LoopCall {
  readonly op: string;
  readonly count: number;
  readonly operands: readonly LoopOperand[];
  /** The calls of the first iteration: row kernels, column kernels, GEMMs, fills and copies. */
  readonly body: readonly KernelCall[];
  /** By storage of the body: each of its storages is a view of an operand. */
  readonly views: ReadonlyMap<Storage, LoopView>;
}

/** A kernel call, or a command (a launch, fill or copy) of which only the memory access is known. */
export type KernelCall =
  | ({ readonly kind: "row" } & RowLaunch)
  | ({ readonly kind: "column" } & ColumnLaunch)
  | { readonly kind: "gemm"; readonly op: string; readonly problem: GemmProblem<GemmInputDtype> }
  | { readonly kind: "attention"; readonly op: string; readonly problem: ForwardProblem }
  | { readonly kind: "attention-backward"; readonly op: string; readonly problem: BackwardProblem }
  | { readonly kind: "convolution"; readonly op: string; readonly problem: ConvolutionProblem }
  | { readonly kind: "scatter"; readonly op: string; readonly problem: ScatterAdd }
  | ({ readonly kind: "chunked-reduce" } & ChunkedReduceLaunch)
  | ({ readonly kind: "loop" } & LoopCall)
  | Command;

/** The calls of a row kernel. Empty if there are no rows or no elements to store. */
export function rowCalls(launch: RowLaunch): readonly KernelCall[] {
  return hasRows(launch) ? [{ kind: "row", ...launch }] : [];
}

/**
 * The calls of a column kernel. Empty if there are no columns. Without rows, every column becomes the identity of its
 * reduction.
 */
export function columnCalls(launch: ColumnLaunch): readonly KernelCall[] {
  return launch.columns === 0 ? [] : [{ kind: "column", ...launch }];
}

/** True if there is something to launch. Rejects a kernel that cannot run over its iteration. */
export function hasRows({ kernel, iteration }: Omit<RowLaunch, "operands">): boolean {
  const { isElementwise, usesPosition } = factsOf(kernel);
  if (iteration.kind === "elements" && (!isElementwise || usesPosition))
    throw needsRows(kernel, isElementwise);
  return iteration.rows > 0 && !(isElementwise && iteration.elements === 0);
}

function needsRows({ name }: RowKernel, isElementwise: boolean): HoldfastError {
  const what = isElementwise ? "uses positions in rows" : "reduces rows, or stores one value per row";
  return new HoldfastError(
    "BAD_ARGUMENT",
    `Kernel "${name}" ${what}, and was launched over elements, which can be divided into rows in any way. Iterate over rows.`,
  );
}
