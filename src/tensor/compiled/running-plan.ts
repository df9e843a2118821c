/** A plan in memory: captured and, unless the schedule is fixed, run by the fastest of several candidates. */

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
import { autotuneSchedule, type Candidate, type Tuned, type Verdict } from "./autotune-schedule.js";

export interface RunningPlan {
  /** With its schedule: while several are timed, the one without side streams. */
  readonly planned: PlannedStep;
  readonly placed: PlacedStep;
  readonly replayable: Replayable;
  /** The time of each candidate, once all have been timed; undefined if there was only one. */
  readonly verdict: Verdict | undefined;
  close(): void;
}

/** Who is to run. */
export interface Runner {
  readonly name: string;
  readonly passes: PassSettings;
}

/** If the schedule is fixed and side streams are requested, the plan uses them. */
export function chooseSchedule(runtime: Runtime, { passes }: Runner, planned: PlannedStep): PlannedStep {
  if (streamSetting(passes) !== true || runtime.settings.capture === "auto") return planned;
  return assignStreams(runtime, planned) ?? planned;
}

/** Allocates a plan's memory and captures it. */
export function beginPlan(runtime: Runtime, runner: Runner, planned: PlannedStep): RunningPlan {
  const plain = placePlan(runtime, runner, planned);
  const { placed, replayable } = plain;
  if (runtime.settings.capture !== "auto" || replayable.mode !== "graph") {
    const close = (): void => closeWay(plain);
    return { planned, placed, replayable, verdict: undefined, close };
  }
  const direct: Replayable = { mode: "direct", replay: placed.run, close: () => undefined };
  const ways: PlanWay[] = [];
  try {
    ways.push(...serializedCandidate(runtime, runner, plain));
    for (const way of streamedCandidates(runtime, runner, planned)) {
      ways.push(way);
      ways.push(...serializedCandidate(runtime, runner, way));
    }
    ways.push({ ...plain, name: "direct", replayable: direct });
    return runningWhile(autotuneSchedule(runtime, [plain, ...ways]));
  } catch (error) {
    for (const way of [plain, ...ways]) closeWay(way);
    throw error;
  }
}

/** Candidates that differ only in how launches follow each other share their memory. */
interface PlanWay extends Candidate {
  readonly planned: PlannedStep;
  readonly placed: PlacedStep;
}

function placePlan(runtime: Runtime, { name }: Runner, planned: PlannedStep, schedule = "graph"): PlanWay {
  const placed = PlacedStep.place(runtime, planned, name);
  try {
    const replayable = runtime.capture(name, placed.run, placed.scratch);
    return { name: schedule, replayable, memory: { close: () => placed.close() }, planned, placed };
  } catch (error) {
    placed.close();
    throw error;
  }
}

/**
 * Programmatic dependent launches occupy the device early, which may slow other kernels: the same schedule without
 * them.
 */
function serializedCandidate(runtime: Runtime, { name }: Runner, way: PlanWay): PlanWay[] {
  const planned = serializedStep(way.planned);
  if (!planned) return [];
  const placed = way.placed.serialized();
  const replayable = runtime.capture(name, placed.run, placed.scratch);
  if (replayable.mode === "graph")
    return [{ ...way, name: `${way.name} without PDL`, replayable, planned, placed }];
  replayable.close();
  return [];
}

/** Side streams are tried on GPUs, where small kernels leave the device idle, and only if all plans fit in memory. */
function* streamedCandidates(runtime: Runtime, runner: Runner, planned: PlannedStep): Generator<PlanWay> {
  const isAllowed = streamSetting(runner.passes) ?? capabilitiesOf(runtime).hasStreams;
  if (!isAllowed) return;
  for (const [name, options] of Object.entries(streamOptions)) {
    const streamed = assignStreams(runtime, planned, options);
    if (!streamed) continue;
    if (!fitsMemory(runtime, streamed.memory)) return;
    try {
      const way = placePlan(runtime, runner, streamed, `graph with ${name}`);
      if (way.replayable.mode === "graph") yield way;
      else closeWay(way);
    } catch (error) {
      // The free memory may be fragmented; the plan without side streams has its memory.
      if (!(error instanceof HoldfastError && memoryRejections.has(error.code))) throw error;
      return;
    }
  }
}

const memoryRejections: ReadonlySet<string> = new Set(["OUT_OF_BUDGET", "OUT_OF_MEMORY", "ARENA_FULL"]);

function closeWay({ replayable, memory }: Candidate): void {
  replayable.close();
  memory.close();
}

function runningWhile(tried: Tuned<PlanWay>): RunningPlan {
  return {
    get planned() {
      return tried.kept.planned;
    },
    get placed() {
      return tried.kept.placed;
    },
    get verdict() {
      return tried.verdict;
    },
    replayable: tried,
    close: () => tried.close(),
  };
}
