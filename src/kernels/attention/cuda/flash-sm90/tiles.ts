/** The choice of tiles for flash attention on `wgmma`. */

import { fillsSms, maxSharedBytesPerBlock } from "../../../cost-model.js";
import { keptColumns } from "../../kept-bits.js";
import type { FlashDropout } from "../flash/dropout.js";
import { sm90BackwardBytes } from "./backward.js";
import {
  registersOf,
  type Side,
  type Sm90BackwardConfig,
  type Sm90BackwardTile,
  type Sm90FlashConfig,
  type Sm90FlashTile,
  tileM,
} from "./config.js";
import { sm90ForwardBytes } from "./forward.js";
import {
  type Sm90WholeConfig,
  type Sm90WholeTile,
  sm90WholeBytes,
  wholeRegisters,
  wholeTileRows,
} from "./whole-backward.js";

/** Registers of a consumer besides accumulators and packed operands: addresses, statistics, fragments in flight. */
const otherRegisters = 32;
/** The same without a producer. Both operands have a width of at most 64 then, or shared memory has too few blocks. */
const otherRegistersAlone = 24;

/** Registers for the loop over the heads of a group. */
const groupRegisters = 8;

/** Registers of dropout in backward kernels. "draws" and "stores": random state, Philox words and bits; "loads": the bits of two tiles. */
const dropoutRegisters: Readonly<Record<FlashDropout, number>> = { none: 0, draws: 8, stores: 8, loads: 4 };
/** Registers of dropout in the forward kernel, for each word of bits of a tile. */
const forwardDropoutRegisters = 14;

/** Registers of side "rows" for a mask with rows: its loads in flight, which are more with tiles wider than 64. */
const rowMaskRegisters = (tileN: number): number => (tileN > 64 ? 24 : 12);

/** Registers for numbers that are drawn while the products of the last tile are in flight. */
const drawnInFlightRegisters = 12;

/** Of one multiprocessor; each block also takes 1 KiB of it for the system. */
const sharedBytesPerSm = maxSharedBytesPerBlock({ computeCapability: "9.0" }) + 1024;

/** The size of a problem: (batch, head) pairs, the rows that blocks keep, the mean number of rows that each visits, and the device's SMs. */
export interface Work {
  readonly pairs: number;
  readonly rows: number;
  readonly visited: number;
  readonly sms: number;
}

interface Tiles<Tile> {
  /**
   * Preferred if a row visits fewer than `maxShortVisits` others, then those of `long`. In the order of preference (measured on an H200,
   * widths of 64 and 128). Several small blocks per SM load and store while others multiply, which counts most if a block visits few
   * tiles. Large tiles read shared memory less often.
   */
  readonly short: readonly Tile[];
  readonly long: readonly Tile[];
  readonly maxShortVisits: number;
}

/** Of the tiles that fit: the first with a block for each SM. If none has, the one with the most blocks. */
function chooseTile<Tile extends Sm90FlashTile>(
  { short, long, maxShortVisits }: Tiles<Tile>,
  { pairs, rows, visited, sms }: Work,
  registersFor: (tile: Tile) => number,
  sharedBytesFor: (tile: Tile) => number,
): Tile | undefined {
  const tiles = (visited < maxShortVisits ? [...short, ...long] : long).filter(
    (tile) =>
      registersFor(tile) + (tile.loadsOwnTiles ? otherRegistersAlone : otherRegisters) <=
        registersOf(tile).consumer && tile.blocksPerSm * (sharedBytesFor(tile) + 1024) <= sharedBytesPerSm,
  );
  const blocksOf = (tile: Tile): number => pairs * Math.ceil(rows / tileM(tile));
  const most = Math.max(...tiles.map(blocksOf));
  return tiles.find((tile) => blocksOf(tile) >= Math.min(most, sms));
}

const forwardTiles: Tiles<Sm90FlashTile> = {
  short: [
    { warpgroups: 1, tileN: 64, stages: 2, blocksPerSm: 4, loadsOwnTiles: true },
    { warpgroups: 1, tileN: 64, stages: 3, blocksPerSm: 3 },
  ],
  long: [
    { warpgroups: 3, tileN: 128, stages: 3, blocksPerSm: 1 },
    { warpgroups: 2, tileN: 128, stages: 2, blocksPerSm: 1 },
    { warpgroups: 2, tileN: 64, stages: 2, blocksPerSm: 1 },
    { warpgroups: 1, tileN: 64, stages: 2, blocksPerSm: 1 },
  ],
  // Measured on an H200, causal, with a width of 64: 44 instead of 52 µs for 1024 rows, 522 instead of 458 for 4096.
  maxShortVisits: 1024,
};

export function chooseForwardTile(
  config: Omit<Sm90FlashConfig, "tile">,
  work: Work,
): Sm90FlashTile | undefined {
  const drawn = config.dropout === "none" ? 0 : forwardDropoutRegisters;
  return chooseTile(
    forwardTiles,
    work,
    // Scores, packed probabilities, and the result.
    ({ tileN }) => tileN / 2 + tileN / 4 + config.valueWidth / 2 + drawn * Math.ceil(tileN / keptColumns),
    (tile) => sm90ForwardBytes({ ...config, tile }),
  );
}

const backwardTiles: Readonly<Record<Side, Tiles<Sm90BackwardTile>>> = {
  rows: {
    short: [{ warpgroups: 1, tileN: 64, stages: 2, blocksPerSm: 3, issuesEarly: false, drains: true }],
    long: [
      { warpgroups: 3, tileN: 64, stages: 3, blocksPerSm: 1, issuesEarly: false, drains: false },
      { warpgroups: 2, tileN: 128, stages: 2, blocksPerSm: 1, issuesEarly: false, drains: true },
      { warpgroups: 2, tileN: 64, stages: 2, blocksPerSm: 1, issuesEarly: false, drains: false },
      { warpgroups: 1, tileN: 64, stages: 2, blocksPerSm: 1, issuesEarly: false, drains: false },
    ],
    // Measured on an H200 with six layers of 64 × 6 × 256 causal rows: this kernel takes 404 µs with a producer and 412 µs without one. The
    // forward kernel takes 178 and 174 µs, so it has no producer.
    // Measured on an H200 with a width of 64: 51 instead of 56 µs for 1024 causal rows, 74 instead of 85 without a mask, 67 instead of 63 for
    // 2048 rows without one.
    maxShortVisits: 1025,
  },
  columns: {
    short: [],
    long: [
      { warpgroups: 1, tileN: 64, stages: 3, blocksPerSm: 2, issuesEarly: true, drains: false },
      { warpgroups: 2, tileN: 64, stages: 3, blocksPerSm: 1, issuesEarly: true, drains: false },
      { warpgroups: 2, tileN: 64, stages: 2, blocksPerSm: 1, issuesEarly: false, drains: true },
      { warpgroups: 1, tileN: 64, stages: 2, blocksPerSm: 1, issuesEarly: false, drains: true },
    ],
    maxShortVisits: 0,
  },
};

export function chooseBackwardTile(
  config: Omit<Sm90BackwardConfig, "tile">,
  work: Work,
): Sm90BackwardTile | undefined {
  const { side, width, valueWidth, isGrouped, dropout, mask } = config;
  const hasMaskRows = side === "rows" && (mask === "pairs" || mask === "elements");
  const results = width / 2 + (side === "columns" ? valueWidth / 2 + (isGrouped ? groupRegisters : 0) : 0);
  const drawn = dropoutRegisters[dropout];
  return chooseTile(
    backwardTiles[side],
    work,
    // Scores and their gradients, and the packed operands of products in flight.
    ({ tileN, issuesEarly, drains }) =>
      results +
      drawn +
      tileN +
      (drains ? 0 : tileN / (issuesEarly ? 2 : 4)) +
      (dropout === "draws" && issuesEarly ? drawnInFlightRegisters : 0) +
      (hasMaskRows ? rowMaskRegisters(tileN) : 0),
    (tile) => sm90BackwardBytes({ ...config, tile }),
  );
}

/** Stages of queries, in the order of preference. */
const wholeStages = [4, 3, 2];

/**
 * The share of the SMs that must have a block of the one kernel. Measured on an H200 with 256 causal rows, a width of 64 and dropout: one kernel
 * and two take 18.1 and 15.2 µs for 48 pairs, 18.2 and 20.8 µs for 96, 18.7 and 25.9 µs for 132.
 */
const minWholeShare = 2 / 3;

/**
 * The tile of the backward pass in one kernel; undefined if two kernels are better. Two blocks per SM hide each other's latencies, so both must
 * fit in its shared memory. With one block per SM, 512 causal rows of 96 pairs take 55.1 instead of 46.6 µs.
 */
export function chooseWholeTile(
  config: Omit<Sm90WholeConfig, "tile">,
  { pairs, rows, sms }: Pick<Work, "pairs" | "rows" | "sms">,
): Sm90WholeTile | undefined {
  const { width, valueWidth, dropout } = config;
  const blocksPerSm = 2;
  const queryTiles = Math.ceil(rows / wholeTileRows);
  const tiles = wholeStages.map(
    (stages): Sm90WholeTile => ({ warpgroups: 1, tileN: wholeTileRows, stages, blocksPerSm, queryTiles }),
  );
  const fits = (tile: Sm90WholeTile): boolean => {
    // Results, scores and their gradients, their packed operands, and sums that are loaded while results of queries are added.
    const results = (width + valueWidth) / 2;
    const registers = results + tile.tileN + tile.tileN / 2 + width / 8 + dropoutRegisters[dropout];
    const sharedBytes = sm90WholeBytes({ ...config, tile }) + 1024;
    return (
      registers + otherRegisters <= wholeRegisters(tile).consumer &&
      blocksPerSm * sharedBytes <= sharedBytesPerSm
    );
  };
  return fillsSms(pairs, sms, minWholeShare) ? tiles.find(fits) : undefined;
}
