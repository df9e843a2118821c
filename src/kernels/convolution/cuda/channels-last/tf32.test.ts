/** Channels-last convolutions of floats round their operands to TF32: tensor cores alone would drop the low bits, which is a bias. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { cudaMissing, openCudaKernelRuntime, put } from "../../../../../test/support/kernel-runtime.js";
import { convolveInF64, directions, geometry } from "../../../../../test/support/random-convolutions.js";
import { roundToTf32 } from "../../../../../test/support/roundings.js";
import { submit } from "../../../submit.js";
import {
  type ChannelsLastOperands,
  type ChannelsLastProblem,
  type ConvolutionDirection,
  elementCounts,
  writtenOperand,
} from "../../problem.js";
import { channelsLastTiles } from "./configs.js";
import { type ChannelsLastConfig, channelsLastScratchBytes, lowerChannelsLastWith } from "./launch.js";

/** Channels are whole vectors, so that no operand has padding. */
const shape = geometry({
  ...{
    batch: 2,
    channels: 12,
    outChannels: 20,
    size: [6, 5],
    kernel: [3, 2],
    stride: [2, 1],
    padding: [1, 0],
  },
});

/** All bits that TF32 does not have are set: the nearest number of TF32 is 2⁻²³ away, and truncation is wrong by nearly 2⁻¹⁰. */
const withLowBits = 1 + 3 * 2 ** -10 - 2 ** -23;

/** All k-tiles in flight, and one that waits for the previous wgmma. */
const configs = [
  channelsLastTiles.find(({ tileM, tileN }) => tileM === 64 && tileN === 64)!,
  channelsLastTiles.find(({ overlap }) => overlap === 0)!,
].map((tile): ChannelsLastConfig => ({ kind: "channels-last", tile, splits: 1 }));

describe("a channels-last convolution of floats on CUDA", { skip: cudaMissing }, () => {
  const runtime = cudaMissing ? undefined! : openCudaKernelRuntime();

  /** The result for operands whose elements are all one number. So their layout does not matter. */
  function convolve(
    direction: ConvolutionDirection,
    config: ChannelsLastConfig,
    value: number,
    rounded: NonNullable<ChannelsLastOperands["rounded"]> = [],
  ): Float32Array {
    const full = { ...shape, direction, dtype: "f32", channelsLast: { operands: "f32", rounded } } as const;
    const counts = elementCounts(full);
    return runtime.step(() => {
      const of = (name: keyof typeof counts) =>
        put(runtime, new Float32Array(counts[name]).fill(value), name);
      const scratchBytes = channelsLastScratchBytes(config, full);
      const problem: ChannelsLastProblem = {
        ...{ ...full, x: of("x"), weight: of("weight"), y: of("y") },
        ...(scratchBytes > 0 && { scratch: runtime.arena.allocate(scratchBytes, "partials") }),
      };
      submit(runtime, lowerChannelsLastWith(config, problem, "convolution"));
      return new Float32Array(runtime.read(problem[writtenOperand[direction]]).slice().buffer);
    });
  }

  /** The sum of all results, relative to its value in f64: a bias does not average out. */
  function biasOf(direction: ConvolutionDirection, results: Float32Array): number {
    const of = (name: "x" | "weight" | "y") =>
      new Float64Array(elementCounts({ ...shape, direction, dtype: "f32" })[name]).fill(withLowBits);
    const expected = convolveInF64(direction, shape, { x: of("x"), weight: of("weight"), y: of("y") });
    const sumOf = (values: Iterable<number>) => [...values].reduce((sum, value) => sum + value, 0);
    return sumOf(results) / sumOf(expected.values) - 1;
  }

  /** The error of an operand is 2⁻²³, and a sum of products has a few more roundings. */
  const tolerance = 2e-6;

  test("rounds its operands to TF32 in every direction", () => {
    for (const direction of directions)
      for (const config of configs) {
        const bias = biasOf(direction, convolve(direction, config, withLowBits));
        assert.ok(Math.abs(bias) <= tolerance, `${direction}: ${bias}`);
      }
  });

  test("has the same bits if its operands are rounded already, and are marked so", () => {
    for (const direction of directions)
      for (const rounded of [["x", "y"], ["weight"], ["x", "weight", "y"]] as const) {
        const marked = convolve(direction, configs[0]!, roundToTf32(withLowBits), rounded);
        assert.deepEqual(marked, convolve(direction, configs[0]!, withLowBits), `${direction} ${rounded}`);
      }
  });

  test("red proof: the check detects operands that are marked as rounded and are not", () => {
    for (const direction of ["forward", "input-gradient"] as const)
      for (const rounded of [["x", "y"], ["weight"]] as const) {
        const bias = biasOf(direction, convolve(direction, configs[0]!, withLowBits, rounded));
        // Truncation only makes numbers smaller.
        assert.ok(bias < -100 * tolerance, `${direction} ${rounded}: ${bias}`);
      }
  });
});
