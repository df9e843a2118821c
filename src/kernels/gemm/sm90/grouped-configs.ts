/**
 * Selects the configs of grouped GEMMs: of projections to a few columns, and of weight gradients. For these, TF32 has one config. For 16-bit floats a group has 0.7 to 1.4 waves of `square` tiles, so that
 * many SMs idle. Larger tiles whose K is split over a cluster can fill the SMs better, and cost a reduction; autotuning measures them.
 *
 * All CTAs move through K at the same pace, each in its share. So the operands, which are often larger than the L2 cache, are read from
 * device memory once. Equal shares of all k-tiles for every SM (stream-K) spread the CTAs over K and lose that, by estimate.
 */

import type { DeviceInfo, GemmPrecision } from "../../../driver/index.js";
import { dtypes } from "../../../ir/index.js";
import { residentClusterCtas, wavesOf } from "../../cost-model.js";
import type { GemmDesc } from "../desc.js";
import type { Sm90Config } from "./configs.js";
import { selectProjectionConfig } from "./projection-configs.js";
import {
  type Architecture,
  canImplement,
  clusterOf,
  elementOf,
  halvesOf,
  isWeightGradient,
} from "./select-config.js";
import {
  countCtas,
  gradientTile,
  kTileBytes,
  mmaNOf,
  pipelineK,
  type Sm90Tile,
  splitKTile,
  tiles,
} from "./tiles.js";

/**
 * A grouped GEMM pays off if K fills the pipeline more often than this. Otherwise filling and draining it costs as much as the saved
 * launches. Measured on an H200 with CrossAsset's step: K = 512 does not gain, K = 1024 does.
 */
const minPipelineFills = 2;

/** The default config of a grouped GEMM of weight gradients; undefined if one launch cannot compute these. */
export function selectGroupedConfig(
  device: Architecture,
  precision: GemmPrecision,
  problems: readonly GemmDesc[],
): Sm90Config | undefined {
  const [first] = problems;
  const element = first && elementOf(device, precision, first);
  if (!first || !element) return undefined;
  const tile = element === "tf32" ? splitKTile : tiles.square;
  const areGroupable = problems.every(
    (problem) =>
      isWeightGradient(problem) &&
      fillsPipeline(problem, tile) &&
      canImplement(problem) &&
      problem.dtype === first.dtype &&
      !problem.bias &&
      !halvesOf(problem).resultDtype,
  );
  return areGroupable ? configWith(element, tile, problems) : undefined;
}

/** The configs of a grouped GEMM, in the order of its algorithms: the default, then those with shorter estimates, the shortest first. */
export function listGroupedConfigs(
  device: Architecture & Pick<DeviceInfo, "parallelism">,
  precision: GemmPrecision,
  problems: readonly GemmDesc[],
): readonly Sm90Config[] {
  const config = selectGroupedConfig(device, precision, problems);
  if (!config) return [selectProjectionConfig(device, precision, problems) ?? []].flat();
  if (config.element === "tf32") return [config];
  const { element } = config;
  const sms = device.parallelism;
  const maxClocks = clocksOf(problems, config.tile, sms);
  const others = candidateTiles
    .filter((tile) => problems.every((problem) => fillsPipeline(problem, tile)))
    .map((tile) => ({ tile, clocks: clocksOf(problems, tile, sms) }))
    .filter(({ clocks }) => clocks < maxClocks)
    .sort((one, other) => one.clocks - other.clocks)
    .slice(0, maxGroupedConfigs - 1);
  return [config, ...others.map(({ tile }) => configWith(element, tile, problems))];
}

/** The default, and three with shorter estimates. */
export const maxGroupedConfigs = 4;

const candidateTiles: readonly Sm90Tile[] = [
  gradientTile,
  ...[2, 3, 4, 8].flatMap((splitsK) => [tiles.square, gradientTile].map((tile) => ({ ...tile, splitsK }))),
];

/** Of one SM and clock, for 16-bit floats: multiplications of the tensor cores, and bytes of shared memory. */
const [multiplicationsPerClock, smemBytesPerClock] = [2048, 128];

/** Clocks until the first k-tile arrives; per byte of C that is stored, or that is sent to another CTA of the cluster. */
const [fillClocks, storeClocksPerByte, sendClocksPerByte] = [2000, 1 / 64, 1 / 32];

/** The estimated clocks of a group, from its waves. */
function clocksOf(problems: readonly GemmDesc[], tile: Sm90Tile, sms: number): number {
  const { tileM, tileN, splitsK = 1 } = tile;
  const ctas = problems.reduce((sum, problem) => sum + countCtas(problem, tile), 0);
  const kTiles = Math.max(...problems.map(({ k }) => Math.ceil(k / (kElements * splitsK))));
  const tileBytes = tileM * tileN * 4;
  const sentShare = (splitsK - 1) / splitsK;
  const ctaClocks =
    kTiles * kTileClocks(tile) +
    fillClocks +
    (tileBytes / splitsK) * storeClocksPerByte +
    tileBytes * sentShare * sendClocksPerByte;
  return wavesOf(ctas, residentClusterCtas(sms, splitsK)) * ctaClocks;
}

/** Elements of K in a k-tile. */
const kElements = kTileBytes / dtypes.bf16.bytes;

/** wgmmas along K in a k-tile; each reads 32 bytes of every row of its operands. */
const kSteps = 4;

/** The clocks of a k-tile: multiplications, or the shared memory traffic of wgmma and TMA if that takes longer. */
function kTileClocks(tile: Sm90Tile): number {
  const { tileM, tileN, warpgroupsN } = tile;
  const mmas = (tileM / 64) * warpgroupsN * kSteps;
  const readBytes = mmas * (64 + mmaNOf(tile)) * (kTileBytes / kSteps);
  const writtenBytes = (tileM + tileN) * kTileBytes;
  return Math.max(
    (tileM * tileN * kElements) / multiplicationsPerClock,
    (readBytes + writtenBytes) / smemBytesPerClock,
  );
}

const fillsPipeline = ({ k, dtype }: GemmDesc, tile: Sm90Tile): boolean =>
  k > minPipelineFills * pipelineK(tile, dtypes[dtype].bytes);

function configWith(
  element: Sm90Config["element"],
  tile: Sm90Tile,
  problems: readonly GemmDesc[],
): Sm90Config {
  return {
    ...{ element, tile, isKMajor: { a: false, b: false }, hasBias: false },
    ...clusterOf(problems, tile),
  };
}
