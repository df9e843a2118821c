/** The choice of tiles for flash attention on `wgmma`. */

import { maxSharedBytesPerBlock } from "../../../cost-model.js";
import { type Side, type Sm90BackwardConfig, type Sm90BackwardTile, sm90BackwardBytes } from "./backward.js";
import { registersOf, type Sm90FlashConfig, type Sm90FlashTile, tileM } from "./config.js";
import { sm90ForwardBytes } from "./forward.js";

/** Registers of a consumer besides accumulators and packed operands: addresses, statistics, fragments in flight. */
const otherRegisters = 32;

const maxSharedBytes = maxSharedBytesPerBlock({ computeCapability: "9.0" });

/** Of a problem: how many (batch, head) pairs it has, with so many rows that stay, and the multiprocessors of its device. */
export interface Work {
  readonly pairs: number;
  readonly rows: number;
  readonly sms: number;
}

/** The first tile with a block for each multiprocessor; if none has, the one with the most blocks. */
function chooseFilling<Tile extends Sm90FlashTile>(
  tiles: readonly Tile[],
  { pairs, rows, sms }: Work,
): Tile | undefined {
  const blocksOf = (tile: Tile): number => pairs * Math.ceil(rows / tileM(tile));
  const most = Math.max(...tiles.map(blocksOf));
  return tiles.find((tile) => blocksOf(tile) >= Math.min(most, sms));
}

/** In the order of preference (measured on an H200 with widths of 64 and 128). */
const forwardTiles: readonly Sm90FlashTile[] = [
  { warpgroups: 3, tileN: 128, stages: 2, blocksPerSm: 1 },
  { warpgroups: 2, tileN: 128, stages: 2, blocksPerSm: 1 },
  { warpgroups: 2, tileN: 64, stages: 2, blocksPerSm: 1 },
  { warpgroups: 1, tileN: 64, stages: 2, blocksPerSm: 1 },
];

export function chooseForwardTile(
  config: Omit<Sm90FlashConfig, "tile">,
  work: Work,
): Sm90FlashTile | undefined {
  const fitting = forwardTiles.filter((tile) => {
    const registers = tile.tileN / 2 + tile.tileN / 4 + config.valueWidth / 2 + otherRegisters;
    const isInRegisters = registers <= registersOf(tile).consumer;
    return isInRegisters && sm90ForwardBytes({ ...config, tile }) <= maxSharedBytes;
  });
  return chooseFilling(fitting, work);
}

/** In the order of preference (measured on an H200 with widths of 64 and 128). */
const backwardTiles: Readonly<Record<Side, readonly Sm90BackwardTile[]>> = {
  rows: [
    { warpgroups: 3, tileN: 64, stages: 3, blocksPerSm: 1, issuesEarly: false, drains: false },
    { warpgroups: 2, tileN: 64, stages: 3, blocksPerSm: 1, issuesEarly: false, drains: false },
    { warpgroups: 2, tileN: 64, stages: 2, blocksPerSm: 1, issuesEarly: false, drains: false },
    { warpgroups: 1, tileN: 64, stages: 2, blocksPerSm: 1, issuesEarly: false, drains: false },
  ],
  columns: [
    { warpgroups: 2, tileN: 64, stages: 3, blocksPerSm: 1, issuesEarly: true, drains: false },
    { warpgroups: 2, tileN: 64, stages: 2, blocksPerSm: 1, issuesEarly: false, drains: true },
    { warpgroups: 1, tileN: 64, stages: 2, blocksPerSm: 1, issuesEarly: false, drains: true },
  ],
};

export function chooseBackwardTile(
  config: Omit<Sm90BackwardConfig, "tile">,
  work: Work,
): Sm90BackwardTile | undefined {
  const { side, width, valueWidth } = config;
  const results = width / 2 + (side === "columns" ? valueWidth / 2 : 0);
  const fitting = backwardTiles[side].filter((tile) => {
    // Scores, their gradients, and a packed operand of products in flight.
    const accumulators = results + tile.tileN + (tile.drains ? 0 : tile.tileN / 4);
    const isInRegisters = accumulators + otherRegisters <= registersOf(tile).consumer;
    return isInRegisters && sm90BackwardBytes({ ...config, tile }) <= maxSharedBytes;
  });
  return chooseFilling(fitting, work);
}
