/** A step as one launch, as users have it: called with tensors, it replays what it has traced for such tensors before. */

import { noteWrite } from "../autograd/index.js";
import type { PassSettings } from "../compile/index.js";
import { HoldfastError } from "../errors/index.js";
import { copyArray, formatShape } from "../ops/index.js";
import type { Device } from "./device.js";
import { makeStepPlan, type StepFunction, type StepPlan, type StepResult } from "./step-plan.js";
import { Tensor } from "./tensor.js";

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

/** A plan, and the shapes and dtypes that it is for. */
interface Kept extends StepPlan {
  readonly key: string;
}

export function compileStep<I extends readonly Tensor[], R extends StepResult>(
  device: Device,
  body: (...inputs: I) => R,
  { name = "step", passes = {}, mostPlans = 8 }: CompileOptions,
): CompiledStep<I, R> {
  const { runtime } = device;
  const step: StepFunction = { name, passes, body: body as unknown as StepFunction["body"] };
  const plans: Kept[] = [];

  function call(...inputs: I): R {
    device.requireOpen();
    for (const input of inputs) device.requireLive(requireInput(name, device, input), `compiled ${name}`);
    const plan = planFor(inputs);
    for (const [index, slot] of plan.inputs.entries()) {
      const input = inputs[index];
      if (input) copyArray(runtime, input.array, slot);
    }
    plan.replayable.replay();
    for (const storage of plan.placed.written) noteWrite(storage);
    plan.gradients.leave();
    return plan.result as R;
  }

  function planFor(inputs: I): Kept {
    // What a plan took for granted may have changed for good.
    for (const stale of plans.filter((plan) => !plan.holds())) {
      plans.splice(plans.indexOf(stale), 1);
      stale.close();
    }
    const key = inputs.map(({ dtype, shape }) => `${dtype} ${formatShape(shape)}`).join(", ");
    const known = plans.find((plan) => plan.key === key && plan.gradients.isMet);
    if (known) return known;
    if (plans.length >= mostPlans) throw tooManyPlans(name, mostPlans, plans);
    const made = { key, ...makeStepPlan(device, step, inputs) };
    plans.push(made);
    return made;
  }

  function close(): void {
    for (const plan of plans.splice(0)) plan.close();
  }

  const compiled = Object.defineProperties(call, {
    plans: { get: () => plans.length },
    close: { value: close },
  }) as unknown as CompiledStep<I, R>;
  latestPlans.set(compiled, () => plans.at(-1));
  return compiled;
}

const latestPlans = new WeakMap<object, () => StepPlan | undefined>();

/** The plan that a compiled step has made last: for benchmarks and tests, which look closer than users do. */
export function latestPlanOf(step: object): StepPlan | undefined {
  return latestPlans.get(step)?.();
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

function tooManyPlans(name: string, most: number, plans: readonly Kept[]): HoldfastError {
  return new HoldfastError(
    "BAD_ARGUMENT",
    `Compiled ${name} has ${most} plans already, for inputs of ${plans.map(({ key }) => `(${key})`).join(", ")}, and was called with ` +
      "others again. Bring inputs to few shapes, with padding for instance, or raise mostPlans.",
    { numbers: { mostPlans: most } },
  );
}
