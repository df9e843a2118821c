/** Lowers depthwise convolutions to launches. */

import { dtypes } from "../../../../ir/index.js";
import type { LaunchCommand, Storage } from "../../../../runtime/index.js";
import { literalKey } from "../../../../units/index.js";
import { maxVectorBytes } from "../../../cost-model.js";
import { argumentsInOrder } from "../../../launch-arguments.js";
import { cachedSource } from "../../../source-cache.js";
import type { Target } from "../../../target.js";
import {
  type ConvolutionEpilogue,
  type DepthwiseProblem,
  elementCounts,
  rejected,
  storedDtype,
  writtenOperand,
} from "../../problem.js";
import { divisorArguments } from "../divisor.js";
import { epilogueArguments } from "../epilogue.js";
import {
  countTiles,
  type DepthwiseConfig,
  depthwiseScratchBytes,
  resultSize,
  selectDepthwiseConfig,
} from "./configs.js";
import {
  type GatherSizes,
  type GatherVariant,
  gatherKernel,
  gatherParameters,
  gatherThreads,
} from "./gather-kernel.js";
import { windowSizes } from "./tap-overlaps.js";
import {
  sumKernel,
  sumParameters,
  sumWeights,
  type WeightGradientSizes,
  type WeightGradientVariant,
  weightGradientKernel,
  weightGradientParameters,
} from "./weight-gradient-kernel.js";

export function lowerDepthwise(
  { device, settings }: Pick<Target, "device" | "settings">,
  problem: DepthwiseProblem,
  op: string,
): readonly LaunchCommand[] {
  const config = selectDepthwiseConfig(device, problem, alignmentOf([problem.x, problem.y]));
  return problem.direction === "weight-gradient"
    ? lowerWeightGradient(device, config, problem, op)
    : [lowerImage(config, { ...problem, direction: problem.direction }, settings.precision !== "f32", op)];
}

function alignmentOf(storages: readonly Storage[]): number {
  let alignment: number = maxVectorBytes;
  while (storages.some(({ span }) => span.address % alignment !== 0)) alignment /= 2;
  return alignment;
}

function windowsOf(problem: DepthwiseProblem): Pick<GatherVariant, "rows" | "columns" | "isChannelsLast"> {
  const isChannelsLast = problem.depthwise.isChannelsLast === true;
  return { rows: windowSizes(problem, 0), columns: windowSizes(problem, 1), isChannelsLast };
}

function lowerImage(
  config: DepthwiseConfig,
  problem: DepthwiseProblem & Pick<GatherVariant, "direction">,
  usesFastMath: boolean,
  op: string,
): LaunchCommand {
  const { direction, groups, size, outSize, x, y, weight, bias, epilogue, dtype } = problem;
  const { vector, lanes, run, tilesPerThread } = config;
  const isForward = direction === "forward";
  const [image, result, imageSize] = isForward ? [x, y, size] : [y, x, outSize];
  const [resultHeight, resultWidth] = resultSize(problem);
  const windows = windowsOf(problem);
  const { isChannelsLast } = windows;
  const tiles = countTiles(problem, run) * (isChannelsLast ? 1 : groups);
  const variant: GatherVariant = {
    ...{ ...windows, direction, vector, lanes, run },
    ...{ image: storedDtype(problem, isForward ? "x" : "y"), filter: storedDtype(problem, "weight") },
    ...{ result: dtype, hasBias: bias !== undefined, epilogue: printedEpilogue(epilogue) },
    ...{ usesFastMath: epilogue !== undefined && usesFastMath },
    access: writtenBytes(problem) === result.span.size ? "out" : "partial-out",
  };
  const sizes: GatherSizes = {
    ...{ channels: groups, imageHeight: imageSize[0], imageWidth: imageSize[1] },
    ...{ resultHeight, resultWidth, tiles, tilesPerThread },
  };
  const perCta = (gatherThreads / lanes) * tilesPerThread;
  return {
    ...{ kind: "launch", op, source: gatherSource(variant) },
    blocks: Math.ceil(tiles / perCta) * Math.ceil((isChannelsLast ? groups : 1) / (lanes * vector)),
    arguments: argumentsInOrder(gatherParameters(variant), {
      ...{ image, filter: weight, bias: bias ?? weight, result, ...sizes },
      ...epilogueArguments(epilogue),
      ...divisorArguments({ ...tileDivisors(config, problem), perBatch: groups }),
    }),
  };
}

/** The tiles along the faster and the slower axis of an image. */
function tileDivisors({ run }: DepthwiseConfig, problem: DepthwiseProblem) {
  const [height, width] = resultSize(problem);
  return problem.depthwise.isChannelsLast
    ? { perLine: Math.ceil(width / run), perImage: height }
    : { perLine: width, perImage: Math.ceil(height / run) };
}

function lowerWeightGradient(
  device: Target["device"],
  config: DepthwiseConfig,
  problem: DepthwiseProblem,
  op: string,
): readonly LaunchCommand[] {
  const { groups, size, outSize, kernel, x, y, weight, scratch, dtype } = problem;
  const { vector, lanes, run, tapRows, tapColumns, splits } = config;
  const scratchBytes = depthwiseScratchBytes(device, problem);
  if (!scratch || scratch.span.size < scratchBytes) {
    throw rejected(
      `the weight gradient needs ${scratchBytes} bytes of scratch memory for its partial sums, and has ${scratch?.span.size ?? 0}.`,
    );
  }
  const variant: WeightGradientVariant = {
    ...{ ...windowsOf(problem), vector, lanes, run, tapRows, tapColumns },
    ...{ image: storedDtype(problem, "x"), gradient: storedDtype(problem, "y") },
    access: scratchBytes === scratch.span.size ? "out" : "partial-out",
  };
  const sizes: WeightGradientSizes = {
    ...{ channels: groups, imageHeight: size[0], imageWidth: size[1] },
    ...{ gradientHeight: outSize[0], gradientWidth: outSize[1], tiles: countTiles(problem, run), splits },
  };
  const tapGroups = Math.ceil(kernel[0] / tapRows) * Math.ceil(kernel[1] / tapColumns);
  const count = elementCounts(problem).weight;
  const access = writtenBytes(problem) === weight.span.size ? "out" : "partial-out";
  return [
    {
      ...{ kind: "launch", op, source: weightGradientSource(variant) },
      blocks: Math.ceil(groups / (lanes * vector)) * tapGroups * splits,
      arguments: argumentsInOrder(weightGradientParameters(variant), {
        ...{ gradient: y, image: x, partials: scratch, ...sizes },
        ...divisorArguments(tileDivisors(config, problem)),
      }),
    },
    {
      ...{ kind: "launch", op, blocks: Math.ceil(count / sumWeights) },
      source: cachedSource(`cuda convolution depthwise sum ${dtype} ${access}`, () =>
        sumKernel(dtype, access),
      ),
      arguments: argumentsInOrder(sumParameters(access), { partials: scratch, weight, count, splits }),
    },
  ];
}

function writtenBytes(problem: DepthwiseProblem): number {
  return elementCounts(problem)[writtenOperand[problem.direction]] * dtypes[problem.dtype].bytes;
}

/** The code depends on the expression and on the number of scalars, not on their values. */
function printedEpilogue(epilogue: ConvolutionEpilogue | undefined): ConvolutionEpilogue | undefined {
  return epilogue && { ...epilogue, scalars: epilogue.scalars.map(() => 0) };
}

const gatherSource = (variant: GatherVariant) =>
  cachedSource(`cuda convolution depthwise ${literalKey(variant)}`, () => gatherKernel(variant));

const weightGradientSource = (variant: WeightGradientVariant) =>
  cachedSource(`cuda convolution depthwise weight gradient ${literalKey(variant)}`, () =>
    weightGradientKernel(variant),
  );
