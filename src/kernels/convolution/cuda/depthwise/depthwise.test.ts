/** Depthwise convolutions equal the definition in f64: every direction, layout, dtype and geometry, with the same bits for every run. */

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
  valuesFor,
} from "../../../../../test/support/random-convolutions.js";
import { term } from "../../../../ir/index.js";
import type { Runtime } from "../../../../runtime/index.js";
import { submit } from "../../../submit.js";
import {
  areaOf,
  type ConvolutionDirection,
  type ConvolutionEpilogue,
  type DepthwiseProblem,
  storedDtype,
  writtenOperand,
} from "../../problem.js";
import { countDepthwiseConfigs, depthwiseScratchBytes } from "./configs.js";
import { lowerDepthwise } from "./launch.js";

type Name = "x" | "weight" | "y";
type Dtype = "f32" | "f16" | "bf16";

interface Case {
  readonly direction: ConvolutionDirection;
  readonly isChannelsLast?: boolean;
  /** Default: f32. */
  readonly dtypes?: { readonly [_ in Name]?: Dtype };
  readonly algorithm?: number;
  readonly hasBias?: boolean;
  readonly epilogue?: ConvolutionEpilogue;
  /** The distance of the images from an aligned address, in elements. */
  readonly misalignment?: number;
  /** A fault: what the kernel is told instead of the geometry. */
  readonly told?: Partial<ConvolutionGeometry>;
}

/** Few multiprocessors: small images have long runs. */
const target = { device: { parallelism: 4 }, settings: { precision: "f32" } } as Parameters<
  typeof lowerDepthwise
>[0];
const { device } = target;

const depthwise = (sizes: Omit<Parameters<typeof geometry>[0], "channels" | "outChannels">) =>
  geometry({ ...sizes, channels: 1, outChannels: 1 });

const geometries: Readonly<Record<string, ConvolutionGeometry>> = {
  "3 × 3": depthwise({ batch: 2, groups: 8, size: [9, 11], kernel: [3, 3], padding: [1, 1] }),
  "one channel": depthwise({ groups: 1, size: [6, 7], kernel: [2, 3], padding: [0, 1] }),
  "more channels than a block": depthwise({ groups: 76, size: [3, 5], kernel: [3, 3], padding: [1, 1] }),
  strided: depthwise({ groups: 5, size: [11, 8], kernel: [3, 3], stride: [2, 3], padding: [1, 1] }),
  "strided beyond its kernel": depthwise({ groups: 4, size: [9, 9], kernel: [2, 1], stride: [3, 4] }),
  "strided and dilated": depthwise({
    ...{
      batch: 2,
      groups: 12,
      size: [17, 15],
      kernel: [3, 3],
      stride: [4, 2],
      dilation: [2, 3],
      padding: [2, 1],
    },
  }),
  "a large kernel": depthwise({ groups: 2, size: [12, 13], kernel: [9, 11], padding: [3, 0] }),
  "1-D": depthwise({ batch: 2, groups: 6, size: [1, 33], kernel: [1, 5], dilation: [1, 4], padding: [0, 8] }),
  "one result": depthwise({ groups: 16, size: [3, 3], kernel: [3, 3] }),
};

/** [rows, channels, area] ↔ [rows, area, channels]. */
function exchange(values: ArrayLike<number>, inner: number, outer: number): number[] {
  return Array.from({ length: values.length }, (_, index) => {
    const row = Math.floor(index / inner / outer);
    const [at, first] = [index % inner, Math.floor(index / inner) % outer];
    return values[(row * inner + at) * outer + first]!;
  });
}

/** Relative to the sum of absolute products: a few roundings of f32, and one of a result with fewer bits. */
const tolerance = { f32: 2e-6, f16: 1e-3, bf16: 8e-3 } as const;

const dtypeIn = ({ direction, dtypes = {} }: Case, name: Name): Dtype =>
  dtypes[name] ?? dtypes[writtenOperand[direction]] ?? "f32";

const roundedTo = (values: readonly number[], dtype: Dtype): Float64Array =>
  decodeFloats(new Uint8Array(encodeFloats(values, dtype).buffer), dtype);

function run(runtime: Runtime, shape: ConvolutionGeometry, tried: Case): Float64Array {
  const {
    direction,
    isChannelsLast = false,
    algorithm = 0,
    told,
    hasBias,
    epilogue,
    misalignment = 0,
  } = tried;
  const values = valuesFor(shape);
  const written = writtenOperand[direction];
  const dtype = dtypeIn(tried, written);
  const dtypes = Object.fromEntries(
    (["x", "weight", "y"] as const).map((name) => [name, dtypeIn(tried, name)]),
  );
  const full = { ...shape, direction, dtype, algorithm, depthwise: { isChannelsLast, dtypes } };
  const areas = { x: areaOf(shape.size), y: areaOf(shape.outSize) } as const;
  const place = (list: readonly number[], stored: Dtype, name: string) => {
    const bytes = encodeFloats([...new Array<number>(misalignment).fill(0), ...list], stored);
    const all = put(runtime, bytes, name);
    const offset = (misalignment * bytes.byteLength) / (misalignment + list.length);
    return misalignment === 0 ? all : runtime.view(all, offset, bytes.byteLength - offset);
  };
  const upload = (name: Name) => {
    const isImage = name !== "weight" && isChannelsLast;
    const list = name === written ? values[name].map(() => Number.NaN) : values[name];
    const stored = storedDtype(full, name);
    return place(isImage ? exchange(list, shape.groups, areas[name as "x" | "y"]) : list, stored, name);
  };
  const storages = { x: upload("x"), weight: upload("weight"), y: upload("y") };
  const scratchBytes = depthwiseScratchBytes(device, full);
  const problem: DepthwiseProblem = {
    ...{ ...full, ...told, ...storages },
    ...(epilogue && { epilogue }),
    ...(hasBias && { bias: place(values.bias, dtypeIn(tried, "weight"), "bias") }),
    ...(scratchBytes > 0 && { scratch: runtime.arena.allocate(scratchBytes, "partials") }),
  };
  submit(runtime, lowerDepthwise(target, problem, "convolution"));
  const stored = decodeFloats(runtime.read(storages[written]).slice(), dtype);
  if (written === "weight" || !isChannelsLast) return stored;
  return Float64Array.from(exchange(stored, areas[written], shape.groups));
}

function prove(runtime: Runtime, shape: ConvolutionGeometry, tried: Case): void {
  const { direction, hasBias } = tried;
  const values = valuesFor(shape);
  const exact = (name: Name) => roundedTo(values[name], dtypeIn(tried, name));
  const expected = convolveInF64(direction, shape, {
    ...{ x: exact("x"), weight: exact("weight"), y: exact("y") },
    ...(hasBias && { bias: roundedTo(values.bias, dtypeIn(tried, "weight")) }),
  });
  const actual = runtime.step(() => run(runtime, shape, tried));
  assert.equal(actual.length, expected.values.length);
  const error = tolerance[dtypeIn(tried, writtenOperand[direction])];
  for (const [at, sum] of expected.values.entries()) {
    const value = tried.epilogue ? Math.max(0, sum) : sum;
    if (Math.abs(actual[at]! - value) <= error * expected.scales[at]! + 1e-30) continue;
    assert.fail(`${JSON.stringify({ ...tried, shape })}: element ${at} is ${actual[at]}, not ${value}`);
  }
}

const algorithmsOf = (shape: ConvolutionGeometry, direction: ConvolutionDirection, isChannelsLast: boolean) =>
  countDepthwiseConfigs(device, { ...shape, direction, dtype: "f32", depthwise: { isChannelsLast } });

describe("a depthwise convolution on CUDA", { skip: cudaMissing }, () => {
  const runtime = cudaMissing ? undefined! : openCudaKernelRuntime();

  test("is correct in every direction and layout, for special and random geometries", () => {
    const drawn = fc.sample(randomGeometry, 6).map((shape) => depthwise(shape));
    const all = [...Object.values(geometries), ...(isThorough ? drawn : [])];
    const hasLongRows = geometries["a large kernel"];
    // Each geometry is a kernel to compile. A quick run has every third one in each direction and layout, and long rows of taps in those
    // where they are a loop.
    let turn = 0;
    for (const direction of directions) {
      for (const isChannelsLast of [false, true]) {
        turn++;
        for (const [index, shape] of all.entries())
          if (isThorough || (index + turn) % 3 === 0 || (shape === hasLongRows && isChannelsLast))
            prove(runtime, shape, { direction, isChannelsLast });
      }
    }
  });

  test("reads and stores mixed dtypes, adds a bias and applies a function", () => {
    const shape = geometries["3 × 3"]!;
    const relu: ConvolutionEpilogue = { value: term.max(term.load(0, "f32"), 0), scalars: [] };
    const forward = { direction: "forward", hasBias: true, epilogue: relu } as const;
    prove(runtime, shape, {
      ...forward,
      isChannelsLast: true,
      dtypes: { y: "bf16", x: "f32", weight: "f32" },
    });
    prove(runtime, shape, {
      direction: "input-gradient",
      hasBias: true,
      isChannelsLast: true,
      dtypes: { x: "f32", y: "bf16" },
    });
    prove(runtime, shape, {
      direction: "weight-gradient",
      isChannelsLast: true,
      dtypes: { y: "bf16", weight: "f32" },
    });
    prove(runtime, shape, { ...forward, dtypes: { y: "f16" } });
    if (!isThorough) return;
    for (const direction of directions)
      for (const isChannelsLast of [false, true])
        for (const dtype of ["f16", "bf16"] as const)
          prove(runtime, shape, { direction, isChannelsLast, dtypes: { x: dtype, y: dtype, weight: dtype } });
  });

  test("has the same bits for images with every algorithm, layout and alignment", () => {
    for (const [direction, name] of [
      ["forward", "3 × 3"],
      ["input-gradient", "strided and dilated"],
    ] as const) {
      const shape = geometries[name]!;
      const layouts = isThorough ? [false, true] : [true];
      const tried = layouts.flatMap((isChannelsLast) =>
        Array.from({ length: algorithmsOf(shape, direction, isChannelsLast) }, (_, algorithm) => ({
          ...{ direction, isChannelsLast, algorithm },
        })),
      );
      assert.ok(tried.length > 1);
      const all: Case[] = [{ direction }, ...tried, { direction, isChannelsLast: true, misalignment: 1 }];
      const [first, ...others] = all.map((one) => runtime.step(() => [...run(runtime, shape, one)]));
      for (const other of others) assert.deepEqual(other, first);
    }
  });

  test("has the same bits of a weight gradient in every run, from several CTAs", () => {
    const shape = depthwise({ batch: 8, groups: 8, size: [24, 24], kernel: [3, 3], padding: [1, 1] });
    for (const isChannelsLast of [false, true]) {
      const tried: Case = { direction: "weight-gradient", isChannelsLast };
      const full = {
        ...shape,
        direction: "weight-gradient",
        dtype: "f32",
        depthwise: { isChannelsLast },
      } as const;
      assert.ok(depthwiseScratchBytes(device, full) >= 2 * 8 * 9 * 4, "too few splits");
      prove(runtime, shape, tried);
      const bitsOf = () => runtime.step(() => [...run(runtime, shape, tried)]);
      assert.deepEqual(bitsOf(), bitsOf());
    }
  });

  test("red proof: the check detects a wrong stride, border, dilation and kernel", () => {
    const shape = depthwise({
      batch: 2,
      groups: 4,
      size: [9, 9],
      kernel: [3, 3],
      stride: [2, 2],
      padding: [1, 1],
    });
    const faults: readonly Partial<ConvolutionGeometry>[] = [
      ...[{ stride: [1, 2] as const }, { padding: [0, 1] as const }],
      ...[{ dilation: [1, 2] as const }, { kernel: [2, 3] as const }],
    ];
    for (const [index, direction] of directions.entries()) {
      const tried = { direction, isChannelsLast: index !== 1 };
      prove(runtime, shape, tried);
      for (const [at, told] of faults.entries()) {
        if (!isThorough && at % 3 !== index) continue;
        const isFound = () => prove(runtime, shape, { ...tried, told });
        assert.throws(isFound, /element \d+ is/, `${direction}: ${JSON.stringify(told)}`);
      }
    }
  });
});
