/** A function of a convolution's result runs in the convolution, if nothing else needs the result. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { rewritten } from "../../../test/support/rewritten.js";
import { bufferOf, elementwise, type View } from "../../../test/support/row-calls.js";
import { term } from "../../ir/index.js";
import type { ConvolutionShape } from "../../kernels/index.js";
import type { Call } from "../program/program.js";
import { fuseConvolutionEpilogues } from "./convolution-epilogues.js";

const fuse = (calls: readonly Call[]): readonly Call[] => rewritten(calls, fuseConvolutionEpilogues);

const [batch, channels, outChannels, side] = [2, 8, 16, 4];
const image = (label: string): View => bufferOf([batch * side * side * outChannels], { label });

function convolution(y: View, more: Partial<ConvolutionShape> = {}): Call {
  const x = bufferOf([batch * side * side * channels], { dtype: "bf16", label: "x" });
  const weight = bufferOf([outChannels * channels], { dtype: "bf16", label: "weight" });
  const shape: ConvolutionShape = {
    ...{ direction: "forward", dtype: "f32", channelsLast: { operands: "bf16" }, batch, groups: 1 },
    ...{ channels, outChannels, size: [side, side], outSize: [side, side], kernel: [1, 1] },
    ...{ stride: [1, 1], padding: [0, 0], dilation: [1, 1] },
    ...more,
  };
  const operands = { x: x.slice, weight: weight.slice, y: y.slice };
  return { op: "convolution", work: { kind: "convolution", shape, operands } };
}

const relu = (from: View, to: View): Call => elementwise("relu", (value) => term.max(value, 0), [from], to);
const namesOf = (calls: readonly Call[]): string[] => calls.map(({ op }) => op);

test("an activation becomes the epilogue of its convolution, which stores the activation's result", () => {
  const [y, result] = [image("y"), image("result")];
  const [call, ...others] = fuse([convolution(y), relu(y, result)]);
  assert.deepEqual([call?.op, others.length], ["convolution + relu", 0]);
  assert.equal(call?.work.kind, "convolution");
  if (call?.work.kind !== "convolution") return;
  assert.deepEqual(call.work.operands.y, result.slice);
  assert.equal(call.work.shape.epilogue?.value.kind, "binary");
});

test("it stays a call of its own if the result is read elsewhere, or the kernel has no epilogue", () => {
  const [y, result, other] = [image("y"), image("result"), image("other")];
  const cases: Readonly<Record<string, readonly Call[]>> = {
    "another reader": [
      convolution(y),
      relu(y, result),
      elementwise("exp", (value) => term.exp(value), [y], other),
    ],
    "two operands": [convolution(y), elementwise("add", (a, b) => term.add(a!, b!), [y, other], result)],
    "half floats": [convolution(y, { dtype: "bf16" }), relu(y, result)],
    "an epilogue": [
      convolution(y, { epilogue: { value: term.load(0, "f32"), scalars: [] } }),
      relu(y, result),
    ],
  };
  for (const [name, calls] of Object.entries(cases))
    assert.deepEqual(namesOf(fuse(calls)), namesOf(calls), name);
  const { channelsLast: _, ...first } = (convolution(y).work as { shape: ConvolutionShape }).shape;
  const channelsFirst = { ...convolution(y), work: { ...convolution(y).work, shape: first } as Call["work"] };
  assert.equal(fuse([channelsFirst, relu(y, result)]).length, 2);
});
