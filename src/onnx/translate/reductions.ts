/** Reductions, scans and sorting. */

import { dtypes } from "../../ir/index.js";
import type { Size } from "../sizes.js";
import type { CallContext, Translation } from "./call-context.js";

function reduce(at: CallContext, type: string, x: string, axes = at.axes()): string {
  if (axes.length === 0) return x;
  return at.node(type, [x, at.ints(axes)], { keepdims: { int: at.flag("keepsAxes") ? 1 : 0 } });
}

function reduction(type: string): Translation {
  return (at) => at.result(reduce(at, type, at.operand(0)));
}

function truth(type: "ReduceMin" | "ReduceMax"): Translation {
  return (at) => {
    const isTrue = at.cast(at.input(0), at.value(0).dtype, "bool");
    return at.cast(reduce(at, type, at.cast(isTrue, "bool", "i32")), "i32", "bool");
  };
}

function arg(type: "ArgMax" | "ArgMin"): Translation {
  return (at) => {
    const { shape, dtype } = at.value(0);
    const x = at.input(0, dtype === "bool" ? "i32" : dtype);
    const isFlat = !at.has("axis");
    const list = isFlat ? at.node("Reshape", [x, at.ints([-1])]) : x;
    const axis = isFlat ? 0 : at.axis();
    const keeps = !isFlat && at.flag("keepsAxes");
    const index = at.node(type, [list], { axis: { int: axis }, keepdims: { int: keeps ? 1 : 0 } });
    const i32 = at.cast(index, "i64", "i32");
    return isFlat && at.flag("keepsAxes")
      ? at.reshape(
          i32,
          shape.map(() => 1),
        )
      : i32;
  };
}

/** The number of elements that one result is reduced from. */
function countOf(at: CallContext): string {
  const { shape } = at.value(0);
  const sizes = at.axes().map((axis) => shape[axis] ?? 1);
  const product = sizes.reduce<Size>(
    (a, b) => (typeof a === "number" && typeof b === "number" ? a * b : Number.NaN),
    1,
  );
  if (typeof product === "number" && !Number.isNaN(product)) return at.scalar(product);
  const count = at.node("ReduceProd", [at.ints(sizes)], { keepdims: { int: 0 } });
  return at.cast(count, "i64", at.compute);
}

/** The sum of squared distances from the mean, divided by the count less the correction. */
function variance(at: CallContext): string {
  const x = at.operand(0);
  const axes = at.axes();
  const mean = axes.length === 0 ? x : at.node("ReduceMean", [x, at.ints(axes)]);
  const centred = at.node("Sub", [x, mean]);
  const squares = reduce(at, "ReduceSum", at.node("Mul", [centred, centred]));
  const correction = at.number("correction", 1);
  const freedom = at.node("Sub", [countOf(at), at.scalar(correction)]);
  return at.node("Div", [squares, at.node("Max", [freedom, at.scalar(0)])]);
}

const infinity = Number.POSITIVE_INFINITY;

export const reductionTranslations: Readonly<Record<string, Translation>> = {
  sum: reduction("ReduceSum"),
  mean: reduction("ReduceMean"),
  amax: reduction("ReduceMax"),
  amin: reduction("ReduceMin"),
  prod: reduction("ReduceProd"),
  logsumexp: reduction("ReduceLogSumExp"),
  variance: (at) => at.result(variance(at)),
  std: (at) => at.result(at.node("Sqrt", [variance(at)])),
  norm: (at) => {
    const p = at.number("p", 2);
    const x = at.operand(0);
    const magnitude = at.node("Abs", [x]);
    if (p === 1) return at.result(reduce(at, "ReduceL1", x));
    if (p === 2) return at.result(reduce(at, "ReduceL2", x));
    if (p === infinity) return at.result(reduce(at, "ReduceMax", magnitude));
    if (p === -infinity) return at.result(reduce(at, "ReduceMin", magnitude));
    const sum = reduce(at, "ReduceSum", at.node("Pow", [magnitude, at.scalar(p)]));
    return at.result(at.node("Pow", [sum, at.scalar(1 / p)]));
  },
  cumsum: (at) =>
    at.result(
      at.node("CumSum", [at.operand(0), at.graph.scalar("i64", at.axis())], {
        reverse: { int: at.flag("isReversed") ? 1 : 0 },
      }),
    ),
  argmax: arg("ArgMax"),
  argmin: arg("ArgMin"),
  all: truth("ReduceMin"),
  any: truth("ReduceMax"),
  sort: (at) => {
    const { shape, dtype } = at.value(0);
    if (shape.length === 0) return [at.input(0), at.graph.scalar("i32", 0)];
    const axis = at.axis();
    const inner = at.compute;
    const x = at.operand(0);
    const isFloat = dtypes[inner].kind === "float";
    // NaN is the largest number, which TopK does not know.
    const keys = isFloat ? at.node("Where", [at.node("IsNaN", [x]), at.scalar(infinity), x]) : x;
    const attributes = { axis: { int: axis }, largest: { int: at.flag("isDescending") ? 1 : 0 } };
    const inputs = [keys, at.ints([shape[axis] ?? 1])];
    const [sorted = "", indices = ""] = at.graph.nodeOf("TopK", inputs, attributes, 2);
    const values = isFloat ? at.node("GatherElements", [x, indices], { axis: { int: axis } }) : sorted;
    return [at.cast(values, inner, dtype), at.cast(indices, "i64", "i32")];
  },
};
