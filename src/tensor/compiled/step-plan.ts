/**
 * One plan of a compiled step: its function traced for inputs of given shapes, and planned; then, with its first call, in
 * memory and captured. It is valid while its guards hold, and audited now and then.
 */

import { type Guards, noteWrite } from "../../autograd/index.js";
import {
  type ExpectedWork,
  expectedWork,
  type PassSettings,
  type PlacedStep,
  type PlannedStep,
  planStep,
} from "../../compile/index.js";
import { HoldfastError } from "../../errors/index.js";
import type { Region } from "../../runtime/index.js";
import { overlaps } from "../../units/index.js";
import type { Device } from "../device.js";
import type { Tensor } from "../tensor.js";
import { AuditTimes } from "./audit-times.js";
import { beginPlan, chooseSchedule, type RunningPlan } from "./running-plan.js";
import { keyOf, StepInputs } from "./step-inputs.js";
import type { StepResult } from "./step-results.js";
import { audit, type StepBody, traceUntilStable } from "./step-trace.js";

export interface StepPlan {
  /** The dtypes and shapes of its inputs, as one text. */
  readonly key: string;
  readonly inputs: StepInputs;
  /** The host state that it is valid for. */
  readonly guards: Guards;
  readonly planned: PlannedStep;
  /** Undefined before it starts. */
  readonly running: RunningPlan | undefined;
  /** Allocates its step memory and captures it, once. Its inputs must be loaded: the first replay is compared. */
  begin(): RunningPlan;
  /** Traces the function again if that is due, and rejects a plan that no longer matches the function. */
  audit(): void;
  /** Replays it on loaded inputs. */
  replay(inputs: readonly Tensor[]): StepResult;
  /** True if all other guards of its function hold. */
  holds(): boolean;
  close(): void;
}

export interface StepFunction extends StepBody {
  readonly passes: PassSettings;
  readonly isAudited: boolean;
}

/** Traces and plans. Places inputs, results and constants; step memory is not allocated yet. */
export function makeStepPlan(device: Device, step: StepFunction, inputs: readonly Tensor[]): StepPlan {
  const { runtime } = device;
  const undo: (() => void)[] = [];
  const own = new Set<Region>();
  const releaseLater = (region: Region): void => {
    own.add(region);
    undo.push(() => runtime.persistent.release(region));
  };
  const rings = new Set(step.rings.keys());
  try {
    const slots = new StepInputs(device, step.name, inputs, releaseLater);
    const { trace, guards } = traceUntilStable(device, step, slots, releaseLater);
    const { result: results } = trace;
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
    const times = new AuditTimes();
    let expected: ExpectedWork | undefined;
    let rejection: HoldfastError | undefined;
    return {
      ...{ key: keyOf(inputs), inputs: slots, guards, planned, holds: trace.holds },
      get running() {
        return running;
      },
      begin: () => running ?? begin(),
      audit() {
        if (rejection) throw rejection;
        if (!step.isAudited || !times.isDue()) return;
        const work = expected ?? expectedWork(trace);
        expected = work;
        try {
          const trace = (): void => audit(device, step, slots, results, work);
          times.measure(() => runtime.phases.run("audit", trace, { label: step.name }));
        } catch (error) {
          if (error instanceof HoldfastError && error.code === "STEP_CHANGED") rejection = error;
          throw error;
        }
      },
      replay(given) {
        const { placed, replayable } = running ?? begin();
        requireNotWritten(step.name, given, placed, own);
        replayable.replay();
        times.noteCall();
        for (const storage of placed.written) noteWrite(storage);
        guards.leave();
        // Ends the results of the previous call: an input that was one of them must no longer be written.
        const result = results.next();
        slots.deliver(given);
        return result;
      },
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

/**
 * A parameter that the step updates can't be its input: the function would see a copy of it as it was before the update. Earlier
 * results of the plan, and what else it owns, are no such inputs.
 */
function requireNotWritten(
  name: string,
  inputs: readonly Tensor[],
  { written, writtenSpans }: PlacedStep,
  own: ReadonlySet<object>,
): void {
  for (const [index, input] of inputs.entries()) {
    const { storage } = input.array;
    if (storage?.kind !== "persistent" || own.has(storage.home)) continue;
    if (!written.some(({ home }) => home === storage.home)) continue;
    if (!writtenSpans.some((span) => overlaps(span, storage.span))) continue;
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `Compiled ${name}: the step writes to the memory of input ${index}, "${input.name}". Use the tensor inside the function ` +
        "without passing it, or pass clone() of it.",
      { numbers: { input: index } },
    );
  }
}

function endAll(undo: (() => void)[]): void {
  for (const end of undo.splice(0).reverse()) end();
}
