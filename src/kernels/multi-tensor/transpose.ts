/** Multi-tensor transpose: many matrices of 32-bit words in one launch, such as weights for GEMMs that need a K-major B. */

import type { KernelSource, Parameter } from "../../driver/index.js";
import { indented, numberedLocal, selectMember } from "../codegen/cuda/combo/select-member.js";
import { pdlDeclaration, pdlWait } from "../codegen/cuda/intrinsics/pdl.js";
import { cachedSource } from "../source-cache.js";

/** `to[column][row] = from[row][column]`; `T` is the caller's type of memory. */
export interface TransposedMatrix<T> {
  readonly from: T;
  /** Contiguous. */
  readonly to: T;
  readonly rows: number;
  readonly columns: number;
  /** The row stride of the source, in words. */
  readonly rowStride: number;
}

export interface TransposeLaunch<T> {
  readonly source: KernelSource;
  readonly blocks: number;
  readonly arguments: readonly (T | number)[];
}

/** Matrices of one launch: its arguments take at most 4 KiB. */
export const maxTransposes = 64;

/** A block transposes a square tile through shared memory, so that both its loads and its stores are coalesced. */
const tileSize = 64;
const threads = 256;

/** One launch for at most `maxTransposes` matrices. No target may overlap another one or a source. */
export function transposeLaunchOf<T>(matrices: readonly TransposedMatrix<T>[]): TransposeLaunch<T> {
  const launchArguments: (T | number)[] = [];
  let blocks = 0;
  for (const { from, to, rows, columns, rowStride } of matrices) {
    blocks += Math.ceil(rows / tileSize) * Math.ceil(columns / tileSize);
    launchArguments.push(from, to, rows, columns, rowStride, blocks);
  }
  return { source: kernelOf(matrices.length), blocks, arguments: launchArguments };
}

function kernelOf(count: number): KernelSource {
  return cachedSource(`cuda transpose of ${count}`, () => printKernel(count));
}

function printKernel(count: number): KernelSource {
  const entry = `hf_multi_transpose_${count}`;
  const each: readonly Parameter[] = ["in", "out", "u32", "u32", "u32", "u32"];
  return {
    name: count === 1 ? "transpose" : `transpose of ${count}`,
    parameters: Array.from({ length: count }, () => each).flat(),
    cuda: { code: printTransposes(entry, count), entry, threads, hasGridDependencyWait: true },
  };
}

function printTransposes(entry: string, count: number): string {
  const locals = [
    numberedLocal("const unsigned*", "from"),
    numberedLocal("unsigned*", "to"),
    ...["rows", "columns", "stride"].map((name) => numberedLocal("unsigned", name)),
  ];
  // The last matrix takes all blocks after the others, so that its end has no use and no name.
  const parameters = Array.from({ length: count }, (_, index) => {
    const end = index < count - 1 ? `unsigned end${index}` : "unsigned";
    return [...locals.map((local) => `${local.type} ${local.valueOf(index)}`), end].join(", ");
  });
  return `${pdlDeclaration}extern "C" __global__ void __launch_bounds__(${threads}) ${entry}(
    ${parameters.join(",\n    ")}) {
${pdlWait}${indented(selectMember({ end: count, locals, index: "tile" }))}  // Rows are padded by a word, so that the words of a column lie in different banks.
  __shared__ unsigned words[${tileSize}][${tileSize + 1}];
  const unsigned tilesN = (columns + ${tileSize - 1}u) / ${tileSize}u;
  const unsigned row = tile / tilesN * ${tileSize}u, column = tile % tilesN * ${tileSize}u;
  const unsigned x = threadIdx.x % ${tileSize}u, y = threadIdx.x / ${tileSize}u;
#pragma unroll
  for (unsigned line = y; line < ${tileSize}u; line += ${threads / tileSize}u)
    if (row + line < rows && column + x < columns) words[line][x] = from[(size_t)(row + line) * stride + column + x];
  __syncthreads();
#pragma unroll
  for (unsigned line = y; line < ${tileSize}u; line += ${threads / tileSize}u)
    if (column + line < columns && row + x < rows) to[(size_t)(column + line) * rows + row + x] = words[x][line];
}
`;
}
