/** The config of a convolution follows from its shape, the precision and the device. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { directions, geometry } from "../../../../test/support/random-convolutions.js";
import type { ConvolutionShape } from "../problem.js";
import {
  type ConvolutionConfig,
  countCtas,
  mathOf,
  selectConvolutionConfig,
  sharedBytesOf,
} from "./configs.js";
import { convolutionScratchBytes, partialBytes } from "./launch.js";

const device = { computeCapability: "8.0", parallelism: 108 } as const;

const layer = { batch: 64, size: [28, 28], kernel: [3, 3], padding: [1, 1] } as const;
const dense = geometry({ ...layer, channels: 128, outChannels: 128 });
const oneChannel = geometry({ ...layer, groups: 128, channels: 1, outChannels: 1 });
const oneImage = geometry({ ...layer, batch: 1, size: [7, 7], channels: 512, outChannels: 512 });

const select = (shape: Omit<ConvolutionShape, "dtype">, precision: "f32" | "tf32" | "bf16" = "tf32") =>
  selectConvolutionConfig(device, precision, { ...shape, dtype: "f32" });

const tiledConfig = (config: ConvolutionConfig) => {
  assert.ok(config.kind === "implicit-gemm", config.kind);
  return config;
};

test("layers with many channels are implicit GEMMs, and groups with one channel are direct, in every direction and precision", () => {
  for (const direction of directions) {
    for (const precision of ["f32", "tf32", "bf16"] as const) {
      const { math } = tiledConfig(select({ ...dense, direction }, precision));
      assert.equal(math, precision);
      assert.equal(select({ ...oneChannel, direction }, precision).kind, "direct");
    }
  }
});

test("a long sum with few results is split, and a sum with many results is not", () => {
  const { splits, tile } = tiledConfig(select({ ...dense, direction: "weight-gradient" }));
  assert.ok(splits > 1);
  assert.ok(
    countCtas({ ...dense, direction: "weight-gradient", dtype: "f32" }, tile, splits) >=
      device.parallelism / 2,
  );
  assert.ok(select({ ...oneImage, direction: "forward" }).splits > 1);
  assert.equal(select({ ...dense, direction: "forward" }).splits, 1);
  assert.equal(select({ ...dense, direction: "input-gradient" }).splits, 1);
});

test("the scratch memory holds the partial sums of the selected config", () => {
  const target = { device, settings: { precision: "tf32" } } as unknown as Parameters<
    typeof convolutionScratchBytes
  >[0];
  for (const direction of directions) {
    for (const shape of [dense, oneChannel, oneImage]) {
      const whole = { ...shape, direction, dtype: "f32" } as const;
      assert.equal(convolutionScratchBytes(target, whole), partialBytes(select(whole), whole));
    }
  }
  assert.ok(convolutionScratchBytes(target, { ...dense, direction: "weight-gradient", dtype: "f32" }) > 0);
});

test("a device with little shared memory gets a tile that fits", () => {
  const unknown = { computeCapability: "99.0", parallelism: 108 };
  for (const direction of directions) {
    const shape = { ...dense, direction, dtype: "f32" } as const;
    const { tile } = tiledConfig(selectConvolutionConfig(unknown, "tf32", shape));
    const bytes = sharedBytesOf(tile, direction);
    assert.ok(bytes.dynamic + bytes.static <= 48 * 1024);
  }
});

test("16-bit operands have their own math, whatever the precision of f32 is", () => {
  assert.deepEqual(
    [mathOf("f16", "f32"), mathOf("bf16", "f32"), mathOf("f32", "f32")],
    ["tf32", "bf16", "f32"],
  );
});
