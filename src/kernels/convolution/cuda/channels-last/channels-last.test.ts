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
import { dmmaConvolutionTiles } from "./dmma-tiles.js";
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

/** The operands as the kernel multiplies them. In TF32, f32 is given with as many bits as TF32 has. */
const exactIn = (values: readonly number[], { operands = "bf16", config }: Case): Float64Array =>
  roundedTo(values, operands === "f32" && config.kind !== "dmma" ? "bf16" : operands);

/** Relative to the sum of absolute products: a few roundings of f32, and one of a result with fewer bits. */
const tolerance = { f32: 2e-6, f16: 1e-3, bf16: 8e-3 } as const;

/** Exact products are summed in f64 and rounded once; a split sum has one rounding more for each of its two parts. */
function boundOf({ config, dtype = "f32" }: Case, value: number, scale: number): number {
  if (config.kind !== "dmma") return tolerance[dtype] * scale;
  return 2 ** -24 * Math.abs(value) + (config.splits > 1 ? 2 ** -23 : 1e-13) * scale;
}

function run(runtime: Runtime, shape: ConvolutionGeometry, tried: Case): ArrayLike<number> {
  const { direction, config, dtype = "f32", operands = "bf16", hasBias = false, told } = tried;
  const values = valuesFor(shape);
  const channelsLast = { operands, isExact: config.kind === "dmma" };
  const full = { ...shape, direction, dtype, channelsLast } as const;
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
    return put(runtime, encodeFloats([...exactIn(packed, tried)], operands), name);
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
  const { direction, config, hasBias } = tried;
  const values = valuesFor(shape);
  const rounded = (name: "x" | "weight" | "y") => exactIn(values[name], tried);
  const expected = convolveInF64(direction, shape, {
    ...{ x: rounded("x"), weight: rounded("weight"), y: rounded("y") },
    ...(hasBias && { bias: values.bias }),
  });
  const actual = runtime.step(() => run(runtime, shape, tried));
  assert.equal(actual.length, expected.values.length);
  for (const [at, value] of expected.values.entries()) {
    const bound = boundOf(tried, value, expected.scales[at]!) + 1e-30;
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

  test("multiplies f32 exactly, on the FP64 tensor cores", () => {
    for (const [row, direction] of directions.entries()) {
      const splits = direction === "weight-gradient" ? 2 : 1;
      for (const [index, tile] of dmmaConvolutionTiles.entries()) {
        if (!isThorough && index !== 3 && index !== row) continue;
        const some = index === 3 ? geometries.filter((_, at) => at % 3 === row) : [manyTiles];
        const tried = isThorough ? geometries : some;
        for (const shape of tried) {
          const hasBias = direction === "forward";
          prove(runtime, shape, {
            direction,
            operands: "f32",
            hasBias,
            config: { kind: "dmma", tile, splits },
          });
        }
      }
    }
  });

  test("has the same bits with every tile in f32", () => {
    const tiles = isThorough ? dmmaConvolutionTiles : dmmaConvolutionTiles.slice(2, 4);
    for (const direction of directions) {
      const results = tiles.map((tile) => {
        const config = { kind: "dmma", tile, splits: direction === "weight-gradient" ? 3 : 1 } as const;
        return runtime.step(() =>
          Array.from(run(runtime, manyTiles, { direction, operands: "f32", config })),
        );
      });
      for (const result of results) assert.deepEqual(result, results[0]);
    }
  });

  test("adds a bias, and stores half floats", () => {
    for (const shape of [manyTiles, specialGeometries["one result"]!]) {
      for (const direction of ["forward", "input-gradient"] as const)
        prove(runtime, shape, { direction, config: small, dtype: "bf16", hasBias: true });
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
