/** Matrix products, convolutions and pools. */

import assert from "node:assert/strict";
import {
  broadcastAt,
  broadcastShape,
  coordinatesOf,
  elementAt,
  floats,
  generate,
  numeric,
  type Operator,
  type OperatorCall,
  type PlainArray,
  requireDtypes,
  stridesOf,
} from "./arrays.js";

function matrixProduct(a: PlainArray, b: PlainArray): PlainArray {
  requireDtypes([a, b], numeric);
  const left = a.shape.length === 1 ? { ...a, shape: [1, ...a.shape] } : a;
  const right = b.shape.length === 1 ? { ...b, shape: [...b.shape, 1] } : b;
  const inner = left.shape.at(-1)!;
  assert.equal(inner, right.shape.at(-2), `[${a.shape}] · [${b.shape}]`);
  const batch = broadcastShape(left.shape.slice(0, -2), right.shape.slice(0, -2));
  const whole = generate(a.dtype, [...batch, left.shape.at(-2)!, right.shape.at(-1)!], (at) => {
    let sum = 0;
    const [row, column] = [at.at(-2)!, at.at(-1)!];
    for (let k = 0; k < inner; k++)
      sum +=
        broadcastAt(left, [...at.slice(0, -2), row, k]) * broadcastAt(right, [...at.slice(0, -2), k, column]);
    return sum;
  });
  const rank = whole.shape.length;
  const dropped = [...(a.shape.length === 1 ? [rank - 2] : []), ...(b.shape.length === 1 ? [rank - 1] : [])];
  return { ...whole, shape: whole.shape.filter((_, axis) => !dropped.includes(axis)) };
}

interface Windows {
  readonly kernel: readonly number[];
  readonly strides: readonly number[];
  readonly pads: readonly number[];
  readonly dilations: readonly number[];
}

const windowAttributes = { kernel_shape: "ints", strides: "ints", pads: "ints", dilations: "ints" } as const;

function windowsOf({ attributes }: OperatorCall, rank: number): Windows {
  const list = (name: string, fallback: number, length = rank): readonly number[] => {
    const values =
      (attributes[name] as readonly number[] | undefined) ?? new Array<number>(length).fill(fallback);
    assert.equal(values.length, length, name);
    return values;
  };
  return {
    kernel: list("kernel_shape", 1),
    strides: list("strides", 1),
    pads: list("pads", 0, 2 * rank),
    dilations: list("dilations", 1),
  };
}

function outputSizes(sizes: readonly number[], { kernel, strides, pads, dilations }: Windows): number[] {
  return sizes.map((size, axis) => {
    const width = (kernel[axis]! - 1) * dilations[axis]! + 1;
    return Math.floor((size + pads[axis]! + pads[axis + sizes.length]! - width) / strides[axis]!) + 1;
  });
}

/** The offsets in a window, and the place in the image of each; undefined outside. */
function* placesIn(
  sizes: readonly number[],
  { kernel, strides, pads, dilations }: Windows,
  window: readonly number[],
) {
  for (const offset of coordinatesOf(kernel)) {
    const place = offset.map(
      (step, axis) => window[axis]! * strides[axis]! - pads[axis]! + step * dilations[axis]!,
    );
    yield { offset, place: place.every((at, axis) => at >= 0 && at < sizes[axis]!) ? place : undefined };
  }
}

const averagePool: Operator = {
  inputs: [1, 1],
  attributes: { kernel_shape: "ints", strides: "ints", pads: "ints", count_include_pad: "int" },
  run: (call) => {
    const [x] = call.inputs as [PlainArray];
    assert.equal(call.attributes["count_include_pad"], 1);
    const { shape, elementsAt, count } = poolWindows(call, x);
    return generate(x.dtype, shape, (at) => elementsAt(at).reduce((sum, [value]) => sum + value, 0) / count);
  },
};

/** The second output: the index of each maximum in the flattened input. */
const maxPool: Operator = {
  inputs: [1, 1],
  outputs: [1, 2],
  attributes: windowAttributes,
  run: (call) => {
    const [x] = call.inputs as [PlainArray];
    const { shape, elementsAt } = poolWindows(call, x);
    const maximumAt = (at: readonly number[]) =>
      elementsAt(at).reduce((best, next) => (next[0] > best[0] ? next : best));
    return [
      generate(x.dtype, shape, (at) => maximumAt(at)[0]),
      generate("i64", shape, (at) => maximumAt(at)[1]),
    ].slice(0, call.outputCount);
  },
};

/** The elements of each window, with their indices in the flattened input. */
function poolWindows(call: OperatorCall, x: PlainArray) {
  requireDtypes([x], floats);
  const sizes = x.shape.slice(2);
  assert.ok(sizes.length >= 1 && sizes.length <= 3);
  const windows = windowsOf(call, sizes.length);
  const strides = stridesOf(x.shape);
  return {
    shape: [...x.shape.slice(0, 2), ...outputSizes(sizes, windows)],
    count: windows.kernel.reduce((a, b) => a * b),
    elementsAt: ([n, c, ...window]: readonly number[]): readonly (readonly [
      value: number,
      index: number,
    ])[] =>
      [...placesIn(sizes, windows, window)].flatMap(({ place }) => {
        if (!place) return [];
        const index = [n!, c!, ...place].reduce((sum, at, axis) => sum + at * strides[axis]!, 0);
        return [[x.data[index]!, index] as const];
      }),
  };
}

const conv: Operator = {
  inputs: [2, 3],
  attributes: { ...windowAttributes, group: "int" },
  run: (call) => {
    const [x, weight, bias] = call.inputs as [PlainArray, PlainArray, PlainArray | undefined];
    requireDtypes([x, weight, ...(bias ? [bias] : [])], floats);
    const sizes = x.shape.slice(2);
    const windows = windowsOf(call, sizes.length);
    assert.deepEqual(windows.kernel, weight.shape.slice(2));
    const [out, width] = weight.shape as [number, number];
    const groups = Number(call.attributes["group"] ?? 1);
    assert.equal(x.shape[1], width * groups);
    return generate(x.dtype, [x.shape[0]!, out, ...outputSizes(sizes, windows)], ([n, o, ...window]) => {
      const first = Math.floor(o! / (out / groups)) * width;
      let sum = bias?.data[o!] ?? 0;
      for (const { offset, place } of placesIn(sizes, windows, window))
        for (let c = 0; c < width && place; c++)
          sum += elementAt(x, [n!, first + c, ...place]) * elementAt(weight, [o!, c, ...offset]);
      return sum;
    });
  },
};

const convTranspose: Operator = {
  inputs: [2, 3],
  attributes: { ...windowAttributes, group: "int", output_padding: "ints" },
  run: (call) => {
    const [x, weight, bias] = call.inputs as [PlainArray, PlainArray, PlainArray | undefined];
    requireDtypes([x, weight, ...(bias ? [bias] : [])], floats);
    const counts = x.shape.slice(2);
    const windows = windowsOf(call, counts.length);
    const { kernel, strides, pads, dilations } = windows;
    const extra = call.attributes["output_padding"] as readonly number[];
    const sizes = counts.map(
      (count, axis) =>
        strides[axis]! * (count - 1) +
        extra[axis]! +
        (kernel[axis]! - 1) * dilations[axis]! +
        1 -
        pads[axis]! -
        pads[axis + counts.length]!,
    );
    const groups = Number(call.attributes["group"] ?? 1);
    const [channels, width] = weight.shape as [number, number];
    assert.equal(x.shape[1], channels);
    const sums = new Map<string, number>();
    for (const window of coordinatesOf(counts)) {
      for (const { offset, place } of placesIn(sizes, windows, window)) {
        for (let n = 0; n < x.shape[0]! && place; n++)
          for (let c = 0; c < channels; c++)
            for (let w = 0; w < width; w++) {
              const o = Math.floor(c / (channels / groups)) * width + w;
              const key = String([n, o, ...place]);
              const product = elementAt(x, [n, c, ...window]) * elementAt(weight, [c, w, ...offset]);
              sums.set(key, (sums.get(key) ?? 0) + product);
            }
      }
    }
    return generate(
      x.dtype,
      [x.shape[0]!, width * groups, ...sizes],
      (at) => (sums.get(String(at)) ?? 0) + (bias?.data[at[1]!] ?? 0),
    );
  },
};

/** By the first row. */
function determinantOf(rows: readonly (readonly number[])[]): number {
  const [first = [], ...rest] = rows;
  if (rows.length === 0) return 1;
  return first.reduce((sum, value, column) => {
    const minor = determinantOf(rest.map((row) => row.toSpliced(column, 1)));
    return sum + (column % 2 === 0 ? value : -value) * minor;
  }, 0);
}

export const productOperators: Readonly<Record<string, Operator>> = {
  Det: {
    inputs: [1, 1],
    run: ({ inputs }) => {
      const [x] = inputs as [PlainArray];
      requireDtypes([x], floats);
      const size = x.shape.at(-1)!;
      assert.equal(x.shape.at(-2), size);
      const line = Array.from({ length: size }, (_, index) => index);
      return generate(x.dtype, x.shape.slice(0, -2), (at) =>
        determinantOf(line.map((row) => line.map((column) => elementAt(x, [...at, row, column])))),
      );
    },
  },
  MatMul: { inputs: [2, 2], run: ({ inputs }) => matrixProduct(inputs[0]!, inputs[1]!) },
  Gemm: {
    inputs: [2, 3],
    attributes: { transB: "int" },
    run: ({ inputs, attributes }) => {
      const [a, b, c] = inputs as [PlainArray, PlainArray, PlainArray | undefined];
      assert.ok(a.shape.length === 2 && b.shape.length === 2);
      const turned = generate(b.dtype, b.shape.toReversed(), ([i, j]) => elementAt(b, [j!, i!]));
      const product = matrixProduct(a, attributes["transB"] === 1 ? turned : b);
      if (!c) return product;
      assert.deepEqual(broadcastShape(product.shape, c.shape), product.shape);
      return generate(a.dtype, product.shape, (at) => elementAt(product, at) + broadcastAt(c, at));
    },
  },
  Conv: conv,
  ConvTranspose: convTranspose,
  MaxPool: maxPool,
  AveragePool: averagePool,
};
