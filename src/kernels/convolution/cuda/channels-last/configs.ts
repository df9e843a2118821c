/** Which tile computes a channels-last convolution. */

import type { ChannelsLastTile } from "./tiles.js";

/** From large to small. Small tiles keep two CTAs on an SM, so that one computes while the other loads or stores. */
export const channelsLastTiles: readonly ChannelsLastTile[] = [
  { tileM: 128, tileN: 256, warpgroupsM: 2, warpgroupsN: 1, stages: 4, overlap: 1 },
  { tileM: 256, tileN: 128, warpgroupsM: 2, warpgroupsN: 1, stages: 4, overlap: 1 },
  { tileM: 128, tileN: 128, warpgroupsM: 2, warpgroupsN: 1, stages: 3, overlap: 0 },
  { tileM: 128, tileN: 64, warpgroupsM: 2, warpgroupsN: 1, stages: 4, overlap: 1 },
  { tileM: 64, tileN: 128, warpgroupsM: 1, warpgroupsN: 2, stages: 4, overlap: 1 },
  { tileM: 64, tileN: 64, warpgroupsM: 1, warpgroupsN: 1, stages: 4, overlap: 1 },
];
