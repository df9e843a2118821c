/** Traces that record ops: the op of each call, and its phase of a training step. */

import { CallTrace, type KernelCall } from "../kernels/index.js";
import type { StepPhase } from "../records/index.js";
import type { Runtime } from "../runtime/index.js";
import type { DeviceArray } from "./device-array.js";

export interface LoweredOp {
  readonly name: string;
  readonly operands: readonly (DeviceArray | number)[];
  readonly outputs: readonly DeviceArray[];
  readonly calls: readonly KernelCall[];
}

export abstract class OpTrace extends CallTrace {
  abstract recordOp(op: LoweredOp): void;
  /** Returns the function that ends the phase. */
  abstract enterStepPhase(phase: StepPhase): () => void;
  /** Marks the calls until the returned function is called: they repeat earlier ones. */
  abstract enterRecomputation(): () => void;
}

/** Runs a function that repeats earlier work to save memory. Only a trace records that. */
export function inRecomputation<T>(runtime: Runtime, body: () => T): T {
  const trace = runtime.traceSink;
  const leave = trace instanceof OpTrace ? trace.enterRecomputation() : undefined;
  try {
    return body();
  } finally {
    leave?.();
  }
}

/** Runs a function as a phase of a training step. Only a trace records phases. */
export function inStepPhase<T>(runtime: Runtime, phase: StepPhase, body: () => T): T {
  const trace = runtime.traceSink;
  const leave = trace instanceof OpTrace ? trace.enterStepPhase(phase) : undefined;
  try {
    return body();
  } finally {
    leave?.();
  }
}
