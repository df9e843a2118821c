/**
 * How a convolution runs on CUDA: by implicit GEMM with one of a few CTA tiles, or directly, one thread for each result. Both may split the
 * sum over several CTAs. The config with the shortest estimated time is used.
 *
 * Implicit GEMM is C[m, n] = A[m, k] · B[k, n] of every group (and residue class). B gathers elements of an image:
 *
 * | direction       | m               | n                     | k                            | A      | B      |
 * |-----------------|-----------------|-----------------------|------------------------------|--------|--------|
 * | forward         | output channels | output positions      | input channels × taps        | weight | x      |
 * | input-gradient  | input channels  | input positions       | output channels × taps       | weight | y      |
 * | weight-gradient | output channels | input channels × taps | output positions             | y      | x      |
 */

import type { DeviceInfo, GemmPrecision } from "../../../driver/index.js";
import { launchBytes, maxSharedBytesPerBlock, type SharedMemoryFacts, wavesOf } from "../../cost-model.js";
import {
  areaOf,
  type ConvolutionDirection,
  type ConvolutionShape,
  elementCounts,
  writtenOperand,
} from "../problem.js";
import { positionsOf, residueClassesOf } from "./geometry.js";

/** How products are computed: by f32 FMA, or on tensor cores after rounding the operands to TF32 or bf16. Sums are f32. */
export type ConvolutionMath = "f32" | "tf32" | "bf16";

/** CTA tile and its division among warps. */
export interface ConvolutionTile {
  readonly tileM: number;
  readonly tileN: number;
  readonly warpsM: number;
  readonly warpsN: number;
  readonly stages: number;
}

/** One lane of a warp for each k. */
export const tileK = 32;

/** A warp computes 64 × 32 or 32 × 32. */
export const convolutionTiles: readonly ConvolutionTile[] = [
  { tileM: 128, tileN: 128, warpsM: 2, warpsN: 4, stages: 2 },
  { tileM: 128, tileN: 64, warpsM: 2, warpsN: 2, stages: 3 },
  { tileM: 64, tileN: 128, warpsM: 1, warpsN: 4, stages: 3 },
  { tileM: 64, tileN: 64, warpsM: 2, warpsN: 2, stages: 2 },
  { tileM: 32, tileN: 128, warpsM: 1, warpsN: 4, stages: 2 },
  { tileM: 64, tileN: 32, warpsM: 2, warpsN: 1, stages: 3 },
];

export type ConvolutionConfig =
  | {
      readonly kind: "implicit-gemm";
      readonly tile: ConvolutionTile;
      readonly math: ConvolutionMath;
      readonly splits: number;
    }
  | { readonly kind: "direct"; readonly splits: number };

/** Threads of a CTA of the direct kernels. */
export const directThreads = 256;

type Device = SharedMemoryFacts & Pick<DeviceInfo, "parallelism">;

/** Sizes of the GEMM of one group. K of an input gradient is an estimate: residue classes may meet different numbers of taps. */
export function gemmSizes(shape: ConvolutionShape): {
  readonly m: number;
  readonly n: number;
  readonly k: number;
} {
  const { direction, channels, outChannels, kernel, stride } = shape;
  const positions = positionsOf(shape);
  const taps = areaOf(kernel);
  switch (direction) {
    case "forward":
      return { m: outChannels, n: positions, k: channels * taps };
    case "input-gradient": {
      const classTaps = Math.ceil(kernel[0] / stride[0]) * Math.ceil(kernel[1] / stride[1]);
      return { m: channels, n: positions, k: outChannels * classTaps };
    }
    case "weight-gradient":
      return { m: outChannels, n: channels * taps, k: positions };
  }
}

/** CTAs of implicit GEMM. */
export function countCtas(
  shape: ConvolutionShape,
  { tileM, tileN }: ConvolutionTile,
  splits: number,
): number {
  const { m, n } = gemmSizes(shape);
  return Math.ceil(m / tileM) * Math.ceil(n / tileN) * shape.groups * residueClassesOf(shape) * splits;
}

/** The floats of an operand's k-tile in shared memory. Rows are padded against bank conflicts. */
export function tileFloats({ tileM, tileN }: ConvolutionTile, direction: ConvolutionDirection) {
  const isBKMajor = direction === "weight-gradient";
  return {
    strideA: tileK + 4,
    strideB: isBKMajor ? tileK + 4 : tileN + 8,
    floatsA: tileM * (tileK + 4),
    floatsB: isBKMajor ? tileN * (tileK + 4) : tileK * (tileN + 8),
  };
}

/** Dynamic shared memory of a CTA, and the table of the taps of a weight gradient. */
export function sharedBytesOf(tile: ConvolutionTile, direction: ConvolutionDirection) {
  const { floatsA, floatsB } = tileFloats(tile, direction);
  const tapBytes = 12;
  return {
    dynamic: 4 * tile.stages * (floatsA + floatsB),
    static: direction === "weight-gradient" ? tapBytes * tile.tileN : 0,
  };
}

/** f16 has as many significant bits as TF32 and fewer exponents, so that TF32 holds it exactly. */
export function mathOf(dtype: ConvolutionShape["dtype"], precision: GemmPrecision): ConvolutionMath {
  if (dtype === "f16") return "tf32";
  return dtype === "bf16" ? "bf16" : precision;
}

/** The config with the shortest estimated time. */
export function selectConvolutionConfig(
  device: Device,
  precision: GemmPrecision,
  shape: ConvolutionShape,
): ConvolutionConfig {
  const math = mathOf(shape.dtype, precision);
  const maxBytes = maxSharedBytesPerBlock(device);
  let best: { readonly config: ConvolutionConfig; readonly cycles: number } | undefined;
  for (const config of candidates(shape, math)) {
    if (config.kind === "implicit-gemm") {
      const bytes = sharedBytesOf(config.tile, shape.direction);
      if (bytes.dynamic + bytes.static > maxBytes) continue;
    }
    const cycles = estimateCycles(device.parallelism, shape, config);
    if (!best || cycles < best.cycles) best = { config, cycles };
  }
  return best?.config ?? { kind: "direct", splits: 1 };
}

const maxSplits = 256;

/** Powers of two, as long as every split has a k-tile. */
function splitsUpTo(kTiles: number): readonly number[] {
  const splits = [1];
  for (let next = 2; next <= Math.min(kTiles, maxSplits); next *= 2) splits.push(next);
  return splits;
}

function* candidates(shape: ConvolutionShape, math: ConvolutionMath): Generator<ConvolutionConfig> {
  const { k } = gemmSizes(shape);
  for (const tile of convolutionTiles) {
    for (const splits of splitsUpTo(Math.ceil(k / tileK)))
      yield { kind: "implicit-gemm", tile, math, splits };
  }
  const directSplits = shape.direction === "weight-gradient" ? splitsUpTo(Math.ceil(k / directThreads)) : [1];
  for (const splits of directSplits) yield { kind: "direct", splits };
}

/** Products of one SM in a cycle: f32 lanes, and dense mma.sync of an A100. */
const productsPerCycle = { f32: 128, tf32: 512, bf16: 1024 } as const;
/** Lanes of one SM that issue an instruction in a cycle. */
const lanesPerCycle = 128;
/** Instructions of a thread for each element of A, for each gathered element of B, and for each product of the direct kernels. */
const instructions = { matrix: 4, image: 10, direct: 12 } as const;
/** Start of a CTA, first loads and stores of results: about a microsecond for a pipeline, less for a thread that only loops. */
const ctaCycles = { pipeline: 1500, direct: 500 } as const;
/** Another launch, and the bytes that an SM moves in a cycle, at about 1.5 GHz. */
const launchCycles = 3000;
const bytesPerCycle = launchBytes / launchCycles;

function estimateCycles(sms: number, shape: ConvolutionShape, config: ConvolutionConfig): number {
  const results = elementCounts(shape)[writtenOperand[shape.direction]];
  const { splits } = config;
  const sum = splits === 1 ? 0 : launchCycles + ((splits + 1) * results * 4) / (sms * bytesPerCycle);
  return sum + (config.kind === "direct" ? directCycles(sms, shape, splits) : gemmCycles(sms, shape, config));
}

function gemmCycles(
  sms: number,
  shape: ConvolutionShape,
  { tile, math, splits }: Extract<ConvolutionConfig, { readonly kind: "implicit-gemm" }>,
): number {
  const { tileM, tileN } = tile;
  const kTiles = Math.ceil(Math.ceil(gemmSizes(shape).k / tileK) / splits);
  const products = (tileM * tileN) / productsPerCycle[math];
  const loads = (instructions.matrix * tileM + instructions.image * tileN) / lanesPerCycle;
  return (
    wavesOf(countCtas(shape, tile, splits), sms) * (kTiles * tileK * (products + loads) + ctaCycles.pipeline)
  );
}

function directCycles(sms: number, shape: ConvolutionShape, splits: number): number {
  const { k } = gemmSizes(shape);
  const results = elementCounts(shape)[writtenOperand[shape.direction]];
  const products = shape.direction === "weight-gradient" ? Math.ceil(k / splits) : directThreads * k;
  const cycles = (products * instructions.direct) / lanesPerCycle + ctaCycles.direct;
  return wavesOf(directCtas(shape, results, splits), sms) * cycles;
}

/** CTAs of the direct kernels: one for each weight and split, or one for a block of results. */
export function directCtas({ direction }: ConvolutionShape, results: number, splits: number): number {
  return direction === "weight-gradient" ? results * splits : Math.ceil(results / directThreads);
}
