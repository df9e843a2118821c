/** Matrices of words turned round, many in one launch: weights, for products that read them along their terms. */

import type { KernelSource, Parameter } from "../../driver/index.js";
import { awaiting, awaitingFirst } from "../codegen/cuda/kernel-text.js";
import { cachedSource } from "../source-cache.js";

/** `to[column][row] = from[row][column]`; `T` is how whoever launches it tells memory. */
export interface TransposedMatrix<T> {
  readonly from: T;
  /** Without gaps. */
  readonly to: T;
  readonly rows: number;
  readonly columns: number;
  /** From row to row of what is turned, in words. */
  readonly rowStride: number;
}

export interface TransposeLaunch<T> {
  readonly source: KernelSource;
  readonly blocks: number;
  readonly arguments: readonly (T | number)[];
}

/** A kernel's arguments have a limit of 4 KiB. */
export const maxTransposes = 64;

/** A block turns a square of words through shared memory, so that it reads rows and stores rows. */
const side = 32;
const threads = 256;

/** One launch that turns matrices of words of four bytes, `maxTransposes` at most. No target overlaps another, or what is turned. */
export function transposeLaunchOf<T>(matrices: readonly TransposedMatrix<T>[]): TransposeLaunch<T> {
  const given: (T | number)[] = [];
  let blocks = 0;
  for (const { from, to, rows, columns, rowStride } of matrices) {
    blocks += Math.ceil(rows / side) * Math.ceil(columns / side);
    given.push(from, to, rows, columns, rowStride, blocks);
  }
  return { source: kernelOf(matrices.length), blocks, arguments: given };
}

function kernelOf(count: number): KernelSource {
  return cachedSource(`cuda transpose of ${count}`, () => printKernel(count));
}

function printKernel(count: number): KernelSource {
  const entry = `hf_turn_many_${count}`;
  const each: readonly Parameter[] = ["in", "out", "u32", "u32", "u32", "u32"];
  return {
    name: count === 1 ? "turn" : `turn of ${count}`,
    parameters: Array.from({ length: count }, () => each).flat(),
    cuda: { code: printTurns(entry, count), entry, threads, waits: true },
  };
}

function printTurns(entry: string, count: number): string {
  const list = (one: (index: number) => string, between: string): string =>
    Array.from({ length: count }, (_, index) => one(index)).join(between);
  const parameters = list(
    (i) =>
      `const unsigned* from${i}, unsigned* to${i}, unsigned rows${i}, unsigned columns${i}, unsigned stride${i}, unsigned end${i}`,
    ",\n    ",
  );
  const choose = list((i) => {
    const own = `from = from${i}; to = to${i}; rows = rows${i}; columns = columns${i}; stride = stride${i};`;
    return `if (blockIdx.x < end${i}) { ${own} tile = blockIdx.x - ${i === 0 ? "0u" : `end${i - 1}`}; }`;
  }, "\n  else ");
  return `${awaiting}extern "C" __global__ void __launch_bounds__(${threads}) ${entry}(
    ${parameters}) {
${awaitingFirst}  const unsigned* from;
  unsigned *to, rows, columns, stride, tile;
  ${choose}
  else return;
  // One word more than a row has: words of a column lie in different banks.
  __shared__ unsigned words[${side}][${side + 1}];
  const unsigned across = (columns + ${side - 1}u) / ${side}u;
  const unsigned row = tile / across * ${side}u, column = tile % across * ${side}u;
  const unsigned x = threadIdx.x % ${side}u, y = threadIdx.x / ${side}u;
#pragma unroll
  for (unsigned line = y; line < ${side}u; line += ${threads / side}u)
    if (row + line < rows && column + x < columns) words[line][x] = from[(size_t)(row + line) * stride + column + x];
  __syncthreads();
#pragma unroll
  for (unsigned line = y; line < ${side}u; line += ${threads / side}u)
    if (column + line < columns && row + x < rows) to[(size_t)(column + line) * rows + row + x] = words[x][line];
}
`;
}
