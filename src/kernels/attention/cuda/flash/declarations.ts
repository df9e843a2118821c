/** What the flash attention kernels of both directions declare before their bodies. */

import type { Dtype } from "../../../../ir/index.js";
import { elementTypes } from "../../../codegen/cuda/element-types.js";
import { preludeOf } from "../../../codegen/cuda/prelude.js";
import { pointTo } from "../parameters.js";
import { type FlashConfig, tileM } from "./config.js";
import { declareFragments, rowPadding } from "./fragments.js";
import { declareProducts } from "./products.js";
import { conversionsOf, declareTiles } from "./tiles.js";

/** C++: the sizes of a kernel's tiles, and the functions on tiles and fragments. */
export function declareFlash(config: FlashConfig & { readonly resultDtype: Dtype }): string {
  const { element, tile, depth, valueDepth, sources, resultDtype } = config;
  const { narrow } = elementTypes[resultDtype];
  const inputs = Object.values(sources);
  const prelude = new Set([
    ...conversionsOf(inputs, element),
    ...(narrow ? [narrow] : []),
    "dynamicSharedMemory" as const,
  ]);
  return `
${preludeOf(prelude)}${declareFragments(element)}
static constexpr unsigned threads = ${32 * tile.warps}, blocksM = ${tile.blocksM}, tileM = ${tileM(tile)}, tileN = ${tile.tileN};
static constexpr unsigned depth = ${depth}, valueDepth = ${valueDepth}, padding = ${rowPadding(element)};
${declareTiles(inputs, element)}
${declareProducts}
${pointTo}`;
}

/** The C++ element types of pointers to inputs. */
export function inputPointers(sources: FlashConfig["sources"]): Readonly<Record<string, string>> {
  return Object.fromEntries(
    Object.entries(sources).map(([name, { dtype }]) => [name, elementTypes[dtype].type]),
  );
}
