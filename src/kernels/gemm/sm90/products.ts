/**
 * Sums of products, such as x·Wᵀ + t·Bᵀ: the mainloop runs over the k-tiles of one product after the other, into the same accumulators. So C
 * is written once, and never read.
 *
 * The last products may be short: their K fits in one k-tile, of which only the first steps are multiplied. TMA fills the rest of the tile
 * with zeros.
 */

import type { Parameter } from "../../../driver/index.js";
import type { Storage } from "../../../runtime/index.js";
import type { Addend } from "../desc.js";

/** The elements of K in a k-tile of 16-bit elements, and in one wgmma. */
const [tileK, stepK] = [64, 16];

/** The products of a sum after the first, and what a kernel is specialised on. */
export interface Products {
  readonly addends: number;
  /** How many of the last products are short. */
  readonly short: number;
  /** Multiplied steps of K of each short product: those of the one with the largest K. */
  readonly shortSteps: number;
}

/** A config whose kernel may add products. */
interface Config {
  readonly products?: Products;
}

/** More addends would only lengthen the kernel's parameters. */
export const maxAddends = 7;

export const isShort = ({ k }: Pick<Addend, "k">): boolean => k <= tileK;

/** The addends in the order in which a kernel takes them: wide ones first. */
export function inKernelOrder<A extends Pick<Addend, "k">>(addends: readonly A[]): readonly A[] {
  return [...addends.filter((addend) => !isShort(addend)), ...addends.filter(isShort)];
}

export function productsOf(addends: readonly Pick<Addend, "k">[]): Products {
  const short = addends.filter(isShort);
  const maxK = Math.max(0, ...short.map(({ k }) => k));
  return { addends: addends.length, short: short.length, shortSteps: Math.ceil(maxK / stepK) };
}

const indices = ({ products }: Config): readonly number[] =>
  Array.from({ length: products?.addends ?? 0 }, (_, index) => index + 1);

/** Parameters of the addends, which follow those of the first product. */
export function addendParameters(config: Config): Readonly<Record<string, Parameter>> {
  return Object.assign(
    {},
    ...indices(config).map((index) => ({
      ...{ [`addendA${index}`]: "in", [`addendB${index}`]: "in", [`addendK${index}`]: "i32" },
      ...{ [`addendAStride${index}`]: "i32", [`addendBStride${index}`]: "i32" },
    })),
  );
}

export function addendArguments(addends: readonly Addend[]): Record<string, Storage | number> {
  return Object.assign(
    {},
    ...inKernelOrder(addends).map(({ a, b, k }, index) => ({
      ...{
        [`addendA${index + 1}`]: a.storage,
        [`addendB${index + 1}`]: b.storage,
        [`addendK${index + 1}`]: k,
      },
      ...{ [`addendAStride${index + 1}`]: a.rowStride, [`addendBStride${index + 1}`]: b.rowStride },
    })),
  );
}

/** The names of what the tensor maps of an addend take. */
export function addendMaps(config: Config) {
  return indices(config).map((index) => ({
    a: { name: `addendA${index}`, k: `addendK${index}`, rowStride: `addendAStride${index}` },
    b: { name: `addendB${index}`, k: `addendK${index}`, rowStride: `addendBStride${index}` },
  }));
}

/** C++: `kTiles`, the k-tiles of all products, and where those of each end. */
export function countKTiles(config: Config): string {
  const tilesOf = (k: string): string => `(${k} + tileK - 1) / tileK`;
  if (!config.products) return `\n  const unsigned kTiles = ${tilesOf("k")};`;
  const ends = indices(config).map(
    (index) => `, end${index} = end${index - 1} + ${tilesOf(`addendK${index}`)}`,
  );
  return `\n  const unsigned end0 = ${tilesOf("k")}${ends.join("")}, kTiles = end${config.products.addends};`;
}

/** C++: declares `fromK`, where the k-tile `kTile` begins in its product, and the tensor maps of its operands, `mapA` or `mapB`. */
export function selectProduct(config: Config, operands: readonly ("A" | "B")[], kTile = "kTile"): string {
  const maps = operands.map((operand) => `*map${operand} = ${operand.toLowerCase()}`);
  const selections = indices(config).map((index) => {
    const others = operands.map((operand) => `map${operand} = &addend${operand}${index};`);
    return `\n      if (${kTile} >= end${index - 1}) { ${others.join(" ")} fromK = (${kTile} - end${index - 1}) * tileK; }`;
  });
  return `const TensorMap ${maps.join(", ")};
      int fromK = ${kTile} * tileK;${selections.join("")}`;
}

/** The loops of a mainloop over all k-tiles: `loop` prints one, from the loop's header and the multiplied steps of each of its k-tiles. */
export function loopsOverKTiles(
  { products }: Config,
  loop: (range: { readonly from: string; readonly to: string; readonly steps: number }) => string,
): string {
  const allSteps = tileK / stepK;
  if (!products || products.short === 0) return loop({ from: "0", to: "kTiles", steps: allSteps });
  const firstShort = `kTiles - ${products.short}`;
  return (
    loop({ from: "0", to: firstShort, steps: allSteps }) +
    loop({ from: firstShort, to: "kTiles", steps: products.shortSteps })
  );
}
