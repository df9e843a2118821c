/** Traces a compiled step's function for a plan, and traces it again to audit the plan. */

import { Guards } from "../../autograd/index.js";
import { auditStep, type ExpectedWork, type Trace, traceStep } from "../../compile/index.js";
import { HoldfastError } from "../../errors/index.js";
import type { Region } from "../../runtime/index.js";
import type { Device } from "../device.js";
import { rejectingDraws } from "../seed.js";
import type { Tensor } from "../tensor.js";
import type { StepInputs } from "./step-inputs.js";
import { type ResultOwner, type StepResult, StepResults } from "./step-results.js";

export interface StepBody extends ResultOwner {
  body(...inputs: readonly Tensor[]): StepResult;
}

export interface TracedStep {
  readonly trace: Trace<StepResults>;
  readonly guards: Guards;
}

/** Maximum number of traces, if each changes the state that it read. */
const maxTraces = 4;

/** Traces a step again if the trace changed its initial state, as an optimizer does that splits its step-count groups. */
export function traceUntilStable(
  device: Device,
  step: StepBody,
  inputs: StepInputs,
  onRegion: (region: Region) => void,
): TracedStep {
  for (let times = 0; times < maxTraces; times++) {
    const guards = new Guards();
    const regions: Region[] = [];
    try {
      const keep = (result: StepResult): StepResults =>
        new StepResults(device, step, result, (region) => regions.push(region));
      const trace = traceStep(device.runtime, () => run(device, step, inputs, guards, keep));
      if (trace.holds()) {
        regions.splice(0).forEach(onRegion);
        return { trace, guards };
      }
    } finally {
      guards.undo();
      for (const region of regions) device.runtime.persistent.release(region);
    }
  }
  throw new HoldfastError(
    "NOT_TRACEABLE",
    `Compiled ${step.name} does different work each time that it is traced. Make it do the same work for the same shapes.`,
  );
}

/** Traces the function again, without memory and without kernels, and rejects work that differs from the plan's trace. */
export function audit(
  device: Device,
  step: StepBody,
  inputs: StepInputs,
  results: StepResults,
  expected: ExpectedWork,
): void {
  const guards = new Guards();
  try {
    const store = (result: StepResult): void => results.storeAgain(result);
    auditStep(device.runtime, expected, () => run(device, step, inputs, guards, store));
  } finally {
    guards.undo();
  }
}

function run<T>(
  device: Device,
  { name, body }: StepBody,
  inputs: StepInputs,
  guards: Guards,
  store: (result: StepResult) => T,
): T {
  const traced = (): T =>
    inputs.trace((tensors) => {
      const result = body(...tensors);
      // A skipped step still returns its results: its loss shows why it was skipped.
      if (result !== undefined) device.runtime.traceSink?.writeOnlyIfFinite(undefined);
      return store(result);
    });
  return device.inTracedStep(() =>
    rejectingDraws(
      () => rejectDraw(name),
      () => guards.watch(device, traced),
    ),
  );
}

function rejectDraw(name: string): never {
  throw new HoldfastError(
    "NOT_TRACEABLE",
    `Compiled ${name} draws random numbers on the host, as new modules do: every call would use the same numbers. ` +
      "Create modules before the call; randn(), randperm() and dropout draw on the device.",
  );
}
