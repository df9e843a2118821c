/**
 * The loop IR: what ops lower to, printed as WebAssembly for the CPU and, for GPUs, as CUDA C++.
 *
 * A row kernel runs over rows; in each row its stages run one after the other over the row's elements. A stage either
 * reduces the row to one value, which later stages may use, or stores a value for every element (or one for the row).
 * An elementwise op is one store; a softmax is a maximum, a sum and a store. Values are expressions over the element's
 * inputs: plain frozen records, so that a fused kernel is an expression put into another.
 */

import type { Dtype } from "./dtypes.js";

/** What arithmetic is done in. Truth values are i32, 0 or 1. */
export type Compute = "f32" | "f64" | "i32";

export const unaryOps = [
  "neg",
  "abs",
  "sqrt",
  "floor",
  "ceil",
  "rsqrt",
  "exp",
  "expm1",
  "log",
  "log1p",
  "sin",
  "cos",
  "tanh",
  "sigmoid",
  "erf",
  "softplus",
] as const;
export type UnaryOp = (typeof unaryOps)[number];

/** `and` and `shr` are for i32 alone; `shr` moves bits right by a constant from 0 to 31, zeros coming in. */
export const binaryOps = ["add", "sub", "mul", "div", "min", "max", "pow", "and", "shr"] as const;
export type BinaryOp = (typeof binaryOps)[number];

export const compareOps = ["eq", "ne", "lt", "le", "gt", "ge"] as const;
export type CompareOp = (typeof compareOps)[number];

export type Expression =
  /**
   * The element of an input at the present place, widened to what its dtype computes in. `at`, an i32, moves the place
   * by that many elements, each element's by its own. Nothing checks that it stays inside the input: that is for the op.
   */
  | { readonly kind: "load"; readonly input: number; readonly type: Compute; readonly at?: Expression }
  /** A number given at the launch. */
  | { readonly kind: "scalar"; readonly index: number; readonly type: Compute }
  | { readonly kind: "constant"; readonly value: number; readonly type: Compute }
  /** What an earlier stage has reduced this row to. */
  | { readonly kind: "reduced"; readonly stage: number; readonly type: Compute }
  /** The element's number in its row, and the row's number: for launches over rows, which nothing else cuts. */
  | { readonly kind: "position"; readonly type: "i32" }
  | { readonly kind: "row"; readonly type: "i32" }
  | { readonly kind: "unary"; readonly op: UnaryOp; readonly a: Expression; readonly type: Compute }
  | {
      readonly kind: "binary";
      readonly op: BinaryOp;
      readonly a: Expression;
      readonly b: Expression;
      readonly type: Compute;
    }
  | {
      readonly kind: "compare";
      readonly op: CompareOp;
      readonly a: Expression;
      readonly b: Expression;
      readonly type: "i32";
    }
  | {
      readonly kind: "select";
      readonly condition: Expression;
      readonly a: Expression;
      readonly b: Expression;
      readonly type: Compute;
    }
  | { readonly kind: "convert"; readonly a: Expression; readonly type: Compute };

export type ReduceOp = "add" | "mul" | "min" | "max";

export type Stage =
  | { readonly kind: "reduce"; readonly op: ReduceOp; readonly value: Expression }
  /**
   * `value` is narrowed to the output's dtype; whole numbers keep their low bits, so a truth value is 0 or 1 anywhere.
   * For an output of one value a row every input stands at its row's start.
   * A later stage reads what this one has stored where an input lies in the output's memory.
   */
  | { readonly kind: "store"; readonly output: number; readonly value: Expression };

/**
 * An output has a value for each element, for each row or, on a GPU, for each column: what is stored there is added up over the rows.
 * That takes many rows; of each column `columnPartialCount` partial sums are left, as rows for a column kernel that adds them up.
 */
export interface Output {
  readonly dtype: Dtype;
  readonly per: "element" | "row" | "column";
}

/**
 * A kernel that reduces each column over all rows: the way to add up over an axis that is not the last. Several values of
 * the same inputs are reduced in one pass, each into the output of its place; at most four.
 */
export interface ColumnKernel {
  readonly name: string;
  readonly inputs: readonly Dtype[];
  readonly outputs: readonly Dtype[];
  readonly scalars: readonly Compute[];
  readonly op: ReduceOp;
  readonly values: readonly Expression[];
  /** Where the columns' results stand in every output: side by side unless given. Only a GPU's code puts them elsewhere. */
  readonly places?: ColumnPlaces;
}

/** In elements: results stand `step` apart; where there are runs of columns, those of one do, and runs stand `between` apart. */
export interface ColumnPlaces {
  readonly step: number;
  readonly runs?: { readonly length: number; readonly between: number };
}

export interface RowKernel {
  readonly name: string;
  readonly inputs: readonly Dtype[];
  readonly outputs: readonly Output[];
  readonly scalars: readonly Compute[];
  readonly stages: readonly Stage[];
}

/** A kernel that reduces vectors to a value for each of their parts; the values are of the expression's type. */
export interface ChunkedReduceKernel {
  readonly name: string;
  /** Of the vectors. */
  readonly dtype: Dtype;
  readonly scalars: readonly Compute[];
  readonly op: ReduceOp;
  /** What is reduced of an element, which is load 0. It asks for no place. */
  readonly value: Expression;
}
