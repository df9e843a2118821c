/** Which instruction multiplies: DMMA in f32, wgmma otherwise. */

import type { MmaElement } from "../../../codegen/cuda/intrinsics/wgmma.js";
import type { DmmaShape } from "../../../gemm/dmma/index.js";
import { dmmaMainloop } from "./dmma-mainloop.js";
import type { Mainloop, MainloopOptions, OperandMajors } from "./mainloop.js";
import type { ChannelsLastTile } from "./tiles.js";
import { wgmmaMainloop } from "./wgmma-mainloop.js";

/** The operands' elements and the CTA tile. Products of f32 are exact. */
export type MainloopVariant =
  | { readonly element: MmaElement; readonly tile: ChannelsLastTile }
  | { readonly element: "f32"; readonly tile: DmmaShape };

export function mainloopOf(
  variant: MainloopVariant,
  isKMajor: OperandMajors,
  { resultBytes = 0, roundsTiles = false }: MainloopOptions = {},
): Mainloop {
  return variant.element === "f32"
    ? dmmaMainloop(variant.tile, isKMajor, resultBytes)
    : wgmmaMainloop(variant.element, variant.tile, isKMajor, { resultBytes, roundsTiles });
}
