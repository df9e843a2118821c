/**
 * The loop IR that ops lower to. It is printed as WebAssembly for the CPU and as CUDA C++ for GPUs.
 *
 * A row kernel runs over rows; in each row its stages run one after the other over the row's elements. A stage either reduces the row to
 * one value, which later stages may use, or stores a value for every element or for the row. An elementwise op is one store; a softmax is
 * a max, a sum and a store. Values are expressions over the element's inputs: plain records, so that fusion substitutes one expression
 * into another.
 */

import type { Dtype, InputDtype } from "./dtypes.js";

/** The type of arithmetic. Booleans are i32, 0 or 1. */
export type Compute = "f32" | "f64" | "i32" | "i64";

/** The type in which a launch passes a scalar: a JavaScript number is an f64, so an i64 is passed as f64, and converted in the kernel. */
export function passedType(type: Compute): Exclude<Compute, "i64"> {
  return type === "i64" ? "f64" : type;
}

/**
 * `round` rounds halves to even. The ops of `roundings` are for f32 only. `roundTf32`: the nearest number with the ten fraction bits of
 * TF32, ties away from zero. `roundBf16` and `roundF16`: the value that a load gives after a store in that dtype.
 */
export const unaryOps = [
  "neg",
  "abs",
  "sqrt",
  "floor",
  "ceil",
  "round",
  "trunc",
  "rsqrt",
  "exp",
  "exp2",
  "expm1",
  "log",
  "log2",
  "log10",
  "log1p",
  "sin",
  "cos",
  "tan",
  "asin",
  "acos",
  "atan",
  "sinh",
  "cosh",
  "tanh",
  "asinh",
  "acosh",
  "atanh",
  "sigmoid",
  "erf",
  "erfc",
  "lgamma",
  "softplus",
  "roundTf32",
  "roundBf16",
  "roundF16",
] as const;
export type UnaryOp = (typeof unaryOps)[number];

export const roundings: ReadonlySet<UnaryOp> = new Set<UnaryOp>(["roundTf32", "roundBf16", "roundF16"]);

/**
 * `and` and `shr` are for integers only; `shr` is a logical shift by a constant below the number of bits. `fmod` is the exact remainder of a division that
 * truncates, with the sign of the dividend. It, `pow`, `atan2` and `div` are for floats only.
 */
export const binaryOps = [
  "add",
  "sub",
  "mul",
  "div",
  "min",
  "max",
  "pow",
  "atan2",
  "fmod",
  "and",
  "shr",
] as const;
export type BinaryOp = (typeof binaryOps)[number];

export const compareOps = ["eq", "ne", "lt", "le", "gt", "ge"] as const;
export type CompareOp = (typeof compareOps)[number];

export type Expression =
  /**
   * The current element of an input, converted to its compute type. `at`, an i32, is an offset in elements from the current element.
   * Bounds are not checked: that is the op's responsibility.
   */
  | { readonly kind: "load"; readonly input: number; readonly type: Compute; readonly at?: Expression }
  /** A launch parameter, of its `passedType`. */
  | { readonly kind: "scalar"; readonly index: number; readonly type: Compute }
  /** In i64, numbers outside its range saturate. */
  | { readonly kind: "constant"; readonly value: number; readonly type: Compute }
  /** The result of an earlier reduction of this row. */
  | { readonly kind: "reduced"; readonly stage: number; readonly type: Compute }
  /** The element's index in its row, and the row's index: only for launches over rows. */
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
  /** Floats are truncated and saturate, and NaN becomes 0; i64 becomes i32 by its low bits. */
  | { readonly kind: "convert"; readonly a: Expression; readonly type: Compute };

export type ReduceOp = "add" | "mul" | "min" | "max";

export type Stage =
  | { readonly kind: "reduce"; readonly op: ReduceOp; readonly value: Expression }
  /**
   * `value` is converted to the output's dtype; integers keep their low bits. For an output per row, inputs are read at the row's start. A
   * later stage whose input aliases the output reads the stored value.
   */
  | { readonly kind: "store"; readonly output: number; readonly value: Expression };

/**
 * An output has a value per element, per row or, on a GPU, per column: the sum over the rows. A column sum needs many rows; the kernel
 * writes a few rows of partials (`columnSumLayout`), which a column kernel reduces.
 */
export interface Output {
  readonly dtype: Dtype;
  readonly per: "element" | "row" | "column";
}

/** Reduces each column over all rows (an axis that is not the last). Up to four values of the same inputs are reduced in one pass. */
export interface ColumnKernel {
  readonly name: string;
  readonly inputs: readonly Dtype[];
  readonly outputs: readonly Dtype[];
  readonly scalars: readonly Compute[];
  readonly op: ReduceOp;
  readonly values: readonly Expression[];
  /** The layout of every output; default: contiguous. GPU only. */
  readonly outputLayout?: OutputLayout;
}

/** The layout of an output, in elements. With runs, `stride` applies within a run of columns, and `runStride` is the distance between runs. */
export interface OutputLayout {
  readonly stride: number;
  readonly runs?: { readonly length: number; readonly runStride: number };
}

export interface RowKernel {
  readonly name: string;
  /** Draws are for backends that have `drawsInKernels`. */
  readonly inputs: readonly InputDtype[];
  readonly outputs: readonly Output[];
  readonly scalars: readonly Compute[];
  readonly stages: readonly Stage[];
}

/** Reduces each chunk of several tensors to one value of the expression's type. */
export interface ChunkedReduceKernel {
  readonly name: string;
  /** The dtype of the tensors. */
  readonly dtype: Dtype;
  readonly scalars: readonly Compute[];
  readonly op: ReduceOp;
  /** The value of an element, which is load 0. It uses no position. */
  readonly value: Expression;
  /** True if zeros do not change a result: the value of 0 is 0, and no value is negative. */
  readonly ignoresZeros?: boolean;
}
