/** The shapes of the records that a run leaves for those who look at it: a file may be of another version, or damaged. */

import { HoldfastError } from "../../errors/index.js";
import { isRecord, type JsonRecord } from "../files/json.js";
import { type MemorySample, type PlanRecord, type TroubleRecord, troubleKinds } from "./records.js";

/** Says where a value is not as it should be, and what should be there; undefined where it fits. */
type Shape = (value: unknown, at: string) => string | undefined;

const fits = (isFitting: (value: unknown) => boolean, wanted: string): Shape => {
  return (value, at) => (isFitting(value) ? undefined : `${at} is no ${wanted}`);
};
const text = fits((value) => typeof value === "string", "text");
const flag = fits((value) => typeof value === "boolean", "true or false");
const number = fits((value) => Number.isFinite(value), "number");
const count = fits((value) => Number.isFinite(value) && Number(value) >= 0, "number from 0");
/** Milliseconds since 1970, up to the last that a Date can hold. */
const moment = fits(
  (value) => Number(value) >= 0 && Number(value) <= 8.64e15 && typeof value === "number",
  "time",
);
const oneOf = (...words: readonly string[]): Shape =>
  fits((value) => words.includes(String(value)), `one of ${words.join(", ")}`);
const optional = (shape: Shape): Shape => {
  return (value, at) => (value === undefined ? undefined : shape(value, at));
};

function listOf(shape: Shape): Shape {
  return (value, at) => {
    if (!Array.isArray(value)) return `${at} is no list`;
    for (const [index, item] of value.entries()) {
      const problem = shape(item, `${at}[${index}]`);
      if (problem !== undefined) return problem;
    }
    return undefined;
  };
}

/** Fields that are not named may be there too: a later version may have more to tell. */
function recordOf(fields: Readonly<Record<string, Shape>>): Shape {
  return (value, at) => {
    if (!isRecord(value)) return `${at} is no record`;
    for (const [name, shape] of Object.entries(fields)) {
      const problem = shape(value[name], at === "it" ? name : `${at}.${name}`);
      if (problem !== undefined) return problem;
    }
    return undefined;
  };
}

const holder = recordOf({ label: text, bytes: count });

const planShape = recordOf({
  ...{
    name: text,
    inputs: text,
    at: text,
    step: count,
    mode: optional(oneOf("graph", "direct")),
    isRefused: flag,
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

/** Takes a record for what it says it is, or refuses it with where it is not. */
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
