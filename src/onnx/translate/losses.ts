/** Losses of class labels. Elementwise losses are translated from their kernels. */

import type { CallContext, Translation } from "./call-context.js";

const defaultIgnoreIndex = -100;

/** The axis of the classes: the second one of [N, C, …], the only one of [C]. */
function classAxis(at: CallContext): number {
  return at.value(0).shape.length === 1 ? 0 : 1;
}

/** The loss of log probabilities: −weight · Σ share · log p, with a share of each class in the target. */
function classLoss(at: CallContext, logProbabilities: string): string {
  const axis = classAxis(at);
  const { shape } = at.value(0);
  const [classes = 1] = at.fixed([shape[axis] ?? 1], "the number of classes");
  const smoothing = at.number("labelSmoothing", 0);
  const ignored = at.graph.scalar("i64", at.number("ignoreIndex", defaultIgnoreIndex));
  const labels = at.node("Unsqueeze", [at.input(1, "i64"), at.ints([axis])]);
  const along = shape.map((_, index) => (index === axis ? classes : 1));
  const all = at.graph.constant(
    "i64",
    along,
    Array.from({ length: classes }, (_, index) => index),
  );
  const isCounted = at.node("Not", [at.node("Equal", [labels, ignored])]);
  const isTarget = at.node("And", [at.node("Equal", [labels, all]), isCounted]);
  const target = at.cast(isTarget, "bool", at.compute);
  const counted = at.cast(isCounted, "bool", at.compute);
  const weight = at.hasOperand(2) ? at.reshape(at.operand(2), along) : undefined;
  const weigh = (name: string): string => (weight === undefined ? name : at.node("Mul", [name, weight]));
  let shares = weigh(target);
  if (smoothing > 0) {
    const spread = at.node("Mul", [weigh(counted), at.scalar(smoothing / classes)]);
    shares = at.node("Add", [at.node("Mul", [shares, at.scalar(1 - smoothing)]), spread]);
  }
  const sum = (name: string, keeps: number, axes: readonly number[]): string =>
    at.node("ReduceSum", [name, at.ints(axes)], { keepdims: { int: keeps } });
  // A class of probability 0 counts only where it is the target.
  const isUsed = at.node("Equal", [shares, at.scalar(0)]);
  const terms = at.node("Where", [isUsed, at.scalar(0), at.node("Mul", [shares, logProbabilities])]);
  const losses = at.node("Neg", [sum(terms, 0, [axis])]);
  const reduction = at.has("reduction") ? at.text("reduction") : "mean";
  if (reduction === "none") return losses;
  const kept = shape.slice(1).map((_, index) => index);
  const total = kept.length === 0 && shape.length === 1 ? losses : sum(losses, 0, kept);
  if (reduction === "sum") return total;
  const every = shape.map((_, index) => index);
  return at.node("Div", [total, sum(weigh(target), 0, every)]);
}

export const lossTranslations: Readonly<Record<string, Translation>> = {
  crossEntropy: (at) =>
    at.result(classLoss(at, at.node("LogSoftmax", [at.operand(0)], { axis: { int: classAxis(at) } }))),
  nllLoss: (at) => at.result(classLoss(at, at.operand(0))),
};
