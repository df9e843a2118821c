/**
 * The gradient of `recurrent` made of entries that have gradients too: its backward loop, unrolled. The factors that do not depend on the
 * gradient of the next step are computed for all steps at once.
 */

import { dtypes } from "../../ir/index.js";
import { sum } from "../broadcast.js";
import { cast } from "../elementwise/cast.js";
import { where } from "../elementwise/comparisons.js";
import { matmul } from "../matmul/matmul.js";
import { cat } from "../movement/cat.js";
import { reshape } from "../movement/reshape.js";
import { slice } from "../movement/slice.js";
import type { GradientRule, Gradients } from "../op.js";
import { recall } from "../recall.js";
import { activatedGates } from "./activated-gates.js";
import { cellShapes } from "./cells.js";
import { positionsOf, type RecurrentAttributes } from "./operands.js";
import { stepAlgebra } from "./step-algebra.js";
import { type Factors, type Steps, stepFactors } from "./step-factors.js";

type Rule<V> = GradientRule<V, RecurrentAttributes>;

/** The gradients of all operands of `recurrent`. */
export function recordedRecurrentGradient<V>(rule: Rule<V>): Gradients<V> {
  const steps = allSteps(rule);
  const { ofGates, ofProjected, ofState, ofCell } = runBackwards(rule, steps, stepFactors(rule, steps));
  const { weight, cell, bias } = positionsOf(rule.attributes.cell, rule.operandCount);
  const all = new Map<number | undefined, () => V | undefined>([
    [0, () => ofGates],
    [1, () => ofState],
    [weight, () => stepAlgebra(rule).weightGradient(ofProjected, steps.previous)],
    [cell, () => ofCell],
    [bias, () => rule.apply(sum, [ofProjected], { axes: [0, 1] })],
  ]);
  const { dtype } = rule.typeOf(0);
  return Array.from({ length: rule.operandCount }, (_, index) => {
    const gradient = rule.needs(index) ? all.get(index)?.() : undefined;
    return gradient && (dtype === steps.dtype ? gradient : rule.apply(cast, [gradient], { dtype }));
  });
}

/** What `recurrent` has stored, as values with graphs. */
function allSteps<V>(rule: Rule<V>): Steps<V> {
  const { apply } = rule;
  const { cell: kind, isReversed } = rule.attributes;
  const { weight, cell, bias, mask } = positionsOf(kind, rule.operandCount);
  const { planesOf, stepOf, rowsOf } = stepAlgebra(rule);
  const { shape, dtype } = rule.typeOf(0);
  const { compute } = dtypes[dtype];
  const inCompute = (value: V): V =>
    rule.valueType(value).dtype === compute ? value : apply(cast, [value], { dtype: compute });
  const [count = 0, batch = 0] = shape;
  const previous = rowsOf(rule.output(0), isReversed ? 1 : 0, count);
  const kept =
    mask === undefined ? undefined : apply(reshape, [rule.operand(mask)], { shape: [count, batch, 1] });
  const ascending = Array.from({ length: count }, (_, step) => step);
  return {
    ...{ dtype: compute, order: isReversed ? ascending.toReversed() : ascending },
    ...{ previous: inCompute(previous), isMasked: kept !== undefined },
    next: inCompute(rowsOf(rule.output(0), isReversed ? 0 : 1, count)),
    weight: inCompute(rule.operand(weight) as V),
    gates() {
      const links = [
        rule.link(0),
        previous,
        rule.operand(weight),
        ...(bias === undefined ? [] : [rule.link(bias)]),
      ];
      return planesOf(
        inCompute(apply(activatedGates, [...links, rule.constantOutput(1)], { isGru: kind === "gru" })),
      );
    },
    firstCell() {
      const stored = stepOf(rule.constantOutput(2), isReversed ? count : 0);
      return cell === undefined ? stored : apply(recall, [rule.link(cell), stored]);
    },
    masked: (value, other) => (kept === undefined ? (value as V) : apply(where, [kept, value, other])),
  };
}

interface BackwardResults<V> {
  /** Of the projected input and the projected states, [steps, batch, width]. */
  readonly ofGates: V;
  readonly ofProjected: V;
  /** Of the initial states. */
  readonly ofState: V;
  readonly ofCell: V | undefined;
}

function runBackwards<V>(
  rule: Rule<V>,
  { dtype, order, weight }: Steps<V>,
  factors: Factors<V>,
): BackwardResults<V> {
  const { apply } = rule;
  const { plus, times, stepOf, stackSteps, joinPlanes } = stepAlgebra(rule);
  const { cell: kind, isReversed } = rule.attributes;
  const [count = 0, batch = 0, width = 0] = rule.typeOf(0).shape;
  const upstream =
    rule.valueType(rule.upstream).dtype === dtype ? rule.upstream : apply(cast, [rule.upstream], { dtype });
  const ofGates: V[] = new Array(count);
  const ofProjected: V[] = new Array(count);
  let fromLater: V | undefined;
  let ofCell = cellShapes[kind].hasCell ? stepOf(upstream, count + 1) : undefined;
  for (const step of order.toReversed()) {
    const arrived = stepOf(upstream, isReversed ? step : step + 1);
    const ofState = fromLater === undefined ? arrived : plus(arrived, fromLater);
    if (ofCell && factors.cell) ofCell = plus(ofCell, times(ofState, stepOf(factors.cell, step)));
    const gates = joined(ofEachGate(stepOf(factors.gates, step), ofState, ofCell));
    const projected = factors.projected ? joined(times(stepOf(factors.projected, step), ofState)) : gates;
    ofGates[step] = gates;
    ofProjected[step] = projected;
    const throughWeight = apply(matmul, [projected, weight]);
    fromLater = factors.carry
      ? plus(throughWeight, times(ofState, stepOf(factors.carry, step)))
      : throughWeight;
    if (ofCell && factors.forget) ofCell = times(ofCell, stepOf(factors.forget, step));
  }
  const initial = stepOf(upstream, isReversed ? count : 0);
  return {
    ofGates: stackSteps(ofGates),
    ofProjected: stackSteps(ofProjected),
    ofState: fromLater === undefined ? initial : plus(initial, fromLater),
    ofCell,
  };

  /** [planes, batch, hidden]. An LSTM's output gate, the last one, acts on the state, and the others on the cell. */
  function ofEachGate(factor: V, ofState: V, ofNextCell: V | undefined): V {
    if (ofNextCell === undefined) return times(factor, ofState);
    const planes = (first: number, end: number): V => apply(slice, [factor], { ranges: [[first, end]] });
    return apply(cat, [times(planes(0, 3), ofNextCell), times(planes(3, 4), ofState)], { axis: 0 });
  }

  /** [planes, batch, hidden] → [batch, planes · hidden]. */
  function joined(planes: V): V {
    const { shape } = rule.valueType(planes);
    return apply(reshape, [joinPlanes(apply(reshape, [planes], { shape: [1, ...shape] }))], {
      shape: [batch, width],
    });
  }
}
