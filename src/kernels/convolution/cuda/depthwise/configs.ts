/** Which convolutions the depthwise kernels compute, and with which division among threads. */

import type { DeviceInfo } from "../../../../driver/index.js";
import { dtypes } from "../../../../ir/index.js";
import { maxVectorBytes, warpSize } from "../../../cost-model.js";
import {
  areaOf,
  type ConvolutionShape,
  type DepthwiseShape,
  rejected,
  storedDtype,
  writtenOperand,
} from "../../problem.js";
import { gatherThreads, maxGroupTaps } from "./gather-kernel.js";
import { weightGradientThreads } from "./weight-gradient-kernel.js";

type Device = Pick<DeviceInfo, "parallelism">;

export interface DepthwiseConfig {
  /** Neighbouring channels of a thread, and neighbouring threads along the channels; 1 and 1 if channels are first. */
  readonly vector: number;
  readonly lanes: number;
  /** Neighbouring results of a thread, or elements of the output's gradient: along the width, or the height if channels are first. */
  readonly run: number;
  /** Of images: the runs of a thread, one after the other. */
  readonly tilesPerThread: number;
  /** Of a weight gradient: the taps of a CTA, and the CTAs that share a sum. */
  readonly tapRows: number;
  readonly tapColumns: number;
  readonly splits: number;
}

/** The taps are part of the code. */
const maxTaps = 128;
/** A run of an input gradient is a multiple of the stride. */
const maxStride = 16;

/** True for a convolution of each channel with its own taps, unless its code would be too long. */
export function isDepthwiseConvolution({
  channels,
  outChannels,
  kernel,
  stride,
}: Pick<ConvolutionShape, "channels" | "outChannels" | "kernel" | "stride">): boolean {
  return channels === 1 && outChannels === 1 && areaOf(kernel) <= maxTaps && Math.max(...stride) <= maxStride;
}

/** The config of the shape's algorithm. `alignment`: of the images' addresses, in bytes. */
export function selectDepthwiseConfig(
  device: Device,
  shape: DepthwiseShape,
  alignment = maxVectorBytes,
): DepthwiseConfig {
  const runs = runsOf(device, shape);
  const run = runs[shape.algorithm ?? 0];
  if (run === undefined)
    throw rejected(
      `there is no algorithm ${shape.algorithm}: this convolution has ${runs.length}, numbered from 0.`,
    );
  const [vector, block] = [vectorOf(shape, alignment), channelBlockOf(shape)];
  const lanes = block / vector;
  const { tapRows, tapColumns } = tapGroupOf(shape, vector);
  const perPass = gatherThreads / lanes;
  const ctas = Math.ceil(countTiles(shape, run) / perPass) * Math.ceil(shape.groups / block);
  const tilesPerThread = Math.floor(ctas / (device.parallelism * ctasPerSm));
  return {
    ...{ vector, lanes, run, tapRows, tapColumns, splits: splitsOf(device, shape) },
    tilesPerThread: isLast(shape) ? Math.max(1, Math.min(maxTilesPerThread, tilesPerThread)) : 1,
  };
}

/** All of them have the same bits, except those of a weight gradient. */
export function countDepthwiseConfigs(device: Device, shape: DepthwiseShape): number {
  return runsOf(device, shape).length;
}

/** A thread that computes several runs loads the taps once, and finds rows of the last run in the L1 cache. */
const maxTilesPerThread = 8;
/** A few waves of CTAs, so that the last one costs little. */
const ctasPerSm = 8;
/** An estimate: with fewer threads per SM, too few loads are in flight for the bandwidth of memory. */
const threadsPerSm = 1024;
/** The floats that a thread sums. */
const maxSums = 40;
const maxRun = 8;

/** The floats that a thread of a weight gradient holds. */
const maxLoadedGradients = 16;

/**
 * The lengths of runs that are worth trying, the estimated best first: the longest that leaves enough threads, and then others. They do not
 * depend on the alignment, which is known only when a call is lowered.
 */
function runsOf({ parallelism }: Device, shape: DepthwiseShape): readonly number[] {
  const { direction, stride } = shape;
  const vector = vectorOf(shape, maxVectorBytes);
  const size = runAxisSize(shape);
  const unit = direction === "input-gradient" ? stride[isLast(shape) ? 1 : 0] : 1;
  const longest = shape.kernel[isLast(shape) ? 1 : 0] > maxGroupTaps ? maxRun / 2 : maxRun;
  const runs = [unit];
  for (let run = 2 * unit; run <= longest && run * vector <= maxSums; run *= 2)
    if (run < 2 * size) runs.push(run);
  if (direction === "weight-gradient")
    return [runs.findLast((run) => run * vector <= maxLoadedGradients) ?? 1];
  const threadsWith = (run: number) => (countTiles(shape, run) * shape.groups) / vector;
  const filling = runs.filter((run) => threadsWith(run) >= parallelism * threadsPerSm);
  const best = filling.at(-1) ?? unit;
  return [best, ...runs.filter((run) => run !== best && run >= best / 2)];
}

/** The size along which a thread's results are neighbours. */
function runAxisSize(shape: DepthwiseShape): number {
  return resultSize(shape)[isLast(shape) ? 1 : 0];
}

/** Of the image whose elements the threads are divided by. */
export function resultSize({ direction, size, outSize }: ConvolutionShape): readonly [number, number] {
  return direction === "input-gradient" ? size : outSize;
}

/** Runs of one channel in all images. */
export function countTiles(shape: DepthwiseShape, run: number): number {
  const [height, width] = resultSize(shape);
  const [tilesHigh, tilesWide] = isLast(shape)
    ? [height, Math.ceil(width / run)]
    : [Math.ceil(height / run), width];
  return shape.batch * tilesHigh * tilesWide;
}

const isLast = ({ depthwise }: DepthwiseShape): boolean => depthwise.isChannelsLast === true;

/** Vectors of all images are aligned, and have at most 16 bytes. */
function vectorOf(shape: DepthwiseShape, alignment: number): number {
  if (!isLast(shape)) return 1;
  const images = (["x", "y"] as const).map((name) => dtypes[storedDtype(shape, name)].bytes);
  const isGradient = shape.direction === "weight-gradient";
  let vector = isGradient ? weightVectorOf(shape) : maxVectorBytes / Math.max(...images);
  const unit = shape.direction === "input-gradient" ? shape.stride[1] : 1;
  const fits = (): boolean =>
    shape.groups % vector === 0 &&
    unit * vector <= maxSums &&
    images.every((bytes) => vector * bytes <= alignment);
  while (vector > 1 && !fits()) vector /= 2;
  return vector;
}

/** A thread has the sums of all taps in registers, if these suffice. */
const maxTapSums = 80;

function weightVectorOf({ kernel }: DepthwiseShape): number {
  const fitting = maxTapSums / areaOf(kernel);
  return fitting >= 4 ? 4 : fitting >= 2 ? 2 : 1;
}

/** Channels-first, a thread loads an element for each column of taps at once. */
const maxLoadedColumns = 11;

/** Whole rows of taps, or a part of one. */
function tapGroupOf(shape: DepthwiseShape, vector: number): Pick<DepthwiseConfig, "tapRows" | "tapColumns"> {
  const [height, width] = shape.kernel;
  const taps = Math.floor(maxTapSums / vector);
  const tapColumns = Math.ceil(width / Math.ceil(width / (isLast(shape) ? taps : maxLoadedColumns)));
  const rows = Math.max(1, Math.floor(taps / tapColumns));
  return { tapColumns, tapRows: Math.ceil(height / Math.ceil(height / rows)) };
}

/** Padding channels cost as much as others. */
const maxPadding = 1.15;

/** The channels of a CTA: a power of two, and a warp or less, with few channels of padding. It does not depend on dtypes. */
function channelBlockOf(shape: DepthwiseShape): number {
  if (!isLast(shape)) return 1;
  const { groups } = shape;
  const paddedTo = (block: number): number => Math.ceil(groups / block) * block;
  for (const block of [warpSize, warpSize / 2]) if (paddedTo(block) <= maxPadding * groups) return block;
  return groups > 4 ? 8 : 4;
}

/** Enough CTAs to fill the GPU, with at least a few tiles for each thread. It does not depend on dtypes, so that scratch memory does not. */
function splitsOf({ parallelism }: Device, shape: DepthwiseShape): number {
  if (shape.direction !== "weight-gradient") return 1;
  const { groups, batch, outSize } = shape;
  const blocks = Math.ceil(groups / channelBlockOf(shape));
  const perCta = minPositions * weightGradientThreads;
  const max = Math.max(1, Math.floor((batch * areaOf(outSize)) / perCta));
  return Math.min(max, Math.ceil((parallelism * weightCtasPerSm) / blocks));
}

const weightCtasPerSm = 8;
/** Of a thread: its sums are added to those of others at the end. */
const minPositions = 4;

/** The scratch memory for the partial sums of a weight gradient. */
export function depthwiseScratchBytes(device: Device, shape: DepthwiseShape): number {
  if (writtenOperand[shape.direction] !== "weight") return 0;
  return 4 * splitsOf(device, shape) * shape.groups * areaOf(shape.kernel);
}
