/** The choice of tiles for flash attention on `wgmma`. */

import { maxSharedBytesPerBlock } from "../../../cost-model.js";
import { registersOf, type Sm90FlashConfig, type Sm90FlashTile } from "./config.js";
import { sm90ForwardBytes } from "./forward.js";

/** Registers of a consumer besides accumulators and packed operands: addresses, statistics, fragments in flight. */
const otherRegisters = 32;

const maxSharedBytes = maxSharedBytesPerBlock({ computeCapability: "9.0" });

/** In the order of preference. */
const forwardTiles: readonly Sm90FlashTile[] = [
  { warpgroups: 3, tileN: 128, stages: 2, isOrdered: true },
  { warpgroups: 2, tileN: 128, stages: 2, isOrdered: true },
  { warpgroups: 2, tileN: 64, stages: 2, isOrdered: true },
];

export function chooseForwardTile(config: Omit<Sm90FlashConfig, "tile">): Sm90FlashTile | undefined {
  return forwardTiles.find((tile) => {
    const registers = tile.tileN / 2 + tile.tileN / 4 + config.valueWidth / 2 + otherRegisters;
    const isInRegisters = registers <= registersOf(tile).consumer;
    return isInRegisters && sm90ForwardBytes({ ...config, tile }) <= maxSharedBytes;
  });
}
