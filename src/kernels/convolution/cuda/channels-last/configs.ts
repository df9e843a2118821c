/** Which convolutions run channels-last, and with which tile. */

import type { DeviceInfo } from "../../../../driver/index.js";
import { dtypes } from "../../../../ir/index.js";
import { maxSharedBytesPerBlock, wavesOf } from "../../../cost-model.js";
import { sm90Capability } from "../../../gemm/sm90/index.js";
import type { Target } from "../../../target.js";
import {
  areaOf,
  type ChannelsLastOperands,
  type ChannelsLastShape,
  type ConvolutionShape,
  paddedChannels,
  rejected,
} from "../../problem.js";
import { mathOf } from "../configs.js";
import { type ChannelsLastConfig, residueClasses } from "./launch.js";
import { type ChannelsLastTile, kTileBytes, residentCtas, sharedBytesOf } from "./tiles.js";

/** From large to small. Small tiles keep two CTAs on an SM, so that one computes while the other loads or stores. */
export const channelsLastTiles: readonly ChannelsLastTile[] = [
  { tileM: 128, tileN: 256, warpgroupsM: 2, warpgroupsN: 1, stages: 4, overlap: 1 },
  { tileM: 256, tileN: 128, warpgroupsM: 2, warpgroupsN: 1, stages: 4, overlap: 1 },
  { tileM: 128, tileN: 128, warpgroupsM: 2, warpgroupsN: 1, stages: 3, overlap: 0 },
  { tileM: 128, tileN: 64, warpgroupsM: 2, warpgroupsN: 1, stages: 4, overlap: 1 },
  { tileM: 64, tileN: 128, warpgroupsM: 1, warpgroupsN: 2, stages: 4, overlap: 1 },
  { tileM: 64, tileN: 64, warpgroupsM: 1, warpgroupsN: 1, stages: 4, overlap: 1 },
];

/** A quarter of the narrowest tile. With fewer channels most products would be multiplications by zero. */
const minChannels = 16;

/** The dtype of the operands of a convolution that runs channels-last; undefined if it does not. */
export function channelsLastConvolution(
  { device, settings }: Pick<Target, "device" | "settings">,
  { dtype, groups, channels, outChannels, direction }: ConvolutionShape,
): ChannelsLastOperands | undefined {
  if (device.computeCapability !== sm90Capability || groups !== 1) return undefined;
  const math = dtype === "f16" ? "f16" : mathOf(dtype, settings.precision);
  if (math === "f32") return undefined;
  const isWide = direction === "input-gradient" ? channels >= minChannels : outChannels >= minChannels;
  return isWide ? { operands: math === "tf32" ? "f32" : math } : undefined;
}

/** The config of the shape's algorithm. */
export function selectChannelsLastConfig(
  device: Pick<DeviceInfo, "parallelism">,
  shape: ChannelsLastShape,
): ChannelsLastConfig {
  const configs = listChannelsLastConfigs(device, shape);
  const config = configs[shape.algorithm ?? 0];
  if (!config) throw rejected(`algorithm ${shape.algorithm} of ${configs.length}.`);
  return config;
}

/** All configs, by their estimated times. */
export function listChannelsLastConfigs(
  device: Pick<DeviceInfo, "parallelism">,
  shape: ChannelsLastShape,
): readonly ChannelsLastConfig[] {
  const maxBytes = maxSharedBytesPerBlock({ computeCapability: sm90Capability });
  const transposes = shape.direction === "weight-gradient" && shape.channelsLast.operands === "f32";
  return channelsLastTiles
    .filter((tile) => sharedBytesOf(tile, transposes ? 0 : 4, transposes) <= maxBytes)
    .flatMap((tile) => splitsOf(device.parallelism, shape, tile))
    .map((config) => ({ config, cycles: estimateCycles(device.parallelism, shape, config) }))
    .sort((a, b) => a.cycles - b.cycles)
    .map(({ config }) => config);
}

interface GemmSizes {
  readonly m: number;
  readonly n: number;
  readonly kTiles: number;
}

/** The sizes of the GEMM; of the input gradient of a strided convolution, those of one residue class. */
function gemmSizes(shape: ChannelsLastShape): GemmSizes {
  const { direction, batch, channels, outChannels, outSize, kernel } = shape;
  const tileK = kTileBytes / dtypes[shape.channelsLast.operands].bytes;
  const [taps, inChannels] = [areaOf(kernel), paddedChannels(channels, shape)];
  switch (direction) {
    case "forward":
      return { m: batch * areaOf(outSize), n: outChannels, kTiles: Math.ceil((taps * inChannels) / tileK) };
    case "input-gradient": {
      const [axes] = residueClasses(shape);
      const [positions, classTaps] = axes
        ? [axes[0].positions * axes[1].positions, axes[0].taps * axes[1].taps]
        : [0, 0];
      const kTiles = Math.ceil((classTaps * paddedChannels(outChannels, shape)) / tileK);
      return { m: batch * positions, n: channels, kTiles };
    }
    case "weight-gradient":
      return { m: outChannels, n: taps * inChannels, kTiles: Math.ceil((batch * areaOf(outSize)) / tileK) };
  }
}

function countTiles({ m, n }: GemmSizes, { tileM, tileN }: ChannelsLastTile): number {
  return Math.ceil(m / tileM) * Math.ceil(n / tileN);
}

/** The splits of a weight gradient give every SM one or a few waves of CTAs. */
function splitsOf(sms: number, shape: ChannelsLastShape, tile: ChannelsLastTile): ChannelsLastConfig[] {
  if (shape.direction !== "weight-gradient") return [{ kind: "channels-last", tile, splits: 1 }];
  const sizes = gemmSizes(shape);
  const transposes = shape.channelsLast.operands === "f32";
  const perWave = (sms * residentCtas(tile, 0, transposes)) / countTiles(sizes, tile);
  const splits = [1, 2, 3].map((waves) => Math.min(sizes.kTiles, Math.max(1, Math.floor(waves * perWave))));
  return [...new Set(splits)].map((count) => ({ kind: "channels-last", tile, splits: count }));
}

/** Products of one SM in a cycle, by wgmma. */
const productsPerCycle = { bf16: 2048, f16: 2048, f32: 1024 } as const;
/** Bytes that an SM loads from L2 in a cycle. */
const bytesPerCycle = 28;
/** Start of a CTA, first loads and stores of results. */
const ctaCycles = 2500;
/** Another launch. */
const launchCycles = 3000;

function estimateCycles(sms: number, shape: ChannelsLastShape, { tile, splits }: ChannelsLastConfig): number {
  const sizes = gemmSizes(shape);
  const isSplit = shape.direction === "weight-gradient";
  const resultBytes = isSplit ? 0 : 4;
  const resident = residentCtas(tile, resultBytes, isSplit && shape.channelsLast.operands === "f32");
  const { tileM, tileN } = tile;
  const kTiles = Math.ceil(sizes.kTiles / splits);
  const { operands } = shape.channelsLast;
  const tileK = kTileBytes / dtypes[operands].bytes;
  const products = (tileM * tileN * tileK) / productsPerCycle[operands];
  const loads = ((tileM + tileN) * kTileBytes) / bytesPerCycle;
  const ctas = countTiles(sizes, tile) * splits;
  // CTAs of one SM share its tensor cores and its loads.
  const shared = Math.min(resident, Math.ceil(ctas / sms));
  const stores = (tileM * tileN * 4) / bytesPerCycle;
  const perCta = (kTiles * Math.max(products, loads) + stores) * shared + ctaCycles;
  const sum = isSplit ? launchCycles + ((splits + 1) * sizes.m * sizes.n * 4) / (sms * bytesPerCycle) : 0;
  return wavesOf(ctas, sms * shared) * perCta + sum;
}
