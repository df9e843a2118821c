/** Channels-last convolutions equal the definition in f64: every direction, tile and geometry. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { isThorough } from "../../../../../test/support/effort.js";
import { decodeFloats, encodeFloats } from "../../../../../test/support/encoded-values.js";
import { cudaMissing, openCudaKernelRuntime, put } from "../../../../../test/support/kernel-runtime.js";
import {
  type ConvolutionGeometry,
  convolveInF64,
  directions,
  geometry,
  randomGeometry,
  specialGeometries,
  valuesFor,
} from "../../../../../test/support/random-convolutions.js";
import type { Runtime } from "../../../../runtime/index.js";
import { submit } from "../../../submit.js";
import {
  areaOf,
  type ChannelsLastProblem,
  type ConvolutionDirection,
  elementCounts,
  paddedChannels,
  readsTransposedWeight,
  writtenOperand,
} from "../../problem.js";
import { channelsLastTiles } from "./configs.js";
import { type ChannelsLastConfig, channelsLastScratchBytes, lowerChannelsLastWith } from "./launch.js";

interface Case {
  readonly direction: ConvolutionDirection;
  readonly config: ChannelsLastConfig;
  readonly dtype?: "f32" | "bf16" | "f16";
  readonly operands?: "bf16" | "f16" | "f32";
  readonly hasBias?: boolean;
  /** A fault: what the kernel is told instead of the geometry. */
  readonly told?: Partial<ConvolutionGeometry>;
}

/** [rows, channels, area] ↔ [rows, area, padded channels], with zeros after the last channel. */
function toChannelsLast(values: readonly number[], channels: number, area: number, padded: number): number[] {
  const rows = values.length / channels / area;
  const result = new Array<number>(rows * area * padded).fill(0);
  for (const [index, value] of values.entries()) {
    const [row, channel, at] = [
      Math.floor(index / area / channels),
      Math.floor(index / area) % channels,
      index % area,
    ];
    result[(row * area + at) * padded + channel] = value;
  }
  return result;
}

function toChannelsFirst(values: ArrayLike<number>, channels: number, area: number): number[] {
  return Array.from({ length: values.length }, (_, index) => {
    const [row, channel, at] = [
      Math.floor(index / area / channels),
      Math.floor(index / area) % channels,
      index % area,
    ];
    return values[(row * area + at) * channels + channel]!;
  });
}

/** [rows, columns, area] as [columns, rows, area]. */
function exchangeAxes(values: readonly number[], rows: number, columns: number, area: number): number[] {
  return Array.from({ length: values.length }, (_, index) => {
    const [column, row, at] = [
      Math.floor(index / area / rows),
      Math.floor(index / area) % rows,
      index % area,
    ];
    return values[(row * columns + column) * area + at]!;
  });
}

const roundedTo = (values: readonly number[], dtype: "f32" | "bf16" | "f16"): Float64Array =>
  decodeFloats(new Uint8Array(encodeFloats(values, dtype).buffer), dtype);

/** The operands as the kernel multiplies them. f32 is given with as many bits as TF32 has. */
const exactIn = (values: readonly number[], operands: "f32" | "bf16" | "f16"): Float64Array =>
  roundedTo(values, operands === "f32" ? "bf16" : operands);

/** Relative to the sum of absolute products: a few roundings of f32, and one of a result with fewer bits. */
const tolerance = { f32: 2e-6, f16: 1e-3, bf16: 8e-3 } as const;

function run(runtime: Runtime, shape: ConvolutionGeometry, tried: Case): ArrayLike<number> {
  const { direction, config, dtype = "f32", operands = "bf16", hasBias = false, told } = tried;
  const values = valuesFor(shape);
  const full = { ...shape, direction, dtype, channelsLast: { operands } } as const;
  const layouts = {
    x: [shape.channels, areaOf(shape.size)],
    weight: [shape.channels, areaOf(shape.kernel)],
    y: [shape.outChannels, areaOf(shape.outSize)],
  } as const;
  const upload = (name: keyof typeof layouts) => {
    const [channels, area] = layouts[name];
    const isTransposed = name === "weight" && readsTransposedWeight(full);
    const [list, inner] = isTransposed
      ? [exchangeAxes(values.weight, shape.outChannels, channels, area), shape.outChannels]
      : [values[name], channels];
    const packed = toChannelsLast(list, inner, area, paddedChannels(inner, full));
    return put(runtime, encodeFloats([...exactIn(packed, operands)], operands), name);
  };
  const written = writtenOperand[direction];
  const elements = elementCounts(full)[written];
  const result = put(runtime, encodeFloats(new Array<number>(elements).fill(Number.NaN), dtype), "result");
  const scratchBytes = channelsLastScratchBytes(config, full);
  const problem: ChannelsLastProblem = {
    ...{ ...full, ...told, x: upload("x"), weight: upload("weight"), y: upload("y"), [written]: result },
    ...(hasBias && { bias: put(runtime, encodeFloats(values.bias, "f32"), "bias") }),
    ...(scratchBytes > 0 && { scratch: runtime.arena.allocate(scratchBytes, "partials") }),
  };
  submit(runtime, lowerChannelsLastWith(config, problem, "convolution"));
  const stored = decodeFloats(runtime.read(result).slice(), dtype);
  return written === "weight" ? stored : toChannelsFirst(stored, ...layouts[written]);
}

function prove(runtime: Runtime, shape: ConvolutionGeometry, tried: Case): void {
  const { direction, config, dtype = "f32", operands = "bf16", hasBias } = tried;
  const values = valuesFor(shape);
  const rounded = (name: "x" | "weight" | "y") => exactIn(values[name], operands);
  const expected = convolveInF64(direction, shape, {
    ...{ x: rounded("x"), weight: rounded("weight"), y: rounded("y") },
    ...(hasBias && { bias: values.bias }),
  });
  const actual = runtime.step(() => run(runtime, shape, tried));
  assert.equal(actual.length, expected.values.length);
  for (const [at, value] of expected.values.entries()) {
    const bound = tolerance[dtype] * expected.scales[at]! + 1e-30;
    if (Math.abs(actual[at]! - value) <= bound) continue;
    assert.fail(
      `${direction} ${JSON.stringify({ config, shape })}: element ${at} is ${actual[at]}, not ${value}`,
    );
  }
}

/** More than one tile of most sizes, and k-tiles that span taps. */
const manyTiles = geometry({
  ...{ batch: 2, channels: 24, outChannels: 72, size: [9, 8], kernel: [2, 2], padding: [1, 0] },
});

/** The input gradient has whole k-tiles of one tap. */
const wholeTaps = geometry({ channels: 9, outChannels: 64, size: [5, 4], kernel: [2, 3], padding: [0, 1] });

const geometries = [
  ...Object.values(specialGeometries).filter(({ groups }) => groups === 1),
  manyTiles,
  wholeTaps,
];

const small: ChannelsLastConfig = {
  kind: "channels-last",
  tile: channelsLastTiles.find(({ tileM, tileN }) => tileM === 64 && tileN === 64)!,
  splits: 1,
};

describe("a channels-last convolution on CUDA", { skip: cudaMissing }, () => {
  const runtime = cudaMissing ? undefined! : openCudaKernelRuntime();

  test("is correct with every tile and direction, for special and random geometries", () => {
    // Each pair of tile and direction is a kernel to compile. A quick run has the smallest tile, and another one in one direction.
    for (const [row, direction] of directions.entries()) {
      const splits = direction === "weight-gradient" ? 2 : 1;
      for (const [index, tile] of channelsLastTiles.entries()) {
        const isSmall = tile === small.tile;
        if (!isThorough && !isSmall && (index !== 3 || direction !== "input-gradient")) continue;
        const drawn = isThorough ? fc.sample(randomGeometry, 2).filter(({ groups }) => groups === 1) : [];
        const tried = isThorough
          ? geometries
          : isSmall
            ? geometries.filter((_, at) => at % 3 === row || (row === 1 && at === geometries.length - 1))
            : [manyTiles];
        for (const shape of [...tried, ...drawn])
          prove(runtime, shape, { direction, config: { kind: "channels-last", tile, splits } });
      }
    }
  });

  test("multiplies f32 as TF32: the weight and the operands of its gradient are transposed", () => {
    for (const direction of directions) {
      const tiles = isThorough ? channelsLastTiles.slice(2) : [small.tile];
      const tried = isThorough ? geometries : [specialGeometries["strided"]!];
      for (const tile of tiles)
        for (const shape of tried)
          prove(runtime, shape, {
            direction,
            operands: "f32",
            config: { kind: "channels-last", tile, splits: 1 },
          });
    }
  });

  test("adds a bias, and stores half floats", () => {
    for (const shape of [manyTiles, specialGeometries["one result"]!]) {
      prove(runtime, shape, { direction: "forward", config: small, dtype: "bf16", hasBias: true });
      if (!isThorough) continue;
      prove(runtime, shape, { direction: "forward", config: small, hasBias: true });
      prove(runtime, shape, { direction: "input-gradient", config: small, dtype: "f16", operands: "f16" });
      prove(runtime, shape, { direction: "weight-gradient", config: small, dtype: "bf16" });
    }
  });

  test("adds the partial sums of many splits, of which some have no positions", () => {
    const shape = specialGeometries["one result"]!;
    prove(runtime, shape, { direction: "weight-gradient", config: { ...small, splits: 65 } });
  });

  test("red proof: the check detects a wrong stride, border, dilation and kernel", () => {
    const shape = geometry({
      ...{ batch: 2, channels: 4, outChannels: 4, size: [9, 9], kernel: [3, 3], stride: [2, 2] },
      ...{ padding: [1, 1], dilation: [1, 1] },
    });
    const faults: readonly Partial<ConvolutionGeometry>[] = [
      ...[{ stride: [1, 2] as const }, { padding: [0, 1] as const }],
      ...[{ dilation: [1, 2] as const }, { kernel: [2, 3] as const }],
    ];
    for (const direction of directions) {
      prove(runtime, shape, { direction, config: small });
      for (const told of faults) {
        const isFound = () => prove(runtime, shape, { direction, config: small, told });
        assert.throws(isFound, /element \d+ is/, `${direction}: ${JSON.stringify(told)}`);
      }
    }
  });
});
