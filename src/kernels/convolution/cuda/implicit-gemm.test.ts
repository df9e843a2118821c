/** Convolutions on CUDA equal the definition in f64: every direction, tile, math and geometry, with the same bits in every run. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { isThorough } from "../../../../test/support/effort.js";
import { decodeFloats, encodeFloats } from "../../../../test/support/encoded-values.js";
import { cudaMissing, openCudaKernelRuntime, put } from "../../../../test/support/kernel-runtime.js";
import {
  type ConvolutionGeometry,
  convolveInF64,
  directions,
  geometry,
  randomGeometry,
  specialGeometries,
  valuesFor,
} from "../../../../test/support/random-convolutions.js";
import type { Runtime, Storage } from "../../../runtime/index.js";
import { submit } from "../../submit.js";
import {
  areaOf,
  type ConvolutionDirection,
  type ConvolutionProblem,
  type ConvolutionShape,
  writtenOperand,
} from "../problem.js";
import { type ConvolutionConfig, type ConvolutionMath, convolutionTiles } from "./configs.js";
import { lowerConvolutionWith, partialBytes } from "./launch.js";

const maths = ["f32", "tf32", "bf16"] as const;

/** As the tensor cores round f32 operands: to nearest, ties away from 0 (TF32) or to even (bf16). */
const roundings: Readonly<Record<ConvolutionMath, (value: number) => number>> = {
  f32: (value) => value,
  tf32: (value) => {
    const bits = new Uint32Array(Float32Array.of(value).buffer);
    bits[0] = (bits[0]! + 0x1000) & 0xffffe000;
    return new Float32Array(bits.buffer)[0]!;
  },
  bf16: (value) => decodeFloats(new Uint8Array(encodeFloats([value], "bf16").buffer), "bf16")[0]!,
};

interface Case {
  readonly direction: ConvolutionDirection;
  readonly config: ConvolutionConfig;
  readonly dtype?: ConvolutionShape["dtype"];
  readonly hasBias?: boolean;
  /** A fault: what the kernel is told instead of the geometry. */
  readonly told?: Partial<ConvolutionGeometry>;
  /** A fault: what the second launch adds instead of all partial sums. */
  readonly summedSplits?: number;
}

/** Relative to the sum of absolute products: a few roundings of f32, and one of a result with fewer bits. */
const tolerance = { f32: 2e-6, f16: 1e-3, bf16: 8e-3 } as const;

function run(
  runtime: Runtime,
  shape: ConvolutionGeometry,
  { direction, config, dtype = "f32", hasBias = false, told, summedSplits }: Case,
): Float64Array {
  const values = valuesFor(shape);
  const upload = (name: keyof typeof values) => put(runtime, encodeFloats(values[name], dtype), name);
  const written = writtenOperand[direction];
  const elements = values[written].length;
  const result = put(runtime, encodeFloats(new Array<number>(elements).fill(Number.NaN), dtype), "result");
  const scratchBytes = partialBytes(config, { ...shape, direction, dtype });
  const problem: ConvolutionProblem = {
    ...{ ...shape, ...told, direction, dtype },
    ...{ x: upload("x"), weight: upload("weight"), y: upload("y"), [written]: result },
    ...(hasBias && { bias: upload("bias") }),
    ...(scratchBytes > 0 && { scratch: runtime.arena.allocate(scratchBytes, "partials") }),
  };
  const [products, sum] = lowerConvolutionWith(config, problem, "convolution");
  const sums =
    sum && summedSplits ? { ...sum, arguments: [...sum.arguments.slice(0, -1), summedSplits] } : sum;
  submit(runtime, [products!, ...(sums ? [sums] : [])]);
  return decodeFloats(runtime.read(result).slice(), dtype);
}

function prove(runtime: Runtime, shape: ConvolutionGeometry, tried: Case): void {
  const { direction, config, dtype = "f32", hasBias } = tried;
  const values = valuesFor(shape);
  const stored = (list: readonly number[]) =>
    decodeFloats(new Uint8Array(encodeFloats(list, dtype).buffer), dtype);
  const expected = convolveInF64(
    direction,
    shape,
    {
      x: stored(values.x),
      weight: stored(values.weight),
      y: stored(values.y),
      ...(hasBias && { bias: stored(values.bias) }),
    },
    roundings[config.kind === "direct" ? "f32" : config.math],
  );
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

/** Without tiles every weight's gradient is a CTA, which takes long on the emulator. */
function hasFewWeights({ groups, channels, outChannels, kernel }: ConvolutionGeometry): boolean {
  return groups * channels * outChannels * areaOf(kernel) <= 250;
}

describe("a convolution on CUDA", { skip: cudaMissing }, () => {
  const runtime = cudaMissing ? undefined! : openCudaKernelRuntime();
  const geometries = Object.values(specialGeometries);
  /** Every third, from another one on each time. */
  let turn = 0;
  const someGeometries = () => {
    turn++;
    return geometries.filter((_, index) => (index + turn) % 3 === 0);
  };

  test("is correct with every tile, math and direction, for special and random geometries", () => {
    // Each combination is a kernel to compile. A quick run has every pair of direction and math, each with another tile.
    for (const [row, direction] of directions.entries()) {
      for (const [column, math] of maths.entries()) {
        for (const [index, tile] of convolutionTiles.entries()) {
          if (!isThorough && index !== (2 * row + 3 * column) % convolutionTiles.length) continue;
          const config: ConvolutionConfig = { kind: "implicit-gemm", tile, math, splits: 1 };
          const drawn = isThorough ? fc.sample(randomGeometry, 1) : [];
          for (const shape of [...someGeometries(), ...drawn]) prove(runtime, shape, { direction, config });
        }
      }
    }
  });

  test("is correct without tiles, in every direction and dtype", () => {
    for (const direction of directions) {
      for (const dtype of ["f32", "f16", "bf16"] as const) {
        if (!isThorough && dtype !== "f32" && direction !== "forward") continue;
        const special = direction === "weight-gradient" ? geometries.filter(hasFewWeights) : geometries;
        const drawn = fc.sample(randomGeometry.filter(hasFewWeights), isThorough ? 8 : 1);
        for (const shape of [...special, ...drawn])
          prove(runtime, shape, { direction, dtype, config: { kind: "direct", splits: 1 } });
      }
    }
  });

  /** The smallest tile of 4 warps. */
  const tile = convolutionTiles.find(({ tileM, tileN }) => tileM === 64 && tileN === 64)!;
  const gemm = (math: ConvolutionMath, splits = 1): ConvolutionConfig => ({
    ...{ kind: "implicit-gemm", tile, math, splits },
  });

  test("is correct if its sum is split, and if it has a bias", () => {
    const splits = 3;
    for (const shape of someGeometries()) {
      prove(runtime, shape, { direction: "forward", config: gemm("f32", splits), hasBias: true });
      prove(runtime, shape, { direction: "weight-gradient", config: gemm("f32", splits) });
      if (hasFewWeights(shape))
        prove(runtime, shape, { direction: "weight-gradient", config: { kind: "direct", splits } });
      for (const direction of ["forward", "input-gradient"] as const)
        prove(runtime, shape, { direction, config: { kind: "direct", splits: 1 }, hasBias: true });
      prove(runtime, shape, { direction: "input-gradient", config: gemm("tf32", splits), hasBias: true });
    }
  });

  test("reads and stores half floats: f16 is exact in TF32", () => {
    for (const shape of someGeometries()) {
      prove(runtime, shape, { direction: "forward", dtype: "f16", config: gemm("tf32"), hasBias: true });
      if (!isThorough) continue;
      prove(runtime, shape, { direction: "input-gradient", dtype: "bf16", config: gemm("bf16") });
      prove(runtime, shape, { direction: "weight-gradient", dtype: "bf16", config: gemm("bf16", 2) });
    }
  });

  test("has the same bits in every run, and in f32 with every tile", () => {
    const shape = specialGeometries["wider than a tile"]!;
    const bitsOf = (tried: Case): number[] => runtime.step(() => [...run(runtime, shape, tried)]);
    const split: Case = { direction: "weight-gradient", config: gemm("f32", 3) };
    assert.deepEqual(bitsOf(split), bitsOf(split));
    const tiles = isThorough ? convolutionTiles : [tile, convolutionTiles[0]!];
    const [first, ...others] = tiles.map((tile) =>
      bitsOf({ direction: "forward", config: { kind: "implicit-gemm", tile, math: "f32", splits: 1 } }),
    );
    assert.ok(others.length > 0);
    for (const other of others) assert.deepEqual(other, first);
  });

  test("red proof: the check detects a wrong stride, border, dilation, kernel and group", () => {
    const shape = geometry({
      ...{ batch: 2, groups: 2, channels: 4, outChannels: 4, size: [9, 9], kernel: [3, 3], stride: [2, 2] },
      ...{ padding: [1, 1], dilation: [1, 1] },
    });
    const faults: Readonly<Record<string, Partial<ConvolutionGeometry>>> = {
      stride: { stride: [1, 2] },
      border: { padding: [0, 1] },
      dilation: { dilation: [1, 2] },
      kernel: { kernel: [2, 3] },
      groups: { groups: 1 },
    };
    for (const [index, direction] of directions.entries()) {
      const config = index === 0 ? gemm("f32") : ({ kind: "direct", splits: 1 } as const);
      prove(runtime, shape, { direction, config });
      for (const [fault, told] of Object.entries(faults)) {
        const isFound = () => prove(runtime, shape, { direction, config, told });
        assert.throws(isFound, /element \d+ is/, `${direction}: ${fault}`);
      }
    }
  });

  test("red proof: the check detects a missing partial sum, and rounding that was not requested", () => {
    const shape = specialGeometries["wider than a tile"]!;
    const split = { direction: "weight-gradient", config: gemm("f32", 3) } as const;
    assert.throws(() => prove(runtime, shape, { ...split, summedSplits: 2 }), /element \d+ is/);
    const exact = convolveInF64("weight-gradient", shape, valuesFor(shape));
    const values = valuesFor(shape);
    const rounded = convolveInF64("weight-gradient", shape, values, roundings.tf32);
    const isOff = rounded.values.some(
      (value, at) => Math.abs(value - exact.values[at]!) > tolerance.f32 * exact.scales[at]!,
    );
    assert.ok(isOff, "the tolerance of f32 is too large for the rounding of TF32");
  });
});

test("without enough scratch memory, a split sum is rejected", () => {
  const config = { kind: "direct", splits: 2 } as const;
  const storage = { label: "operand", span: { address: 0, size: 1 << 20 } } as unknown as Storage;
  const shape = { ...specialGeometries["1-D"]!, direction: "weight-gradient", dtype: "f32" } as const;
  const problem = { ...shape, x: storage, weight: storage, y: storage };
  const bytes = partialBytes(config, shape);
  assert.throws(
    () => lowerConvolutionWith(config, problem, "test"),
    new RegExp(`take ${bytes} bytes.*there are 0`),
  );
});
