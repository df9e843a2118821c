/**
 * Column sums as an output of row kernels, in CUDA C++: which rows a team takes, and how the teams of a block combine their sums into one
 * partial per column. `column-sum-layout.ts` describes the distribution of rows.
 */

import type { RowKernel } from "../../../ir/index.js";
import { combineHalves } from "./column-kernel.js";
import type { ColumnSumLayout } from "./column-sum-layout.js";
import { binary } from "./expressions.js";
import type { KernelText } from "./kernel-text.js";

/** The outputs of a kernel that are column sums. */
export function colsumOutputs({ outputs }: RowKernel): readonly number[] {
  return outputs.flatMap(({ per }, output) => (per === "column" ? [output] : []));
}

export function storesColsums(kernel: RowKernel): boolean {
  return colsumOutputs(kernel).length > 0;
}

/** C++: the index of a block along the rows. */
function blockOf({ chunks }: ColumnSumLayout): string {
  return chunks > 1 ? `blockIdx.x / ${chunks}u` : "blockIdx.x";
}

/** C++: the first column of a block's chunk. */
function firstColumnOf({ chunks, width }: ColumnSumLayout): string {
  return chunks > 1 ? `blockIdx.x % ${chunks}u * ${width}u` : "0u";
}

export function teamsOf({ rounds, leaves }: ColumnSumLayout): number {
  return rounds * leaves;
}

/** C++: the first row of a thread's team. */
export function firstRowOf(layout: ColumnSumLayout): string {
  const team = `${layout.blocks}u * (threadIdx.x / ${layout.lanes}u)`;
  return teamsOf(layout) > 1 ? `${blockOf(layout)} + ${team}` : blockOf(layout);
}

/** The distance between two rows of a team. */
export function rowStepOf(layout: ColumnSumLayout): number {
  return layout.blocks * teamsOf(layout);
}

/** C++: the head of a team's loop over its rows. */
export function loopOverRows(layout: ColumnSumLayout): string {
  return `for (unsigned row = ${firstRowOf(layout)}; row < rows; row += ${rowStepOf(layout)}u)`;
}

/** C++: the first element of a thread's vector in the row. */
export function positionOf(layout: ColumnSumLayout, vector: string): string {
  const inChunk = `(${vector} * ${layout.lanes}u + lane) * 4u`;
  return layout.chunks > 1 ? `${firstColumnOf(layout)} + ${inChunk}` : inChunk;
}

/** C++: the index of a thread's team in its block. */
export function teamOf({ lanes }: ColumnSumLayout): string {
  return `threadIdx.x / ${lanes}u`;
}

/** C++: a barrier for the threads of a team that is not a warp. */
export function teamBarrier(text: KernelText, layout: ColumnSumLayout | undefined): string {
  if (!layout || teamsOf(layout) === 1) return "__syncthreads();";
  return `${text.call("namedBarrierSync", `1u + ${teamOf(layout)}`, `${layout.lanes}u`)};`;
}

/** Declares the accumulators of a team that loops over rows. */
export function declareAccumulators(text: KernelText, { vectors }: ColumnSumLayout, sums: number): void {
  for (let index = 0; index < sums; index++)
    text.line(`${text.use("Vec")}<float, 4> ${accumulators(index)}[${vectors}] = {};`);
}

const accumulators = (index: number): string => `colsum${index}`;

/** Adds an element of a vector to the accumulators of the `index`-th column sum. */
export function accumulate(text: KernelText, index: number, value: string, element: string): void {
  const accumulator = `${accumulators(index)}[v].element[${element}]`;
  text.line(`${accumulator} = ${binary(text, "add", "f32", accumulator, value)};`);
}

/** Declares the shared memory for the rows to be summed. */
export function declareSharedRows(text: KernelText, layout: ColumnSumLayout): void {
  if (layout.sharedBytes === 0) return;
  text.line(`${text.call("dynamicSharedMemory", "smem", `${layout.sharedBytes}`)};`);
  text.line(
    `auto* const sharedRows = reinterpret_cast<float(*)[${teamsOf(layout)}][${layout.width}]>(smem);`,
  );
}

/** C++: the address in shared memory of a thread's vector of the `index`-th column sum. */
export function sharedRowAddress(index: number, { lanes, chunks }: ColumnSumLayout): string {
  const column = chunks > 1 ? `(v * ${lanes}u + lane) * 4u` : "position";
  return `&sharedRows[${index}][threadIdx.x / ${lanes}u][${column}]`;
}

/** Prints the end of a loop over rows: the teams' sums become one partial per column. `loopOverVectors` prints a loop over a thread's vectors. */
export function storeAccumulators(
  text: KernelText,
  layout: ColumnSumLayout,
  outputs: readonly number[],
  access: "vector" | "scalar",
  loopOverVectors: (body: () => void) => void,
): void {
  if (layout.sharedBytes > 0) {
    loopOverVectors(() => {
      for (const index of outputs.keys())
        text.line(`${text.call("storeVec", sharedRowAddress(index, layout), `${accumulators(index)}[v]`)};`);
    });
    reduceColumns(text, layout, outputs);
    return;
  }
  loopOverVectors(() => {
    for (const [index, output] of outputs.entries()) {
      const address = `out${output} + (long long)${blockOf(layout)} * columns + position`;
      const vec = `${accumulators(index)}[v]`;
      const store =
        access === "vector"
          ? text.call("storeVec", address, vec)
          : text.call("storeTail", address, "1", "columns - position", vec);
      text.line(`${store};`);
    }
  });
}

/** Prints the levels of the reduction tree that a block computes. */
export function reduceColumns(text: KernelText, layout: ColumnSumLayout, outputs: readonly number[]): void {
  const { rounds, leaves, threads, width, blocks, isLoop } = layout;
  text.line("__syncthreads();");
  text.block(
    `for (unsigned index = threadIdx.x; index < ${outputs.length * width}u; index += ${threads}u)`,
    () => {
      text.line(`const unsigned inChunk = index % ${width}u;`);
      text.line(`const unsigned column = ${firstColumnOf(layout)} + inChunk;`);
      text.line("if (column >= columns) continue;");
      text.line(`float partials[${leaves}];`);
      text.unrolled("partial", leaves, () => {
        text.line("partials[partial] = 0.0f;");
        text.unrolled("round", rounds, () => {
          const value = `sharedRows[index / ${width}u][round * ${leaves}u + partial][inChunk]`;
          const sum = binary(text, "add", "f32", "partials[partial]", value);
          const row = `${blockOf(layout)} + ${blocks}u * (round * ${leaves}u + partial)`;
          // A team without rows has accumulated zeros.
          text.line(`${isLoop ? "" : `if (${row} < rows) `}partials[partial] = ${sum};`);
        });
      });
      combineHalves(text, "add", "f32", "partials", leaves);
      for (const [index, output] of outputs.entries()) {
        const condition = index < outputs.length - 1 ? `if (index < ${(index + 1) * width}u) ` : "";
        const target = `out${output}[${chunkedIndex(layout)} * columns + column]`;
        text.line(`${index === 0 ? "" : "else "}${condition}${target} = partials[0];`);
      }
    },
  );
}

function chunkedIndex(layout: ColumnSumLayout): string {
  return layout.chunks > 1 ? `(${blockOf(layout)})` : blockOf(layout);
}
