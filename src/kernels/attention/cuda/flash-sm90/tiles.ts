/** The choice of tiles for flash attention on `wgmma`. */

import { maxSharedBytesPerBlock } from "../../../cost-model.js";
import { type Sm90BackwardConfig, sm90BackwardBytes } from "./backward.js";
import { registersOf, type Sm90FlashConfig, type Sm90FlashTile } from "./config.js";
import { sm90ForwardBytes } from "./forward.js";

/** Registers of a consumer besides accumulators and packed operands: addresses, statistics, fragments in flight. */
const otherRegisters = 32;

const maxSharedBytes = maxSharedBytesPerBlock({ computeCapability: "9.0" });

/** In the order of preference. */
const forwardTiles: readonly Sm90FlashTile[] = [
  { warpgroups: 3, tileN: 128, stages: 2, blocksPerSm: 1, isOrdered: true, drains: false },
  { warpgroups: 2, tileN: 128, stages: 2, blocksPerSm: 1, isOrdered: true, drains: false },
  { warpgroups: 2, tileN: 64, stages: 2, blocksPerSm: 1, isOrdered: true, drains: false },
];

export function chooseForwardTile(config: Omit<Sm90FlashConfig, "tile">): Sm90FlashTile | undefined {
  return forwardTiles.find((tile) => {
    const registers = tile.tileN / 2 + tile.tileN / 4 + config.valueWidth / 2 + otherRegisters;
    const isInRegisters = registers <= registersOf(tile).consumer;
    return isInRegisters && sm90ForwardBytes({ ...config, tile }) <= maxSharedBytes;
  });
}

/** In the order of preference. */
const backwardTiles: Readonly<Record<Sm90BackwardConfig["side"], readonly Sm90FlashTile[]>> = {
  rows: [
    { warpgroups: 3, tileN: 64, stages: 3, blocksPerSm: 1, isOrdered: false, drains: false },
    { warpgroups: 2, tileN: 64, stages: 3, blocksPerSm: 1, isOrdered: false, drains: false },
    { warpgroups: 2, tileN: 64, stages: 2, blocksPerSm: 1, isOrdered: false, drains: false },
  ],
  columns: [
    { warpgroups: 2, tileN: 64, stages: 3, blocksPerSm: 1, isOrdered: true, drains: false },
    { warpgroups: 2, tileN: 64, stages: 2, blocksPerSm: 1, isOrdered: false, drains: true },
  ],
};

export function chooseBackwardTile(config: Omit<Sm90BackwardConfig, "tile">): Sm90FlashTile | undefined {
  const { side, width, valueWidth } = config;
  return backwardTiles[side].find((tile) => {
    // Scores, their gradients and a packed operand; the results.
    const accumulators =
      tile.tileN + (tile.drains ? 0 : tile.tileN / 4) + width / 2 + (side === "columns" ? valueWidth / 2 : 0);
    const isInRegisters = accumulators + otherRegisters <= registersOf(tile).consumer;
    return isInRegisters && sm90BackwardBytes({ ...config, tile }) <= maxSharedBytes;
  });
}
