/**
 * One plan of a compiled step. The function is traced and planned for inputs of certain shapes; the first call allocates its
 * memory and captures it. A plan is valid while its guards hold, and is audited from time to time.
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
import { chooseSchedule, type RunningPlan, startPlan } from "./running-plan.js";
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
  start(): RunningPlan;
  /** Traces the function again if an audit is due, and rejects a plan that no longer matches the function. */
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
  const regions = new Set<Region>();
  const releaseLater = (region: Region): void => {
    regions.add(region);
    undo.push(() => runtime.persistent.release(region));
  };
  const rings = new Set(step.rings.keys());
  try {
    const slots = new StepInputs(device, step.name, inputs, releaseLater);
    const { trace, guards } = traceUntilStable(device, step, slots, releaseLater);
    const { result: results } = trace;
    const unscheduled = planStep(runtime, trace, step.passes, step.name, keyOf(inputs));
    for (const region of unscheduled.regions) releaseLater(region);
    undo.push(() => unscheduled.copies.close());
    const planned = chooseSchedule(runtime, step, unscheduled);
    let running: RunningPlan | undefined;
    const start = (): RunningPlan => {
      const started = startPlan(runtime, step, planned);
      undo.push(() => started.close());
      running = started;
      return started;
    };
    const times = new AuditTimes();
    let expected: ExpectedWork | undefined;
    let rejection: HoldfastError | undefined;
    return {
      ...{ key: keyOf(inputs), inputs: slots, guards, planned, holds: trace.holds },
      get running() {
        return running;
      },
      start: () => running ?? start(),
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
      replay(inputs) {
        const { placed, replayable } = running ?? start();
        requireNotWritten(step.name, inputs, placed, regions);
        replayable.replay();
        times.noteCall();
        for (const storage of placed.written) noteWrite(storage);
        guards.leave();
        // Ends the results of the previous call first: if an input was one of them, nothing may be written to it.
        const result = results.next();
        slots.deliver(inputs);
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
 * Rejects an input whose memory the step writes, such as a parameter: the function would read a copy from before the update.
 * Memory that the plan owns is exempt, such as earlier results.
 */
function requireNotWritten(
  name: string,
  inputs: readonly Tensor[],
  { written, writtenSpans }: PlacedStep,
  ownedRegions: ReadonlySet<object>,
): void {
  for (const [index, input] of inputs.entries()) {
    const { storage } = input.array;
    if (storage?.kind !== "persistent" || ownedRegions.has(storage.home)) continue;
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
