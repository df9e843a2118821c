/** The wgmma SS mainloop: consumer warpgroups multiply k-tiles that both operands have in shared memory. */

import { zeroAccumulators } from "../../codegen/cuda/intrinsics/wgmma.js";
import { transposedStages } from "./smem-tiles.js";
import { mmaNOf, type Sm90Tile } from "./tiles.js";

/** A warpgroup accumulates `mmaM` blocks of 64 × `mmaN`. With swapAB, `TileA` holds columns of C. */
export const ssMainloop = (tile: Sm90Tile): string => `
  constexpr unsigned warpgroupsN = ${tile.swapsAB ? 1 : tile.warpgroupsN}, mmaM = ${tile.swapsAB ? 1 : tile.tileM / 64 / tile.warpgroupsM};
  constexpr unsigned mmaN = ${mmaNOf(tile)};
${zeroAccumulators}
  for (unsigned kTile = 0; kTile < kTiles; kTile++) {
    const unsigned stage = kTile % stages;
    mbarrierWait(full + stage, kTile / stages % 2);
    const unsigned char *tileA = stageTiles + stage * (TileA::bytes + TileB::bytes), *tileB = tileA + TileA::bytes;
    if constexpr (TileB::isTransposed) {
      unsigned char* const kMajorB = transposed + kTile % ${transposedStages} * TileB::bytes;
      TileB::transpose(kMajorB, tileB);
      tileB = kMajorB;
      fenceProxyAsync();
      namedBarrierSync(1, consumers);
    }
    wgmmaFence();
#pragma unroll
    for (unsigned kStep = 0; kStep < 4; kStep++) {
#pragma unroll
      for (unsigned i = 0; i < mmaM; i++) {
        wgmmaSs<Element, mmaN, TileA::isKMajor, TileB::isKMajor>(
            acc[i], TileA::at(tileA, warpgroupM + 64 * i, kStep), TileB::at(tileB, warpgroupN, kStep));
      }
    }
    wgmmaCommit();
    // Once the previous k-tile's wgmmas are complete, its stage is empty.
    wgmmaWait<1>();
    if (kTile > 0 && threadIdx.x % 32 == 0) mbarrierArrive(empty + (kTile - 1) % stages);
  }
  wgmmaWait<0>();
  namedBarrierSync(1, consumers);`;
