/** Lowers convolutions to launches on CUDA: one kernel, and a second one if the sum is split. */

import { dtypes } from "../../../ir/index.js";
import type { LaunchCommand, Storage } from "../../../runtime/index.js";
import { type Bytes, bytes, literalKey } from "../../../units/index.js";
import { maxVectorBytes } from "../../cost-model.js";
import { argumentsInOrder } from "../../launch-arguments.js";
import { cachedSource } from "../../source-cache.js";
import type { Target } from "../../target.js";
import {
  areaOf,
  type ConvolutionProblem,
  type ConvolutionShape,
  elementCounts,
  isChannelsLast,
  isDepthwise,
  rejected,
  writtenImage,
  writtenOperand,
} from "../problem.js";
import {
  channelsLastScratchBytes,
  listChannelsLastConfigs,
  lowerChannelsLastWith,
  selectChannelsLastConfig,
} from "./channels-last/index.js";
import {
  type ConvolutionConfig,
  countCtas,
  directCtas,
  gemmSizes,
  selectConvolutionConfig,
} from "./configs.js";
import { countDepthwiseConfigs, depthwiseScratchBytes, lowerDepthwise } from "./depthwise/index.js";
import { type DirectVariant, directKernel, directParameters } from "./direct.js";
import { geometryArguments } from "./geometry.js";
import { type ImplicitGemmVariant, implicitGemmKernel, implicitGemmParameters } from "./implicit-gemm.js";
import { sumParameters, sumPartialsKernel, sumThreads } from "./sum-partials.js";

type TargetFacts = Pick<Target, "device" | "settings">;

export function lowerConvolutionOnCuda(
  target: TargetFacts,
  problem: ConvolutionProblem,
  op: string,
): readonly LaunchCommand[] {
  if (isChannelsLast(problem)) {
    return lowerChannelsLastWith(selectChannelsLastConfig(target.device, problem), problem, op);
  }
  if (isDepthwise(problem)) return lowerDepthwise(target, problem, op);
  return lowerConvolutionWith(configOf(target, problem), problem, op);
}

/** The memory of partial sums; 0 if the sum is not split. */
export function convolutionScratchBytes(target: TargetFacts, shape: ConvolutionShape): Bytes {
  if (isChannelsLast(shape)) {
    return bytes(channelsLastScratchBytes(selectChannelsLastConfig(target.device, shape), shape));
  }
  if (isDepthwise(shape)) return bytes(depthwiseScratchBytes(target.device, shape));
  return bytes(partialBytes(configOf(target, shape), shape));
}

/** The number of algorithms that can compute a convolution. */
export function countConvolutionCandidates({ device }: TargetFacts, shape: ConvolutionShape): number {
  if (isChannelsLast(shape)) return listChannelsLastConfigs(device, shape).length;
  return isDepthwise(shape) ? countDepthwiseConfigs(device, shape) : 1;
}

export function partialBytes({ splits }: ConvolutionConfig, shape: ConvolutionShape): number {
  return splits === 1 ? 0 : 4 * splits * elementCounts(shape)[writtenOperand[shape.direction]];
}

function configOf({ device, settings }: TargetFacts, shape: ConvolutionShape): ConvolutionConfig {
  return selectConvolutionConfig(device, settings.precision, shape);
}

export function lowerConvolutionWith(
  config: ConvolutionConfig,
  problem: ConvolutionProblem,
  op: string,
): readonly LaunchCommand[] {
  const scratchBytes = partialBytes(config, problem);
  if (scratchBytes === 0) return [lowerProducts(config, problem, resultOf(problem), op)];
  const { scratch, bias: _, ...unbiased } = problem;
  if (!scratch || scratch.span.size < scratchBytes) {
    throw rejected(
      `the partial sums take ${scratchBytes} bytes of scratch memory, and there are ${scratch?.span.size ?? 0}.`,
    );
  }
  const partials = { storage: scratch, access: accessTo(scratch, scratchBytes) };
  return [lowerProducts(config, unbiased, partials, op), lowerSum(config.splits, problem, scratch, op)];
}

interface Result {
  readonly storage: Storage;
  readonly access: "out" | "partial-out";
}

/** "out" if all bytes of the storage are written. */
function accessTo({ span }: Storage, writtenBytes: number): Result["access"] {
  return span.size === writtenBytes ? "out" : "partial-out";
}

function resultOf(problem: ConvolutionProblem): Result {
  const name = writtenOperand[problem.direction];
  const storage = problem[name];
  return { storage, access: accessTo(storage, elementCounts(problem)[name] * dtypes[problem.dtype].bytes) };
}

function lowerProducts(
  config: ConvolutionConfig,
  problem: ConvolutionProblem,
  { storage, access }: Result,
  op: string,
): LaunchCommand {
  const { direction, dtype, x, weight, y, bias } = problem;
  const { splits } = config;
  const common = { direction, dtype, access, hasBias: bias !== undefined, isSplit: splits > 1 };
  const sizes = { ...geometryArguments(problem), splits };
  if (config.kind === "direct") {
    const results = elementCounts(problem)[writtenOperand[direction]];
    const operands: Record<string, Storage | number> = { x, weight, y, ...(bias && { bias }), ...sizes };
    operands[writtenOperand[direction]] = storage;
    return {
      ...{ kind: "launch", op, source: directSource(common), blocks: directCtas(problem, results, splits) },
      arguments: argumentsInOrder(directParameters(common), operands),
    };
  }
  const { tile, math } = config;
  const [matrix, image] = { forward: [weight, x], "input-gradient": [weight, y], "weight-gradient": [y, x] }[
    direction
  ] as [Storage, Storage];
  const variant = { ...common, math, tile, copiesVectors: canCopyVectors(problem, matrix) };
  const tilesN = Math.ceil(gemmSizes(problem).n / tile.tileN);
  return {
    ...{ kind: "launch", op, source: implicitGemmSource(variant), blocks: countCtas(problem, tile, splits) },
    arguments: argumentsInOrder(implicitGemmParameters(variant), {
      ...{ matrix, image, bias: bias ?? matrix, result: storage },
      ...{ ...sizes, tilesN },
    }),
  };
}

/** True if rows of A are contiguous along k, and aligned. */
function canCopyVectors(
  { direction, dtype, outSize, channels, kernel }: ConvolutionProblem,
  matrix: Storage,
): boolean {
  const length = {
    forward: channels * areaOf(kernel),
    "input-gradient": 1,
    "weight-gradient": areaOf(outSize),
  }[direction];
  return dtype === "f32" && length % 4 === 0 && matrix.span.address % maxVectorBytes === 0;
}

function lowerSum(splits: number, problem: ConvolutionProblem, partials: Storage, op: string): LaunchCommand {
  const { dtype, direction, bias } = problem;
  const { channels, size } = writtenImage(problem);
  const { storage, access } = resultOf(problem);
  const count = elementCounts(problem)[writtenOperand[direction]];
  const hasBias = bias !== undefined;
  return {
    ...{ kind: "launch", op, blocks: Math.ceil(count / sumThreads) },
    source: cachedSource(`cuda convolution sum ${dtype} ${access} ${hasBias}`, () =>
      sumPartialsKernel(dtype, access, hasBias),
    ),
    arguments: argumentsInOrder(sumParameters(access, hasBias), {
      ...{ partials, out: storage, bias: bias ?? partials, count, splits },
      ...{ perChannel: areaOf(size), channels },
    }),
  };
}

const implicitGemmSource = (variant: ImplicitGemmVariant) =>
  cachedSource(`cuda convolution implicit gemm ${literalKey(variant)}`, () => implicitGemmKernel(variant));

const directSource = (variant: DirectVariant) =>
  cachedSource(`cuda convolution direct ${literalKey(variant)}`, () => directKernel(variant));
