/** Elementwise losses of an input and a target, each in one kernel, and one for the gradient of each operand. */

import { type Expression, term } from "../../ir/index.js";
import { elementwise } from "../elementwise/elementwise.js";
import { fitToOperand } from "../gradients.js";
import type { Attributes, KernelOp, NoAttributes } from "../op.js";

const none = term.constant(0, "f32");

type Formula = (x: Expression, target: Expression, scalar: Expression) => Expression;

interface LossDefinition<A extends Attributes> {
  readonly name: string;
  readonly scalar?: (attributes: A) => number;
  readonly value: Formula;
  /** The derivatives by input and target; without the second, the target is a constant. */
  readonly slopes: readonly [input: Formula, target?: Formula];
}

function lossOf<A extends Attributes = NoAttributes>(definition: LossDefinition<A>): KernelOp<A> {
  const { name, scalar, value, slopes } = definition;
  const scalars = scalar && { scalars: (attributes: A) => [scalar(attributes)] };
  const gradients = slopes.map((slope, index) =>
    elementwise<A>({
      name: `${name}${index === 0 ? "Input" : "Target"}Gradient`,
      operands: 3,
      result: "float",
      ...scalars,
      value: ([upstream = none, x = none, target = none], [extra = none]) =>
        term.mul(upstream, slope?.(x, target, extra) ?? none),
    }),
  );
  return elementwise<A>({
    name,
    operands: 2,
    result: "float",
    ...scalars,
    value: ([x = none, target = none], [extra = none]) => value(x, target, extra),
    saves: () => ({ operands: [0, 1] }),
    gradient: (rule) =>
      gradients.map((op, index) => {
        if (!rule.needs(index)) return undefined;
        const operands = [rule.upstream, rule.operand(0), rule.operand(1)];
        return fitToOperand(rule, rule.apply(op, operands, rule.attributes), index);
      }),
  });
}

/** A logarithm of 0 counts as −100, as in PyTorch. */
const limited = (log: Expression): Expression => term.max(log, -100);
const logOf = (x: Expression): Expression => limited(term.log(x));
const logOfRest = (x: Expression): Expression => limited(term.log1p(term.neg(x)));

/** The binary cross entropy of probabilities. */
export const probabilityCrossEntropy: KernelOp = lossOf({
  name: "probabilityCrossEntropy",
  value: (x, t) => term.neg(term.add(term.mul(t, logOf(x)), term.mul(term.sub(1, t), logOfRest(x)))),
  slopes: [
    (x, t) => term.div(term.sub(x, t), term.max(term.mul(term.sub(1, x), x), 1e-12)),
    (x) => term.sub(logOfRest(x), logOf(x)),
  ],
});

const where0 = (t: Expression, value: Expression): Expression =>
  term.select(term.gt(t, 0), value, term.constant(0, t.type));

/** target · (log(target) − input), for an input of log probabilities. */
export const klDivergence: KernelOp = lossOf({
  name: "klDivergence",
  value: (x, t) => where0(t, term.mul(t, term.sub(term.log(t), x))),
  slopes: [(_, t) => term.neg(t), (x, t) => where0(t, term.sub(term.add(term.log(t), 1), x))],
});

/** The same, for a target of log probabilities. */
export const klDivergenceOfLogs: KernelOp = lossOf({
  name: "klDivergenceOfLogs",
  value: (x, t) => term.mul(term.exp(t), term.sub(t, x)),
  slopes: [(_, t) => term.neg(term.exp(t)), (x, t) => term.mul(term.exp(t), term.add(term.sub(t, x), 1))],
});

/** eˣ − target · x: the negative log likelihood of counts, for the logarithm of a rate. */
export const poissonOfLog: KernelOp = lossOf({
  name: "poissonOfLog",
  value: (x, t) => term.sub(term.exp(x), term.mul(t, x)),
  slopes: [(x, t) => term.sub(term.exp(x), t), (x) => term.neg(x)],
});

/** x − target · log(x + eps), for a rate. */
export const poissonOfRate: KernelOp<{ readonly eps: number }> = lossOf<{ readonly eps: number }>({
  name: "poissonOfRate",
  scalar: ({ eps }) => eps,
  value: (x, t, eps) => term.sub(x, term.mul(t, term.log(term.add(x, eps)))),
  slopes: [
    (x, t, eps) => term.sub(1, term.div(t, term.add(x, eps))),
    (x, _, eps) => term.neg(term.log(term.add(x, eps))),
  ],
});

/** log(1 + e^(−target · x)), for targets of 1 and −1. */
export const softMargin: KernelOp = lossOf({
  name: "softMargin",
  value: (x, t) => term.softplus(term.neg(term.mul(t, x))),
  slopes: [
    (x, t) => term.neg(term.mul(t, term.sigmoid(term.neg(term.mul(t, x))))),
    (x, t) => term.neg(term.mul(x, term.sigmoid(term.neg(term.mul(t, x))))),
  ],
});

/** x where the target is 1, and max(0, margin − x) where it is −1. */
export const hingeEmbedding: KernelOp<{ readonly margin: number }> = lossOf<{ readonly margin: number }>({
  name: "hingeEmbedding",
  scalar: ({ margin }) => margin,
  value: (x, t, margin) => {
    const zero = term.constant(0, x.type);
    const near = term.select(term.eq(t, -1), zero, x);
    return term.add(near, term.select(term.eq(t, 1), zero, term.max(term.sub(margin, x), 0)));
  },
  slopes: [
    (x, t, margin) => {
      const [zero, one] = [term.constant(0, x.type), term.constant(1, x.type)];
      const far = term.select(term.ge(term.sub(margin, x), 0), one, zero);
      return term.sub(term.select(term.eq(t, -1), zero, one), term.select(term.eq(t, 1), zero, far));
    },
  ],
});
