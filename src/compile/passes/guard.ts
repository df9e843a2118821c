/**
 * Guards what a step leaves behind by a number: from the place where the step names it, persistent memory is changed only
 * if it is finite. So a step whose gradients have overflowed is skipped on the device, and nobody has to look.
 */

import {
  type Expression,
  type Iteration,
  iterateElements,
  type RowKernel,
  type Stage,
  term,
} from "../../kernels/index.js";
import type { Call, Part, RowCall } from "../program.js";

/** A number (f64), from which call on it guards, and which one is the first that it no longer does. */
export interface Guard {
  readonly from: number;
  until: number;
  readonly number: Part;
}

/** Only row calls are guarded: updates are. Random states and counters move on all the same. */
export function guardWrites(calls: readonly Call[], guards: readonly Guard[]): readonly Call[] {
  if (guards.length === 0) return calls;
  return calls.map((call, place) => {
    const { work } = call;
    if (work.kind !== "rows" || !work.operands.some(isChanged(work))) return call;
    let guarded = work;
    for (const { from, until, number } of guards)
      if (from <= place && place < until) guarded = guardRows(guarded, number);
    return { ...call, work: guarded };
  });
}

function isChanged({ kernel }: RowCall) {
  return (part: Part, index: number): boolean =>
    index >= kernel.inputs.length && part.buffer.storage !== undefined;
}

/** The same call, whose persistent outputs stay as they are where the number is not finite. */
function guardRows(call: RowCall, number: Part): RowCall {
  const { kernel, iteration, operands, scalars } = call;
  const { inputs, outputs } = kernel;
  const isGuarded = outputs.map(
    (_, output) => operands[inputs.length + output]?.buffer.storage !== undefined,
  );
  // What stands there before, for each guarded output, then the number.
  const olds = outputs.flatMap((_, output) => (isGuarded[output] ? [output] : []));
  const order = [
    ...inputs.keys(),
    ...olds.map((output) => inputs.length + output),
    undefined,
    ...outputs.map((_, output) => inputs.length + output),
  ];
  return {
    kind: "rows",
    kernel: guardedKernel(kernel, olds),
    iteration: withOperands(iteration, order),
    operands: order.map((index) => (index === undefined ? number : (operands[index] ?? number))),
    scalars,
  };
}

const kernels = new WeakMap<RowKernel, Map<string, RowKernel>>();

function guardedKernel(kernel: RowKernel, olds: readonly number[]): RowKernel {
  const byOlds = kernels.get(kernel) ?? new Map<string, RowKernel>();
  kernels.set(kernel, byOlds);
  const known = byOlds.get(olds.join());
  if (known) return known;
  const { inputs, outputs, stages } = kernel;
  const holds = isFiniteTerm(term.load(inputs.length + olds.length, "f64"));
  const guarded: RowKernel = {
    ...kernel,
    inputs: [...inputs, ...olds.map((output) => outputs[output]?.dtype ?? "f32"), "f64"],
    stages: stages.map((stage): Stage => {
      const old = stage.kind === "store" ? olds.indexOf(stage.output) : -1;
      if (stage.kind !== "store" || old < 0) return stage;
      const before = term.load(inputs.length + old, stage.value.type);
      return { ...stage, value: term.select(holds, stage.value, before) };
    }),
  };
  byOlds.set(olds.join(), guarded);
  return guarded;
}

/** Neither infinity nor NaN is below infinity. */
function isFiniteTerm(number: Expression): Expression {
  return term.lt(term.abs(number), Infinity);
}

const countKernel: RowKernel = {
  name: "count of skipped steps",
  inputs: ["f64", "f64"],
  outputs: [{ dtype: "f64", per: "element" }],
  scalars: [],
  stages: [
    {
      kind: "store",
      output: 0,
      value: term.add(
        term.load(0, "f64"),
        term.select(isFiniteTerm(term.load(1, "f64")), term.constant(0, "f64"), term.constant(1, "f64")),
      ),
    },
  ],
};

/** Adds one to a counter (f64) where the number is not finite. */
export function countSkips(counter: Part, { number }: Guard): Call {
  const iteration = iterateElements([1], [[0], [0], [0]]);
  const work: RowCall = {
    kind: "rows",
    kernel: countKernel,
    iteration,
    operands: [counter, number, counter],
    scalars: [],
  };
  return { op: "count of skipped steps", part: "update", work };
}

/** The same iteration over other operands: each moves as the one of its number, or not at all. */
function withOperands(iteration: Iteration, order: readonly (number | undefined)[]): Iteration {
  const along = <A extends Iteration["row"]>(axis: A): A => ({
    ...axis,
    strides: order.map((index) => (index === undefined ? 0 : (axis.strides[index] ?? 0))),
  });
  return { ...iteration, outer: iteration.outer.map(along), row: along(iteration.row) };
}
