/** A compiled step: a call with tensors replays the plan that was traced for their dtypes and shapes. */

import {
  type ExplainedPlan,
  type ExplainOptions,
  explainStep,
  type MemoryReport,
  type PassSettings,
  type PlacedStep,
  reportPlan,
  requireAvailable,
  timeCalls,
} from "../../compile/index.js";
import { HoldfastError } from "../../errors/index.js";
import type { StepPlanReport } from "../../records/index.js";
import { defineMethods } from "../define-methods.js";
import { Device } from "../device.js";
import { Tensor } from "../tensor.js";
import type { RunningPlan } from "./running-plan.js";
import type { ScalarRing } from "./scalar-ring.js";
import { type BadIndices, type PlanFigures, StepCounters } from "./step-figures.js";
import { keyOf } from "./step-inputs.js";
import { makeStepPlan, type StepFunction, type StepPlan } from "./step-plan.js";
import type { StepResult } from "./step-results.js";

/** Makes a compiled step that of one of several ranks: see `distributed.DataParallel`. */
export interface StepParallelism {
  /**
   * Runs the function of a step, once for each trace.
   *
   * @internal
   */
  runStep<T>(device: Device, body: () => T): T;
}

/** Options of `device.compile()`. */
export interface CompileOptions {
  /** For messages and reports. Default: "step". */
  readonly name?: string;
  /** Passes to disable, by name. */
  readonly passes?: PassSettings;
  /** Maximum number of plans, one per combination of shapes and module state. Default: 8. */
  readonly maxPlans?: number;
  /**
   * Trace the function again at calls 2 to 8 of a plan and from time to time later. Reject the step if its work
   * differs. Each audit runs the function's JavaScript once. Default: true.
   */
  readonly audit?: boolean;
  /**
   * Makes the step data parallel: pass a `distributed.DataParallel`. Each rank calls the step with its own rows, and `backward()` gives the
   * parameters the average of the gradients of all ranks. Results such as the loss are those of this rank.
   */
  readonly parallel?: StepParallelism;
}

export interface ReportOptions {
  /** Measure each call. Default: false. */
  readonly times?: boolean;
}

/** A compiled step: call it like the original function. */
export interface CompiledStep<I extends readonly Tensor[], R extends StepResult> {
  /** Runs the step. Its results are valid until its next call; `keep()` copies a result. */
  (...inputs: I): R;
  /** Number of plans. */
  readonly plans: number;
  /**
   * The scalar results by name, oldest first: the last 65,536 on the host. They are copied to the host from time to time, without
   * waiting for the device.
   */
  readonly history: Readonly<Record<string, readonly number[]>>;
  /**
   * Number of calls that changed nothing because a gradient norm was not finite or an index was bad. Waits for the
   * device.
   */
  readonly skipped: number;
  /**
   * The number of calls with an index outside its axis, and the first of them. Eager code rejects such an index. A compiled step
   * skips its updates after the check. At the next read-back it prints one warning, for the first bad index only. Waits for the
   * device.
   *
   * @example
   * ```ts
   * import { device, nn, tensor } from "holdfast";
   * const cpu = await device("cpu", { print: () => undefined });
   * const table = new nn.Embedding(4, 2).to(cpu);
   * const step = cpu.compile((tokens) => table.forward(tokens).sum());
   * step(tensor([3], { dtype: "i32" }));
   * step(tensor([7], { dtype: "i32" }));
   * const { calls, first } = step.badIndices;
   * console.log(calls, first?.call, first?.op, first?.index); // → 1 2 embedding 7
   * cpu.close();
   * ```
   */
  readonly badIndices: BadIndices;
  /**
   * Requests the latest numbers, and adds those that have arrived to the history. Does not wait.
   */
  refresh(): void;
  /** Waits until the history is complete. */
  flush(): void;
  /**
   * Explains each plan of the step: every stage from the trace to the capture, and the calls one by one.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const step = cpu.compile((x) => x.exp().add(1).log());
   * step(tensor([1, 2, 3]));
   * const text = step.explain({ calls: false });
   * console.log(text.match(/^verticalFusion +3 → 1/m)?.[0]); // → verticalFusion    3 → 1
   * cpu.close();
   * ```
   */
  explain(options?: ExplainOptions): string;
  /**
   * The step memory that a call with these inputs needs, and the persistent memory that it uses. The plan is kept for that call.
   * Memory for inputs, results and constants is allocated. Step memory is not, and nothing runs.
   *
   * @example
   * ```ts
   * import { device, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const step = cpu.compile((x) => x.matmul(x.t()).softmax(-1).matmul(x));
   * const x = zeros([512, 64]);
   * const { live } = cpu.diagnostics().arena;
   * const { peak } = step.memory(x);
   * console.log(peak > 512 * 512 * 4, cpu.diagnostics().arena.live === live); // → true true
   * cpu.close();
   * ```
   */
  memory(...inputs: I): MemoryReport;
  /**
   * Its plans as plain data, to show or to save: the passes, the calls, and the offset and live range of each buffer in step
   * memory. With `times`, the calls of plans that have run are measured. On a GPU that takes a few seconds, and one step on a CPU.
   * The measured times stay with the plan. The state of the step does not change.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const step = cpu.compile((x) => x.exp().add(1).log());
   * step(tensor([1, 2, 3]));
   * const [plan] = step.report({ times: true });
   * console.log(plan?.inputs, plan?.calls.map(({ op, us = -1 }) => [op, us >= 0])); // → f32 [3] [ [ 'exp + add + log', true ] ]
   * cpu.close();
   * ```
   */
  report(options?: ReportOptions): readonly StepPlanReport[];
  /** Ends its plans and frees their memory. */
  close(): void;
}

declare module "../device.js" {
  interface Device {
    /**
     * Compiles the function of a step to one launch. The first call traces it, plans its memory, verifies the plan and captures
     * it. Later calls replay it. Code and results are the same as with `step`.
     *
     * Calls with other shapes get another plan. So does another state of modules and parameters: train or eval mode,
     * `requiresGrad`, fields that the function read. Learning rates and random numbers are read from memory each time. Everything
     * else that the function reads is constant; if a change of it changes the step, the step is rejected with STEP_CHANGED.
     *
     * @example
     * ```ts
     * import { device, optim, tensor } from "holdfast";
     * const cpu = await device("cpu");
     * const w = tensor([8], { requiresGrad: true });
     * const sgd = new optim.SGD([w], { lr: 0.25 });
     * const step = cpu.compile((x) => {
     *   const loss = w.mul(x).square().sum();
     *   loss.backward();
     *   sgd.step();
     *   sgd.zeroGrad();
     *   return { loss };
     * });
     * const x = tensor([1]);
     * const losses = [1, 2, 3].map(() => step(x).loss.item());
     * console.log(losses, w.tolist()); // → [ 64, 16, 4 ] [ 1 ]
     * cpu.close();
     * ```
     */
    compile<I extends readonly Tensor[], R extends StepResult>(
      body: (...inputs: I) => R,
      options?: CompileOptions,
    ): CompiledStep<I, R>;
  }
}

const compileMethod: Pick<Device, "compile"> & ThisType<Device> = {
  compile(body, options = {}) {
    return compileStep(this, body, options);
  },
};

defineMethods(Device, compileMethod);

function compileStep<I extends readonly Tensor[], R extends StepResult>(
  device: Device,
  userBody: (...inputs: I) => R,
  { name = "step", passes = {}, maxPlans = 8, audit = true, parallel }: CompileOptions,
): CompiledStep<I, R> {
  const { runtime } = device;
  const body = parallel ? (...inputs: I): R => parallel.runStep(device, () => userBody(...inputs)) : userBody;
  const rings = new Map<string, ScalarRing>();
  const listeners = new Map<string, NumbersListener>();
  const figures = new StepCounters(runtime, name);
  const figuresOf = new WeakMap<StepPlan, PlanFigures>();
  const step: StepFunction = {
    ...{ name, passes, rings, isAudited: audit },
    onNumbers(result, numbers) {
      listeners.get(result)?.(numbers);
      figures.noteNumbers(numbers);
    },
    body: body as unknown as StepFunction["body"],
  };
  const plans: StepPlan[] = [];

  function call(...inputs: I): R {
    // Inside another compiled step, the function becomes part of that step: a replay now would not be part of its trace.
    if (runtime.isTracing) return body(...inputs);
    const plan = planFor(inputs);
    plan.audit();
    plan.inputs.load(inputs);
    if (!plan.running) start(plan);
    figures.noteCall(figuresOf.get(plan));
    return plan.replay(inputs) as R;
  }

  function planFor(inputs: I): StepPlan {
    device.requireOpen();
    for (const input of inputs) device.requireLive(requireInput(name, device, input), `compiled ${name}`);
    // A plan whose guards can never hold again is dropped.
    if (!plans.every(holds)) plans.filter((plan) => !holds(plan)).forEach(drop);
    for (const plan of plans) if (plan.inputs.isFor(inputs) && plan.guards.hold) return plan;
    if (plans.length >= maxPlans) throw tooManyPlans(name, maxPlans, plans, inputs);
    const created = runtime.phases.run("compile", () => makeStepPlan(device, step, inputs), { label: name });
    plans.push(created);
    const planFigures = figures.add(created.planned.record);
    if (planFigures) figuresOf.set(created, planFigures);
    return created;
  }

  /** Allocates memory for a plan, or rejects and removes it. */
  function start(plan: StepPlan): void {
    const started = plans.filter(({ running }) => running);
    try {
      requireAvailable(runtime, plan.planned.memory, {
        name,
        inputs: plan.key,
        shapes: plan.inputs.slots.map(({ shape }) => shape),
        otherPlans: started.reduce(
          (sum, { running, planned }) => sum + (running?.planned ?? planned).plan.bytes,
          0,
        ),
      });
      runtime.phases.run("compile", () => void plan.start(), { label: name });
    } catch (error) {
      drop(plan);
      throw error;
    }
  }

  function drop(plan: StepPlan): void {
    plans.splice(plans.indexOf(plan), 1);
    figures.remove(figuresOf.get(plan));
    plan.close();
  }

  const describePlan = ({ key, planned, running }: StepPlan): ExplainedPlan => ({
    inputs: key,
    planned: running?.planned ?? planned,
    replayable: running?.replayable,
  });

  const explain = (options?: ExplainOptions): string => explainStep(name, plans.map(describePlan), options);

  /** Measured times by placed step, because autotuning may still select another schedule for a plan. */
  const measured = new WeakMap<PlacedStep, readonly number[]>();

  function report({ times = false }: ReportOptions = {}): readonly StepPlanReport[] {
    return plans.map((plan) => {
      const { running } = plan;
      if (times && running) measured.set(running.placed, timeCalls(runtime, running.placed));
      const callTimes = running && measured.get(running.placed);
      const { inputs, planned, replayable } = describePlan(plan);
      const { calls, ...rest } = reportPlan(planned);
      return {
        ...{ name, inputs, mode: replayable?.mode, reason: replayable?.reason, ...rest },
        isRejected: replayable?.mode === "direct" && !running?.tuning && runtime.settings.capture !== "off",
        calls: callTimes ? calls.map((call, index) => ({ ...call, us: callTimes[index] })) : calls,
        text: explainStep(name, [describePlan(plan)]),
      };
    });
  }

  function close(): void {
    figures.close();
    const open = { plans: plans.splice(0), rings: [...rings.values()] };
    rings.clear();
    // A device that is closed has released its memory.
    if (!device.isOpen) return;
    for (const plan of open.plans) plan.close();
    for (const ring of open.rings) ring.close();
  }

  const refresh = (): void => {
    for (const ring of rings.values()) ring.refresh();
  };
  const flush = (): void => {
    for (const ring of rings.values()) ring.flush();
  };
  const historyOf = (): Record<string, readonly number[]> =>
    Object.fromEntries([...rings].map(([result, { latest }]) => [result, latest]));

  const compiled = Object.defineProperties(call, {
    plans: { get: () => plans.length },
    history: { get: historyOf },
    skipped: { get: () => figures.skipped },
    badIndices: { get: () => figures.badIndices },
    refresh: { value: refresh },
    flush: { value: flush },
    explain: { value: explain },
    report: { value: report },
    memory: { value: (...inputs: I) => planFor(inputs).planned.memory },
    close: { value: close },
  }) as unknown as CompiledStep<I, R>;
  numberListeners.set(compiled, listeners);
  latestPlans.set(compiled, () => plans.findLast(({ running }) => running));
  return compiled;
}

const holds = (plan: StepPlan): boolean => plan.holds();

type NumbersListener = (numbers: readonly number[]) => void;

const numberListeners = new WeakMap<object, Map<string, NumbersListener>>();

/** Calls a listener with all scalars of a result, in order, as they arrive on the host. The history has only the latest. */
export function listenToNumbers(step: object, result: string, listener: NumbersListener): void {
  numberListeners.get(step)?.set(result, listener);
}

const latestPlans = new WeakMap<object, () => StepPlan | undefined>();

/** The plan that a compiled step used last: for benchmarks and tests. */
export function latestPlanOf(step: object): (StepPlan & RunningPlan) | undefined {
  const plan = latestPlans.get(step)?.();
  return plan?.running && { ...plan, ...plan.running };
}

function requireInput(name: string, device: Device, input: unknown): Tensor {
  if (!(input instanceof Tensor)) {
    const kind = Array.isArray(input)
      ? "an array"
      : input === null
        ? "null"
        : `a value of type ${typeof input}`;
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `Compiled ${name} takes tensors, but got ${kind}. Pass values that change between ` +
        "calls as tensors; constants need no argument.",
    );
  }
  if (input.device === device && !(input.requiresGrad && !input.isLeaf)) return input;
  if (input.device === device) {
    throw new HoldfastError(
      "NO_GRADIENT",
      `Compiled ${name}: input "${input.name}" is the result of ops that record gradients, and a compiled step sends no gradient to ` +
        "them. Pass detach() of it, or compute it inside the step.",
    );
  }
  throw new HoldfastError(
    "OTHER_DEVICE",
    `Compiled ${name}: "${input.name}" is on another device than the step. Create both on one device.`,
  );
}

function tooManyPlans(
  name: string,
  max: number,
  plans: readonly StepPlan[],
  inputs: readonly Tensor[],
): HoldfastError {
  const key = keyOf(inputs);
  const sameInputs = plans.filter((plan) => plan.key === key);
  const changed = [...new Set(sameInputs.flatMap(({ guards }) => guards.broken))];
  const reason =
    changed.length > 0
      ? `${sameInputs.length} are for inputs of these shapes, and a new one is needed because these changed: ${changed.slice(0, 4).join(", ")}. ` +
        "Change them less often, pass them as tensors, or raise maxPlans."
      : `they are for inputs of ${plans.map((plan) => `(${plan.key})`).join(", ")}, and it was called with (${key}). Pad inputs ` +
        "to fewer shapes, or raise maxPlans.";
  return new HoldfastError(
    "BAD_ARGUMENT",
    `Compiled ${name} has reached its limit of ${max} plans: ${reason}`,
    {
      numbers: { maxPlans: max },
    },
  );
}
