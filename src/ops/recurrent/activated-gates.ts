/** The activated gates of a recurrent layer as a function of its operands, for gradients that are recorded. */

import { sum } from "../broadcast.js";
import { mul } from "../elementwise/arithmetic.js";
import { matmul } from "../matmul/matmul.js";
import type { GradientRule } from "../op.js";
import { recalled } from "../recall.js";
import { stepAlgebra } from "./step-algebra.js";

/**
 * The activated gates of all steps, [steps, planes, batch, hidden]. Operands: the projected input, the states before each step [steps,
 * batch, hidden], the weight, for a GRU the bias, and the gates that `recurrent` has stored.
 */
export const activatedGates = recalled<{ readonly isGru: boolean }>({
  name: "gates",
  saves: () => ({ operands: [1, 2], outputs: [0] }),
  gradient(rule) {
    const { apply, attributes } = rule;
    const { joinPlanes, weightGradient } = stepAlgebra(rule);
    const [ofInput, ofProjection] = attributes.isGru ? ofGru(rule) : ofLstm(rule);
    const projected = joinPlanes(ofProjection);
    return [
      joinPlanes(ofInput),
      apply(matmul, [projected, rule.operand(2)]),
      weightGradient(projected, rule.operand(1) as typeof projected),
      attributes.isGru ? apply(sum, [projected], { axes: [0, 1] }) : undefined,
    ];
  },
});

/** The gradients of the gates before their activation, twice: they are the sums of both projections. */
function ofLstm<V, A>(rule: GradientRule<V, A>): readonly [V, V] {
  const { planesOf, stackPlanes, sigmoidSlope, tanhSlope } = stepAlgebra(rule);
  const [i, f, g, o] = planesOf(rule.output(0));
  const slopes = stackPlanes([sigmoidSlope(i), sigmoidSlope(f), tanhSlope(g), sigmoidSlope(o)]);
  const gradient = rule.apply(mul, [rule.upstream, slopes]);
  return [gradient, gradient];
}

/** The gradients of the projected input and of the projected states. The last plane of the gates is that of the projected states. */
function ofGru<V, A>(rule: GradientRule<V, A>): readonly [V, V] {
  const { planesOf, stackPlanes, sigmoidSlope, tanhSlope, plus, times } = stepAlgebra(rule);
  const [r, z, n, projected] = planesOf(rule.output(0));
  const [ofR, ofZ, ofN, ofProjected] = planesOf(rule.upstream);
  const candidate = times(ofN, tanhSlope(n));
  const reset = times(plus(ofR, times(candidate, projected)), sigmoidSlope(r));
  const update = times(ofZ, sigmoidSlope(z));
  return [
    stackPlanes([reset, update, candidate]),
    stackPlanes([reset, update, plus(ofProjected, times(candidate, r))]),
  ];
}
