/**
 * Sums over columns that a kernel of rows makes of what it has in its registers. Of a column's 1024 partial sums, joined in halves, the
 * first three joins are of such whose numbers have the same remainder by 128: so each of 128 blocks takes the rows that have its own
 * number as remainder, a warp each, adds them up in the order of a column kernel, and leaves one partial sum of every column. A column
 * kernel over what the blocks leave, 128 rows, makes the other joins: the bits are those of a column kernel over all rows.
 */

import type { DeviceInfo } from "../../../driver/index.js";
import type { Iteration, RowKernel } from "../../../ir/index.js";
import { dtypes } from "../../../ir/index.js";
import { partialsOfMany, partialsOfSome } from "./column-config.js";
import { combineHalves } from "./column-kernel.js";
import { binary } from "./expressions.js";
import type { KernelText } from "./kernel-text.js";

/** Blocks, each of which leaves a partial sum of every column. */
export const columnPartialCount = partialsOfSome;
/** How many of a column's partial sums are a block's. */
const parts = partialsOfMany / columnPartialCount;
const warp = 32;
const maxThreads = 1024;
/** What the warps of a block can pass on; and by the compute capability, where that is more. */
const maxSharedBytes = 48 * 1024;
const maxSharedBytesOf: ReadonlyMap<string, number> = new Map([
  ["8.0", 160 * 1024],
  ["9.0", 224 * 1024],
  ["10.0", 224 * 1024],
]);

/** The outputs of a kernel that are sums of columns. */
export function colsumOutputs({ outputs }: RowKernel): readonly number[] {
  return outputs.flatMap(({ per }, output) => (per === "column" ? [output] : []));
}

export function storesColsums(kernel: RowKernel): boolean {
  return colsumOutputs(kernel).length > 0;
}

/** What a thread may hold of its row: the more threads a block has, the fewer registers are left for each. */
function maxHeldBytes(threads: number): number {
  return threads <= 768 ? 240 : 128;
}

/** How columns are added up where a thread has so many packs of a row and holds so many bytes of it; nothing where that can't be. */
export function columnPartialsOf(
  kernel: RowKernel,
  { rows }: Iteration,
  { packs, heldBytes }: { readonly packs: number; readonly heldBytes: number },
): ColumnPartialsLayout | undefined {
  // With fewer rows than partial sums there are other joins.
  const turns = rows < partialsOfMany ? 0 : Math.ceil(rows / partialsOfMany);
  const threads = turns * parts * warp;
  const width = packs * 4 * warp;
  const summed = colsumOutputs(kernel).map((output) => kernel.outputs[output]?.dtype);
  const sharedBytes = summed.length * turns * parts * width * dtypes.f32.bytes;
  const fitsMemory = threads > 0 && threads <= maxThreads && heldBytes <= maxHeldBytes(threads);
  return fitsMemory && summed.every((dtype) => dtype === "f32")
    ? { turns, threads, width, sharedBytes }
    : undefined;
}

/** Has a device so much memory for a block? */
export function fitsIn(
  { computeCapability = "" }: Pick<DeviceInfo, "computeCapability">,
  { sharedBytes }: ColumnPartialsLayout,
): boolean {
  return sharedBytes <= (maxSharedBytesOf.get(computeCapability) ?? maxSharedBytes);
}

export interface ColumnPartialsLayout {
  /** How many rows a partial sum has at most; so many warps have one each. */
  readonly turns: number;
  readonly threads: number;
  /** Columns that the threads of a warp have packs for. */
  readonly width: number;
  /** What warps pass on. */
  readonly sharedBytes: number;
}

/** Which row a thread's warp has. */
export const colsumRow = `blockIdx.x + ${columnPartialCount}u * (threadIdx.x / ${warp}u)`;

/** Prints where warps leave what is to be added up. */
export function declareAccumulators(
  text: KernelText,
  { turns, width, sharedBytes }: ColumnPartialsLayout,
): void {
  text.line(`${text.call("dynamicSharedMemory", "launched", `${sharedBytes}`)};`);
  text.line(`auto* const shared = reinterpret_cast<float(*)[${turns * parts}][${width}]>(launched);`);
}

/** A pointer to where a warp leaves its pack of an output, by that one's place among those that are added up. */
export function indexInAccumulators(place: number): string {
  return `&shared[${place}][threadIdx.x / ${warp}u][position]`;
}

/** Prints the sums of what all warps have left. */
export function addUpColumns(
  text: KernelText,
  layout: ColumnPartialsLayout,
  outputs: readonly number[],
): void {
  const { turns, threads, width } = layout;
  text.line("__syncthreads();");
  text.block(`for (unsigned at = threadIdx.x; at < ${outputs.length * width}u; at += ${threads}u)`, () => {
    text.line(`const unsigned column = at % ${width}u;`);
    text.line("if (column >= columns) continue;");
    text.line(`float sums[${parts}];`);
    text.unrolled("own", parts, () => {
      text.line("sums[own] = 0.0f;");
      text.unrolled("turn", turns, () => {
        const value = `shared[at / ${width}u][turn * ${parts}u + own][column]`;
        const sum = binary(text, "add", "f32", "sums[own]", value);
        const row = `blockIdx.x + ${columnPartialCount}u * (turn * ${parts}u + own)`;
        text.line(`if (${row} < rows) sums[own] = ${sum};`);
      });
    });
    combineHalves(text, "add", "f32", "sums", parts);
    for (const [place, output] of outputs.entries()) {
      const isOwn = place < outputs.length - 1 ? `if (at < ${(place + 1) * width}u) ` : "";
      const to = `out${output}[blockIdx.x * columns + column]`;
      text.line(`${place === 0 ? "" : "else "}${isOwn}${to} = sums[0];`);
    }
  });
}
