/**
 * Whether ops are recorded for backward. A process-wide switch, for functions that return before anything else runs.
 */

import { HoldfastError } from "../errors/index.js";
import { type GuardedField, stateChanged, tracing } from "./guards.js";

const mode = { isRecording: true };
const recordingField: GuardedField<typeof mode> = {
  read: (mode) => mode.isRecording,
  write: (mode, isRecording) => {
    mode.isRecording = isRecording === true;
  },
};
const modeName = (): string => "noGrad() around the call";

export function isRecording(): boolean {
  tracing.guards?.noteRead(mode, recordingField, mode.isRecording, modeName);
  return mode.isRecording;
}

/**
 * Runs a function without recording for backward: for evaluation, and for writing to weights.
 *
 * @example
 * ```ts
 * import { device, noGrad, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const w = tensor([1, 2], { requiresGrad: true });
 * console.log(w.mul(2).requiresGrad, noGrad(() => w.mul(2)).requiresGrad); // → true false
 * cpu.close();
 * ```
 */
export function noGrad<T>(body: () => T): T {
  // Nested noGrad() changes nothing.
  if (!isRecording()) return requireSync(body());
  tracing.guards?.noteWrite(mode, recordingField, false, modeName);
  mode.isRecording = false;
  stateChanged();
  try {
    return requireSync(body());
  } finally {
    mode.isRecording = true;
    stateChanged();
    tracing.guards?.noteRestored(mode, recordingField);
  }
}

/** Runs a function with recording for backward, also inside noGrad(). */
export function recording<T>(body: () => T): T {
  if (mode.isRecording) return body();
  mode.isRecording = true;
  try {
    return body();
  } finally {
    mode.isRecording = false;
  }
}

function requireSync<T>(result: T): T {
  if (!(result instanceof Promise)) return result;
  result.catch(() => undefined);
  throw new HoldfastError(
    "BAD_ARGUMENT",
    "noGrad got an async function: recording would resume before it has ended. Await outside noGrad().",
  );
}
