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
  return inMode("noGrad", false, body);
}

/**
 * Runs a function with recording for backward, also inside `noGrad`.
 *
 * @example
 * ```ts
 * import { device, enableGrad, noGrad, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const w = tensor([1, 2], { requiresGrad: true });
 * console.log(noGrad(() => enableGrad(() => w.mul(2)).requiresGrad)); // → true
 * cpu.close();
 * ```
 */
export function enableGrad<T>(body: () => T): T {
  return inMode("enableGrad", true, body);
}

/**
 * Runs a function with or without recording for backward: `enableGrad` or `noGrad` by a flag.
 *
 * @example
 * ```ts
 * import { device, setGradEnabled, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const w = tensor([1, 2], { requiresGrad: true });
 * for (const isTraining of [true, false])
 *   console.log(setGradEnabled(isTraining, () => w.mul(2)).requiresGrad);
 * // → true
 * // → false
 * cpu.close();
 * ```
 */
export function setGradEnabled<T>(isEnabled: boolean, body: () => T): T {
  return inMode("setGradEnabled", isEnabled, body);
}

/**
 * True if ops are recorded for backward here.
 *
 * @example
 * ```ts
 * import { isGradEnabled, noGrad } from "holdfast";
 * console.log(isGradEnabled(), noGrad(() => isGradEnabled())); // → true false
 * ```
 */
export function isGradEnabled(): boolean {
  return isRecording();
}

/**
 * The same as `noGrad`. PyTorch's tensors of inference mode cannot be used in training later; tensors of this function can.
 *
 * @example
 * ```ts
 * import { device, inferenceMode, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * const model = new nn.Linear(2, 1).to(cpu);
 * console.log(inferenceMode(() => model.forward(ones([1, 2]))).requiresGrad); // → false
 * cpu.close();
 * ```
 */
export function inferenceMode<T>(body: () => T): T {
  return inMode("inferenceMode", false, body);
}

/** Runs a function in a mode. */
function inMode<T>(call: string, isOn: boolean, body: () => T): T {
  if (typeof body !== "function") {
    const first = call === "setGradEnabled" ? "isEnabled, " : "";
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `${call} got ${typeof body} in place of a function. Pass the work as a function: ${call}(${first}() => model.forward(x)).`,
    );
  }
  const outer = isRecording();
  if (outer === isOn) return requireSync(call, body());
  tracing.guards?.noteWrite(mode, recordingField, isOn, modeName);
  mode.isRecording = isOn;
  stateChanged();
  try {
    return requireSync(call, body());
  } finally {
    mode.isRecording = outer;
    stateChanged();
    tracing.guards?.noteRestored(mode, recordingField);
  }
}

/** Runs a function with recording for backward, without a guard: for work that does not depend on the caller's mode. */
export function recording<T>(body: () => T): T {
  if (mode.isRecording) return body();
  mode.isRecording = true;
  try {
    return body();
  } finally {
    mode.isRecording = false;
  }
}

function requireSync<T>(call: string, result: T): T {
  if (!(result instanceof Promise)) return result;
  result.catch(() => undefined);
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `${call} got an async function: the mode would end before the function has. Await outside ${call}().`,
  );
}
