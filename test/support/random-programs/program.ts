/**
 * A random program: a training step as plain data, so that a failed one can be printed, kept in a file and
 * run again. Values have names: x… are arguments of the step, p… parameters, c… other tensors that outlive
 * it, v… its results.
 */

import type { Dtype } from "../../../src/ir/index.js";
import type { Attributes, Shape } from "../../../src/ops/index.js";
import type { FloatDtype } from "../../tolerances.js";

/** "float" is the dtype of the run. */
export type ValueDtype = Dtype | "float";

export interface Input {
  readonly name: string;
  /** An argument has other values in each step; a constant may be written to, and keeps the new values. */
  readonly role: "argument" | "parameter" | "constant";
  readonly shape: Shape;
  readonly dtype: ValueDtype;
  /** The range of its random values; integers for integer and boolean dtypes. */
  readonly from: number;
  readonly to: number;
}

/** A value by its name, a literal, or the device's random state. */
export type Operand = string | number;
export const randomState = "random state";

export interface OpInstruction {
  readonly kind: "op" | "in place";
  readonly op: string;
  /** In place: the target is the first. */
  readonly operands: readonly Operand[];
  readonly attributes: Attributes;
  readonly isRecorded: boolean;
  /** The names of its results; none for an in-place op. */
  readonly gives: readonly string[];
}

export type Instruction =
  | OpInstruction
  | { readonly kind: "detach"; readonly of: string; readonly gives: readonly string[] }
  /** A parameter's current gradient, if one has arrived. */
  | { readonly kind: "gradient"; readonly of: string; readonly gives: readonly string[] }
  /** Of a scalar, or with a gradient of the same shape. */
  | {
      readonly kind: "backward";
      readonly of: string;
      readonly gradient?: string;
      readonly retainGraph: boolean;
    }
  | { readonly kind: "clip"; readonly maxNorm: number }
  | { readonly kind: "update" }
  | { readonly kind: "zeroGrad" };

export interface OptimizerSpec {
  readonly name: "SGD" | "AdamW";
  readonly lr: number;
  readonly momentum?: number;
  readonly weightDecay?: number;
}

export interface Program {
  readonly dtype: FloatDtype;
  /** The seed of the values and of the device's random numbers. */
  readonly seed: number;
  readonly optimizer: OptimizerSpec;
  /**
   * True if the parameters are contiguous in persistent memory, like a module's. Otherwise each is a separate
   * tensor.
   */
  readonly inModule: boolean;
  /** The passes that the compilation omits. */
  readonly without: readonly string[];
  readonly inputs: readonly Input[];
  readonly instructions: readonly Instruction[];
  /**
   * Every second step is another function, which omits these instructions, by index; none: there is one
   * function.
   */
  readonly leftOut: readonly number[];
  readonly results: readonly string[];
  /** Results that are arguments of the next step. */
  readonly feeds: readonly { readonly from: string; readonly to: string }[];
}

/** "float" among attributes is the dtype of the run too. */
export function resolveAttributes(attributes: Attributes, float: FloatDtype): Attributes {
  return attributes["dtype"] === "float" ? { ...attributes, dtype: float } : attributes;
}
