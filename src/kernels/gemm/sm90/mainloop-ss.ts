/** The wgmma SS mainloop: consumer warpgroups multiply k-tiles that both operands have in shared memory. */

import { zeroAccumulators } from "../../codegen/cuda/intrinsics/wgmma.js";
import { transposedStages } from "./smem-tiles.js";
import { mmaNOf, type Sm90Tile } from "./tiles.js";

/** A warpgroup accumulates `mmaM` blocks of 64 × `mmaN`. With swapAB, `TileA` holds columns of C. `early`: C++ before the loop. */
export const ssMainloop = (tile: Sm90Tile, early = ""): string => `
  constexpr unsigned warpgroupsN = ${tile.swapsAB ? 1 : tile.warpgroupsN}, mmaM = ${tile.swapsAB ? 1 : tile.tileM / 64 / tile.warpgroupsM};
  constexpr unsigned mmaN = ${mmaNOf(tile)};
${zeroAccumulators}${early}
  constexpr unsigned stageBytes = TileA::bytes + TileB::bytes;
  const TileAddress tilesA = tileAddress(stageTiles + TileA::offset(warpgroupM, 0));
  const TileAddress tilesB = tileAddress((TileB::isTransposed ? transposed : stageTiles + TileA::bytes) + TileB::offset(warpgroupN, 0));
  Mbarrier* previous = empty;
#pragma unroll 1
  for (unsigned kTile = 0, stage = 0, parity = 0; kTile < kTiles; kTile++) {
    mbarrierWait(full + stage, parity);
    const TileAddress tileA = advance(tilesA, stage * stageBytes);
    TileAddress tileB = advance(tilesB, stage * stageBytes);
    if constexpr (TileB::isTransposed) {
      const unsigned kMajorBytes = kTile % ${transposedStages} * TileB::bytes;
      TileB::transpose(transposed + kMajorBytes, stageTiles + stage * stageBytes + TileA::bytes);
      tileB = advance(tilesB, kMajorBytes);
      fenceProxyAsync();
      namedBarrierSync(1, consumers);
    }
    wgmmaFence();
#pragma unroll
    for (unsigned kStep = 0; kStep < 4; kStep++) {
#pragma unroll
      for (unsigned i = 0; i < mmaM; i++) {
        wgmmaSs<Element, mmaN, TileA::isKMajor, TileB::isKMajor>(
            acc[i], advance(tileA, TileA::offset(64 * i, kStep)), advance(tileB, TileB::offset(0, kStep)));
      }
    }
    wgmmaCommit();
    // Once the previous k-tile's wgmmas are complete, its stage is empty.
    wgmmaWait<1>();
    if (kTile > 0 && threadIdx.x % 32 == 0) mbarrierArrive(previous);
    previous = empty + stage;
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
  wgmmaWait<0>();
  namedBarrierSync(1, consumers);`;
