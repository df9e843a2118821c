/**
 * Predicates the writes of a step on a number: from the call where the step names it, persistent memory changes only if the number is
 * finite. So a step whose gradients have overflowed is skipped on the device, without a read-back.
 */

import { type Expression, type Iteration, type RowKernel, type Stage, term } from "../../ir/index.js";
import type { BufferSlice, Call, RowCall } from "../program/program.js";
import { type Extent, extentOf } from "../program/slices.js";

/** An f64 number, the first call that it guards, and the first call that it no longer guards. */
export interface Guard {
  readonly from: number;
  until: number;
  readonly number: BufferSlice;
  /** Persistent memory that changes in any case. */
  readonly spared?: readonly BufferSlice[];
}

/** Only row calls are guarded, because updates are row calls. Random states and counters advance in any case. */
export function predicateWrites(calls: readonly Call[], guards: readonly Guard[]): readonly Call[] {
  if (guards.length === 0) return calls;
  return calls.map((call, index) => {
    const { work } = call;
    if (work.kind !== "row") return call;
    let guarded = work;
    for (const guard of guards) {
      if (index < guard.from || guard.until <= index) continue;
      const outputs = guardedOutputs(guarded, guard.spared);
      if (outputs.length > 0) guarded = guardRows(guarded, guard.number, outputs);
    }
    return guarded === work ? call : { ...call, work: guarded };
  });
}

/** The outputs of a call that a guard protects: persistent ones that are not spared. */
export function guardedOutputs({ kernel, operands }: RowCall, spared: readonly BufferSlice[] = []): number[] {
  const { inputs, outputs } = kernel;
  const isSpared = (slice: BufferSlice): boolean =>
    spared.some((one) => isWithin(extentOf(slice), extentOf(one)));
  return [...outputs.keys()].filter((output) => {
    const slice = operands[inputs.length + output];
    return slice?.buffer.storage !== undefined && !isSpared(slice);
  });
}

function isWithin(inner: Extent, outer: Extent): boolean {
  return inner.space === outer.space && outer.from <= inner.from && inner.to <= outer.to;
}

/** The same call, with these outputs unchanged if the number is not finite. */
function guardRows(call: RowCall, number: BufferSlice, olds: readonly number[]): RowCall {
  const { kernel, iteration, operands, scalars } = call;
  const { inputs, outputs } = kernel;
  // The old value of each guarded output, then the number.
  const order = [
    ...inputs.keys(),
    ...olds.map((output) => inputs.length + output),
    undefined,
    ...outputs.map((_, output) => inputs.length + output),
  ];
  return {
    kind: "row",
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
export function isFiniteTerm(number: Expression): Expression {
  return term.lt(term.abs(number), Infinity);
}

/** The same iteration over reordered operands; undefined stands for an operand with stride 0. */
function withOperands(iteration: Iteration, order: readonly (number | undefined)[]): Iteration {
  const along = <A extends Iteration["row"]>(axis: A): A => ({
    ...axis,
    strides: order.map((index) => (index === undefined ? 0 : (axis.strides[index] ?? 0))),
  });
  return { ...iteration, outer: iteration.outer.map(along), row: along(iteration.row) };
}
