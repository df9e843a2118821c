/** Convolutions, pools and windows. */

import type { Size } from "../sizes.js";
import type { CallContext, Translation } from "./call-context.js";

const twice = (values: readonly number[]): number[] => [...values, ...values];

/** Runs a node over [N, C, …] with the operand's leading axes as these two, and gives its result the output's shape. */
function batched(at: CallContext, rank: number, body: (x: string) => string): string {
  const { shape } = at.value(0);
  const x = at.operand(0);
  if (shape.length === rank + 2) return at.result(body(x));
  if (shape.length === rank + 1) {
    const result = body(at.node("Unsqueeze", [x, at.ints([0])]));
    return at.result(at.node("Squeeze", [result, at.ints([0])]));
  }
  const spatial = shape.slice(shape.length - rank);
  const asImages: readonly Size[] = [-1, 1, ...at.fixed(spatial, "its image")];
  const result = body(at.node("Reshape", [x, at.ints(asImages)]));
  return at.result(at.reshape(result, at.output.shape));
}

function windowAttributes(at: CallContext, rank: number, kernel: readonly number[]) {
  const [stride, dilation] = [at.perAxis("stride", rank, 1), at.perAxis("dilation", rank, 1)];
  return {
    kernel_shape: { ints: kernel },
    strides: { ints: stride },
    pads: { ints: twice(at.perAxis("padding", rank, 0)) },
    dilations: { ints: dilation },
  };
}

function weightAndBias(at: CallContext): readonly string[] {
  return [at.operand(1), ...(at.hasOperand(2) ? [at.operand(2)] : [])];
}

function convolution(rank: number): Translation {
  return (at) => {
    const kernel = at.fixed(at.value(1).shape.slice(2), "its kernel");
    const attributes = { ...windowAttributes(at, rank, kernel), group: { int: at.number("groups", 1) } };
    return batched(at, rank, (x) => at.node("Conv", [x, ...weightAndBias(at)], attributes));
  };
}

function transposedConvolution(rank: number): Translation {
  return (at) => {
    const kernel = at.fixed(at.value(1).shape.slice(2), "its kernel");
    const attributes = {
      ...windowAttributes(at, rank, kernel),
      group: { int: at.number("groups", 1) },
      output_padding: { ints: at.perAxis("outputPadding", rank, 0) },
    };
    return batched(at, rank, (x) => at.node("ConvTranspose", [x, ...weightAndBias(at)], attributes));
  };
}

function poolKernel(
  at: CallContext,
  rank: number,
): { kernel: readonly number[]; strides: { ints: readonly number[] } } {
  const kernel = at.perAxis("kernel", rank, 1);
  return { kernel, strides: { ints: at.has("stride") ? at.perAxis("stride", rank, 1) : kernel } };
}

/** Pads so that the last windows are inside: runtimes differ in their number of windows with ONNX's ceil_mode. */
function ceilPads(
  at: CallContext,
  rank: number,
  kernel: readonly number[],
  strides: readonly number[],
): readonly number[] {
  const sizes = at.fixed(at.value(0).shape.slice(-rank), "its image");
  const counts = at.fixed(at.output.shape.slice(-rank), "its number of windows");
  const [padding, dilation] = [at.perAxis("padding", rank, 0), at.perAxis("dilation", rank, 1)];
  const after = sizes.map((size, axis) => {
    const border = padding[axis] ?? 0;
    const start = ((counts[axis] ?? 1) - 1) * (strides[axis] ?? 1) - border;
    return Math.max(border, start + ((kernel[axis] ?? 1) - 1) * (dilation[axis] ?? 1) + 1 - size);
  });
  return [...padding, ...after];
}

/** The second output is the offset of each maximum in its window. */
function maxPool(rank: number): Translation {
  return (at) => {
    const { kernel, strides } = poolKernel(at, rank);
    const pads = at.has("ceilMode") ? { pads: { ints: ceilPads(at, rank, kernel, strides.ints) } } : {};
    const attributes = { ...windowAttributes(at, rank, kernel), strides, ...pads };
    if (!at.isRead(1)) return batched(at, rank, (x) => at.node("MaxPool", [x], attributes));
    let indices = "";
    const values = batched(at, rank, (x) => {
      const [maxima = "", places = ""] = at.graph.nodeOf("MaxPool", [x], attributes, 2);
      indices = places;
      return maxima;
    });
    return [values, offsetsInWindows(at, rank, at.reshape(indices, at.output.shape), kernel)];
  };
}

/** From indices into the whole flattened input. */
function offsetsInWindows(at: CallContext, rank: number, indices: string, kernel: readonly number[]): string {
  const i64 = (value: number): string => at.graph.scalar("i64", value);
  const sizes = at.fixed(at.value(0).shape.slice(-rank), "its image");
  const counts = at.fixed(at.output.shape.slice(-rank), "its number of windows");
  const { strides } = poolKernel(at, rank);
  const [padding, dilation] = [at.perAxis("padding", rank, 0), at.perAxis("dilation", rank, 1)];
  const laterSize = (lengths: readonly number[], axis: number): number =>
    lengths.slice(axis + 1).reduce((product, length) => product * length, 1);
  const terms = sizes.map((size, axis) => {
    const row = at.node("Div", [indices, i64(laterSize(sizes, axis))]);
    const place = at.node("Mod", [row, i64(size)]);
    const count = counts[axis] ?? 1;
    const starts = Array.from(
      { length: count },
      (_, window) => window * (strides.ints[axis] ?? 1) - (padding[axis] ?? 0),
    );
    const alongAxis = counts.map((_, other) => (other === axis ? count : 1));
    const distance = at.node("Sub", [place, at.graph.constant("i64", alongAxis, starts)]);
    const offset = at.node("Div", [distance, i64(dilation[axis] ?? 1)]);
    return at.node("Mul", [offset, i64(laterSize(kernel, axis))]);
  });
  const sum = terms.reduce((total, term) => at.node("Add", [total, term]));
  return at.cast(sum, "i64", at.call.outputs[1]?.dtype ?? "i64");
}

function averagePool(rank: number): Translation {
  return (at) => {
    const { kernel, strides } = poolKernel(at, rank);
    const attributes = {
      kernel_shape: { ints: kernel },
      strides,
      pads: { ints: twice(at.perAxis("padding", rank, 0)) },
      count_include_pad: { int: 1 },
    };
    return batched(at, rank, (x) => at.node("AveragePool", [x], attributes));
  };
}

/** The indices of each window along an axis: [windows, kernel]. */
function windowIndices(count: number, kernel: number, stride: number, dilation: number): number[] {
  return Array.from({ length: count * kernel }, (_, index) => {
    const [window, offset] = [Math.floor(index / kernel), index % kernel];
    return window * stride + offset * dilation;
  });
}

/** [rest…, size…] becomes [rest…, windows…, kernel…]. */
const windows: Translation = (at) => {
  const kernel = at.numbers("kernel");
  const rank = kernel.length;
  const [stride, dilation] = [at.perAxis("stride", rank, 1), at.perAxis("dilation", rank, 1)];
  const rest = at.value(0).shape.length - rank;
  const count = at.fixed(at.output.shape.slice(rest, rest + rank), "its number of windows");
  let x = at.input(0);
  // Each axis becomes two neighbours.
  for (const [index, width] of kernel.entries()) {
    const axis = rest + 2 * index;
    const [windowCount = 1, step = 1, spread = 1] = [count[index], stride[index], dilation[index]];
    const indices = at.graph.constant(
      "i64",
      [windowCount, width],
      windowIndices(windowCount, width, step, spread),
    );
    x = at.node("Gather", [x, indices], { axis: { int: axis } });
  }
  const order = Array.from({ length: rest }, (_, axis) => axis);
  const pairs = kernel.map((_, index) => rest + 2 * index);
  return rank === 1 ? x : at.transpose(x, [...order, ...pairs, ...pairs.map((axis) => axis + 1)]);
};

/** Adds windows to an array, axis by axis: a product with a matrix that is 1 where a window's element belongs. */
const fold: Translation = (at) => {
  const kernel = at.numbers("kernel");
  const rank = kernel.length;
  const [stride, dilation] = [at.perAxis("stride", rank, 1), at.perAxis("dilation", rank, 1)];
  const { shape } = at.value(0);
  const rest = shape.length - 2 * rank;
  const count = at.fixed(shape.slice(rest, rest + rank), "its number of windows");
  const sizes = at.fixed(at.output.shape.slice(rest), "its shape");
  // [rest…, windows…, kernel…] → [rest…, windows₀, kernel₀, windows₁, kernel₁, …]
  const leading = Array.from({ length: rest }, (_, axis) => axis);
  const paired = kernel.flatMap((_, index) => [rest + index, rest + rank + index]);
  let x = at.transpose(at.operand(0), [...leading, ...paired]);
  const done: number[] = [];
  for (const [index, width] of kernel.entries()) {
    const [windowCount = 1, size = 1] = [count[index], sizes[index]];
    const positions = windowIndices(windowCount, width, stride[index] ?? 1, dilation[index] ?? 1);
    const matrix = positions.flatMap((position) =>
      Array.from({ length: size }, (_, column) => Number(column === position)),
    );
    const later = kernel.slice(index + 1).flatMap((next, offset) => [count[index + 1 + offset] ?? 1, next]);
    const flat = [...shape.slice(0, rest), ...done, windowCount * width, ...later];
    const axis = rest + done.length;
    const axes = flat.map((_, place) => place);
    const last = [...axes.filter((place) => place !== axis), axis];
    const moved = at.transpose(at.reshape(x, flat), last);
    const folded = at.node("MatMul", [
      moved,
      at.graph.constant(at.compute, [windowCount * width, size], matrix),
    ]);
    x = at.transpose(
      folded,
      axes.map((place) => last.indexOf(place)),
    );
    done.push(size);
  }
  return at.result(x);
};

export const convolutionTranslations: Readonly<Record<string, Translation>> = {
  ...{ conv1d: convolution(1), conv2d: convolution(2), conv3d: convolution(3) },
  convTranspose1d: transposedConvolution(1),
  convTranspose2d: transposedConvolution(2),
  convTranspose3d: transposedConvolution(3),
  ...{ maxPool1d: maxPool(1), maxPool2d: maxPool(2), maxPool3d: maxPool(3) },
  ...{ avgPool1d: averagePool(1), avgPool2d: averagePool(2), avgPool3d: averagePool(3) },
  ...{ windows, fold },
};
