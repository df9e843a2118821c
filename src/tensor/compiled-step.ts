/** A step as one launch, as users have it: called with tensors, it replays what it has traced for such tensors before. */

import { noteWrite, Value } from "../autograd/index.js";
import { type PassSettings, PlacedStep, type PlannedStep, planStep, traceStep } from "../compile/index.js";
import { HoldfastError } from "../errors/index.js";
import { dtypes } from "../kernels/index.js";
import { contiguousStrides, copyArray, type DeviceArray, formatShape, sizeOf } from "../ops/index.js";
import type { Region, Replayable, Storage } from "../runtime/index.js";
import type { Device } from "./device.js";
import { GradientStates } from "./gradient-states.js";
import { refusingDraws } from "./seed.js";
import { Tensor } from "./tensor.js";

/** What a step may give: nothing, a tensor, or several by their places or names. */
// biome-ignore lint/suspicious/noConfusingVoidType: a function without a return is what most steps are
export type StepResult = void | Tensor | readonly Tensor[] | Readonly<Record<string, Tensor>>;

export interface CompileOptions {
  /** For messages and reports; "step" unless given. */
  readonly name?: string;
  /** Passes that are to be left out, by their names. */
  readonly passes?: PassSettings;
  /** How many plans are kept, each for other shapes; 8 unless given. */
  readonly mostPlans?: number;
}

export interface CompiledStep<I extends readonly Tensor[], R extends StepResult> {
  /** Runs the step. What it gives stays until its next call. */
  (...inputs: I): R;
  /** How many plans there are. */
  readonly plans: number;
  /** Ends its plans and gives their memory back. */
  close(): void;
}

/** One plan: what was traced for inputs of these shapes. */
export interface Plan {
  readonly key: string;
  readonly inputs: readonly DeviceArray[];
  readonly gradients: GradientStates;
  readonly planned: PlannedStep;
  readonly placed: PlacedStep;
  readonly replayable: Replayable;
  readonly result: StepResult;
  readonly regions: readonly Region[];
}

export function compileStep<I extends readonly Tensor[], R extends StepResult>(
  device: Device,
  body: (...inputs: I) => R,
  { name = "step", passes = {}, mostPlans = 8 }: CompileOptions,
): CompiledStep<I, R> {
  const { runtime } = device;
  const plans: Plan[] = [];

  function call(...inputs: I): R {
    device.requireOpen();
    for (const input of inputs) device.requireLive(requireInput(name, device, input), `compiled ${name}`);
    const key = keyOf(inputs);
    const plan = plans.find((one) => one.key === key && one.gradients.isMet) ?? makePlan(key, inputs);
    for (const [index, slot] of plan.inputs.entries()) {
      const input = inputs[index];
      if (input) copyArray(runtime, input.array, slot);
    }
    plan.replayable.replay();
    for (const storage of plan.placed.written) noteWrite(storage);
    plan.gradients.leave();
    return plan.result as R;
  }

  function makePlan(key: string, inputs: I): Plan {
    if (plans.length >= mostPlans) throw tooManyPlans(name, mostPlans, plans);
    const regions: Region[] = [];
    const gradients = new GradientStates();
    try {
      const slots = placeArrays(
        device,
        `${name} inputs`,
        inputs.map(({ array }) => array),
        regions,
      );
      for (const [index, slot] of slots.entries()) {
        const input = inputs[index];
        // What the trace itself does not need, the first comparison of a replay does.
        if (input) copyArray(runtime, input.array, slot);
      }
      const seen = slots.map((array, index) => wrap(device, array, inputs[index]?.name)) as unknown as I;
      const trace = traceStep(
        runtime,
        () =>
          device.inImaginedStep(() =>
            refusingDraws(
              () => refuseDraw(name),
              () => gradients.watch(() => keepResult(device, name, body(...seen), regions)),
            ),
          ),
        (result) => result,
      );
      gradients.undo();
      const planned = planStep(runtime, trace, passes);
      regions.push(...planned.regions);
      const placed = new PlacedStep(runtime, planned, name);
      const replayable = runtime.capture(name, placed.run);
      const plan = {
        key,
        inputs: slots,
        gradients,
        planned,
        placed,
        replayable,
        result: trace.result,
        regions,
      };
      plans.push(plan);
      return plan;
    } catch (error) {
      gradients.undo();
      for (const region of regions) runtime.persistent.release(region);
      throw error;
    }
  }

  function close(): void {
    for (const { replayable, placed, regions } of plans.splice(0)) {
      replayable.close();
      placed.close();
      for (const region of regions) runtime.persistent.release(region);
    }
  }

  const compiled = Object.defineProperties(call, {
    plans: { get: () => plans.length },
    close: { value: close },
  }) as unknown as CompiledStep<I, R>;
  latestPlans.set(compiled, () => plans.at(-1));
  return compiled;
}

const latestPlans = new WeakMap<object, () => Plan | undefined>();

/** The plan that a compiled step has made last: for benchmarks and tests, which look closer than users do. */
export function latestPlanOf(step: object): Plan | undefined {
  return latestPlans.get(step)?.();
}

/** The shapes and dtypes that a plan is made for. */
function keyOf(inputs: readonly Tensor[]): string {
  return inputs.map(({ dtype, shape }) => `${dtype} ${formatShape(shape)}`).join(", ");
}

/** Persistent memory for arrays of these shapes. */
function placeArrays(
  { runtime }: Device,
  name: string,
  arrays: readonly DeviceArray[],
  regions: Region[],
): DeviceArray[] {
  const sizes = arrays.map(({ shape, dtype }) => sizeOf(shape) * dtypes[dtype].bytes);
  const placements = sizes.flatMap((size, index) => (size > 0 ? [{ name: `${name} ${index}`, size }] : []));
  const storages: Storage[] = [];
  if (placements.length > 0) {
    const region = runtime.actually(() => runtime.persistent.place("scalars", name, placements));
    regions.push(region);
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
function keepResult(device: Device, name: string, result: StepResult, regions: Region[]): StepResult {
  if (result === undefined) return undefined;
  const { tensors, rebuild } = tensorsOf(name, result);
  const slots = placeArrays(
    device,
    `${name} results`,
    tensors.map(({ array }) => array),
    regions,
  );
  const kept = tensors.map((tensor, index) => {
    const slot = slots[index];
    if (!slot) return tensor;
    device.requireLive(tensor, `result of compiled ${name}`);
    copyArray(device.runtime, tensor.array, slot);
    return wrap(device, slot, tensor.name);
  });
  return rebuild(kept);
}

interface ResultParts {
  readonly tensors: readonly Tensor[];
  /** The same structure with other tensors. */
  rebuild(tensors: readonly Tensor[]): StepResult;
}

function tensorsOf(name: string, result: Exclude<StepResult, void>): ResultParts {
  if (result instanceof Tensor) return { tensors: [result], rebuild: ([tensor]) => tensor };
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
  return { tensors, rebuild };
}

function wrap(device: Device, array: DeviceArray, name: string | undefined): Tensor {
  return new Tensor({ device, value: new Value(array) }, name);
}

function requireInput(name: string, device: Device, input: unknown): Tensor {
  if (!(input instanceof Tensor)) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `Compiled ${name} takes tensors, and was given ${input === null ? "null" : `a ${typeof input}`}. Make a tensor of what changes from ` +
        "call to call; what does not change needs no argument.",
    );
  }
  if (input.device === device) return input;
  throw new HoldfastError(
    "OTHER_DEVICE",
    `Compiled ${name}: "${input.name}" lives on another device than the step. Make both on one.`,
  );
}

function refuseDraw(name: string): never {
  throw new HoldfastError(
    "NOT_TRACEABLE",
    `Compiled ${name} draws random numbers on the host, as randn() and its kin do: every call would have the same ones. ` +
      "Draw them before the call and pass them in; dropout draws on the device.",
  );
}

function tooManyPlans(name: string, most: number, plans: readonly Plan[]): HoldfastError {
  return new HoldfastError(
    "BAD_ARGUMENT",
    `Compiled ${name} has ${most} plans already, for inputs of ${plans.map(({ key }) => `(${key})`).join(", ")}, and was called with ` +
      "others again. Bring inputs to few shapes, with padding for instance, or raise mostPlans.",
    { numbers: { mostPlans: most } },
  );
}
