/** A plan in memory: captured and, if the schedule is not fixed, autotuned among several candidates. */

import {
  assignStreams,
  type Call,
  collectivesIn,
  describeCalls,
  fitsMemory,
  type PassSettings,
  PlacedStep,
  type PlannedStep,
  StepBlock,
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
  const isTuned = runtime.settings.capture === "auto";
  const remembered = isTuned ? placeRemembered(runtime, options, planned) : undefined;
  if (remembered) return untuned(remembered);
  const streamed = isTuned ? streamedPlans(runtime, options, planned) : [];
  const block = allocateBlock(runtime, options, planned, streamed);
  try {
    return startIn(block, runtime, options, planned, streamed);
  } finally {
    block.release();
  }
}

/** A block for a plan, and for its variants with side streams if there is enough memory: they run one at a time. */
function allocateBlock(
  runtime: Runtime,
  { name }: PlanOptions,
  { plan }: PlannedStep,
  streamed: readonly CandidatePlan[],
): StepBlock {
  const largest = Math.max(plan.bytes, ...streamed.map(({ planned }) => planned.plan.bytes));
  if (largest > plan.bytes) {
    try {
      if (streamed.every(({ planned }) => fitsMemory(runtime, planned.memory)))
        return new StepBlock(runtime, largest, name);
    } catch (error) {
      // The free memory may be fragmented.
      if (!isMemoryRejection(error)) throw error;
    }
  }
  return new StepBlock(runtime, plan.bytes, name);
}

function startIn(
  block: StepBlock,
  runtime: Runtime,
  options: PlanOptions,
  planned: PlannedStep,
  streamed: readonly CandidatePlan[],
): RunningPlan {
  const plain = placePlan(runtime, options, { schedule: graph, planned }, block);
  const { placed, replayable } = plain;
  const isShared = isSharedPlan(runtime, planned);
  const requireSameModes = (all: readonly PlanCandidate[]): void => {
    const modes = all.map(
      ({ name, replayable: { mode, reason, launches = 0 } }) =>
        `${name}: ${mode}${launches > 1 ? ` in ${launches} launches` : ""}${reason ? ` (${reason})` : ""}`,
    );
    if (isShared) runtime.choices.requireSame(`the captures of step "${options.name}"`, modes);
  };
  requireSameModes([plain]);
  const isOnly = runtime.settings.capture !== "auto" || replayable.mode !== "graph" || isSplit(replayable);
  if (isOnly) return untuned(plain);
  const fitting = streamed.filter((variant) => variant.planned.plan.bytes <= (block.storage?.span.size ?? 0));
  const direct = keepingCopies(plain, { mode: "direct", replay: placed.run, close: () => undefined });
  const candidates: PlanCandidate[] = [];
  try {
    candidates.push(...serializedCandidate(runtime, options, plain));
    for (const variant of fitting) {
      const candidate = placePlan(runtime, options, variant, block);
      if (candidate.replayable.mode !== "graph") {
        closeCandidate(candidate);
        continue;
      }
      candidates.push(candidate);
      candidates.push(...serializedCandidate(runtime, options, candidate));
    }
    candidates.push({ ...plain, name: "direct", replayable: direct });
    requireSameModes(candidates);
    const note = noteOf(runtime, options, planned);
    const onTuned = ({ kept }: TuningResult): void => {
      if (fitting.length === streamed.length) runtime.remember(note, kept);
    };
    const decide = (fastest: number): number =>
      isShared ? runtime.choices.decide(`the schedule of step "${options.name}"`, fastest) : fastest;
    return runningPlanOf(autotuneSchedule(runtime, [plain, ...candidates], onTuned, undefined, decide));
  } catch (error) {
    // Some candidates share memory, which their graphs pin.
    for (const candidate of [plain, ...candidates]) candidate.replayable.close();
    for (const candidate of [plain, ...candidates]) candidate.memory.close();
    throw error;
  }
}

/** Candidates that differ only in how launches follow each other share their memory. */
interface PlanCandidate extends Candidate {
  readonly planned: PlannedStep;
  readonly placed: PlacedStep;
}

/** The names of candidates, for reports and for later processes. */
const graph = "graph";
const streamedGraph = (streams: string): string => `${graph} with ${streams}`;
const withoutPdl = " without PDL";

interface CandidatePlan {
  readonly schedule: string;
  readonly planned: PlannedStep;
  /** Its launches do not use programmatic dependent launch. Default: false. */
  readonly isSerialized?: boolean;
}

function placePlan(
  runtime: Runtime,
  { name }: PlanOptions,
  { schedule, planned, isSerialized = false }: CandidatePlan,
  block: StepBlock,
): PlanCandidate {
  const whole = PlacedStep.place(runtime, planned, block);
  try {
    const placed = isSerialized ? whole.serialized() : whole;
    const scheduled = (isSerialized && serializedStep(planned)) || planned;
    const replayable = capturePlan(runtime, name, { planned: scheduled, placed });
    const memory = { close: () => whole.close() };
    return { name: schedule, replayable, memory, planned: scheduled, placed };
  } catch (error) {
    whole.close();
    throw error;
  }
}

type Placed = Pick<PlanCandidate, "planned" | "placed">;

function capturePlan(runtime: Runtime, name: string, plan: Placed): Replayable {
  const { planned, placed } = plan;
  // So that the runs that are compared have the weights' values, as later ones have.
  planned.copies.refresh(callsOf(planned));
  const inOrder = isSharedPlan(runtime, planned) ? () => placed.runInOrder() : undefined;
  return keepingCopies(plan, runtime.capture(name, placed.run, placed.scratch, inOrder));
}

/** True if collectives run between graphs: then there is one schedule. */
const isSplit = ({ launches = 1 }: Replayable): boolean => launches > 1;

/** Refreshes weight copies before a replay if other work may have changed the weights. */
function keepingCopies({ planned }: Placed, replayable: Replayable): Replayable {
  return planned.copies.keepCurrent(replayable, callsOf(planned));
}

const callsOf = ({ schedule }: PlannedStep): readonly Call[] => schedule.calls.map(({ call }) => call);

/** The note with the fastest candidate. All candidates compute the same bits, so a wrong one costs only time. */
function noteOf(runtime: Runtime, { passes }: PlanOptions, { schedule }: PlannedStep): string {
  const settings = `${runtime.settings.precision}, streams ${streamSetting(passes)}`;
  return `schedule with ${settings} for ${describeCalls(schedule.calls.map(({ call }) => call))}`;
}

/** The candidate that an earlier process kept. Undefined if none is known, or if it cannot be a graph now. */
function placeRemembered(
  runtime: Runtime,
  options: PlanOptions,
  planned: PlannedStep,
): PlanCandidate | undefined {
  const recalled = runtime.recall(noteOf(runtime, options, planned));
  const schedule = isSharedPlan(runtime, planned)
    ? runtime.choices.decide(`the remembered schedule of step "${options.name}"`, recalled)
    : recalled;
  if (schedule === undefined) return undefined;
  const isSerialized = schedule.endsWith(withoutPdl);
  const name = isSerialized ? schedule.slice(0, -withoutPdl.length) : schedule;
  const streams = Object.entries(streamOptions).find(([streams]) => name === streamedGraph(streams));
  if (!streams && name !== graph) return undefined;
  const scheduled = streams ? assignStreams(runtime, planned, streams[1]) : planned;
  if (!scheduled || (streams && !fitsMemory(runtime, scheduled.memory))) return undefined;
  let block: StepBlock | undefined;
  try {
    block = new StepBlock(runtime, scheduled.plan.bytes, options.name);
    const candidate = placePlan(runtime, options, { schedule, planned: scheduled, isSerialized }, block);
    if (candidate.replayable.mode === "graph") return candidate;
    closeCandidate(candidate);
  } catch (error) {
    if (!streams || !isMemoryRejection(error)) throw error;
  } finally {
    block?.release();
  }
  return undefined;
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
  const replayable = capturePlan(runtime, name, { planned, placed });
  if (replayable.mode === "graph")
    return [{ ...candidate, name: candidate.name + withoutPdl, replayable, planned, placed }];
  replayable.close();
  return [];
}

/** The variants with side streams. They are tried on GPUs, where small kernels leave the device idle. */
function streamedPlans(
  runtime: Runtime,
  { passes }: PlanOptions,
  planned: PlannedStep,
): readonly CandidatePlan[] {
  const isAllowed = streamSetting(passes) ?? capabilitiesOf(runtime).hasStreams;
  if (!isAllowed) return [];
  return Object.entries(streamOptions).flatMap(([name, options]): CandidatePlan | [] => {
    const streamed = assignStreams(runtime, planned, options);
    return streamed ? { schedule: streamedGraph(name), planned: streamed } : [];
  });
}

/** True if the plan has collectives: then all ranks choose its schedule together. */
function isSharedPlan(runtime: Runtime, planned: PlannedStep): boolean {
  return collectivesIn(runtime, callsOf(planned)).length > 0;
}

const memoryRejections: ReadonlySet<string> = new Set(["OUT_OF_BUDGET", "OUT_OF_MEMORY", "ARENA_FULL"]);

function isMemoryRejection(error: unknown): boolean {
  return error instanceof HoldfastError && memoryRejections.has(error.code);
}

function untuned(candidate: PlanCandidate): RunningPlan {
  const { planned, placed, replayable } = candidate;
  return { planned, placed, replayable, tuning: undefined, close: () => closeCandidate(candidate) };
}

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
