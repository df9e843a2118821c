/** Reductions, scans, sorting, softmax and norms. */

import assert from "node:assert/strict";
import type { Dtype } from "holdfast";
import {
  broadcastAt,
  coordinatesOf,
  elementAt,
  floats,
  generate,
  intsOf,
  numeric,
  type Operator,
  type PlainArray,
  requireDtypes,
} from "./arrays.js";

const axisIn = (axis: number, rank: number): number => {
  assert.ok(Number.isInteger(axis) && axis >= -rank && axis < rank, `axis ${axis} of ${rank}`);
  return axis < 0 ? axis + rank : axis;
};

/** The elements that one element of a result is reduced from. */
function* along(x: PlainArray, axes: readonly number[], at: readonly number[]): Generator<number> {
  for (const inner of coordinatesOf(axes.map((axis) => x.shape[axis]!))) {
    const place = [...at];
    for (const [index, axis] of axes.entries()) place[axis] = inner[index]!;
    yield elementAt(x, place);
  }
}

function reduction(
  value: (elements: readonly number[]) => number,
  allowed: readonly Dtype[] = numeric,
): Operator {
  return {
    inputs: [1, 2],
    attributes: { keepdims: "int" },
    run: ({ inputs: [x, axesInput], attributes }) => {
      assert.ok(x);
      requireDtypes([x], allowed);
      const axes = axesInput
        ? intsOf(axesInput).map((axis) => axisIn(axis, x.shape.length))
        : x.shape.map((_, axis) => axis);
      const kept = generate(
        x.dtype,
        x.shape.map((size, axis) => (axes.includes(axis) ? 1 : size)),
        (at) => value([...along(x, axes, at)]),
      );
      if (attributes["keepdims"] !== 0) return kept;
      return { ...kept, shape: x.shape.filter((_, axis) => !axes.includes(axis)) };
    },
  };
}

const sum = (elements: readonly number[]): number => elements.reduce((a, b) => a + b, 0);
const max = (elements: readonly number[]): number => elements.reduce((a, b) => Math.max(a, b), -Infinity);
const min = (elements: readonly number[]): number => elements.reduce((a, b) => Math.min(a, b), Infinity);

function arg(isBetter: (a: number, b: number) => boolean): Operator {
  return {
    inputs: [1, 1],
    attributes: { axis: "int", keepdims: "int" },
    run: ({ inputs, attributes }) => {
      const [x] = inputs as [PlainArray];
      requireDtypes([x], numeric);
      const axis = axisIn(Number(attributes["axis"] ?? 0), x.shape.length);
      const kept = generate("i64", x.shape.with(axis, 1), (at) => {
        const row = [...along(x, [axis], at)];
        return row.reduce((best, value, index) => (isBetter(value, row[best]!) ? index : best), 0);
      });
      return attributes["keepdims"] === 0 ? { ...kept, shape: x.shape.toSpliced(axis, 1) } : kept;
    },
  };
}

function softmax(finish: (shifted: number, sum: number) => number): Operator {
  return {
    inputs: [1, 1],
    attributes: { axis: "int" },
    run: ({ inputs, attributes }) => {
      const [x] = inputs as [PlainArray];
      requireDtypes([x], floats);
      const axis = axisIn(Number(attributes["axis"] ?? -1), x.shape.length);
      return generate(x.dtype, x.shape, (at) => {
        const row = [...along(x, [axis], at)];
        const top = max(row);
        return finish(elementAt(x, at) - top, sum(row.map((value) => Math.exp(value - top))));
      });
    },
  };
}

/** (x − mean) / √(variance + eps), of rows along axes. */
function standardized(x: PlainArray, axes: readonly number[], eps: number): PlainArray {
  return generate("f64", x.shape, (at) => {
    const row = [...along(x, axes, at)];
    const mean = sum(row) / row.length;
    const variance = sum(row.map((value) => (value - mean) ** 2)) / row.length;
    return (elementAt(x, at) - mean) / Math.sqrt(variance + eps);
  });
}

export const reductionOperators: Readonly<Record<string, Operator>> = {
  ReduceSum: reduction(sum),
  ReduceMean: reduction((elements) => sum(elements) / elements.length, floats),
  ReduceMax: reduction(max),
  ReduceMin: reduction(min),
  ReduceProd: reduction((elements) => elements.reduce((a, b) => a * b, 1)),
  ReduceL1: reduction((elements) => sum(elements.map(Math.abs))),
  ReduceL2: reduction((elements) => Math.sqrt(sum(elements.map((x) => x * x)))),
  ReduceLogSumExp: reduction((elements) => {
    const top = max(elements);
    return Number.isFinite(top) ? top + Math.log(sum(elements.map((x) => Math.exp(x - top)))) : top;
  }, floats),
  ArgMax: arg((a, b) => a > b),
  ArgMin: arg((a, b) => a < b),
  CumSum: {
    inputs: [2, 2],
    attributes: { reverse: "int", exclusive: "int" },
    run: ({ inputs, attributes }) => {
      const [x, axisInput] = inputs as [PlainArray, PlainArray];
      requireDtypes([x], numeric);
      const axis = axisIn(axisInput.data[0]!, x.shape.length);
      return generate(x.dtype, x.shape, (at) => {
        const row = [...along(x, [axis], at)];
        return sum(attributes["reverse"] === 1 ? row.slice(at[axis]) : row.slice(0, at[axis]! + 1));
      });
    },
  },
  TopK: {
    inputs: [2, 2],
    outputs: [2, 2],
    attributes: { axis: "int", largest: "int", sorted: "int" },
    run: ({ inputs, attributes }) => {
      const [x, k] = inputs as [PlainArray, PlainArray];
      requireDtypes([x], ["f32", "f64", "i32", "i64"]);
      const axis = axisIn(Number(attributes["axis"] ?? -1), x.shape.length);
      const [count] = intsOf(k);
      assert.ok(count! <= x.shape[axis]!);
      const sign = attributes["largest"] === 0 ? 1 : -1;
      const orderAt = (at: readonly number[]): number[] => {
        const row = [...along(x, [axis], at)];
        return [...row.keys()].sort((a, b) => sign * (row[a]! - row[b]!) || a - b);
      };
      const shape = x.shape.with(axis, count!);
      return [
        generate(x.dtype, shape, (at) => elementAt(x, at.with(axis, orderAt(at)[at[axis]!]!))),
        generate("i64", shape, (at) => orderAt(at)[at[axis]!]!),
      ];
    },
  },
  Softmax: softmax((shifted, total) => Math.exp(shifted) / total),
  LogSoftmax: softmax((shifted, total) => shifted - Math.log(total)),
  LayerNormalization: {
    inputs: [2, 3],
    attributes: { axis: "int", epsilon: "float" },
    run: ({ inputs: [x, weight, bias], attributes }) => {
      assert.ok(x && weight);
      requireDtypes([x, weight, ...(bias ? [bias] : [])], floats);
      const first = axisIn(Number(attributes["axis"] ?? -1), x.shape.length);
      for (const each of [weight, bias]) if (each) assert.deepEqual(each.shape, x.shape.slice(first));
      const axes = x.shape.map((_, axis) => axis).slice(first);
      const rows = standardized(x, axes, Number(attributes["epsilon"] ?? 1e-5));
      return generate(
        x.dtype,
        x.shape,
        (at) => elementAt(rows, at) * broadcastAt(weight, at) + (bias ? broadcastAt(bias, at) : 0),
      );
    },
  },
  InstanceNormalization: {
    inputs: [3, 3],
    attributes: { epsilon: "float" },
    run: ({ inputs, attributes }) => {
      const [x, weight, bias] = inputs as [PlainArray, PlainArray, PlainArray];
      requireDtypes([x, weight, bias], floats);
      for (const { shape } of [weight, bias]) assert.deepEqual(shape, [x.shape[1]]);
      const axes = x.shape.map((_, axis) => axis).slice(2);
      const rows = standardized(x, axes, Number(attributes["epsilon"] ?? 1e-5));
      return generate(
        x.dtype,
        x.shape,
        (at) => elementAt(rows, at) * weight.data[at[1]!]! + bias.data[at[1]!]!,
      );
    },
  },
};
