/** The factors of each cell's gradient, for recorded gradients of recurrent layers. */

import type { Dtype } from "../../ir/index.js";
import { tanh } from "../elementwise/activations.js";
import { cast } from "../elementwise/cast.js";
import { gt } from "../elementwise/comparisons.js";
import type { GradientRule } from "../op.js";
import type { RecurrentAttributes } from "./operands.js";
import { stepAlgebra } from "./step-algebra.js";

type Rule<V> = GradientRule<V, RecurrentAttributes>;

/** Values of all steps in the compute dtype. */
export interface Steps<V> {
  readonly dtype: Dtype;
  /** In the order in which the steps run. */
  readonly order: readonly number[];
  /** The states before and after each step, [steps, batch, hidden]. */
  readonly previous: V;
  readonly next: V;
  readonly weight: V;
  readonly isMasked: boolean;
  /** The activated gates, [steps, batch, hidden] each. */
  gates(): [V, V, V, V];
  /** The cell before the first step, [batch, hidden]. */
  firstCell(): V;
  /** The value where the mask is true, and the other elsewhere. Without a mask the value. */
  masked(value: V | number, other: number): V;
}

/**
 * Let u be the gradient of the state after a step, and c that of the cell after it. Then c grows by u · `cell`, and the gates get u · `gates`, but
 * an LSTM's first three c · `gates`. The previous state gets u · `carry` besides what the weight passes, and the previous cell c · `forget`.
 */
export interface Factors<V> {
  /** [steps, planes, batch, hidden]. */
  readonly gates: V;
  /** As `gates`, of the projected states. Default: `gates`. */
  readonly projected?: V;
  readonly carry?: V | undefined;
  readonly cell?: V;
  readonly forget?: V;
}

export function stepFactors<V>(rule: Rule<V>, steps: Steps<V>): Factors<V> {
  switch (rule.attributes.cell) {
    case "lstm":
      return lstmFactors(rule, steps);
    case "gru":
      return gruFactors(rule, steps);
    default:
      return plainFactors(rule, steps);
  }
}

function lstmFactors<V>(rule: Rule<V>, steps: Steps<V>): Factors<V> {
  const { times, plus, stepOf, stackSteps, stackPlanes, sigmoidSlope, tanhSlope } = stepAlgebra(rule);
  const { order, masked } = steps;
  const [i, f, g, o] = steps.gates();
  const [added, forget] = [masked(times(i, g), 0), masked(f, 1)];
  const [previous, next]: [V[], V[]] = [new Array(order.length), new Array(order.length)];
  let cell = steps.firstCell();
  for (const step of order) {
    previous[step] = cell;
    cell = plus(times(stepOf(forget, step), cell), stepOf(added, step));
    next[step] = cell;
  }
  const squashed = rule.apply(tanh, [stackSteps(next)]);
  const gates = [
    times(g, sigmoidSlope(i)),
    times(stackSteps(previous), sigmoidSlope(f)),
    times(i, tanhSlope(g)),
    times(squashed, sigmoidSlope(o)),
  ];
  return {
    ...{ gates: stackPlanes(gates.map((gate) => masked(gate, 0))), forget },
    ...{ cell: masked(times(o, tanhSlope(squashed)), 0), carry: carryOfMask(steps) },
  };
}

function gruFactors<V>(rule: Rule<V>, steps: Steps<V>): Factors<V> {
  const { times, minus, stackPlanes, sigmoidSlope, tanhSlope } = stepAlgebra(rule);
  const [r, z, n, projected] = steps.gates();
  const candidate = times(minus(1, z), tanhSlope(n));
  const reset = times(candidate, projected, sigmoidSlope(r));
  const update = times(minus(steps.previous, n), sigmoidSlope(z));
  const stacked = (last: V): V => stackPlanes([reset, update, last].map((plane) => steps.masked(plane, 0)));
  return { gates: stacked(candidate), projected: stacked(times(candidate, r)), carry: steps.masked(z, 1) };
}

function plainFactors<V>(rule: Rule<V>, steps: Steps<V>): Factors<V> {
  const { stackPlanes, tanhSlope } = stepAlgebra(rule);
  const { dtype, next, masked } = steps;
  const slope =
    rule.attributes.cell === "tanh"
      ? tanhSlope(next)
      : rule.apply(cast, [rule.apply(gt, [next, 0])], { dtype });
  return { gates: stackPlanes([masked(slope, 0)]), carry: carryOfMask(steps) };
}

/** A row that the mask leaves out keeps its state. */
function carryOfMask<V>({ isMasked, masked }: Steps<V>): V | undefined {
  return isMasked ? masked(0, 1) : undefined;
}
