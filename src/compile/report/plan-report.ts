/** A plan as plain data, for the inspector and for recorded runs: its phases, its calls and its memory layout. */

import type { PlanReport, StageReport } from "../../records/index.js";
import { purposeOf, type Stage } from "../pipeline.js";
import type { PlannedStep } from "../planned-step.js";
import { accessesOf, type Buffer, type Schedule } from "../program/program.js";
import { bytesOf } from "../program/traffic.js";
import { lifetimesOf, plannedBytes } from "../schedule/liveness.js";
import { kernelOf, shapeOf } from "./call-table.js";
import { effectOf } from "./explain.js";

export function reportPlan({ stages, schedule, plan, memory, types }: PlannedStep): PlanReport {
  const saved = savedIn(schedule);
  return {
    stages: stages.map((stage, index) => reportStage(stage, stages[index - 1])),
    calls: schedule.calls.map(({ call, stream }) => {
      const { op, work, phase = "forward" } = call;
      const { read, written } = bytesOf(call);
      return {
        ...{ op, kernel: kernelOf(work), kind: work.kind, shape: shapeOf(work), phase, stream },
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
  const purpose = name === "trace" ? "the calls that the step's function makes" : purposeOf(name);
  const [effect = ""] = before ? effectOf(before.calls, calls) : [];
  return {
    ...{ name, purpose, effect },
    calls: calls.map(({ op, work }) => ({ op, kernel: kernelOf(work) })),
  };
}

/** Step buffers that the forward pass writes and the backward pass reads. */
function savedIn({ calls }: Schedule): ReadonlySet<Buffer> {
  const [written, saved] = [new Set<Buffer>(), new Set<Buffer>()];
  for (const { call } of calls) {
    for (const { slice, reads, writes } of accessesOf(call)) {
      const { buffer } = slice;
      if (buffer.storage) continue;
      if ((call.phase ?? "forward") === "forward" && writes) written.add(buffer);
      if (call.phase === "backward" && reads && written.has(buffer)) saved.add(buffer);
    }
  }
  return saved;
}
