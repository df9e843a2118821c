/** Traces that record ops: the op of each call, and its phase of a training step. */

import { CallTrace, type KernelCall, submit } from "../kernels/index.js";
import type { StepPhase } from "../records/index.js";
import type { Runtime } from "../runtime/index.js";
import { copyCalls } from "./copy.js";
import type { DeviceArray } from "./device-array.js";
import type { Attributes } from "./op.js";

/** A call of an op of the table on arrays. */
export interface OpCall {
  readonly name: string;
  readonly operands: readonly (DeviceArray | number)[];
  readonly attributes: Attributes;
}

export interface LoweredOp extends OpCall {
  readonly outputs: readonly DeviceArray[];
  readonly calls: readonly KernelCall[];
}

export abstract class OpTrace extends CallTrace {
  abstract recordOp(op: LoweredOp): void;
  /** A view op, which has no kernel calls. By default it is not recorded. */
  recordView(_call: OpCall, _output: DeviceArray): void {}
  /** A copy into memory that exists. By default its kernel calls are recorded. */
  recordCopy(_source: DeviceArray, _target: DeviceArray, submitCalls: () => void): void {
    submitCalls();
  }
  /** A composite op, before its ops. Returns the function that takes its outputs. By default only its ops are recorded. */
  enterComposite(_call: OpCall): (outputs: readonly DeviceArray[]) => void {
    return () => undefined;
  }
  /** Returns the function that ends the phase. */
  abstract enterStepPhase(phase: StepPhase): () => void;
  /**
   * The ranks of a run trace this step together. `isEven`: the work must be the same on all of them; otherwise, as for shards of different
   * sizes, only the collectives must.
   */
  noteRanks(_isEven: boolean): void {}
  /** Marks the calls until the returned function is called: they are those of this rank, and other ranks have others. */
  enterRankPart(): () => void {
    return () => undefined;
  }
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

/** Notes that all ranks trace this step together; see `OpTrace.noteRanks`. */
export function noteRanks(runtime: Runtime, isEven: boolean): void {
  const trace = runtime.traceSink;
  if (trace instanceof OpTrace) trace.noteRanks(isEven);
}

/** Runs a function whose calls depend on the rank. Only a trace records that. */
export function inRankPart<T>(runtime: Runtime, body: () => T): T {
  const trace = runtime.traceSink;
  const leave = trace instanceof OpTrace ? trace.enterRankPart() : undefined;
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

/** Runs the ops of a composite op. A trace may record the composite op itself. */
export function inComposite<V>(
  runtime: Runtime,
  call: () => OpCall,
  compose: () => readonly V[],
  arrayOf: (value: V) => DeviceArray,
): readonly V[] {
  const trace = runtime.traceSink;
  if (!(trace instanceof OpTrace)) return compose();
  const leave = trace.enterComposite(call());
  const outputs = compose();
  leave(outputs.map(arrayOf));
  return outputs;
}

/** Copies an array into the memory of another one. */
export function copyInto(runtime: Runtime, source: DeviceArray, target: DeviceArray): void {
  const submitCalls = (): void => submit(runtime, copyCalls(source, target));
  const trace = runtime.traceSink;
  if (trace instanceof OpTrace) trace.recordCopy(source, target, submitCalls);
  else submitCalls();
}
