/** A plan as plain data, for those who show it: its passes, its calls and where its memory lies. */

import type { StepPhase } from "../../ops/index.js";
import type { PlannedStep, Stage } from "../compile.js";
import type { LabelBytes } from "../memory/memory-report.js";
import { accessesOf, type Buffer, type Schedule } from "../program/program.js";
import { lifetimesOf, plannedBytes } from "../schedule/liveness.js";
import { bytesOf, kernelOf, shapeOf } from "./call-table.js";
import { effectOf, purposes } from "./explain.js";

export interface PlanReport {
  /** From the trace on, what each pass has left. */
  readonly stages: readonly StageReport[];
  /** As they run. */
  readonly calls: readonly CallReport[];
  readonly memory: PlanMemory;
}

export interface StageReport {
  /** "trace", then the passes' names. */
  readonly name: string;
  /** What the pass is for, and what it did. */
  readonly purpose: string;
  readonly effect: string;
  /** The calls that it has left, in order. */
  readonly calls: readonly { readonly op: string; readonly kernel: string }[];
}

export interface CallReport {
  readonly op: string;
  readonly kernel: string;
  readonly kind: string;
  readonly shape: string;
  readonly part: StepPhase;
  /** 0 is the main branch. */
  readonly branch: number;
  readonly readBytes: number;
  readonly writtenBytes: number;
  /** What it adds to the step, in microseconds; missing where it was not measured. */
  readonly us?: number | undefined;
}

export interface PlanMemory {
  /** The plan's block. */
  readonly peak: number;
  /** The most that is live at once. */
  readonly lowerBound: number;
  /** The call at which that is; -1 without step memory. */
  readonly peakAt: number;
  readonly tensors: readonly PlannedTensor[];
  /** Persistent memory that the step touches. */
  readonly persistent: readonly LabelBytes[];
}

/** Where and when a value of the step lies. */
export interface PlannedTensor {
  /** The op that made it. */
  readonly label: string;
  /** As in `f32 [256, 12, 193]`; missing for scratch memory. */
  readonly type?: string | undefined;
  /** What it takes: what alignment adds is counted. */
  readonly bytes: number;
  readonly offset: number;
  /** The first and the last call that needs it; halves lie between two calls of the main branch. */
  readonly birth: number;
  readonly death: number;
  /** Made on the way forward, and read on the way back. */
  readonly isSaved: boolean;
}

export function reportPlan({ stages, schedule, plan, memory, types }: PlannedStep): PlanReport {
  const saved = savedIn(schedule);
  return {
    stages: stages.map((stage, index) => reportStage(stage, stages[index - 1])),
    calls: schedule.calls.map(({ call, stream }) => {
      const { op, work, phase = "forward" } = call;
      const { read, written } = bytesOf(call);
      return {
        ...{ op, kernel: kernelOf(work), kind: work.kind, shape: shapeOf(work), part: phase, branch: stream },
        ...{ readBytes: read, writtenBytes: written },
      };
    }),
    memory: {
      ...{ peak: memory.peak, lowerBound: memory.lowerBound, peakAt: memory.at },
      tensors: lifetimesOf(schedule).map(({ buffer, first, last }) => {
        const type = types.get(buffer.id);
        return {
          ...{ label: buffer.label, ...(type !== undefined && { type }) },
          ...{ bytes: plannedBytes(buffer), offset: plan.offsets.get(buffer) ?? 0 },
          ...{ birth: first, death: last, isSaved: saved.has(buffer) },
        };
      }),
      persistent: memory.persistent,
    },
  };
}

function reportStage({ name, calls }: Stage, before: Stage | undefined): StageReport {
  const purpose =
    name === "trace"
      ? "the calls that the step's function makes, written down"
      : name === "products"
        ? "the fastest of the library's algorithms for each product"
        : purposes[name];
  const [effect = ""] = before ? effectOf(before.calls, calls) : [];
  return {
    ...{ name, purpose, effect },
    calls: calls.map(({ op, work }) => ({ op, kernel: kernelOf(work) })),
  };
}

/** Step buffers that the way forward writes and the way back reads. */
function savedIn({ calls }: Schedule): ReadonlySet<Buffer> {
  const [made, saved] = [new Set<Buffer>(), new Set<Buffer>()];
  for (const { call } of calls) {
    for (const { slice, reads, writes } of accessesOf(call)) {
      const { buffer } = slice;
      if (buffer.storage) continue;
      if ((call.phase ?? "forward") === "forward" && writes) made.add(buffer);
      if (call.phase === "backward" && reads && made.has(buffer)) saved.add(buffer);
    }
  }
  return saved;
}
