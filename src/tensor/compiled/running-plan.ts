/** A plan in memory: captured and, if the schedule is not fixed, autotuned among several candidates. */

import {
  assignStreams,
  fitsMemory,
  type PassSettings,
  PlacedStep,
  type PlannedStep,
  serializedStep,
  streamOptions,
  streamSetting,
} from "../../compile/index.js";
import { HoldfastError } from "../../errors/index.js";
import { capabilitiesOf } from "../../kernels/index.js";
import type { Replayable, Runtime } from "../../runtime/index.js";
import {
  autotuneSchedule,
  type Candidate,
  type TunedSchedule,
  type TuningResult,
} from "./autotune-schedule.js";

export interface RunningPlan {
  /** The plan with its schedule: without side streams until all candidates have been timed. */
  readonly planned: PlannedStep;
  readonly placed: PlacedStep;
  readonly replayable: Replayable;
  /** The times of the candidates; undefined until all have been timed, or if there is only one. */
  readonly tuning: TuningResult | undefined;
  close(): void;
}

/** The name of a step, and its passes. */
export interface PlanOptions {
  readonly name: string;
  readonly passes: PassSettings;
}

/** If the schedule is fixed and side streams are requested, the plan uses them. */
export function chooseSchedule(runtime: Runtime, { passes }: PlanOptions, planned: PlannedStep): PlannedStep {
  if (streamSetting(passes) !== true || runtime.settings.capture === "auto") return planned;
  return assignStreams(runtime, planned) ?? planned;
}

/** Allocates a plan's memory and captures it. */
export function startPlan(runtime: Runtime, options: PlanOptions, planned: PlannedStep): RunningPlan {
  const plain = placePlan(runtime, options, planned);
  const { placed, replayable } = plain;
  if (runtime.settings.capture !== "auto" || replayable.mode !== "graph") {
    const close = (): void => closeCandidate(plain);
    return { planned, placed, replayable, tuning: undefined, close };
  }
  const direct: Replayable = { mode: "direct", replay: placed.run, close: () => undefined };
  const candidates: PlanCandidate[] = [];
  try {
    candidates.push(...serializedCandidate(runtime, options, plain));
    for (const streamed of streamedCandidates(runtime, options, planned)) {
      candidates.push(streamed);
      candidates.push(...serializedCandidate(runtime, options, streamed));
    }
    candidates.push({ ...plain, name: "direct", replayable: direct });
    return runningPlanOf(autotuneSchedule(runtime, [plain, ...candidates]));
  } catch (error) {
    for (const candidate of [plain, ...candidates]) closeCandidate(candidate);
    throw error;
  }
}

/** Candidates that differ only in how launches follow each other share their memory. */
interface PlanCandidate extends Candidate {
  readonly planned: PlannedStep;
  readonly placed: PlacedStep;
}

function placePlan(
  runtime: Runtime,
  { name }: PlanOptions,
  planned: PlannedStep,
  schedule = "graph",
): PlanCandidate {
  const placed = PlacedStep.place(runtime, planned, name);
  try {
    const replayable = runtime.capture(name, placed.run, placed.scratch);
    return { name: schedule, replayable, memory: { close: () => placed.close() }, planned, placed };
  } catch (error) {
    placed.close();
    throw error;
  }
}

/** The same schedule without programmatic dependent launches, which occupy the device early and may slow other kernels. */
function serializedCandidate(
  runtime: Runtime,
  { name }: PlanOptions,
  candidate: PlanCandidate,
): PlanCandidate[] {
  const planned = serializedStep(candidate.planned);
  if (!planned) return [];
  const placed = candidate.placed.serialized();
  const replayable = runtime.capture(name, placed.run, placed.scratch);
  if (replayable.mode === "graph")
    return [{ ...candidate, name: `${candidate.name} without PDL`, replayable, planned, placed }];
  replayable.close();
  return [];
}

/** Side streams are tried on GPUs, where small kernels leave the device idle, and only if all plans fit in memory. */
function* streamedCandidates(
  runtime: Runtime,
  options: PlanOptions,
  planned: PlannedStep,
): Generator<PlanCandidate> {
  const isAllowed = streamSetting(options.passes) ?? capabilitiesOf(runtime).hasStreams;
  if (!isAllowed) return;
  for (const [name, placement] of Object.entries(streamOptions)) {
    const streamed = assignStreams(runtime, planned, placement);
    if (!streamed) continue;
    if (!fitsMemory(runtime, streamed.memory)) return;
    try {
      const candidate = placePlan(runtime, options, streamed, `graph with ${name}`);
      if (candidate.replayable.mode === "graph") yield candidate;
      else closeCandidate(candidate);
    } catch (error) {
      // The free memory may be fragmented. The plan without side streams already has its memory.
      if (!(error instanceof HoldfastError && memoryRejections.has(error.code))) throw error;
      return;
    }
  }
}

const memoryRejections: ReadonlySet<string> = new Set(["OUT_OF_BUDGET", "OUT_OF_MEMORY", "ARENA_FULL"]);

function closeCandidate({ replayable, memory }: Candidate): void {
  replayable.close();
  memory.close();
}

function runningPlanOf(schedule: TunedSchedule<PlanCandidate>): RunningPlan {
  return {
    get planned() {
      return schedule.kept.planned;
    },
    get placed() {
      return schedule.kept.placed;
    },
    get tuning() {
      return schedule.tuning;
    },
    replayable: schedule,
    close: () => schedule.close(),
  };
}
