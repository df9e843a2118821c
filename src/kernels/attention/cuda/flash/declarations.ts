/** What the flash attention kernels of both directions declare before their bodies. */

import type { Dtype } from "../../../../ir/index.js";
import { elementTypes } from "../../../codegen/cuda/element-types.js";
import { preludeOf } from "../../../codegen/cuda/prelude.js";
import { isOfKeys } from "../../problem.js";
import { declarePairAt, pointTo } from "../parameters.js";
import { type FlashConfig, tileM } from "./config.js";
import { declareFragments, rowPadding } from "./fragments.js";
import { declareProducts } from "./products.js";
import { conversionsOf, declareTiles } from "./tiles.js";
import type { Unrolling } from "./unrolling.js";

/** C++: the sizes of a kernel's tiles, and the functions on tiles and fragments. */
export function declareFlash(
  config: FlashConfig & { readonly resultDtype: Dtype },
  unrolling: Unrolling,
): string {
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
${declareTiles(inputs, element, unrolling.copies)}
${declareProducts(unrolling.products)}
${pointTo}`;
}

/** The C++ element types of pointers to inputs. */
export function inputPointers(sources: FlashConfig["sources"]): Readonly<Record<string, string>> {
  return Object.fromEntries(
    Object.entries(sources).map(([name, { dtype }]) => [name, elementTypes[dtype].type]),
  );
}

/** C++: the pointers to inputs of one (batch, head) of queries; `keyHead` is the head of its keys and values. */
export function declareInputPairs(
  sources: FlashConfig["sources"],
  names: readonly string[],
  keyHead: string,
): string {
  return names
    .flatMap((name) => {
      const source = sources[name];
      return source
        ? [declarePairAt(isOfKeys(name) ? keyHead : "head", elementTypes[source.dtype].type, name)]
        : [];
    })
    .join("\n");
}
