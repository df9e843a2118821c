/** The wgmma SS mainloop: consumer warpgroups multiply k-tiles that both operands have in shared memory. */

import { zeroAccumulators } from "../../codegen/cuda/intrinsics/wgmma.js";
import type { Sm90Config } from "./configs.js";
import { loopsOverKTiles } from "./products.js";
import { transposedStages } from "./smem-tiles.js";
import { mmaNOf } from "./tiles.js";

/** A warpgroup accumulates `mmaM` blocks of 64 × `mmaN`. With swapAB, `TileA` holds columns of C. `early`: C++ before the loop. */
export const ssMainloop = (config: Sm90Config, early = ""): string => `
  constexpr unsigned warpgroupsN = ${config.tile.swapsAB ? 1 : config.tile.warpgroupsN}, mmaM = ${config.tile.swapsAB ? 1 : config.tile.tileM / 64 / config.tile.warpgroupsM};
  constexpr unsigned mmaN = ${mmaNOf(config.tile)};
${zeroAccumulators}${early}
  constexpr unsigned stageBytes = TileA::bytes + TileB::bytes;
  const TileAddress tilesA = tileAddress(stageTiles + TileA::offset(warpgroupM, 0));
  const TileAddress tilesB = tileAddress((TileB::isTransposed ? transposed : stageTiles + TileA::bytes) + TileB::offset(warpgroupN, 0));
  Mbarrier* previous = empty;
  unsigned stage = 0, parity = 0;${loopsOverKTiles(config, loop)}
  wgmmaWait<0>();
  namedBarrierSync(1, consumers);`;

const loop: Parameters<typeof loopsOverKTiles>[1] = ({ from, to, steps }) => `
#pragma unroll 1
  for (unsigned kTile = ${from}; kTile < ${to}; kTile++) {
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
    for (unsigned kStep = 0; kStep < ${steps}; kStep++) {
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
  }`;
