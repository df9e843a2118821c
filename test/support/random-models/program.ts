/**
 * A model program: a model, its loss, its optimizer and a few calls of its step as plain data, so that a
 * failed one can be printed, kept in a file and run again. Sizes omit the batch axis: [S, W] stands for a
 * value [B, S, W].
 */

import type { Sizes } from "./sizes.js";

export type ModelDtype = "f32" | "f64" | "bf16" | "f16";

/** An argument of the step. Each call has other elements. */
export interface ModelInput {
  readonly name: string;
  readonly sizes: Sizes;
  /** "float" stands for the program's dtype. */
  readonly dtype: "float" | "i32" | "bool";
  /** Elements are between these two; integers include both. */
  readonly from: number;
  readonly to: number;
  /** Default: true. */
  readonly hasBatch?: boolean;
}

/** An nn layer by its exported name, with the arguments of its constructor. */
export interface LayerStep {
  readonly kind: "layer";
  readonly layer: string;
  readonly args: readonly unknown[];
  /** Options of `forward` in attention layers. */
  readonly isCausal?: boolean;
  /** An input that is the mask of an attention layer. */
  readonly mask?: string;
  /** An input that is key and value of a MultiheadAttention. */
  readonly keys?: string;
}

export type ModelStep =
  | LayerStep
  /** A ModuleList of `count` equal Sequentials. */
  | {
      readonly kind: "repeat";
      readonly count: number;
      readonly steps: readonly ModelStep[];
      readonly isResidual: boolean;
    }
  /** Joins the value with another input that has passed through `steps`. */
  | {
      readonly kind: "join";
      readonly how: "add" | "mul" | "cat";
      readonly input: string;
      readonly steps: readonly ModelStep[];
    }
  | { readonly kind: "reshape"; readonly sizes: Sizes }
  | { readonly kind: "mean"; readonly axis: number }
  | { readonly kind: "number"; readonly op: NumberOp; readonly value: number };

export type NumberOp = "add" | "mul" | "maximum" | "minimum" | "div";

export interface ModelLoss {
  /** The exported name of a loss in nn. */
  readonly loss: string;
  readonly options: Readonly<Record<string, unknown>>;
  readonly target: string;
  /** Inputs that are tensor options: `weight` and `posWeight`. */
  readonly tensors: Readonly<Record<string, string>>;
}

export interface ModelOptimizer {
  /** The exported name of an optimizer in optim. */
  readonly name: string;
  readonly options: Readonly<Record<string, unknown>> & { readonly lr: number };
  /** Parameters from this index on form a second group; undefined: there is one group. */
  readonly secondFrom?: number;
  readonly second?: Readonly<Record<string, unknown>>;
}

export type ModelClip =
  | { readonly kind: "norm"; readonly maxNorm: number; readonly normType: number }
  | { readonly kind: "value"; readonly limit: number };

export interface ModelSchedule {
  /** The exported name of a schedule in optim. */
  readonly name: string;
  readonly options: Readonly<Record<string, unknown>>;
}

/** An event between two calls. Indices count from the start and wrap around. */
export type ModelEvent =
  /** Of the module at an index among `namedModules()`; index 0 is the model. */
  | { readonly kind: "mode"; readonly module: number; readonly isTraining: boolean }
  | { readonly kind: "freeze"; readonly parameters: readonly number[]; readonly requiresGrad: boolean }
  | { readonly kind: "freeze module"; readonly module: number; readonly requiresGrad: boolean }
  | { readonly kind: "lr" | "weightDecay"; readonly group: number; readonly value: number }
  /** Multiplies a parameter in place, outside the step. */
  | { readonly kind: "write"; readonly parameter: number; readonly factor: number }
  | { readonly kind: "zeroGrad" };

export interface ModelCall {
  /** Which of the three functions is called. `accumulate` stops after backward; `evaluate` runs only forward. */
  readonly step: "train" | "accumulate" | "evaluate";
  readonly batch: number;
  readonly events: readonly ModelEvent[];
  /** Results that are kept, or copied, after the call, and read after the last one. */
  readonly keeps: readonly { readonly result: string; readonly how: "keep" | "clone" }[];
  /** Inputs that take a result kept by an earlier call, by the index of that call. */
  readonly feeds: readonly { readonly input: string; readonly call: number; readonly result: string }[];
}

export interface ModelProgram {
  readonly dtype: ModelDtype;
  /** The seed of the weights, the inputs and the device's random numbers. */
  readonly seed: number;
  /** Passes that the compilation omits. */
  readonly without: readonly string[];
  readonly inputs: readonly ModelInput[];
  /** The first input passes through these. */
  readonly steps: readonly ModelStep[];
  readonly loss: ModelLoss;
  /**
   * True if the step returns the output, the values at joins, the gradient's norm. It always returns the
   * loss.
   */
  readonly results: readonly ("output" | "joined" | "norm")[];
  readonly optimizer: ModelOptimizer;
  readonly clip?: ModelClip;
  readonly schedule?: ModelSchedule;
  readonly calls: readonly ModelCall[];
}
