/** Which kernels store an operand of a convolution rounded to TF32, and which tensors keep all their bits. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { withNullGpu } from "../../../test/support/null-gpu.js";
import { rewritten } from "../../../test/support/rewritten.js";
import { bufferOf, elementwise, load, storing, type View } from "../../../test/support/row-calls.js";
import { type Expression, iterateRows, term } from "../../ir/index.js";
import type { ConvolutionShape } from "../../kernels/index.js";
import type { ConvolutionCall } from "../program/kinds/convolution.js";
import type { Call, RowCall } from "../program/program.js";
import { storeOperandsAsTf32 } from "./tf32-operands.js";

const round = (calls: readonly Call[]): readonly Call[] =>
  withNullGpu("tf32", ({ runtime }) => rewritten(calls, (program) => storeOperandsAsTf32(runtime, program)));

const [batch, channels, side] = [128, 64, 4];
const image = (label: string, address?: number): View =>
  bufferOf([batch * side * side * channels], { label, ...(address !== undefined && { address }) });

type Operands = Partial<Record<"x" | "weight" | "y" | "bias", View>>;

function convolution(
  direction: ConvolutionShape["direction"],
  { x = image("x"), weight = bufferOf([channels * channels]), y = image("y"), bias }: Operands,
  more: Partial<ConvolutionShape> = {},
): Call {
  const shape: ConvolutionShape = {
    ...{ direction, dtype: "f32", channelsLast: { operands: "f32", rounded: ["weight"] }, batch, groups: 1 },
    ...{ channels, outChannels: channels, size: [side, side], outSize: [side, side], kernel: [1, 1] },
    ...{ stride: [1, 1], padding: [0, 0], dilation: [1, 1] },
    ...more,
  };
  const slices = { x: x.slice, weight: weight.slice, y: y.slice, ...(bias && { bias: bias.slice }) };
  return { op: direction, work: { kind: "convolution", shape, operands: slices } };
}

const exp = (from: View, to: View): Call => elementwise("exp", (value) => term.exp(value), [from], to);
const copy = (from: View, to: View): Call => elementwise("copy", (value) => value, [from], to);

const convolutionOf = (call: Call | undefined) => call?.work as ConvolutionCall;
const rowsOf = (call: Call | undefined) => call?.work as RowCall;
const storedBy = (call: Call | undefined): readonly Expression[] =>
  rowsOf(call).kernel.stages.map(({ value }) => value);
const markedIn = (call: Call | undefined) => convolutionOf(call).shape.channelsLast?.rounded;
const isRounded = (value: Expression | undefined): boolean =>
  value?.kind === "unary" && value.op === "roundTf32";

test("an elementwise kernel rounds what convolutions alone read, and they don't round it again", () => {
  const [source, x] = [image("source"), image("x")];
  const gradient = convolution("weight-gradient", { x });
  const [first, forward, last] = round([exp(source, x), convolution("forward", { x }), gradient]);
  assert.deepEqual(storedBy(first), [term.roundTf32(term.exp(term.load(0, "f32")))]);
  assert.deepEqual(markedIn(forward), ["x", "weight"]);
  assert.equal(last, gradient, "a weight gradient rounds its operands anyway");
});

test("a convolution rounds its result, after its epilogue", () => {
  const [y, x] = [image("y"), image("x")];
  const relu = { value: term.max(term.load(0, "f32"), 0), scalars: [] };
  for (const epilogue of [undefined, relu]) {
    const before = convolution("forward", { y }, epilogue && { epilogue });
    const [first, second] = round([before, convolution("input-gradient", { y, x })]);
    const { value } = convolutionOf(first).shape.epilogue!;
    assert.deepEqual(value, term.roundTf32(epilogue?.value ?? term.load(0, "f32")));
    assert.deepEqual(markedIn(second), ["weight", "y"]);
  }
});

test("a ReLU's gradient still reads the sign of a rounded activation", () => {
  const [source, x, upstream, result] = ["source", "x", "upstream", "result"].map((label) => image(label));
  const sign = elementwise(
    "reluGradient",
    (value, gradient) => term.select(term.gt(value!, 0), gradient!, 0),
    [x!, upstream!],
    result!,
  );
  const [first] = round([exp(source!, x!), convolution("forward", { x: x! }), sign]);
  assert.ok(isRounded(storedBy(first)[0]));
});

test("a tensor keeps its bits if anything else reads it, or if its producer cannot round it", () => {
  const [source, x, other] = [image("source"), image("x"), image("other")];
  const [forward, kept] = [convolution("forward", { x }), image("kept", 2 ** 20)];
  const bias = convolution("forward", { bias: x });
  const cases: Readonly<Record<string, readonly Call[]>> = {
    "another reader": [exp(source, x), forward, exp(x, other)],
    "a plain copy": [exp(source, x), forward, copy(x, other)],
    "a bias": [exp(source, x), forward, bias],
    "persistent memory": [exp(source, kept), convolution("forward", { x: kept })],
    "two writers": [exp(source, x), exp(other, x), forward],
    "a weight gradient alone": [exp(source, x), convolution("weight-gradient", { x })],
    "a fill": [{ op: "fill", work: { kind: "fill", target: x.slice, byte: 0 } }, forward],
    "a result as half floats": [
      convolution("forward", { y: x }, { dtype: "bf16", channelsLast: { operands: "bf16" } }),
      forward,
    ],
    "half floats": [exp(source, x), convolution("forward", { x }, { channelsLast: { operands: "bf16" } })],
  };
  for (const [name, calls] of Object.entries(cases)) assert.deepEqual(round(calls), calls, name);
});

/** The sum over the pixels of an image, in each channel. */
function sumOf(x: View): Call {
  const [rows, columns] = [batch * side * side, channels];
  return {
    op: "sum",
    work: {
      kind: "column",
      kernel: {
        name: "sum",
        op: "add",
        inputs: ["f32"],
        outputs: ["f32"],
        scalars: [],
        values: [term.load(0, "f32")],
      },
      ...{ rows, columns, strides: [{ row: columns, column: "unit" }], scalars: [] },
      operands: [x.slice, bufferOf([columns], { label: "sums" }).slice],
    },
  };
}

test("the gradient of a bias sums a rounded gradient; a sum of an image gets all its bits", () => {
  const [source, image1] = [image("source"), image("image")];
  const [first, gradient] = round([
    exp(source, image1),
    convolution("input-gradient", { y: image1 }),
    sumOf(image1),
  ]);
  assert.ok(isRounded(storedBy(first)[0]));
  assert.deepEqual(markedIn(gradient), ["weight", "y"]);
  const calls = [exp(source, image1), convolution("forward", { x: image1 }), sumOf(image1)];
  assert.deepEqual(round(calls), calls);
});

/** A gradient [rows, columns] and its column sums, which read the stored gradient again; its source can be overwritten before. */
function withColumnSums(source: View, gradient: View, sums: View, overwritesSource = false): Call {
  const [rows, columns] = [batch * side * side, channels];
  const overwritten = overwritesSource ? [source] : [];
  const images = [source, gradient, ...overwritten, gradient];
  return {
    op: "gradient + sum",
    work: {
      kind: "row",
      kernel: {
        ...{ name: "gradient + sum", inputs: ["f32", "f32"], scalars: [] },
        outputs: [
          ...overwritten.map(() => ({ dtype: "f32", per: "element" }) as const),
          { dtype: "f32", per: "element" },
          { dtype: "f32", per: "column" },
        ],
        stages: [
          { kind: "store", output: overwritten.length, value: term.exp(load(source, 0)) },
          ...overwritten.map(() => ({ kind: "store", output: 0, value: term.load(1, "f32") }) as const),
          { kind: "store", output: overwritten.length + 1, value: load(gradient, 1) },
        ],
      },
      iteration: iterateRows([rows, columns], [...images.map(() => [columns, 1]), [0, 1]], 1),
      operands: [...images, sums].map(({ slice }) => slice),
      scalars: [],
    },
  };
}

test("column sums in the kernel of a gradient add the values before they are rounded", () => {
  const [source, y, sums] = [image("source"), image("y"), bufferOf([128, channels], { label: "sums" })];
  const [first] = round([withColumnSums(source, y, sums), convolution("input-gradient", { y })]);
  const value = term.exp(term.load(0, "f32"));
  assert.deepEqual(storedBy(first), [term.roundTf32(value), value]);
  const { kernel, operands, iteration } = rowsOf(first);
  assert.deepEqual([kernel.inputs, operands], [["f32"], [source.slice, y.slice, sums.slice]]);
  assert.equal(iteration.row.strides.length, 3);
});

test("a kernel that overwrites one of its inputs rounds, unless a later stage needs a value of the overwritten input", () => {
  const [x, other, sums] = [image("x"), image("other"), bufferOf([128, channels], { label: "sums" })];
  const forward = convolution("forward", { x });
  const inPlace = storing("in place", [(a) => term.exp(a!), (a) => term.neg(a!)], [other], [x, other]);
  assert.deepEqual(storedBy(round([inPlace, forward])[0]).map(isRounded), [true, false]);
  const calls = [withColumnSums(other, x, sums, true), forward];
  assert.deepEqual(round(calls), calls);
});
