/** Instructions of views, movement, indexing and windows. */

import { type Shape, sizeOf } from "../../../src/ops/index.js";
import { type Builder, maxElements } from "./builder.js";
import type { Choices } from "./choices.js";
import { truthFor } from "./elementwise.js";
import type { Maker } from "./instructions.js";
import { randomLiteral } from "./literals.js";

function randomAxis(choices: Choices, { length }: Shape): number {
  return choices.below(2 * length) - length;
}

/** Indices below a limit: computed by the program, or an input. */
function indices(builder: Builder, choices: Choices, shape: Shape, limit: number): string {
  return builder.wholes(choices, shape, choices.of(["i32", "u8"] as const), 0, limit - 1);
}

/** A value viewed as [1, channels, positions]. */
function asChannels(builder: Builder, choices: Choices): string {
  const x = builder.filled(choices);
  const shape = builder.shapeOf(x);
  const count = sizeOf(shape);
  const channels = count % 2 === 0 ? 2 : 1;
  return builder.op("reshape", [x], { shape: [1, channels, count / channels] });
}

/** A value viewed as [1, rows, columns]. */
function asImage(builder: Builder, choices: Choices): string {
  const x = builder.filled(choices);
  const shape = builder.shapeOf(x);
  const width = shape.at(-1)!;
  return builder.op("reshape", [x], { shape: [1, sizeOf(shape) / width, width] });
}

export const layoutMakers: Readonly<Record<string, Maker>> = {
  reshape(builder, choices) {
    const x = builder.anyFloat(choices);
    const count = sizeOf(builder.shapeOf(x));
    const divisor = [2, 3, 5, 1].find((candidate) => count % candidate === 0) ?? 1;
    const shape = choices.of([[count], [divisor, count / divisor], [count / divisor, 1, divisor]]);
    builder.op("reshape", [x], { shape });
  },
  permute(builder, choices) {
    const x = builder.filled(choices, 2);
    const axes = builder.shapeOf(x).map((_, axis) => axis);
    const shift = 1 + choices.below(axes.length - 1);
    builder.op("permute", [x], { axes: [...axes.slice(shift), ...axes.slice(0, shift)] });
  },
  expand(builder, choices) {
    const x = builder.anyFloat(choices);
    const shape = builder.shapeOf(x).map((size) => (size === 1 ? choices.of([2, 3]) : size));
    const added = choices.isOneIn(2) ? [2] : [];
    if (sizeOf([...added, ...shape]) <= maxElements)
      builder.op("expand", [x], { shape: [...added, ...shape] });
  },
  slice(builder, choices) {
    const x = builder.filled(choices);
    const ranges = builder.shapeOf(x).map((size) => {
      const start = choices.below(size);
      return choices.isOneIn(3) ? null : [start, size - choices.below(size - start), choices.of([1, 1, 2])];
    });
    builder.op("slice", [x], { ranges });
  },
  select(builder, choices) {
    const x = builder.filled(choices);
    const axis = randomAxis(choices, builder.shapeOf(x));
    builder.op("select", [x], { axis, index: choices.below(builder.shapeOf(x).at(axis)!) });
  },
  join(builder, choices) {
    const x = builder.filled(choices);
    const shape = builder.shapeOf(x);
    const others = Array.from({ length: choices.of([1, 2]) }, () => builder.same(choices, shape));
    const op = choices.of(["cat", "stack"]);
    builder.op(op, choices.isOneIn(2) ? [...others, x] : [x, ...others], {
      axis: randomAxis(choices, shape),
    });
  },
  move(builder, choices) {
    const x = builder.filled(choices);
    const shape = builder.shapeOf(x);
    const axis = randomAxis(choices, shape);
    const how = choices.below(5);
    if (how === 0) builder.op("flip", [x], { axes: [axis] });
    else if (how === 1)
      builder.op("pad", [x], {
        pads: [choices.below(2), choices.below(3)],
        value: randomLiteral(choices, [0, -1.5]),
      });
    else if (how === 2) builder.op("repeatInterleave", [x], { repeats: 2, axis });
    else if (how === 3 && shape.length > 0)
      builder.op("upsampleNearest", [x], {
        factors: choices.of(shape.length > 1 ? [[2], [3, 1], [2, 2]] : [[2], [3]]),
      });
    else builder.op("tile", [x], { repeats: choices.of([[2], [2, 1], [1, 2]]) });
  },
  indexed(builder, choices) {
    const x = builder.filled(choices);
    const shape = builder.shapeOf(x);
    const axis = randomAxis(choices, shape);
    const limit = shape.at(axis)!;
    const count = choices.of([3, 2, 1, 4]);
    const how = choices.below(3);
    if (how === 0) builder.op("indexSelect", [x, indices(builder, choices, [count], limit)], { axis });
    else if (how === 1)
      builder.op("gather", [x, indices(builder, choices, shape.with(axis, count), limit)], { axis });
    else {
      const index = indices(builder, choices, shape, limit);
      const size = builder.find(x).size * 3;
      builder.op("scatterAdd", [x, index, builder.same(choices, shape)], { axis }, { size });
    }
  },
  embedding(builder, choices) {
    const table = builder.float(choices, (shape) => shape.length === 2 && sizeOf(shape) > 0, [4, 3]);
    const [rows = 1] = builder.shapeOf(table);
    const index = indices(builder, choices, choices.of([[3], [2, 2], [5]]), rows);
    if (choices.isOneIn(4)) builder.op("oneHot", [index], { classes: rows });
    else if (choices.isOneIn(5))
      builder.op("renormRows", [table, index], {
        maxNorm: 0.5,
        p: choices.of([1, 2, 3, Number.POSITIVE_INFINITY]),
      });
    else builder.op("embedding", [table, index], choices.isOneIn(3) ? { paddingIdx: 0 } : {});
  },
  maskedFill(builder, choices) {
    const x = builder.anyFloat(choices);
    const mask = truthFor(builder, choices, builder.shapeOf(x));
    builder.op("maskedFill", [
      x,
      mask,
      choices.isOneIn(2) ? builder.same(choices, []) : randomLiteral(choices, [-1.5]),
    ]);
  },
  windows(builder, choices) {
    const x = asChannels(builder, choices);
    const [, , length = 1] = builder.shapeOf(x);
    const kernel = [Math.min(length, 2)];
    const how = choices.below(3);
    if (how === 0) builder.op("windows", [x], { kernel, stride: choices.of([1, 2]), dilation: 1 });
    else if (how === 1) builder.op("maxPool1d", [x], { kernel, stride: choices.of([1, 2]) });
    else builder.op("avgPool1d", [x], { kernel, stride: choices.of([1, 2]) });
  },
  imageWindows(builder, choices) {
    const x = asImage(builder, choices);
    const kernel = builder.shapeOf(x).slice(1);
    const small = kernel.map((size) => Math.min(size, 2));
    builder.op(choices.of(["maxPool2d", "avgPool2d"]), [x], { kernel: small, stride: choices.of([1, 2]) });
  },
  convolution(builder, choices) {
    const isFlat = choices.isOneIn(2);
    const x = isFlat ? asImage(builder, choices) : asChannels(builder, choices);
    const [, channels = 1, ...rest] = isFlat ? [1, ...builder.shapeOf(x)] : builder.shapeOf(x);
    const kernel = rest.map((size) => Math.min(size, 2));
    const weight = builder.input("parameter", [2, channels, ...kernel], "float", -1, 1);
    const bias = choices.isOneIn(2) ? [builder.same(choices, [2])] : [];
    const size = builder.find(x).size * Math.sqrt(channels * sizeOf(kernel));
    const attributes = { padding: choices.below(2), stride: choices.of([1, 2]) };
    builder.op(isFlat ? "conv2d" : "conv1d", [x, weight, ...bias], attributes, { size });
  },
};
