/** Views, joins and other ops that move elements. */

import { axisOf } from "../../ops/index.js";
import type { Size } from "../sizes.js";
import type { CallContext, Translation } from "./call-context.js";

/** Beyond the end of every axis. */
const maxIndex = Number.MAX_SAFE_INTEGER;

function triangle(upper: 0 | 1): Translation {
  return (at) =>
    at.node("Trilu", [at.input(0), at.graph.scalar("i64", at.number("diagonal"))], { upper: { int: upper } });
}

export const movementTranslations: Readonly<Record<string, Translation>> = {
  copy: (at) => fitTo(at, at.input(0)),
  cast: (at) => at.input(0, at.output.dtype),
  contiguous: (at) => at.input(0),
  reshape: (at) => at.reshape(at.input(0), at.output.shape),
  permute: (at) => {
    const rank = at.value(0).shape.length;
    const axes = at.numbers("axes").map((axis) => axisOf("permute", axis, rank));
    return axes.every((axis, index) => axis === index) ? at.input(0) : at.transpose(at.input(0), axes);
  },
  expand: (at) => at.node("Expand", [at.input(0), at.ints(at.output.shape)]),
  upsampleNearest: (at) => {
    const { shape } = at.value(0);
    const factors = at.numbers("factors");
    const first = shape.length - factors.length;
    const inBlocks = (factorOf: (axis: number) => number): readonly Size[] =>
      shape.flatMap((size, axis) => (axis < first ? [size] : [size, factorOf(axis - first)]));
    const split = at.reshape(
      at.input(0),
      inBlocks(() => 1),
    );
    const repeated = at.node("Expand", [split, at.ints(inBlocks((axis) => factors[axis] ?? 1))]);
    return at.reshape(repeated, at.output.shape);
  },
  slice: (at) => {
    const ranges = (at.call.attributes["ranges"] ?? []) as readonly ((Size | null)[] | null)[];
    const used = ranges.flatMap((range, axis) => (range?.some((part) => part != null) ? [axis] : []));
    if (used.length === 0) return at.input(0);
    const part = (index: number, fallback: number): readonly Size[] =>
      used.map((axis) => ranges[axis]?.[index] ?? fallback);
    return at.node("Slice", [
      at.input(0),
      ...[at.ints(part(0, 0)), at.ints(part(1, maxIndex)), at.ints(used), at.ints(part(2, 1))],
    ]);
  },
  select: (at) => {
    const axis = at.axis();
    const index = at.call.attributes["index"] as Size;
    if (typeof index === "number")
      return at.node("Gather", [at.input(0), at.graph.scalar("i64", index)], { axis: { int: axis } });
    const row = at.node("Gather", [at.input(0), at.ints([index])], { axis: { int: axis } });
    return at.node("Squeeze", [row, at.ints([axis])]);
  },
  cat: (at) => {
    const inputs = at.call.operands.map((_, index) => at.input(index, at.output.dtype));
    return at.node("Concat", inputs, { axis: { int: at.axis() } });
  },
  flip: (at) => {
    const axes = at.axes();
    if (axes.length === 0) return at.input(0);
    const each = (value: number): string => at.ints(axes.map(() => value));
    return at.node("Slice", [at.input(0), each(-1), each(-maxIndex), at.ints(axes), each(-1)]);
  },
  pad: (at) => {
    const pads = at.sizes("pads");
    const rank = at.value(0).shape.length;
    if (rank === 0) return at.input(0);
    const border = (side: 0 | 1): Size[] =>
      Array.from({ length: rank }, (_, axis) => pads[2 * (rank - 1 - axis) + side] ?? 0);
    const { dtype } = at.output;
    // Pads of bool are not in every runtime.
    const inner = dtype === "bool" ? "u8" : dtype;
    const value = at.number("value", 0);
    const padded = at.node("Pad", [
      at.input(0, inner),
      at.ints([...border(0), ...border(1)]),
      at.graph.scalar(inner, dtype === "bool" ? Number(value !== 0) : value),
    ]);
    return at.cast(padded, inner, dtype);
  },
  diagonal: (at) => {
    const { shape } = at.value(0);
    const [first, second] = [at.axis("axis1"), at.axis("axis2")];
    const offset = at.number("offset");
    const rest = shape.flatMap((_, axis) => (axis === first || axis === second ? [] : [axis]));
    const [rows = 0, columns = 0] = at.fixed([shape[first] ?? 0, shape[second] ?? 0], "its matrix");
    const length = Math.max(0, Math.min(rows + Math.min(0, offset), columns - Math.max(0, offset)));
    const start = offset >= 0 ? offset : -offset * columns;
    const indices = Array.from({ length }, (_, index) => start + index * (columns + 1));
    const last = at.transpose(at.input(0), [...rest, first, second]);
    const flat = at.reshape(last, [...rest.map((axis) => shape[axis] ?? 1), rows * columns]);
    return at.node("Gather", [flat, at.ints(indices)], { axis: { int: rest.length } });
  },
  tril: triangle(0),
  triu: triangle(1),
};

/** The first operand broadcast to the output's shape, in its dtype. */
function fitTo(at: CallContext, name: string): string {
  const { shape, dtype } = at.output;
  const cast = at.cast(name, at.value(0).dtype, dtype);
  return String(at.value(0).shape) === String(shape) ? cast : at.node("Expand", [cast, at.ints(shape)]);
}
