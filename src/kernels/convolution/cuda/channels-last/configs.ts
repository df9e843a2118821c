/** Which convolutions run channels-last, and with which tile. */

import type { DeviceInfo } from "../../../../driver/index.js";
import { dtypes } from "../../../../ir/index.js";
import { maxSharedBytesPerBlock, wavesOf } from "../../../cost-model.js";
import { sm90Capability } from "../../../gemm/sm90/index.js";
import type { Target } from "../../../target.js";
import {
  type ChannelsLastOperands,
  type ChannelsLastShape,
  type ConvolutionShape,
  rejected,
} from "../../problem.js";
import { mathOf } from "../configs.js";
import { hasDmmaTiles, listDmmaConfigs } from "./dmma-configs.js";
import { countTiles, gemmSizes } from "./gemm-sizes.js";
import type { ChannelsLastConfig, WgmmaConfig } from "./launch.js";
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

/** A quarter of the narrowest tile. With fewer channels of both images most products would be multiplications by zero. */
const minChannels = 16;

/** The dtype of the operands of a convolution that runs channels-last; undefined if it does not. */
export function channelsLastConvolution(
  { device, settings }: Pick<Target, "device" | "settings">,
  shape: ConvolutionShape,
): ChannelsLastOperands | undefined {
  const { dtype, groups, channels, outChannels, direction } = shape;
  if (device.computeCapability !== sm90Capability || groups !== 1) return undefined;
  if (Math.max(channels, outChannels) < minChannels) return undefined;
  const math = dtype === "f16" ? "f16" : mathOf(dtype, settings.precision);
  if (math === "f32") {
    // Exact products take longer than loads, those of the channels that are missing too.
    const isWide = (direction === "input-gradient" ? channels : outChannels) >= minChannels;
    return isWide && hasDmmaTiles(device, shape) ? { operands: "f32", isExact: true } : undefined;
  }
  return { operands: math === "tf32" ? "f32" : math };
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
  if (shape.channelsLast.isExact) return listDmmaConfigs(device, shape);
  const maxBytes = maxSharedBytesPerBlock({ computeCapability: sm90Capability });
  const transposes = shape.direction === "weight-gradient" && shape.channelsLast.operands === "f32";
  return channelsLastTiles
    .filter((tile) => sharedBytesOf(tile, transposes ? 0 : 4, transposes) <= maxBytes)
    .flatMap((tile) => splitsOf(device.parallelism, shape, tile))
    .map((config) => ({ config, cycles: estimateCycles(device.parallelism, shape, config) }))
    .sort((a, b) => a.cycles - b.cycles)
    .map(({ config }) => config);
}

function tileKOf({ channelsLast: { operands } }: ChannelsLastShape): number {
  return kTileBytes / dtypes[operands].bytes;
}

/** The splits of a weight gradient give every SM one or a few waves of CTAs. */
function splitsOf(sms: number, shape: ChannelsLastShape, tile: ChannelsLastTile): WgmmaConfig[] {
  if (shape.direction !== "weight-gradient") return [{ kind: "channels-last", tile, splits: 1 }];
  const sizes = gemmSizes(shape, tileKOf(shape));
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

function estimateCycles(sms: number, shape: ChannelsLastShape, { tile, splits }: WgmmaConfig): number {
  const tileK = tileKOf(shape);
  const sizes = gemmSizes(shape, tileK);
  const isSplit = shape.direction === "weight-gradient";
  const resultBytes = isSplit ? 0 : 4;
  const resident = residentCtas(tile, resultBytes, isSplit && shape.channelsLast.operands === "f32");
  const { tileM, tileN } = tile;
  const kTiles = Math.ceil(sizes.kTiles / splits);
  const { operands } = shape.channelsLast;
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
