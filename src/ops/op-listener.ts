/** Hears which op of the table is being lowered, so that what is called in between can be told to be a part of it. */

import type { StepPhase } from "../records/index.js";
import type { Runtime } from "../runtime/index.js";
import type { DeviceArray } from "./device-array.js";

export interface LoweredOp {
  readonly name: string;
  readonly operands: readonly (DeviceArray | number)[];
  readonly outputs: readonly DeviceArray[];
}

export interface OpListener {
  /** Called before an op is lowered; what it returns is called behind it. */
  enter(op: LoweredOp): () => void;
  /** Called before a part of a step begins; what it returns is called behind it. */
  enterStepPhase?(phase: StepPhase): () => void;
}

const listeners = new WeakMap<Runtime, OpListener>();

/** Runs a function whose ops are told to a listener. */
export function listenToOps<T>(runtime: Runtime, listener: OpListener, body: () => T): T {
  listeners.set(runtime, listener);
  try {
    return body();
  } finally {
    listeners.delete(runtime);
  }
}

/** Tells the listener, if there is one, of an op that a function lowers. */
export function asPartOf(runtime: Runtime, op: LoweredOp, lower: () => void): void {
  const leave = listeners.get(runtime)?.enter(op);
  try {
    lower();
  } finally {
    leave?.();
  }
}

/** Tells the listener, if there is one, which part of a training step a function is. */
export function inStepPhase<T>(runtime: Runtime, phase: StepPhase, body: () => T): T {
  const leave = listeners.get(runtime)?.enterStepPhase?.(phase);
  try {
    return body();
  } finally {
    leave?.();
  }
}
