/**
 * The configs of channels-last convolutions in f32. All configs of a shape have the same bits: sums are in the order of k, and the splits of a
 * weight gradient follow from the shape and the device, not from the tile.
 */

import type { DeviceInfo } from "../../../../driver/index.js";
import { dtypes } from "../../../../ir/index.js";
import { fillsSms, maxSharedBytesPerBlock, wavesOf } from "../../../cost-model.js";
import { type DmmaShape, dmmaCapability, residentDmmaCtas } from "../../../gemm/dmma/index.js";
import {
  areaOf,
  type ChannelsLastShape,
  type ConvolutionShape,
  readsTransposedWeight,
} from "../../problem.js";
import { dmmaConvolutionTiles, dmmaSharedBytes, dmmaTileK } from "./dmma-tiles.js";
import { countTiles, type GemmSizes, gemmSizes } from "./gemm-sizes.js";
import type { ChannelsLastConfig } from "./launch.js";
import type { OperandMajors } from "./mainloop.js";

type Device = Pick<DeviceInfo, "parallelism">;

/** With fewer CTAs than this share of the SMs, the channels-first kernels win: they split any sum. As for GEMMs by DMMA. */
const minSmShare = 0.2;

/** True if the convolution has enough tiles. The gradients follow it, so that all have one layout. */
export function hasDmmaTiles(
  { parallelism }: Device,
  { batch, outSize, outChannels }: ConvolutionShape,
): boolean {
  const sizes = { m: batch * areaOf(outSize), n: outChannels };
  const ctas = Math.max(...dmmaConvolutionTiles.map((tile) => countTiles(sizes, tile)));
  return fillsSms(ctas, parallelism, minSmShare);
}

/** All configs, by their estimated times. */
export function listDmmaConfigs(
  { parallelism }: Device,
  shape: ChannelsLastShape,
): readonly ChannelsLastConfig[] {
  const splits = splitsOf(parallelism, shape);
  return usableTiles(shape)
    .map((tile) => ({ tile, cycles: estimateCycles(parallelism, shape, tile, splits) }))
    .sort((a, b) => a.cycles - b.cycles)
    .map(({ tile }) => ({ kind: "dmma", tile, splits }));
}

function usableTiles(shape: ChannelsLastShape): readonly DmmaShape[] {
  const maxBytes = maxSharedBytesPerBlock({ computeCapability: dmmaCapability });
  return dmmaConvolutionTiles.filter((tile) => sharedBytesOf(tile, shape) <= maxBytes);
}

function sharedBytesOf(tile: DmmaShape, shape: ChannelsLastShape): number {
  const isKMajor: Readonly<Record<ChannelsLastShape["direction"], OperandMajors>> = {
    forward: { a: true, b: true },
    "input-gradient": { a: true, b: readsTransposedWeight(shape) },
    "weight-gradient": { a: false, b: false },
  };
  const resultBytes = shape.direction === "weight-gradient" ? 0 : dtypes.f32.bytes;
  return dmmaSharedBytes(tile, isKMajor[shape.direction], resultBytes);
}

/** Splits are tried that nearly fill so many waves, of one CTA per SM. */
const maxWaves = 16;

/** The splits of a weight gradient: those of the shortest estimated time, with any tile. */
function splitsOf(sms: number, shape: ChannelsLastShape): number {
  if (shape.direction !== "weight-gradient") return 1;
  const sizes = gemmSizes(shape, dmmaTileK);
  let best = { splits: 1, cycles: Number.POSITIVE_INFINITY };
  for (const tile of usableTiles(shape)) {
    for (let waves = 1; waves <= maxWaves; waves++) {
      const filling = Math.floor((waves * sms) / countTiles(sizes, tile));
      const splits = Math.min(sizes.kTiles, Math.max(1, filling));
      const cycles = estimateCycles(sms, shape, tile, splits);
      if (cycles < best.cycles) best = { splits, cycles };
    }
  }
  return best.splits;
}

/** Products of one SM in a cycle, by DMMA. */
const productsPerCycle = 128;
/** Conversions from f32 to f64 of one SM in a cycle (CUDA programming guide, "Arithmetic Instructions"), and how much of them adds to the time. */
const conversionsPerCycle = 16;
const conversionShare = 0.5;
/** Bytes that an SM loads from L2 in a cycle. */
const bytesPerCycle = 28;
/** Start of a CTA and its first loads. Other resident CTAs compute meanwhile. */
const ctaCycles = 1500;
/** Another launch. */
const launchCycles = 3000;

/** The time of the busiest SM. Resident CTAs share its tensor cores. */
function estimateCycles(sms: number, shape: ChannelsLastShape, tile: DmmaShape, splits: number): number {
  const sizes = gemmSizes(shape, dmmaTileK);
  const resident = residentDmmaCtas(tile, sharedBytesOf(tile, shape));
  const stores = (tile.tileM * tile.tileN * 4) / bytesPerCycle;
  const perCta = Math.ceil(sizes.kTiles / splits) * kTileCycles(tile) + stores + ctaCycles / resident;
  const sum = shape.direction === "weight-gradient" ? sumCycles(sms, sizes, splits) : 0;
  return wavesOf(countTiles(sizes, tile) * splits, sms) * perCta + sum;
}

function kTileCycles({ tileM, tileN, tileK, warpsM, warpsN }: DmmaShape): number {
  const products = (tileM * tileN * tileK) / productsPerCycle;
  // Each warp converts its own fragments.
  const conversions = ((tileM * warpsN + tileN * warpsM) * tileK) / conversionsPerCycle;
  return Math.max(products + conversionShare * conversions, ((tileM + tileN) * tileK * 4) / bytesPerCycle);
}

function sumCycles(sms: number, { m, n }: GemmSizes, splits: number): number {
  return launchCycles + ((splits + 1) * m * n * 4) / (sms * bytesPerCycle);
}
