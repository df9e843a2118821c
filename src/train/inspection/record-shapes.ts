/** Checks the records of plans, memory and incidents: a file may be damaged, or of another version. */

import { HoldfastError } from "../../errors/index.js";
import {
  type IncidentRecord,
  incidentKinds,
  type JsonRecord,
  type MemorySample,
  type PlanRecord,
  type RankRecord,
  type RankSteps,
  stepPhases,
} from "../../records/index.js";
import {
  count,
  flag,
  listOf,
  moment,
  number,
  oneOf,
  optional,
  recordOf,
  type Shape,
  text,
  wholeNumber,
} from "../files/json-shapes.js";
import { toCurrentIncident, toCurrentPlan } from "./legacy-records.js";

const holder = recordOf({ label: text, bytes: count });

const planShape = recordOf({
  ...{
    name: text,
    inputs: text,
    at: text,
    step: count,
    mode: optional(oneOf("graph", "direct")),
    isRejected: flag,
  },
  ...{ reason: optional(text), text },
  stages: listOf(
    recordOf({
      name: text,
      purpose: text,
      effect: text,
      calls: listOf(recordOf({ op: text, kernel: text })),
    }),
  ),
  calls: listOf(
    recordOf({
      ...{ op: text, kernel: text, kind: text, shape: text, phase: oneOf(...stepPhases) },
      ...{ stream: count, readBytes: count, writtenBytes: count, us: optional(count) },
    }),
  ),
  memory: recordOf({
    ...{ peak: count, lowerBound: count, peakAt: number, persistent: listOf(holder) },
    tensors: listOf(
      recordOf({
        ...{ label: text, type: optional(text), bytes: count, offset: count },
        ...{ birth: number, death: number, isSaved: flag },
      }),
    ),
  }),
});

const memoryShape = recordOf({
  ...{ time: moment, step: count, limit: count, used: count, holders: listOf(holder) },
  arena: recordOf({
    ...{ capacity: count, committed: count, highWater: count, live: count },
    ...{ pins: count, pinnedBytes: count, resets: count },
  }),
});

const incidentShape = recordOf({
  ...{ kind: oneOf(...incidentKinds), time: moment, step: count, message: text },
  ...{ details: optional(text), phases: listOf(text) },
});

const ranksShape = recordOf({
  ranks: listOf(recordOf({ rank: wholeNumber, host: text, pid: count, device: text, clockMs: number })),
});

const rankStepsShape = recordOf({
  ...{ time: moment, step: count, steps: count, ms: count },
  traffic: optional(recordOf({ collectives: count, sentBytes: count, ms: count })),
});

/** Returns the record with its type, or throws and names the field that is wrong. */
export type RecordReader<Checked> = (record: JsonRecord) => Checked;

function readerOf<Checked>(
  shape: Shape,
  toCurrent: (record: JsonRecord) => JsonRecord = (record) => record,
): RecordReader<Checked> {
  return (record) => {
    const current = toCurrent(record);
    const problem = shape(current, "it");
    if (problem !== undefined) throw new HoldfastError("BAD_FILE", `${problem}.`);
    return current as Checked;
  };
}

export const toPlan = readerOf<PlanRecord>(planShape, toCurrentPlan);
export const toMemorySample = readerOf<MemorySample>(memoryShape);
export const toRanks = readerOf<{ readonly ranks: readonly RankRecord[] }>(ranksShape);
export const toRankSteps = readerOf<RankSteps>(rankStepsShape);
export const toIncident = readerOf<IncidentRecord>(incidentShape, toCurrentIncident);
