/**
 * Guards persistent memory against bad indices: after a check, writes happen only if no earlier check found one. Memory that
 * the step forgets (zeroGrad) is written anyway. The first bad index goes into the step's record.
 */

import { iterateElements, type RowKernel, term } from "../../ir/index.js";
import type { IndexCheck } from "../../runtime/index.js";
import type { BufferSlice, Call } from "../program/program.js";
import { bufferMaker } from "../program/uses.js";
import { type Guard, guardedOutputs, isFiniteTerm } from "./skip-nonfinite.js";

/** A check of indices in a trace: the first bad one, as f64, is Infinity where there is none. */
export interface TracedCheck extends IndexCheck {
  readonly from: number;
  until: number;
  readonly found: BufferSlice;
  /** The user's line. */
  readonly line?: string;
}

/** A bad index with the number of its check, as one f64; both are whole numbers. */
const codeStep = 2 ** 33;
const codeZero = 2 ** 32;

export function decodeBadIndex(code: number): { readonly check: number; readonly index: number } {
  const check = Math.floor(code / codeStep);
  return { check, index: code - check * codeStep - codeZero };
}

/** The combined result of several checks. */
interface CombinedChecks {
  /** f64: 0 where no index is bad, NaN where one is. */
  readonly number: BufferSlice;
  /** f64: the first bad index with the number of its check. */
  readonly code: BufferSlice;
}

export interface IndexGuards {
  readonly guards: readonly Guard[];
  /** Calls to insert, each before the call at its index. */
  readonly joins: readonly { readonly index: number; readonly call: Call }[];
  /** The combined result of all checks. */
  readonly found: CombinedChecks;
}

/** Combines check results before each guarded write, and at the end. */
export function joinChecks(
  calls: readonly Call[],
  checks: readonly TracedCheck[],
  spared: readonly BufferSlice[],
): IndexGuards | undefined {
  if (checks.length === 0) return undefined;
  const makeBuffer = bufferMaker(calls);
  const makeNumber = (label: string): BufferSlice => ({ buffer: makeBuffer(8, label), offset: 0, size: 8 });
  const guards: Guard[] = [];
  const joins: { index: number; call: Call }[] = [];
  let combined: CombinedChecks | undefined;
  let done = 0;
  const join = (index: number, end: number): void => {
    while (done < end) {
      const some = checks.slice(done, Math.min(end, done + maxChecksPerCall));
      const next = { number: makeNumber("bad index?"), code: makeNumber("bad index") };
      joins.push({ index, call: mergeCall(some, done, combined, next) });
      [combined, done] = [next, done + some.length];
    }
  };
  for (const [index, call] of calls.entries()) {
    const end = checks.findLastIndex(({ from }) => from <= index) + 1;
    if (end === 0 || call.work.kind !== "row") continue;
    const { until } = checks[end - 1] ?? { until: 0 };
    if (index >= until || guardedOutputs(call.work, spared).length === 0) continue;
    join(index, end);
    const number = combined?.number;
    if (number && guards.at(-1)?.number !== number) {
      for (const guard of guards) guard.until = Math.min(guard.until, index);
      guards.push({ from: index, until, number, spared });
    }
  }
  join(calls.length, checks.length);
  return combined && { guards, joins, found: combined };
}

/** How many checks one call combines. */
const maxChecksPerCall = 8;

function mergeCall(
  checks: readonly TracedCheck[],
  firstCheck: number,
  before: CombinedChecks | undefined,
  next: CombinedChecks,
): Call {
  const operands = [
    ...checks.map(({ found }) => found),
    ...(before ? [before.number, before.code] : []),
    ...[next.number, next.code],
  ];
  const iteration = iterateElements(
    [1],
    operands.map(() => [0]),
  );
  const kernel = combineKernel(checks.length, before !== undefined);
  return {
    op: kernel.name,
    phase: "forward",
    isHoisted: true,
    work: { kind: "row", kernel, iteration, operands, scalars: [firstCheck] },
  };
}

const combineKernels = new Map<string, RowKernel>();

/** Selects the first bad index of the earlier ones and these checks. */
function combineKernel(checks: number, isLater: boolean): RowKernel {
  const key = `${checks} ${isLater}`;
  const known = combineKernels.get(key);
  if (known) return known;
  let number = term.constant(0, "f64");
  let code = term.constant(0, "f64");
  for (let check = checks - 1; check >= 0; check--) {
    const index = term.load(check, "f64");
    const isBad = isFiniteTerm(index);
    const checkCode = term.add(
      term.mul(term.add(term.scalar(0, "f64"), check), codeStep),
      term.add(index, codeZero),
    );
    number = term.select(isBad, term.constant(Number.NaN, "f64"), number);
    code = term.select(isBad, checkCode, code);
  }
  if (isLater) {
    const earlier = term.load(checks, "f64");
    number = term.add(earlier, number);
    code = term.select(isFiniteTerm(earlier), code, term.load(checks + 1, "f64"));
  }
  const kernel: RowKernel = {
    name: "bad indices",
    inputs: Array.from({ length: checks + (isLater ? 2 : 0) }, () => "f64" as const),
    outputs: [
      { dtype: "f64", per: "element" },
      { dtype: "f64", per: "element" },
    ],
    scalars: ["f64"],
    stages: [
      { kind: "store", output: 0, value: number },
      { kind: "store", output: 1, value: code },
    ],
  };
  combineKernels.set(key, kernel);
  return kernel;
}
