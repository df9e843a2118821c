/** Lowers channels-last convolutions to launches on Hopper. */

import { dtypes } from "../../../../ir/index.js";
import type { LaunchCommand, Storage } from "../../../../runtime/index.js";
import { literalKey } from "../../../../units/index.js";
import { maxVectorBytes } from "../../../cost-model.js";
import type { DmmaShape } from "../../../gemm/dmma/index.js";
import { argumentsInOrder } from "../../../launch-arguments.js";
import { cachedSource } from "../../../source-cache.js";
import {
  areaOf,
  type ChannelsLastProblem,
  type ChannelsLastShape,
  type ConvolutionEpilogue,
  elementCounts,
  isTf32,
  paddedChannels,
  readsTransposedWeight,
  rejected,
  writtenOperand,
} from "../../problem.js";
import { divisorArguments } from "../divisor.js";
import { epilogueArguments } from "../epilogue.js";
import { windowAxis } from "./axes.js";
import { type GatherSizes, type GatherVariant, gatherKernel, gatherParameters } from "./gather-kernel.js";
import { type Axes, countTiles, residueClasses } from "./gemm-sizes.js";
import type { MainloopVariant } from "./select-mainloop.js";
import { type ChannelsLastTile, kTileBytes } from "./tiles.js";
import {
  sumGroupsFor,
  sumWeightsFor,
  type WeightGradientSizes,
  type WeightGradientVariant,
  weightGradientKernel,
  weightGradientParameters,
  weightSumKernel,
  weightSumParameters,
} from "./weight-gradient-kernel.js";

/** `splits`: CTAs that share the sum of a weight gradient. */
export type ChannelsLastConfig = WgmmaConfig | DmmaConvolutionConfig;

export interface WgmmaConfig {
  readonly kind: "channels-last";
  readonly tile: ChannelsLastTile;
  readonly splits: number;
}

/** Of exact products. */
export interface DmmaConvolutionConfig {
  readonly kind: "dmma";
  readonly tile: DmmaShape;
  readonly splits: number;
}

/** Scratch memory for the partial sums of a weight gradient. */
export function channelsLastScratchBytes(
  { splits }: Pick<ChannelsLastConfig, "splits">,
  shape: ChannelsLastShape,
): number {
  if (shape.direction !== "weight-gradient") return 0;
  return 4 * splits * shape.outChannels * areaOf(shape.kernel) * paddedChannels(shape.channels, shape);
}

export function lowerChannelsLastWith(
  config: ChannelsLastConfig,
  problem: ChannelsLastProblem,
  op: string,
): readonly LaunchCommand[] {
  switch (problem.direction) {
    case "forward":
      return [lowerGather(config, problem, [windowAxis(problem, 0), windowAxis(problem, 1)], op)];
    case "input-gradient":
      return residueClasses(problem).map((axes) => lowerGather(config, problem, axes, op));
    case "weight-gradient":
      return lowerWeightGradient(config, problem, op);
  }
}

function lowerGather(
  config: ChannelsLastConfig,
  problem: ChannelsLastProblem,
  [rows, columns]: Axes,
  op: string,
): LaunchCommand {
  const { direction, dtype, channelsLast, batch, channels, outChannels, kernel, x, y, weight, bias } =
    problem;
  const isForward = direction === "forward";
  const [image, result] = isForward ? [x, y] : [y, x];
  const [imageChannels, n] = isForward
    ? [paddedChannels(channels, problem), outChannels]
    : [paddedChannels(outChannels, problem), channels];
  const isTransposed = readsTransposedWeight(problem);
  const filterChannels = paddedChannels(isTransposed ? outChannels : channels, problem);
  const filterStride = areaOf(kernel) * filterChannels;
  const m = batch * rows.positions * columns.positions;
  const [height, width] = isForward ? problem.outSize : problem.size;
  const sizes: GatherSizes = {
    ...{ m, n, taps: rows.taps * columns.taps },
    ...{ imageHeight: rows.size, imageWidth: columns.size, imageChannels },
    ...{ rowStep: rows.step, rowOrigin: rows.origin, rowTapStep: rows.tapStep },
    ...{ columnStep: columns.step, columnOrigin: columns.origin, columnTapStep: columns.tapStep },
    ...{ filterRows: outChannels, filterStride },
    filterOrigin: (rows.firstTap * kernel[1] + columns.firstTap) * filterChannels,
    ...{ filterTapRow: rows.tapStride * kernel[1] * filterChannels },
    ...{ filterTapColumn: columns.tapStride * filterChannels },
    resultOrigin: (rows.first * width + columns.first) * n,
    ...{
      resultImage: height * width * n,
      resultRow: rows.stride * width * n,
      resultColumn: columns.stride * n,
    },
  };
  const perChunk = maxVectorBytes / dtypes[channelsLast.operands].bytes;
  const variant: GatherVariant = {
    ...mainloopVariant(config, problem),
    ...{ resultDtype: dtype, isFilterKMajor: isForward || isTransposed },
    hasWholeTaps: !isForward && imageChannels % tileKOf(config, problem) === 0,
    rounds: {
      image: roundsOperand(problem, isForward ? "x" : "y"),
      filter: roundsOperand(problem, "weight"),
    },
    ...{ hasBias: bias !== undefined, epilogue: printedEpilogue(problem) },
    storesVectors:
      (n * dtypes[dtype].bytes) % maxVectorBytes === 0 && result.span.address % maxVectorBytes === 0,
    access: m * n * dtypes[dtype].bytes === result.span.size ? "out" : "partial-out",
  };
  return {
    ...{ kind: "launch", op, source: gatherSource(variant) },
    blocks: countTiles({ m, n }, config.tile),
    arguments: argumentsInOrder(gatherParameters(variant), {
      ...{ image, filter: weight, bias: bias ?? image, result, ...sizes },
      ...epilogueArguments(problem.epilogue),
      ...divisorArguments({
        ...{ perImage: rows.positions * columns.positions, perRow: columns.positions },
        ...{ perTap: imageChannels / perChunk, perTapRow: columns.taps },
      }),
    }),
  };
}

/** True if the kernel rounds an operand to TF32. */
function roundsOperand({ channelsLast }: ChannelsLastShape, operand: "x" | "weight" | "y"): boolean {
  return isTf32(channelsLast) && !channelsLast.rounded?.includes(operand);
}

/** The code depends on the expression and on the number of scalars, not on their values. */
function printedEpilogue({ epilogue }: ChannelsLastProblem): ConvolutionEpilogue | undefined {
  return epilogue && { ...epilogue, scalars: epilogue.scalars.map(() => 0) };
}

/** How a config multiplies the operands. */
export function mainloopVariant(
  config: ChannelsLastConfig,
  { channelsLast: { operands } }: ChannelsLastShape,
): MainloopVariant {
  return config.kind === "dmma"
    ? { element: "f32", tile: config.tile }
    : { element: operands === "f32" ? "tf32" : operands, tile: config.tile };
}

function tileKOf(config: ChannelsLastConfig, { channelsLast: { operands } }: ChannelsLastShape): number {
  return config.kind === "dmma" ? config.tile.tileK : kTileBytes / dtypes[operands].bytes;
}

function lowerWeightGradient(
  config: ChannelsLastConfig,
  problem: ChannelsLastProblem,
  op: string,
): readonly LaunchCommand[] {
  const { batch, channels, outChannels, outSize, kernel, x, y, weight, scratch, dtype } = problem;
  const { splits } = config;
  const scratchBytes = channelsLastScratchBytes(config, problem);
  if (!scratch || scratch.span.size < scratchBytes) {
    throw rejected(
      `the partial sums take ${scratchBytes} bytes of scratch memory, and there are ${scratch?.span.size ?? 0}.`,
    );
  }
  const [rows, columns] = [windowAxis(problem, 0), windowAxis(problem, 1)];
  const imageChannels = paddedChannels(channels, problem);
  const [m, n, k] = [outChannels, areaOf(kernel) * imageChannels, batch * areaOf(outSize)];
  const sizes: WeightGradientSizes = {
    ...{ m, n, k, splits, gradientChannels: paddedChannels(outChannels, problem) },
    ...{ imageHeight: rows.size, imageWidth: columns.size, imageChannels },
    ...{ rowStep: rows.step, rowOrigin: rows.origin, rowTapStep: rows.tapStep },
    ...{ columnStep: columns.step, columnOrigin: columns.origin, columnTapStep: columns.tapStep },
  };
  const variant: WeightGradientVariant = {
    ...mainloopVariant(config, problem),
    access: accessTo(scratch, scratchBytes),
  };
  const access = accessTo(
    weight,
    elementCounts(problem)[writtenOperand[problem.direction]] * dtypes[dtype].bytes,
  );
  const perChunk = maxVectorBytes / dtypes[problem.channelsLast.operands].bytes;
  const products: LaunchCommand = {
    ...{ kind: "launch", op, source: weightGradientSource(variant) },
    blocks: countTiles({ m, n }, config.tile) * splits,
    arguments: argumentsInOrder(weightGradientParameters(variant), {
      ...{ gradient: y, image: x, partials: scratch, ...sizes },
      ...divisorArguments({
        ...{ perImage: areaOf(outSize), perRow: outSize[1] },
        ...{ perTap: imageChannels / perChunk, perTapRow: kernel[1] },
      }),
    }),
  };
  const taps = areaOf(kernel);
  const sum: LaunchCommand = {
    ...{ kind: "launch", op, blocks: Math.ceil((outChannels * taps * channels) / sumWeightsFor(splits)) },
    source: cachedSource(
      `cuda convolution channels-last sum ${dtype} ${access} ${sumGroupsFor(splits)}`,
      () => weightSumKernel(dtype, access, sumGroupsFor(splits)),
    ),
    arguments: argumentsInOrder(weightSumParameters(access), {
      ...{ partials: scratch, weight, outChannels, channels, paddedChannels: imageChannels, taps, splits },
      ...divisorArguments({ perChannel: channels, perTap: taps }),
    }),
  };
  return [products, sum];
}

/** "out" if all bytes of the storage are written. */
function accessTo({ span }: Storage, writtenBytes: number): "out" | "partial-out" {
  return span.size === writtenBytes ? "out" : "partial-out";
}

const gatherSource = (variant: GatherVariant) =>
  cachedSource(`cuda convolution channels-last ${literalKey(variant)}`, () => gatherKernel(variant));

const weightGradientSource = (variant: WeightGradientVariant) =>
  cachedSource(`cuda convolution channels-last weight gradient ${literalKey(variant)}`, () =>
    weightGradientKernel(variant),
  );
