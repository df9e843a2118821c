/**
 * One plan of a compiled step: its function traced for inputs of given shapes, and planned; then, with its first call, in
 * memory and captured.
 */

import { Value } from "../autograd/index.js";
import { type PassSettings, type PlannedStep, planStep, type Trace, traceStep } from "../compile/index.js";
import { HoldfastError } from "../errors/index.js";
import { dtypes } from "../kernels/index.js";
import { contiguousStrides, copyArray, type DeviceArray, formatShape, sizeOf } from "../ops/index.js";
import type { Region, Storage } from "../runtime/index.js";
import type { Device } from "./device.js";
import { GradientStates } from "./gradient-states.js";
import { beginPlan, chooseSchedule, type RunningPlan } from "./running-plan.js";
import { ScalarRing } from "./scalar-ring.js";
import { refusingDraws } from "./seed.js";
import { Tensor } from "./tensor.js";

/** What a step may give: nothing, a tensor, or several by their places or names. */
// biome-ignore lint/suspicious/noConfusingVoidType: a function without a return is what most steps are
export type StepResult = void | Tensor | readonly Tensor[] | Readonly<Record<string, Tensor>>;

export interface StepPlan {
  /** The dtypes and shapes of its inputs, as one text. */
  readonly key: string;
  /** Where its inputs are copied to. */
  readonly inputs: readonly DeviceArray[];
  /** What it takes for granted of gradients, and leaves. */
  readonly gradients: GradientStates;
  readonly planned: PlannedStep;
  readonly result: StepResult;
  /** Nothing before it has begun. */
  readonly running: RunningPlan | undefined;
  /** Takes its step memory and captures it, once. Its inputs have to be in their place: the first replay is compared. */
  begin(): RunningPlan;
  /** Does everything still hold that its function took for granted besides? */
  holds(): boolean;
  close(): void;
}

export interface StepFunction {
  readonly name: string;
  readonly passes: PassSettings;
  /** The rings of single numbers that it gives, by their names; made when they are first met. */
  readonly rings: Map<string, ScalarRing>;
  body(...inputs: readonly Tensor[]): StepResult;
}

/** As often as a trace may find that it has itself changed what it took for granted. */
const mostTraces = 4;

/** The dtypes and shapes that a plan is made for. */
export function keyOf(inputs: readonly Tensor[]): string {
  return inputs.map(({ dtype, shape }) => `${dtype} ${formatShape(shape)}`).join(", ");
}

/** Traces and plans. Inputs, results and constants get their places; step memory is not taken yet. */
export function makeStepPlan(device: Device, step: StepFunction, inputs: readonly Tensor[]): StepPlan {
  const { runtime } = device;
  const undo: (() => void)[] = [];
  const releaseLater = (region: Region): void => void undo.push(() => runtime.persistent.release(region));
  const rings = new Set(step.rings.keys());
  try {
    const slots = placeArrays(
      device,
      `${step.name} inputs`,
      inputs.map(({ array }) => array),
      releaseLater,
    );
    // Tensors of its own for each trace: one that is written to in place remembers it.
    const seen = (): Tensor[] => slots.map((array, index) => wrap(device, array, inputs[index]?.name));
    const { trace, gradients } = traceUntilItHolds(device, step, seen, releaseLater);
    const straight = planStep(runtime, trace, step.passes, step.name);
    for (const region of straight.regions) releaseLater(region);
    const planned = chooseSchedule(runtime, step, straight);
    let running: RunningPlan | undefined;
    const begin = (): RunningPlan => {
      const begun = beginPlan(runtime, step, planned);
      undo.push(() => begun.close());
      running = begun;
      return begun;
    };
    return {
      ...{ key: keyOf(inputs), inputs: slots, gradients, planned },
      ...{ result: trace.result, holds: trace.holds },
      get running() {
        return running;
      },
      begin: () => running ?? begin(),
      close: () => endAll(undo),
    };
  } catch (error) {
    endAll(undo);
    for (const [result, ring] of step.rings) {
      if (rings.has(result)) continue;
      step.rings.delete(result);
      ring.close();
    }
    throw error;
  }
}

function endAll(undo: (() => void)[]): void {
  for (const end of undo.splice(0).reverse()) end();
}

/** A trace may find out something that changes what it began with, as an optimizer does that divides its cohorts. */
function traceUntilItHolds(
  device: Device,
  step: StepFunction,
  inputs: () => readonly Tensor[],
  releaseLater: (region: Region) => void,
): { readonly trace: Trace<StepResult>; readonly gradients: GradientStates } {
  for (let times = 0; times < mostTraces; times++) {
    const gradients = new GradientStates();
    const regions: Region[] = [];
    try {
      const trace = traceOnce(device, step, inputs(), gradients, (region) => regions.push(region));
      if (trace.holds()) {
        regions.splice(0).forEach(releaseLater);
        return { trace, gradients };
      }
    } finally {
      gradients.undo();
      for (const region of regions) device.runtime.persistent.release(region);
    }
  }
  throw new HoldfastError(
    "NOT_TRACEABLE",
    `Compiled ${step.name} does other work each time that it is traced. Make it do the same for the same shapes.`,
  );
}

function traceOnce(
  device: Device,
  step: StepFunction,
  inputs: readonly Tensor[],
  gradients: GradientStates,
  onRegion: (region: Region) => void,
): Trace<StepResult> {
  const { name, body } = step;
  const run = (): StepResult => keepResult(device, step, body(...inputs), onRegion);
  return traceStep(device.runtime, () =>
    device.inImaginedStep(() =>
      refusingDraws(
        () => refuseDraw(name),
        () => gradients.watch(run),
      ),
    ),
  );
}

/** Persistent memory for arrays of these shapes. */
function placeArrays(
  { runtime }: Device,
  name: string,
  arrays: readonly DeviceArray[],
  onRegion: (region: Region) => void,
): DeviceArray[] {
  const sizes = arrays.map(({ shape, dtype }) => sizeOf(shape) * dtypes[dtype].bytes);
  const placements = sizes.flatMap((size, index) => (size > 0 ? [{ name: `${name} ${index}`, size }] : []));
  const storages: Storage[] = [];
  if (placements.length > 0) {
    const region = runtime.actually(() => runtime.persistent.place("scalars", name, placements));
    onRegion(region);
    storages.push(...region.storages);
  }
  return arrays.map(({ shape, dtype }, index) => ({
    shape,
    strides: contiguousStrides(shape),
    dtype,
    storage: (sizes[index] ?? 0) > 0 ? storages.shift() : undefined,
  }));
}

/** Copies what the function gives to memory that outlives the step; the same tensors stand for it after every call. */
function keepResult(
  device: Device,
  step: StepFunction,
  result: StepResult,
  onRegion: (region: Region) => void,
): StepResult {
  if (result === undefined) return undefined;
  const { name } = step;
  // What the step tells is told of a skipped one too: its loss is what it was skipped for.
  device.runtime.guard(undefined);
  const { names, tensors, rebuild } = tensorsOf(name, result);
  const slots = placeArrays(
    device,
    `${name} results`,
    tensors.map(({ array }) => array),
    onRegion,
  );
  const kept = tensors.map((tensor, index) => {
    const slot = slots[index];
    if (!slot) return tensor;
    device.requireLive(tensor, `result of compiled ${name}`);
    copyArray(device.runtime, tensor.array, slot);
    if (tensor.numel === 1) ringOf(device, step, names[index] ?? "").put(tensor.array);
    return wrap(device, slot, tensor.name);
  });
  return rebuild(kept);
}

function ringOf({ runtime }: Device, { name, rings }: StepFunction, result: string): ScalarRing {
  const known = rings.get(result);
  if (known) return known;
  const ring = runtime.actually(() => new ScalarRing(runtime, `${name}.${result}`));
  rings.set(result, ring);
  return ring;
}

interface ResultParts {
  readonly names: readonly string[];
  readonly tensors: readonly Tensor[];
  /** The same structure with other tensors. */
  rebuild(tensors: readonly Tensor[]): StepResult;
}

function tensorsOf(name: string, result: Exclude<StepResult, void>): ResultParts {
  if (result instanceof Tensor)
    return { names: ["result"], tensors: [result], rebuild: ([tensor]) => tensor };
  if (result instanceof Promise) {
    result.catch(() => undefined);
    throw new HoldfastError(
      "STEP_ASYNC",
      `Compiled ${name} is an async function: what it does after its first await would not be traced. Await before the call.`,
    );
  }
  const keys = typeof result === "object" && result !== null ? Object.keys(result) : [];
  const tensors = typeof result === "object" && result !== null ? Object.values(result) : [result];
  for (const [index, one] of tensors.entries()) {
    if (one instanceof Tensor) continue;
    throw new HoldfastError(
      "NOT_TRACEABLE",
      `Compiled ${name} returns ${keys[index] === undefined ? "a" : `"${keys[index]}", a`} ${typeof one}, which would be the same after every call. Return ` +
        "tensors: one, a list, or an object of them.",
    );
  }
  const rebuild: ResultParts["rebuild"] = (given) =>
    Array.isArray(result)
      ? given
      : Object.fromEntries(keys.flatMap((key, index) => (given[index] ? [[key, given[index]]] : [])));
  return { names: keys, tensors, rebuild };
}

function wrap(device: Device, array: DeviceArray, name: string | undefined): Tensor {
  return new Tensor({ device, value: new Value(array) }, name);
}

function refuseDraw(name: string): never {
  throw new HoldfastError(
    "NOT_TRACEABLE",
    `Compiled ${name} draws random numbers on the host, as randn() and its kin do: every call would have the same ones. ` +
      "Draw them before the call and pass them in; dropout draws on the device.",
  );
}
