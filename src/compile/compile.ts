/**
 * Turns traced calls into a step that can be run: passes over the calls, a schedule, a plan of its memory, and the
 * verification of that plan, without which nothing is launched.
 */

import type { Region, Runtime } from "../runtime/index.js";
import { beat } from "../units/index.js";
import { algorithmsIn, autotuneGemms, type GemmReport } from "./autotune/gemms.js";
import { type Fallback, planAgreed, planOptional } from "./fallback.js";
import { fuseAttentionCasts } from "./fusion/attention-cast.js";
import { batchCopies } from "./fusion/batch-copies.js";
import { coalesceCasts } from "./fusion/coalesce-casts.js";
import { fuseColumnReductions } from "./fusion/column-reductions.js";
import { fuseHorizontally } from "./fusion/combo-kernels.js";
import { fuseEpilogues } from "./fusion/epilogue.js";
import { groupGemms } from "./fusion/group-gemms.js";
import { groupReductions } from "./fusion/group-reductions.js";
import { splitReductions } from "./fusion/split-reductions.js";
import { fuse } from "./fusion/vertical/fuse.js";
import { availableMemory } from "./memory/memory-check.js";
import { type MemoryReport, memoryOf } from "./memory/memory-report.js";
import { planMemory } from "./memory/plan.js";
import { bf16ActivationsIn, storeActivationsAsBf16 } from "./passes/bf16-activations.js";
import { propagateCopies } from "./passes/copy-propagation.js";
import { eliminateCommonCalls } from "./passes/cse.js";
import { eliminateDeadCalls } from "./passes/dce.js";
import { hoistOutputs } from "./passes/hoist-outputs.js";
import { pretransposeWeights } from "./passes/pretranspose-weights.js";
import { rematerialize } from "./passes/rematerialize.js";
import { renameBuffers } from "./passes/rename-buffers.js";
import { writeStridedOutputs } from "./passes/strided-outputs.js";
import type { BufferSlice, Call, Plan, Schedule } from "./program/program.js";
import { lifetimesOf } from "./schedule/liveness.js";
import { markPdl } from "./schedule/pdl.js";
import { type ScheduleOptions, scheduleCalls } from "./schedule/schedule.js";
import { placeConstants } from "./trace/constants.js";
import { recordStep, type StepRecord } from "./trace/step-record.js";
import type { Trace } from "./trace/trace.js";
import { verifyPlan } from "./verify/verify.js";

/** Memory is short on a CPU, where nothing waits for company. */
const renamesBuffers = ({ device }: Runtime): boolean => device.kind === "cuda";

/** What passes are told of the step besides its calls. */
interface PassFacts {
  /** Are the algorithms of products chosen behind all passes? */
  readonly isTuned: boolean;
  /** Persistent memory of which nobody wants what the step leaves in it. */
  readonly deadOnExit: readonly BufferSlice[];
}

type Pass = (calls: readonly Call[], runtime: Runtime, facts: PassFacts) => readonly Call[];

/**
 * In their order. Each can be left out. In float32 the step's results keep their bits. In TF32 and bf16 "narrow" rounds, "sums" can
 * add in another order, and a pass that changes a product can change its algorithm.
 */
const passes = {
  /** Calls that do the same work on the same values run once. */
  common: (calls) => eliminateCommonCalls(calls),
  /** Copies are left out where a value can be read at its source or written to its final place. */
  copies: (calls, runtime, { isTuned }) => writeStridedOutputs(runtime, propagateCopies(calls), isTuned),
  /** Results that nobody reads are not computed. */
  dead: (calls, _, { deadOnExit }) => eliminateDeadCalls(calls, deadOnExit),
  /** Weights that lie together are converted in one call. */
  casts: coalesceCasts,
  /** On a GPU, attention stores half floats if its results are only converted to them. */
  attention: fuseAttentionCasts,
  /** Cheap values are recomputed after the memory peak instead of being kept. */
  rematerialize,
  /** On a GPU, a value that is overwritten after it was read gets a new buffer, so that readers of the old one can wait. */
  afresh: (calls, runtime) => (renamesBuffers(runtime) ? renameBuffers(calls) : calls),
  /** On a GPU, small outputs with fewer dependencies are split off, so that their readers can run earlier. */
  apart: (calls, runtime) => hoistOutputs(runtime, calls),
  /** Chains of elementwise work and row reductions are fused. */
  fuse: (calls, { device }, { deadOnExit }) => fuse(calls, () => false, device.kind, deadOnExit),
  /** In TF32 on some GPUs, weights are transposed for products that read them along k. */
  turned: (calls, runtime, { isTuned }) => (isTuned ? pretransposeWeights(runtime, calls) : calls),
  /** On some GPUs, elementwise work on a product's result runs in its epilogue. */
  finish: (calls, runtime, { isTuned }) => (isTuned ? fuseEpilogues(runtime, calls) : calls),
  /** On a GPU, bf16 products store bf16 results for later kernels. It rounds, so it is left out where eager code's bits are wanted. */
  narrow: (calls, runtime, { isTuned }) => (isTuned ? storeActivationsAsBf16(runtime, calls) : calls),
  /** On a GPU, column sums start in kernels that already hold the rows. */
  sums: (calls, runtime) => fuseColumnReductions(runtime, calls),
  /** On a GPU, copies and conversions of the same shape are one launch. */
  alike: batchCopies,
  /** On a GPU, products that would leave most of it idle are grouped into one launch. */
  together: (calls, runtime, { isTuned }) => groupGemms(runtime, calls, isTuned),
  /** On a GPU, column reductions are grouped into one launch. */
  reductions: (calls, runtime) => groupReductions(runtime, calls),
  /** On a GPU, grouped reductions start before the group's last input is ready, to run beside other work. */
  early: (calls, runtime) => splitReductions(runtime, calls),
  /** On a GPU, small row kernels share a launch with others that they don't depend on. */
  beside: (calls, runtime) => fuseHorizontally(runtime, calls),
} satisfies Readonly<Record<string, Pass>>;

/**
 * "products" comes last, on GPUs alone: algorithms of products are chosen by measurement. They may round otherwise than those
 * of eager code, so in float32, where both are to give the same bits, it is left out unless it is asked for.
 */
export type PassName = keyof typeof passes | "products";
const passesInOrder = Object.keys(passes) as readonly (keyof typeof passes)[];
export const passNames: readonly PassName[] = [...passesInOrder, "products"];

/**
 * Which passes are left out. `branches` is about what nobody needs soon: with false nothing runs beside anything else, with
 * true it does; unless given, a GPU tries both. With `handovers: false` no launch begins before the one before it has ended.
 */
export type PassSettings = Readonly<Partial<Record<PassName | "streams" | "pdl", boolean>>>;

/** What a pass has made of the calls, for explain(). */
export interface Stage {
  readonly name: PassName | "trace";
  readonly calls: readonly Call[];
}

/** A step that has a plan, and no memory yet. */
export interface PlannedStep {
  readonly name: string;
  /** How many ops of the table the step called. */
  readonly ops: number;
  /** The dtypes and shapes of its buffers, by their numbers, where they are known. */
  readonly types: ReadonlyMap<number, string>;
  readonly stages: readonly Stage[];
  /** What was left out because the verifier rejected the plan with it; nothing where it agreed at once. */
  readonly fallback?: Fallback | undefined;
  /** Persistent memory of which nobody wants what the step leaves in it. */
  readonly deadOnExit: readonly BufferSlice[];
  /** May algorithms of products be others than those of eager code? */
  readonly isTuned: boolean;
  /** May launches begin while the ones before them end? */
  readonly usesPdl: boolean;
  readonly schedule: Schedule;
  readonly plan: Plan;
  readonly memory: MemoryReport;
  /** What the choice of products has brought, where there was one. */
  readonly products?: GemmReport | undefined;
  /** Persistent memory that belongs to the step: its constants and counters. */
  readonly regions: readonly Region[];
  /** Its counters on the device, if it has guards or index checks. */
  readonly record: StepRecord | undefined;
}

/** `name`: the step's, for warnings. */
export function planStep(
  runtime: Runtime,
  trace: Trace<unknown>,
  settings: PassSettings = {},
  name = "step",
): PlannedStep {
  const recorded = recordStep(runtime, trace);
  const placed = placeConstants(runtime, recorded.calls, trace.constants);
  const regions = [...placed.regions, ...recorded.regions];
  try {
    // Making values again takes time, and holding them longer takes memory: a GPU begins with the second.
    const isShort = runtime.device.kind === "cpu";
    const program = { name, traced: placed.calls, deadOnExit: trace.deadOnExit };
    const first = planCalls(runtime, program, { rematerialize: isShort, ...settings });
    const fits =
      first.plan.bytes <= availableMemory(runtime).room || settings.rematerialize !== undefined || isShort;
    const planned = fits
      ? first
      : planCalls(runtime, program, {
          ...settings,
          ...{ afresh: false, reductions: false, early: false, beside: false, rematerialize: true },
        });
    return { ...planned, ops: trace.ops.length, types: trace.types, regions, record: recorded.record };
  } catch (error) {
    for (const region of regions) runtime.persistent.release(region);
    throw error;
  }
}

interface TracedProgram extends Pick<PlannedStep, "name" | "deadOnExit"> {
  readonly traced: readonly Call[];
}

function planCalls(
  runtime: Runtime,
  { name: step, traced, deadOnExit }: TracedProgram,
  settings: PassSettings,
): Omit<PlannedStep, "ops" | "types" | "regions" | "record"> {
  const stages: Stage[] = [{ name: "trace", calls: traced }];
  let calls = traced;
  const isTuned =
    runtime.device.kind === "cuda" && (settings.products ?? runtime.settings.precision !== "f32");
  for (const name of passesInOrder) {
    if (settings[name] === false) continue;
    beat(name);
    calls = passes[name](calls, runtime, { isTuned, deadOnExit });
    stages.push({ name, calls });
  }
  // Before the plan: the choices say how much scratch memory there is to place.
  const chosen = isTuned ? autotuneGemms(runtime, calls) : undefined;
  if (chosen) {
    calls = chosen.calls;
    stages.push({ name: "products", calls });
  }
  const { planned, fallback, ...proposed } = planAgreed(
    runtime,
    step,
    { stages, usesPdl: settings.pdl ?? true },
    (one) => {
      const program = one.stages.at(-1)?.calls ?? [];
      return planSchedule(runtime, program, { streams: 0, lag: 0, usesPdl: one.usesPdl });
    },
  );
  const products = fallback?.leftOut.includes("products") ? undefined : chosen?.report;
  return { name: step, ...proposed, ...planned, deadOnExit, isTuned, fallback, products };
}

function planSchedule(
  runtime: Runtime,
  calls: readonly Call[],
  { usesPdl, ...options }: ScheduleOptions & Pick<PlannedStep, "usesPdl">,
): Pick<PlannedStep, "schedule" | "plan" | "memory"> {
  beat("schedule");
  const apart = scheduleCalls(calls, options);
  const schedule = usesPdl ? markPdl(runtime, apart) : apart;
  beat("plan");
  const plan = planMemory(lifetimesOf(schedule));
  beat("verify");
  verifyPlan(calls, schedule, plan);
  return { schedule, plan, memory: memoryOf(schedule, plan) };
}

/** How calls may go aside. A layer's backward pass has seven calls that others wait for. */
export const streamOptions = {
  streams: { streams: 3, slack: 2, lag: 8 },
  "yielding branches": { streams: 3, slack: 2, lag: 8, isMainFirst: true },
} as const satisfies Readonly<Record<string, ScheduleOptions>>;

/**
 * The same step, to the bit, with what nobody needs soon on side branches. Nothing where there is no such call, or where the verifier
 * rejects the plan for it.
 */
export function assignStreams(
  runtime: Runtime,
  planned: PlannedStep,
  options: ScheduleOptions = streamOptions.streams,
): PlannedStep | undefined {
  const { name, usesPdl } = planned;
  const calls = freedCalls(runtime, planned);
  const schedule = options.isMainFirst ? "side branches of low priority" : "side branches";
  const streamed = planOptional(runtime, { name, schedule, calls }, () =>
    planSchedule(runtime, calls, { ...options, usesPdl }),
  );
  const hasSides = streamed?.schedule.calls.some(({ stream }) => stream !== 0);
  return streamed && hasSides ? { ...planned, ...streamed } : undefined;
}

/** The same step, to the bit, with each launch behind the end of the one before it; nothing where none begins early. */
export function serializedStep(planned: PlannedStep): PlannedStep | undefined {
  const { schedule } = planned;
  if (!schedule.calls.some(({ prefetches: early }) => early)) return undefined;
  const calls = schedule.calls.map(({ prefetches: _, ...one }) => one);
  return { ...planned, schedule: { ...schedule, calls } };
}

/** What comes behind fusion. */
const latePasses: ReadonlySet<string> = new Set(passNames.slice(passNames.indexOf("fuse") + 1));

/** The calls as the passes leave them where values that are changed in place are made anew before they are fused. */
function freedCalls(runtime: Runtime, { stages, deadOnExit, isTuned }: PlannedStep): readonly Call[] {
  if (renamesBuffers(runtime) && stages.some(({ name }) => name === "afresh"))
    return stages.at(-1)?.calls ?? [];
  const fused = stages.findIndex(({ name }) => name === "fuse");
  const again = fused < 0 ? stages.filter(({ name }) => latePasses.has(name)) : stages.slice(fused);
  let calls = renameBuffers(stages.at(-1 - again.length)?.calls ?? []);
  for (const { name, calls: chosen } of again) {
    if (name === "products")
      calls = autotuneGemms(runtime, calls, { known: algorithmsIn(runtime, chosen) }).calls;
    else if (name === "narrow") {
      const before = stages.findIndex((stage) => stage.name === name) - 1;
      const wanted = bf16ActivationsIn(stages[before]?.calls ?? [], chosen);
      const narrowed = storeActivationsAsBf16(runtime, calls, wanted);
      // What is rounded otherwise has other bits.
      if (bf16ActivationsIn(calls, narrowed).size !== wanted.size) return stages.at(-1)?.calls ?? [];
      calls = narrowed;
    } else if (name !== "trace") calls = passes[name](calls, runtime, { isTuned, deadOnExit });
  }
  return calls;
}
