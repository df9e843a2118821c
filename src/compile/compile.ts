/**
 * Plans a traced step: runs the passes over its calls, schedules them, plans their memory and verifies the plan. Nothing is launched
 * without a verified plan.
 */

import { capabilitiesOf } from "../kernels/index.js";
import type { Runtime } from "../runtime/index.js";
import { beat } from "../units/index.js";
import { autotuneConvolutions, convolutionAlgorithmsIn } from "./autotune/convolutions.js";
import { autotuneEpilogues, epilogueTilesIn } from "./autotune/epilogues.js";
import { autotuneExactGemms, exactAlgorithmsIn } from "./autotune/exact-gemms.js";
import { autotuneGemmSums, sumTilesIn } from "./autotune/gemm-sums.js";
import { algorithmsIn, autotuneGemms, type GemmReport } from "./autotune/gemms.js";
import { autotuneGroupedGemms, groupedAlgorithmsIn, tunedGroupsIn } from "./autotune/grouped-gemms.js";
import { streamOptions } from "./cost-model.js";
import { WeightCopies } from "./execute/weight-copies.js";
import { planAgreed, planOptional } from "./fallback.js";
import { availableMemory } from "./memory/memory-check.js";
import { memoryOf } from "./memory/memory-report.js";
import { planMemory } from "./memory/plan.js";
import { bf16ActivationsIn, storeActivationsAsBf16 } from "./passes/bf16-activations.js";
import { renameBuffers } from "./passes/rename-buffers.js";
import { gemmShapesIn } from "./passes/row-tiling.js";
import { raisesPeak } from "./passes/weight-copies.js";
import {
  canRenameBuffers,
  gemmAlgorithms,
  isEnabled,
  type PassSettings,
  pdlSetting,
  phaseNames,
  phases,
  rewritePhases,
  type Stage,
  streamSetting,
} from "./pipeline.js";
import type { PlannedStep } from "./planned-step.js";
import { type Call, Program } from "./program/program.js";
import { collectivesIn, isCollective, workLines } from "./ranks.js";
import { lifetimesOf } from "./schedule/liveness.js";
import { markPdl } from "./schedule/pdl.js";
import { type ScheduleOptions, scheduleCalls } from "./schedule/schedule.js";
import { placeConstants } from "./trace/constants.js";
import { recordStep } from "./trace/step-record.js";
import type { Trace } from "./trace/trace.js";
import { verifyPlan } from "./verify/verify.js";

/** Phases that trade memory for time: a plan that does not fit is made again without them. */
const withoutExtraMemory = {
  renameBuffers: false,
  groupReductions: false,
  splitReductions: false,
  comboKernels: false,
  weightCopies: false,
} as const satisfies PassSettings;

/** Plans a traced step. `name` is the step's name, for warnings; `inputs` describes its inputs, for the comparison of ranks. */
export function planStep(
  runtime: Runtime,
  trace: Trace<unknown>,
  settings: PassSettings = {},
  name = "step",
  inputs = "",
): PlannedStep {
  const recorded = recordStep(runtime, trace);
  const placed = placeConstants(runtime, recorded.calls, trace.constants);
  const isShared = trace.inCommon !== "nothing" || collectivesIn(runtime, placed.calls).length > 0;
  const regions = [...placed.regions, ...recorded.regions];
  const copies = new WeightCopies(runtime);
  const plan = (): PlannedStep => {
    // Recomputing values costs time, keeping them costs memory: a GPU first tries to keep them.
    const isShort = !capabilitiesOf(runtime).prefersMemoryOverRecompute;
    const traced = { name, calls: placed.calls, deadOnExit: trace.deadOnExit, copies };
    const first = planWithCopies(runtime, traced, settings, isShort || settings.rematerialize === true);
    const fits =
      first.plan.bytes <= availableMemory(runtime).available ||
      settings.rematerialize !== undefined ||
      isShort;
    const planned = fits ? first : planCalls(runtime, traced, { ...settings, ...withoutExtraMemory }, true);
    copies.seal(planned.schedule.calls.map(({ call }) => call));
    return { ...planned, ops: trace.ops.length, types: trace.types, regions, record: recorded.record };
  };
  try {
    if (!isShared) return plan();
    requireSameWork(runtime, trace, name, inputs);
    const planned = runtime.choices.share(`step "${name}"`, plan);
    const calls = planned.schedule.calls.map(({ call }) => call);
    runtime.choices.requireSame(`the collectives of step "${name}"`, collectivesIn(runtime, calls));
    return planned;
  } catch (error) {
    copies.close();
    for (const region of regions) runtime.persistent.release(region);
    throw error;
  }
}

/** Throws on every rank if one of them has traced another step. Before anything is planned: rank 0 plans first. */
function requireSameWork(runtime: Runtime, trace: Trace<unknown>, name: string, inputs: string): void {
  const { precision } = runtime.settings;
  const isComparable = trace.inCommon === "work";
  // Of inputs of other shapes, ranks may do other work.
  const given = isComparable ? inputs : "rows of different sizes";
  const lines = isComparable ? workLines(trace) : [];
  runtime.choices.requireSame(`the work of step "${name}"`, [`precision ${precision}`, ...lines], given);
}

/** Plans the calls with weight copies, or without them if the step would need more memory. */
function planWithCopies(...[runtime, traced, settings, isMemoryShort]: Parameters<typeof planCalls>) {
  const planned = planCalls(runtime, traced, settings, isMemoryShort);
  if (!raisesPeak(runtime, planned.schedule, traced.copies)) return planned;
  traced.copies.seal([]);
  return planCalls(runtime, traced, settings, isMemoryShort);
}

interface TracedProgram extends Pick<PlannedStep, "name" | "deadOnExit" | "copies"> {
  readonly calls: readonly Call[];
}

function planCalls(
  runtime: Runtime,
  { name: step, calls: traced, deadOnExit, copies }: TracedProgram,
  settings: PassSettings,
  isMemoryShort: boolean,
): Omit<PlannedStep, "ops" | "types" | "regions" | "record"> {
  const stages: Stage[] = [{ name: "trace", calls: traced }];
  const program = new Program(traced);
  const isTuned =
    capabilitiesOf(runtime).autotunesGemms && (settings.autotune ?? runtime.settings.precision !== "f32");
  for (const name of rewritePhases) {
    if (!isEnabled(settings, name) || (name === "rematerialize" && !isMemoryShort)) continue;
    beat(name);
    program.renumber();
    phases[name].run(program, runtime, { isTuned, deadOnExit, copies });
    stages.push({ name, calls: program.calls });
  }
  // Before the memory plan: an algorithm decides how much scratch memory a GEMM needs.
  let report: GemmReport | undefined;
  if (isEnabled(settings, gemmAlgorithms.name)) {
    program.renumber();
    if (isTuned) {
      report = autotuneGemms(runtime, program);
      autotuneEpilogues(runtime, program);
      autotuneGemmSums(runtime, program);
      autotuneGroupedGemms(runtime, program);
    }
    const hasOtherTiles = autotuneExactGemms(runtime, program);
    const hasOtherConvolutions = autotuneConvolutions(runtime, program, { keepsBits: !isTuned });
    if (isTuned || hasOtherTiles || hasOtherConvolutions)
      stages.push({ name: gemmAlgorithms.name, calls: program.calls });
  }
  const { planned, fallback, ...proposed } = planAgreed(
    runtime,
    step,
    { stages, usesPdl: pdlSetting(settings) },
    (proposal) => {
      const calls = proposal.stages.at(-1)?.calls ?? [];
      const isCollective = streamSetting(settings) === false ? undefined : collectivesOf(runtime);
      const options = { streams: 0, lag: 0, usesPdl: proposal.usesPdl };
      return planSchedule(runtime, calls, { ...options, ...(isCollective && { isCollective }) });
    },
  );
  const gemms = fallback?.leftOut.includes(gemmAlgorithms.name) ? undefined : report;
  return { name: step, ...proposed, ...planned, deadOnExit, copies, isTuned, fallback, gemms };
}

function planSchedule(
  runtime: Runtime,
  calls: readonly Call[],
  { usesPdl, ...options }: ScheduleOptions & Pick<PlannedStep, "usesPdl">,
): Pick<PlannedStep, "schedule" | "plan" | "memory"> {
  beat("schedule");
  const serialized = scheduleCalls(calls, options);
  const schedule = usesPdl ? markPdl(runtime, serialized) : serialized;
  beat("plan");
  const plan = planMemory(lifetimesOf(schedule));
  beat("verify");
  verifyPlan(calls, schedule, plan);
  return { schedule, plan, memory: memoryOf(schedule, plan) };
}

/**
 * The same step, bit for bit, with calls that are not needed soon on side streams. Undefined if there is no such call, or if the
 * verifier rejects the plan.
 */
export function assignStreams(
  runtime: Runtime,
  planned: PlannedStep,
  options: ScheduleOptions = streamOptions.streams,
): PlannedStep | undefined {
  const { name, usesPdl } = planned;
  const calls = renamedCalls(runtime, planned);
  const isCollective = collectivesOf(runtime);
  const schedule = options.isMainFirst ? "side streams of low priority" : "side streams";
  const streamed = planOptional(runtime, { name, schedule, calls }, () =>
    planSchedule(runtime, calls, { ...options, ...(isCollective && { isCollective }), usesPdl }),
  );
  const countSideCalls = ({ calls }: PlannedStep["schedule"]): number =>
    calls.filter(({ stream }) => stream !== 0).length;
  const hasSideStreams = streamed && countSideCalls(streamed.schedule) > countSideCalls(planned.schedule);
  return hasSideStreams ? { ...planned, ...streamed } : undefined;
}

/** Which calls are collectives; undefined on devices without streams. */
function collectivesOf(runtime: Runtime): ScheduleOptions["isCollective"] {
  if (!capabilitiesOf(runtime).hasStreams) return undefined;
  return (call) => isCollective(runtime, call);
}

/** The same step, bit for bit, without programmatic dependent launch; undefined if no launch uses it. */
export function serializedStep(planned: PlannedStep): PlannedStep | undefined {
  const { schedule } = planned;
  if (!schedule.calls.some(({ prefetches }) => prefetches)) return undefined;
  const calls = schedule.calls.map(({ prefetches: _, ...scheduled }) => scheduled);
  return { ...planned, schedule: { ...schedule, calls } };
}

/** Phases after vertical fusion. */
const latePhases: ReadonlySet<string> = new Set(phaseNames.slice(phaseNames.indexOf("verticalFusion") + 1));

/**
 * The calls as the phases leave them if buffers are renamed before fusion: side streams need values that are not overwritten in
 * place. Phases that round or choose algorithms repeat their earlier decisions, so that no bit changes.
 */
function renamedCalls(
  runtime: Runtime,
  { stages, deadOnExit, copies, isTuned }: PlannedStep,
): readonly Call[] {
  if (canRenameBuffers(runtime) && stages.some(({ name }) => name === "renameBuffers"))
    return stages.at(-1)?.calls ?? [];
  const fused = stages.findIndex(({ name }) => name === "verticalFusion");
  const repeated = fused < 0 ? stages.filter(({ name }) => latePhases.has(name)) : stages.slice(fused);
  const program = new Program(stages.at(-1 - repeated.length)?.calls ?? []);
  renameBuffers(program);
  for (const { name, calls: after } of repeated) {
    program.renumber();
    if (name === gemmAlgorithms.name) {
      if (isTuned) {
        autotuneGemms(runtime, program, { known: algorithmsIn(runtime, after) });
        autotuneEpilogues(runtime, program, { known: epilogueTilesIn(runtime, after) });
        autotuneGemmSums(runtime, program, { known: sumTilesIn(runtime, after) });
        autotuneGroupedGemms(runtime, program, { known: groupedAlgorithmsIn(runtime, after) });
        if (tunedGroupsIn(program.calls) !== tunedGroupsIn(after)) return stages.at(-1)?.calls ?? [];
      }
      autotuneExactGemms(runtime, program, { known: exactAlgorithmsIn(runtime, after) });
      const known = convolutionAlgorithmsIn(runtime, after);
      autotuneConvolutions(runtime, program, { known, keepsBits: !isTuned });
    } else if (name === "bf16Activations") {
      const before = stages.findIndex((stage) => stage.name === name) - 1;
      const wanted = bf16ActivationsIn(stages[before]?.calls ?? [], after);
      const { calls } = program;
      storeActivationsAsBf16(runtime, program, wanted);
      if (bf16ActivationsIn(calls, program.calls).size !== wanted.size) return stages.at(-1)?.calls ?? [];
    } else if (name !== "trace") phases[name].run(program, runtime, { isTuned, deadOnExit, copies });
    if (name === "rowTiling" && gemmShapesIn(program.calls) !== gemmShapesIn(after))
      return stages.at(-1)?.calls ?? [];
  }
  return program.calls;
}
