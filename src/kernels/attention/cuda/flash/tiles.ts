/**
 * Tiles of attention operands in shared memory: rows of one (batch, head), with zeros after the last row and after a row's last element.
 * Operands that have the elements of the tensor cores are copied asynchronously; others are converted on the way.
 */

import type { Dtype } from "../../../../ir/index.js";
import { elementTypes } from "../../../codegen/cuda/element-types.js";
import type { PreludeName } from "../../../codegen/cuda/prelude.js";
import type { FlashElement } from "./fragments.js";

/** How a kernel reads one operand. */
export interface TileSource {
  readonly dtype: Dtype;
  /** True if every row starts and ends at a multiple of 16 bytes. */
  readonly isAligned: boolean;
}

/** True if the bytes in memory are those of the tile. */
function isCopied({ dtype, isAligned }: TileSource, element: FlashElement): boolean {
  return isAligned && dtype === (element === "tf32" ? "f32" : element);
}

/** C++: a call that loads a tile of `name`. */
export function loadTile(
  name: string,
  source: TileSource,
  element: FlashElement,
  { tile, rows, depth, stride, first, count, width }: Readonly<Record<string, string>>,
): string {
  const sizes = `${rows}, ${depth}, ${stride}`;
  const from = `${tile}, ${name}Pair + (long long)(${first}) * ${name}Row, ${name}Row, ${count}, ${width}`;
  if (isCopied(source, element)) return `copyTile<${sizes}>(${from});`;
  return `convertTile<${sizes}, ${source.isAligned ? 4 : 1}, Convert_${source.dtype}>(${from});`;
}

/** The device functions that the conversions of these operands call. */
export function conversionsOf(
  sources: readonly TileSource[],
  element: FlashElement,
): ReadonlySet<PreludeName> {
  const narrow = element === "tf32" ? undefined : elementTypes[element].narrow;
  const converted = sources.filter((source) => !isCopied(source, element));
  const names = converted.flatMap(({ dtype }) => [elementTypes[dtype].widen, narrow]);
  return new Set(names.filter((name) => name !== undefined));
}

/** C++: `copyTile`, `convertTile` and the conversions of these operands. `threads` threads take part; `unroll` is a pragma. */
export function declareTiles(sources: readonly TileSource[], element: FlashElement, unroll: string): string {
  const dtypes = new Set(sources.filter((source) => !isCopied(source, element)).map(({ dtype }) => dtype));
  const narrow = element === "tf32" ? undefined : elementTypes[element].narrow;
  const conversions = [...dtypes].map((dtype) => {
    const { type, widen } = elementTypes[dtype];
    const wide = widen ? `${widen}(value)` : "value";
    return `struct Convert_${dtype} {
  static __device__ __forceinline__ Element of(${type} value) { return ${narrow ? `${narrow}(${wide})` : wide}; }
};`;
  });
  return `
// Of the tile's rows, \`rows\` exist, with \`width\` elements each.
template <unsigned tileRows, unsigned depth, unsigned stride>
static __device__ __forceinline__ void copyTile(
    Element* tile, const Element* from, long long rowStride, unsigned rows, unsigned width) {
  constexpr unsigned lanes = 16 / sizeof(Element), vectors = depth / lanes;
${unroll}
  for (unsigned index = threadIdx.x; index < tileRows * vectors; index += threads) {
    const unsigned row = index / vectors, column = index % vectors * lanes;
    const bool exists = row < rows && column < width;
    cpAsync<16>(tile + row * stride + column, exists ? from + row * rowStride + column : from, exists ? 16 : 0);
  }
}

template <class Memory, unsigned lanes>
struct alignas(sizeof(Memory) * lanes) Lanes {
  Memory lane[lanes];
};

template <unsigned tileRows, unsigned depth, unsigned stride, unsigned lanes, class Convert, class Memory>
static __device__ __forceinline__ void convertTile(
    Element* tile, const Memory* from, long long rowStride, unsigned rows, unsigned width) {
  constexpr unsigned vectors = depth / lanes;
#pragma unroll 4
  for (unsigned index = threadIdx.x; index < tileRows * vectors; index += threads) {
    const unsigned row = index / vectors, column = index % vectors * lanes;
    Lanes<Element, lanes> converted = {};
    if (row < rows && column < width) {
      const auto read = *reinterpret_cast<const Lanes<Memory, lanes>*>(from + row * rowStride + column);
#pragma unroll
      for (unsigned lane = 0; lane < lanes; lane++) converted.lane[lane] = Convert::of(read.lane[lane]);
    }
    *reinterpret_cast<Lanes<Element, lanes>*>(tile + row * stride + column) = converted;
  }
}
${conversions.join("\n")}`;
}
