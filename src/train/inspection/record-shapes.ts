/** The shapes of the records that a run leaves for those who look at it: a file may be of another version, or damaged. */

import { HoldfastError } from "../../errors/index.js";
import type { JsonRecord } from "../files/json.js";
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
} from "../files/json-shapes.js";
import { type MemorySample, type PlanRecord, type TroubleRecord, troubleKinds } from "./records.js";

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
      ...{ op: text, kernel: text, kind: text, shape: text, part: oneOf("forward", "backward", "update") },
      ...{ branch: count, readBytes: count, writtenBytes: count, us: optional(count) },
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

const troubleShape = recordOf({
  ...{ kind: oneOf(...troubleKinds), time: moment, step: count, message: text },
  ...{ details: optional(text), phases: listOf(text) },
});

/** Takes a record for what it says it is, or rejects it with where it is not. */
export type RecordReader<Kept> = (record: JsonRecord) => Kept;

function readerOf<Kept>(shape: Shape): RecordReader<Kept> {
  return (record) => {
    const problem = shape(record, "it");
    if (problem !== undefined) throw new HoldfastError("BAD_FILE", `${problem}.`);
    return record as Kept;
  };
}

export const toPlan = readerOf<PlanRecord>(planShape);
export const toMemorySample = readerOf<MemorySample>(memoryShape);
export const toTrouble = readerOf<TroubleRecord>(troubleShape);
