/** Operators that move elements, and those of shapes. */

import assert from "node:assert/strict";
import {
  broadcastAt,
  broadcastShape,
  elementAt,
  everyDtype,
  generate,
  intsOf,
  numeric,
  type Operator,
  type PlainArray,
  requireDtypes,
  sizeOf,
} from "./arrays.js";

const axisIn = (axis: number, rank: number): number => {
  assert.ok(Number.isInteger(axis) && axis >= -rank && axis < rank, `axis ${axis} of ${rank}`);
  return axis < 0 ? axis + rank : axis;
};

const indexIn = (index: number, size: number): number => {
  assert.ok(index >= -size && index < size, `index ${index} of ${size}`);
  return index < 0 ? index + size : index;
};

const reshape: Operator = {
  inputs: [2, 2],
  run: ({ inputs }) => {
    const [x, shape] = inputs as [PlainArray, PlainArray];
    const given = intsOf(shape).map((size, axis) => (size === 0 ? (x.shape[axis] ?? assert.fail()) : size));
    assert.ok(given.filter((size) => size === -1).length <= 1);
    const known = sizeOf(given.filter((size) => size !== -1));
    const target = given.map((size) => (size === -1 ? x.data.length / known : size));
    assert.equal(sizeOf(target), x.data.length, `[${x.shape}] as [${given}]`);
    return { ...x, shape: target };
  },
};

const slice: Operator = {
  inputs: [3, 5],
  run: ({ inputs: [x, starts, ends, axes, steps] }) => {
    assert.ok(x);
    const named = axes
      ? intsOf(axes).map((axis) => axisIn(axis, x.shape.length))
      : x.shape.map((_, axis) => axis);
    const ranges = x.shape.map((size) => ({ start: 0, count: size, step: 1 }));
    for (const [index, axis] of named.entries()) {
      const size = x.shape[axis]!;
      const step = steps ? intsOf(steps)[index]! : 1;
      assert.notEqual(step, 0);
      const resolve = (value: number): number => {
        const absolute = value < 0 ? value + size : value;
        return step > 0 ? Math.max(0, Math.min(size, absolute)) : Math.max(-1, Math.min(size - 1, absolute));
      };
      const [start, end] = [resolve(intsOf(starts)[index]!), resolve(intsOf(ends)[index]!)];
      ranges[axis] = { start, step, count: Math.max(0, Math.ceil((end - start) / step)) };
    }
    return generate(
      x.dtype,
      ranges.map(({ count }) => count),
      (at) =>
        elementAt(
          x,
          ranges.map(({ start, step }, axis) => start + step * at[axis]!),
        ),
    );
  },
};

export const movementOperators: Readonly<Record<string, Operator>> = {
  Identity: { inputs: [1, 1], run: ({ inputs }) => inputs[0]! },
  Reshape: reshape,
  Slice: slice,
  Shape: {
    inputs: [1, 1],
    attributes: { start: "int", end: "int" },
    run: ({ inputs, attributes }) => {
      const { shape } = inputs[0]!;
      const data = shape.slice(Number(attributes["start"] ?? 0), Number(attributes["end"] ?? shape.length));
      return { dtype: "i64", shape: [data.length], data };
    },
  },
  Range: {
    inputs: [3, 3],
    run: ({ inputs }) => {
      const [start, limit, step] = inputs as [PlainArray, PlainArray, PlainArray];
      requireDtypes([start, limit, step], ["f32", "f64", "i32", "i64"]);
      assert.ok([start, limit, step].every(({ shape }) => shape.length === 0));
      const count = Math.max(0, Math.ceil((limit.data[0]! - start.data[0]!) / step.data[0]!));
      return generate(start.dtype, [count], ([index]) => start.data[0]! + index! * step.data[0]!);
    },
  },
  Transpose: {
    inputs: [1, 1],
    attributes: { perm: "ints" },
    run: ({ inputs, attributes }) => {
      const [x] = inputs as [PlainArray];
      const order = attributes["perm"] as readonly number[];
      assert.deepEqual(
        [...order].sort((a, b) => a - b),
        x.shape.map((_, axis) => axis),
      );
      return generate(
        x.dtype,
        order.map((axis) => x.shape[axis]!),
        (at) =>
          elementAt(
            x,
            x.shape.map((_, axis) => at[order.indexOf(axis)]!),
          ),
      );
    },
  },
  Expand: {
    inputs: [2, 2],
    run: ({ inputs }) => {
      const [x, shape] = inputs as [PlainArray, PlainArray];
      return generate(x.dtype, broadcastShape(x.shape, intsOf(shape)), (at) => broadcastAt(x, at));
    },
  },
  Unsqueeze: {
    inputs: [2, 2],
    run: ({ inputs }) => {
      const [x, axes] = inputs as [PlainArray, PlainArray];
      const added = intsOf(axes);
      const rank = x.shape.length + added.length;
      const places = new Set(added.map((axis) => axisIn(axis, rank)));
      assert.equal(places.size, added.length);
      const rest = x.shape.values();
      return {
        ...x,
        shape: Array.from({ length: rank }, (_, axis) => (places.has(axis) ? 1 : rest.next().value!)),
      };
    },
  },
  Squeeze: {
    inputs: [2, 2],
    run: ({ inputs }) => {
      const [x, axes] = inputs as [PlainArray, PlainArray];
      const dropped = intsOf(axes).map((axis) => axisIn(axis, x.shape.length));
      assert.ok(dropped.every((axis) => x.shape[axis] === 1));
      return { ...x, shape: x.shape.filter((_, axis) => !dropped.includes(axis)) };
    },
  },
  Concat: {
    inputs: [1, Infinity],
    attributes: { axis: "int" },
    run: ({ inputs, attributes }) => {
      const arrays = inputs as PlainArray[];
      requireDtypes(arrays, everyDtype);
      const axis = axisIn(Number(attributes["axis"]), arrays[0]!.shape.length);
      for (const { shape } of arrays) assert.deepEqual(shape.with(axis, 0), arrays[0]!.shape.with(axis, 0));
      const length = arrays.reduce((sum, { shape }) => sum + shape[axis]!, 0);
      return generate(arrays[0]!.dtype, arrays[0]!.shape.with(axis, length), (at) => {
        let place = at[axis]!;
        let index = 0;
        for (; place >= arrays[index]!.shape[axis]!; index++) place -= arrays[index]!.shape[axis]!;
        return elementAt(arrays[index]!, at.with(axis, place));
      });
    },
  },
  Pad: {
    inputs: [2, 3],
    run: ({ inputs: [x, pads, value] }) => {
      assert.ok(x);
      if (value) requireDtypes([x, value], numeric.concat("u8", "i8"));
      const borders = intsOf(pads);
      assert.equal(borders.length, 2 * x.shape.length);
      return generate(
        x.dtype,
        x.shape.map((size, axis) => size + borders[axis]! + borders[axis + x.shape.length]!),
        (at) => {
          const from = at.map((place, axis) => place - borders[axis]!);
          const isInside = from.every((place, axis) => place >= 0 && place < x.shape[axis]!);
          return isInside ? elementAt(x, from) : (value?.data[0] ?? 0);
        },
      );
    },
  },
  Gather: {
    inputs: [2, 2],
    attributes: { axis: "int" },
    run: ({ inputs, attributes }) => {
      const [x, indices] = inputs as [PlainArray, PlainArray];
      requireDtypes([indices], ["i32", "i64"]);
      const axis = axisIn(Number(attributes["axis"] ?? 0), x.shape.length);
      const { length } = indices.shape;
      return generate(x.dtype, x.shape.toSpliced(axis, 1, ...indices.shape), (at) => {
        const index = indexIn(elementAt(indices, at.slice(axis, axis + length)), x.shape[axis]!);
        return elementAt(x, [...at.slice(0, axis), index, ...at.slice(axis + length)]);
      });
    },
  },
  GatherElements: {
    inputs: [2, 2],
    attributes: { axis: "int" },
    run: ({ inputs, attributes }) => {
      const [x, indices] = inputs as [PlainArray, PlainArray];
      requireDtypes([indices], ["i32", "i64"]);
      const axis = axisIn(Number(attributes["axis"] ?? 0), x.shape.length);
      assert.equal(indices.shape.length, x.shape.length);
      return generate(x.dtype, indices.shape, (at) =>
        elementAt(x, at.with(axis, indexIn(elementAt(indices, at), x.shape[axis]!))),
      );
    },
  },
  ScatterElements: {
    inputs: [3, 3],
    attributes: { axis: "int", reduction: "text" },
    run: ({ inputs, attributes }) => {
      const [x, indices, updates] = inputs as [PlainArray, PlainArray, PlainArray];
      requireDtypes([indices], ["i32", "i64"]);
      requireDtypes([x, updates], numeric);
      assert.equal(attributes["reduction"], "add");
      assert.deepEqual(indices.shape, updates.shape);
      const axis = axisIn(Number(attributes["axis"] ?? 0), x.shape.length);
      const sums = new Map<string, number>();
      generate("i64", indices.shape, (at) => {
        const key = String(at.with(axis, indexIn(elementAt(indices, at), x.shape[axis]!)));
        sums.set(key, (sums.get(key) ?? 0) + elementAt(updates, at));
        return 0;
      });
      return generate(x.dtype, x.shape, (at) => elementAt(x, at) + (sums.get(String(at)) ?? 0));
    },
  },
  Trilu: {
    inputs: [1, 2],
    attributes: { upper: "int" },
    run: ({ inputs: [x, k], attributes }) => {
      assert.ok(x && x.shape.length >= 2);
      if (k) assert.deepEqual([k.dtype, k.shape], ["i64", []]);
      const [diagonal, isUpper] = [k?.data[0] ?? 0, attributes["upper"] !== 0];
      return generate(x.dtype, x.shape, (at) => {
        const distance = at.at(-1)! - at.at(-2)!;
        return (isUpper ? distance >= diagonal : distance <= diagonal) ? elementAt(x, at) : 0;
      });
    },
  },
};
