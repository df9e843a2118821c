/** Configs of channels-last convolutions in f32: which convolutions have them, and how sums are split. */

import assert from "node:assert/strict";
import { test } from "node:test";
import type { GemmPrecision } from "../../../../driver/index.js";
import type { ChannelsLastShape, ConvolutionDirection, ConvolutionShape } from "../../problem.js";
import { channelsLastConvolution, listChannelsLastConfigs } from "./configs.js";
import { countTiles, gemmSizes } from "./gemm-sizes.js";

const multiprocessors = 132;

const shapeOf = (direction: ConvolutionDirection, batch: number, channels = 64): ChannelsLastShape => ({
  ...{ direction, dtype: "f32", batch, groups: 1, channels, outChannels: 64 },
  channelsLast: { operands: "f32", isExact: true },
  ...{ size: [16, 16], outSize: [16, 16], kernel: [3, 3], stride: [1, 1], padding: [1, 1], dilation: [1, 1] },
});

function operandsOf(shape: ConvolutionShape, computeCapability = "9.0", precision: GemmPrecision = "f32") {
  const device = { kind: "cuda", computeCapability, parallelism: multiprocessors } as const;
  return channelsLastConvolution({ device, settings: { precision } } as never, shape);
}

test("in f32 products are exact, in TF32 they are not", () => {
  const shape = shapeOf("forward", 32);
  assert.deepEqual(operandsOf(shape), { operands: "f32", isExact: true });
  assert.deepEqual(operandsOf(shape, "9.0", "tf32"), { operands: "f32" });
  assert.equal(operandsOf(shape, "8.0"), undefined);
});

test("a convolution and its gradients have one layout in f32, channels-first if there are few tiles", () => {
  for (const [batch, isLast] of [
    [32, true],
    [1, false],
  ] as const)
    for (const direction of ["forward", "input-gradient", "weight-gradient"] as const)
      assert.equal(operandsOf(shapeOf(direction, batch)) !== undefined, isLast, `${direction} ${batch}`);
});

test("a convolution to or from few channels is channels-last if the other image has many, but in f32 only if its result has", () => {
  const layer = (direction: ConvolutionDirection, channels: number, outChannels: number) => ({
    ...shapeOf(direction, 32, channels),
    outChannels,
  });
  const wide = [layer("forward", 3, 64), layer("input-gradient", 64, 3)];
  const narrow = [layer("forward", 64, 3), layer("input-gradient", 3, 64)];
  for (const shape of [...wide, ...narrow]) {
    assert.ok(operandsOf(shape, "9.0", "bf16") && operandsOf(shape, "9.0", "tf32"));
    assert.equal(operandsOf(shape) !== undefined, wide.includes(shape));
  }
  assert.equal(operandsOf(layer("forward", 3, 8), "9.0", "bf16"), undefined);
});

test("every tile of a weight gradient has the same splits, and these fill the multiprocessors", () => {
  for (const channels of [4, 24, 64, 256]) {
    const shape = shapeOf("weight-gradient", 256, channels);
    const configs = listChannelsLastConfigs({ parallelism: multiprocessors }, shape);
    assert.equal(new Set(configs.map(({ splits }) => splits)).size, 1);
    const [first] = configs;
    const ctas = countTiles(gemmSizes(shape, 16), first!.tile) * first!.splits;
    assert.ok(ctas > 0.8 * multiprocessors * Math.ceil(ctas / multiprocessors), `${channels}: ${ctas} CTAs`);
  }
});
