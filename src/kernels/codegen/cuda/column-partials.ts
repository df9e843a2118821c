/**
 * Column sums as an output of row kernels. A column reduction is a fixed binary tree over 1024 partials (row mod 1024). Its first three
 * levels only combine partials that are equal mod 128. So block b of 128 takes the rows ≡ b (mod 128), one per warp. It reduces those levels
 * in shared memory and stores one partial per column. A column kernel over the 128 rows of partials reduces the other levels. The order, and so
 * the bits, are those of a column kernel.
 */

import type { Iteration, RowKernel } from "../../../ir/index.js";
import { dtypes } from "../../../ir/index.js";
import {
  maxSharedBytesPerBlock,
  maxThreadsPerBlock,
  registerBytesPerThread,
  type SharedMemoryFacts,
  warpSize,
} from "../../cost-model.js";
import { maxPartials, mediumPartials } from "./column-config.js";
import { combineHalves } from "./column-kernel.js";
import { binary } from "./expressions.js";
import type { KernelText } from "./kernel-text.js";

/** Blocks of the row kernel: each writes one partial per column. */
export const columnPartialCount = mediumPartials;
/** How many of a column's partials one block reduces. */
const partialsPerBlock = maxPartials / columnPartialCount;

/** The outputs of a kernel that are column sums. */
export function colsumOutputs({ outputs }: RowKernel): readonly number[] {
  return outputs.flatMap(({ per }, output) => (per === "column" ? [output] : []));
}

export function storesColsums(kernel: RowKernel): boolean {
  return colsumOutputs(kernel).length > 0;
}

/**
 * How many bytes of its row a thread may keep in registers without spills. One block is resident per SM: 768 threads have 340 bytes of
 * registers each, and 1024 have 256. These are the largest values without spills, measured on an H200 (`bench/gpu/compiled.ts`, CrossAsset).
 */
function maxCachedBytes(threads: number): number {
  return registerBytesPerThread(threads) > 256 ? 240 : 128;
}

/** The layout if a thread has `vectors` vectors of a row, and `cachedBytes` of them in registers; undefined if it does not fit. */
export function columnPartialsOf(
  kernel: RowKernel,
  { rows }: Iteration,
  { vectors, cachedBytes }: { readonly vectors: number; readonly cachedBytes: number },
): ColumnPartialsLayout | undefined {
  // With fewer rows the tree has fewer partials.
  const rowsPerPartial = rows < maxPartials ? 0 : Math.ceil(rows / maxPartials);
  const threads = rowsPerPartial * partialsPerBlock * warpSize;
  const width = vectors * 4 * warpSize;
  const colsumDtypes = colsumOutputs(kernel).map((output) => kernel.outputs[output]?.dtype);
  const sharedBytes = colsumDtypes.length * rowsPerPartial * partialsPerBlock * width * dtypes.f32.bytes;
  const fits = threads > 0 && threads <= maxThreadsPerBlock && cachedBytes <= maxCachedBytes(threads);
  return fits && colsumDtypes.every((dtype) => dtype === "f32")
    ? { rowsPerPartial, threads, width, sharedBytes }
    : undefined;
}

/** True if a block of the device has enough shared memory. */
export function fitsSharedMemory(device: SharedMemoryFacts, { sharedBytes }: ColumnPartialsLayout): boolean {
  return sharedBytes <= maxSharedBytesPerBlock(device);
}

export interface ColumnPartialsLayout {
  /** The maximum number of rows per partial; each row has its own warp. */
  readonly rowsPerPartial: number;
  readonly threads: number;
  /** Columns that the vectors of a warp cover. */
  readonly width: number;
  /** Dynamic shared memory of a block. */
  readonly sharedBytes: number;
}

/** C++: the row of a thread's warp. */
export const colsumRow = `blockIdx.x + ${columnPartialCount}u * (threadIdx.x / ${warpSize}u)`;

/** Declares the shared memory for the rows to be summed. */
export function declareSharedRows(
  text: KernelText,
  { rowsPerPartial, width, sharedBytes }: ColumnPartialsLayout,
): void {
  text.line(`${text.call("dynamicSharedMemory", "smem", `${sharedBytes}`)};`);
  text.line(
    `auto* const sharedRows = reinterpret_cast<float(*)[${rowsPerPartial * partialsPerBlock}][${width}]>(smem);`,
  );
}

/** C++: the address in shared memory of a thread's vector of the `index`-th column sum. */
export function sharedRowAddress(index: number): string {
  return `&sharedRows[${index}][threadIdx.x / ${warpSize}u][position]`;
}

/** Prints the levels of the reduction tree that a block computes. */
export function reduceColumns(
  text: KernelText,
  layout: ColumnPartialsLayout,
  outputs: readonly number[],
): void {
  const { rowsPerPartial, threads, width } = layout;
  text.line("__syncthreads();");
  text.block(
    `for (unsigned index = threadIdx.x; index < ${outputs.length * width}u; index += ${threads}u)`,
    () => {
      text.line(`const unsigned column = index % ${width}u;`);
      text.line("if (column >= columns) continue;");
      text.line(`float partials[${partialsPerBlock}];`);
      text.unrolled("partial", partialsPerBlock, () => {
        text.line("partials[partial] = 0.0f;");
        text.unrolled("round", rowsPerPartial, () => {
          const value = `sharedRows[index / ${width}u][round * ${partialsPerBlock}u + partial][column]`;
          const sum = binary(text, "add", "f32", "partials[partial]", value);
          const row = `blockIdx.x + ${columnPartialCount}u * (round * ${partialsPerBlock}u + partial)`;
          text.line(`if (${row} < rows) partials[partial] = ${sum};`);
        });
      });
      combineHalves(text, "add", "f32", "partials", partialsPerBlock);
      for (const [index, output] of outputs.entries()) {
        const condition = index < outputs.length - 1 ? `if (index < ${(index + 1) * width}u) ` : "";
        const target = `out${output}[blockIdx.x * columns + column]`;
        text.line(`${index === 0 ? "" : "else "}${condition}${target} = partials[0];`);
      }
    },
  );
}
