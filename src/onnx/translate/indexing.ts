/** Selections by index. */

import type { CallContext, Translation } from "./call-context.js";

/** Indices as ONNX takes them: i32 or i64. */
function indices(at: CallContext, operand: number): string {
  return at.input(operand, at.value(operand).dtype === "i64" ? "i64" : "i32");
}

export const indexingTranslations: Readonly<Record<string, Translation>> = {
  indexSelect: (at) => at.node("Gather", [at.input(0), indices(at, 1)], { axis: { int: at.axis() } }),
  embedding: (at) => at.node("Gather", [at.input(0), indices(at, 1)], { axis: { int: 0 } }),
  gather: (at) => at.node("GatherElements", [at.input(0), indices(at, 1)], { axis: { int: at.axis() } }),
  scatterAdd: (at) => {
    const sizes = at.value(1).shape;
    const source = at.operand(2);
    const isWhole = String(at.value(2).shape) === String(sizes);
    const axes = sizes.map((_, axis) => axis);
    const used = isWhole
      ? source
      : at.node("Slice", [source, at.ints(axes.map(() => 0)), at.ints(sizes), at.ints(axes)]);
    return at.result(
      at.node("ScatterElements", [at.operand(0), indices(at, 1), used], {
        axis: { int: at.axis() },
        reduction: { text: "add" },
      }),
    );
  },
  oneHot: (at) => {
    const classes = at.number("classes");
    const labels = at.node("Unsqueeze", [at.input(0, "i32"), at.ints([-1])]);
    const all = at.graph.constant(
      "i32",
      [classes],
      Array.from({ length: classes }, (_, index) => index),
    );
    return at.cast(at.node("Equal", [labels, all]), "bool", "i32");
  },
};
