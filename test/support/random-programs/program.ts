/**
 * A program of a test: a training step as plain data, so that one that has failed can be printed, kept in a file and run
 * again. Values have names: x… are arguments of the step, p… parameters, c… other tensors that outlive it, v… what it makes.
 */

import type { Dtype } from "../../../src/ir/index.js";
import type { Attributes, Shape } from "../../../src/ops/index.js";
import type { FloatDtype } from "../../tolerances.js";

/** "float" is whatever dtype the program is run in. */
export type ValueDtype = Dtype | "float";

export interface Input {
  readonly name: string;
  /** An argument has other values in each step; a constant may be written to, and keeps what was written. */
  readonly role: "argument" | "parameter" | "constant";
  readonly shape: Shape;
  readonly dtype: ValueDtype;
  /** Its values are drawn from here to there; whole ones for integers and truth values. */
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
  /** The names of what it makes; none in place. */
  readonly gives: readonly string[];
}

export type Instruction =
  | OpInstruction
  | { readonly kind: "detach"; readonly of: string; readonly gives: readonly string[] }
  /** A parameter's gradient as it is then, where one has arrived. */
  | { readonly kind: "gradient"; readonly of: string; readonly gives: readonly string[] }
  /** Of a single number, or with a gradient of the same shape. */
  | {
      readonly kind: "backward";
      readonly of: string;
      readonly gradient?: string;
      readonly retainGraph: boolean;
    }
  | { readonly kind: "clip"; readonly maxNorm: number }
  | { readonly kind: "update" }
  | { readonly kind: "zeroGrad" };

export interface OptimizerChoice {
  readonly name: "SGD" | "AdamW";
  readonly lr: number;
  readonly momentum?: number;
  readonly weightDecay?: number;
}

export interface Program {
  readonly dtype: FloatDtype;
  /** Of the values and of the device's random numbers. */
  readonly seed: number;
  readonly optimizer: OptimizerChoice;
  /** Do the parameters lie side by side in persistent memory, as a module's do? Else each is a tensor by itself. */
  readonly inModule: boolean;
  /** The passes that are left out of the compilation. */
  readonly without: readonly string[];
  readonly inputs: readonly Input[];
  readonly instructions: readonly Instruction[];
  /** Every second step is another function, which leaves these out, by their places; none: there is one function. */
  readonly leftOut: readonly number[];
  readonly results: readonly string[];
  /** Results that are arguments of the next step. */
  readonly feeds: readonly { readonly from: string; readonly to: string }[];
}

/** "float" among attributes is the dtype of the run too. */
export function resolveAttributes(attributes: Attributes, float: FloatDtype): Attributes {
  return attributes["dtype"] === "float" ? { ...attributes, dtype: float } : attributes;
}
