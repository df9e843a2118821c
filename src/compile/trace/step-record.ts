/**
 * Counters that a compiled step keeps on the device: calls, skipped calls, and calls with a bad index. Also the first bad
 * index.
 */

import { type Expression, iterateElements, type RowKernel, type Stage, term } from "../../ir/index.js";
import type { Region, Runtime, Storage } from "../../runtime/index.js";
import { decodeBadIndex, joinChecks, type TracedCheck } from "../passes/index-checks.js";
import { type Guard, isFiniteTerm, predicateWrites } from "../passes/skip-nonfinite.js";
import { accessesOf, type Buffer, type BufferSlice, type Call } from "../program/program.js";
import type { Trace } from "./trace.js";

/** The label of the record's memory. */
export const recordName = "record of a step";

/** The numbers of the record in order; all are f64. */
const fields = ["calls", "skipped", "badCalls", "firstCode", "firstCall"] as const;
type Field = (typeof fields)[number];

/** The first bad index that a compiled step got. */
export interface BadIndex {
  readonly index: number;
  /** The op that got it, and the user's line if it is known. */
  readonly op: string;
  readonly line?: string;
  /** The number of the call of this plan, from 1. */
  readonly call: number;
  /** Valid indices are 0 to size - 1. */
  readonly size: number;
  /** For example "the table has 4 rows". */
  readonly range: string;
}

export interface RecordedCounts {
  /** Calls whose changes to persistent memory were skipped. */
  readonly skipped: number;
  /** Calls that got a bad index. */
  readonly badCalls: number;
  readonly firstBad?: BadIndex;
}

export class StepRecord {
  readonly #storage: Storage;
  readonly #checks: readonly TracedCheck[];

  constructor(storage: Storage, checks: readonly TracedCheck[]) {
    this.#storage = storage;
    this.#checks = checks;
  }

  /** True if the step checks indices. */
  get hasChecks(): boolean {
    return this.#checks.length > 0;
  }

  /** Waits for the device. */
  read(runtime: Runtime): RecordedCounts {
    const numbers = new Float64Array(runtime.read(this.#storage).buffer);
    const at = (field: Field): number => numbers[fields.indexOf(field)] ?? 0;
    const [skipped, badCalls] = [at("skipped"), at("badCalls")];
    if (badCalls === 0) return { skipped, badCalls };
    const { check, index } = decodeBadIndex(at("firstCode"));
    const { op = "an op", size = 0, range = "", line } = this.#checks[check] ?? {};
    const firstBad = { index, op, call: at("firstCall"), size, range, ...(line && { line }) };
    return { skipped, badCalls, firstBad };
  }
}

export interface RecordedStep {
  readonly calls: readonly Call[];
  readonly regions: readonly Region[];
  readonly record?: StepRecord;
}

/** Predicates the step's writes on its guards and checks, and makes it keep its record. */
export function recordStep(
  runtime: Runtime,
  { calls, guards, checks, deadOnExit }: Pick<Trace<unknown>, "calls" | "guards" | "checks" | "deadOnExit">,
): RecordedStep {
  const indices = joinChecks(calls, checks, deadOnExit);
  if (guards.length === 0 && !indices) return { calls, regions: [] };
  const size = 8 * fields.length;
  const region = runtime.persistent.place("scalars", recordName, [{ name: recordName, size }]);
  runtime.fill(region.whole, 0);
  const [storage = region.whole] = region.storages;
  const buffer: Buffer = { id: -2, bytes: region.whole.span.size, label: region.name, storage: region.whole };
  const checkResults = new Set(checks.map(({ found }) => found.buffer));
  // Indices are available early. If a check were fused with later work, the updates that wait for it would start later.
  const hoisted = calls.map((call) =>
    accessesOf(call).some(({ slice, writes }) => writes && checkResults.has(slice.buffer))
      ? { ...call, isHoisted: true }
      : call,
  );
  const guarded = predicateWrites(hoisted, [...guards, ...(indices?.guards ?? [])]);
  const joins = indices?.joins ?? [];
  const withJoins = guarded.flatMap((call, place) => [
    ...joins.filter((join) => join.index === place).map((join) => join.call),
    call,
  ]);
  const last = joins.filter((join) => join.index === calls.length).map((join) => join.call);
  const noted = noteCall({ buffer, offset: 0, size }, guards, indices?.found);
  return {
    calls: [...withJoins, ...last, noted],
    regions: [region],
    record: new StepRecord(storage, indices ? checks : []),
  };
}

/** The fields that a step records: without index checks only one. */
const fieldsWith = (hasChecks: boolean): readonly Field[] => (hasChecks ? fields : ["skipped"]);

function noteCall(
  record: BufferSlice,
  guards: readonly Guard[],
  found: { readonly number: BufferSlice; readonly code: BufferSlice } | undefined,
): Call {
  const numbers = guards.map(({ number }) => number);
  const fieldSlices = fieldsWith(found !== undefined).map((field) => ({
    ...record,
    offset: record.offset + 8 * fields.indexOf(field),
    size: 8,
  }));
  const operands = [...fieldSlices, ...numbers, ...(found ? [found.number, found.code] : []), ...fieldSlices];
  const iteration = iterateElements(
    [1],
    operands.map(() => [0]),
  );
  const kernel = noteKernel(numbers.length, found !== undefined);
  return {
    op: kernel.name,
    phase: "update",
    work: { kind: "row", kernel, iteration, operands, scalars: [] },
  };
}

const noteKernels = new Map<string, RowKernel>();

/** Inputs: the record, the numbers that guard the step, and the results of the index checks. Outputs: the record. */
function noteKernel(guards: number, hasChecks: boolean): RowKernel {
  const key = `${guards} ${hasChecks}`;
  const cached = noteKernels.get(key);
  if (cached) return cached;
  const recorded = fieldsWith(hasChecks);
  const old = (field: Field): Expression => term.load(recorded.indexOf(field), "f64");
  const isNotFinite = (input: number): Expression =>
    term.sub(term.constant(1, "i32"), isFiniteTerm(term.load(input, "f64")));
  const isBad = hasChecks ? isNotFinite(recorded.length + guards) : term.constant(0, "i32");
  let isSkipped = isBad;
  for (let guard = 0; guard < guards; guard++)
    isSkipped = term.max(isSkipped, isNotFinite(recorded.length + guard));
  const store = (field: Field, value: Expression): Stage => ({
    ...{ kind: "store", output: recorded.indexOf(field), value },
  });
  const count = (field: Field, condition: Expression): Stage =>
    store(field, term.add(old(field), term.convert(condition, "f64")));
  const stages: Stage[] = [count("skipped", isSkipped)];
  if (hasChecks) {
    const isFirst = term.min(isBad, term.eq(old("badCalls"), 0));
    const code = term.load(recorded.length + guards + 1, "f64");
    // Later stages see a store, so counters that other fields depend on are stored last.
    stages.push(
      store("firstCode", term.select(isFirst, code, old("firstCode"))),
      store("firstCall", term.select(isFirst, term.add(old("calls"), 1), old("firstCall"))),
      count("badCalls", isBad),
      count("calls", term.constant(1, "i32")),
    );
  }
  const kernel: RowKernel = {
    name: "record of the step",
    inputs: Array.from({ length: recorded.length + guards + (hasChecks ? 2 : 0) }, () => "f64" as const),
    outputs: recorded.map(() => ({ dtype: "f64", per: "element" })),
    scalars: [],
    stages,
  };
  noteKernels.set(key, kernel);
  return kernel;
}
