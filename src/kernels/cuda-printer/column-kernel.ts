/**
 * Prints a column kernel as CUDA C++. A block takes eight neighbouring columns; its threads share the rows, each thread
 * every so many-th one of its column, from top to bottom, and their results are joined in a fixed order. How many threads
 * share a column follows from the number of rows alone, and so do the bits.
 */

import type { KernelSource } from "../../driver/index.js";
import { checkColumnKernel } from "../check-kernel.js";
import type { ColumnKernel } from "../ir.js";
import type { ColumnStride } from "../launch-form.js";
import { identityOf } from "../reductions.js";
import { computeTypes, elementTypes } from "./element-types.js";
import { binary, type Leaves, literal, printExpression } from "./expressions.js";
import { KernelText } from "./kernel-text.js";
import { narrowed, widened } from "./row-operands.js";

/** Columns of a block: with f32 elements, what one access to memory brings. */
export const columnsPerBlock = 8;
const warp = 32;
/** Results of one warp lie this far from the next one's, so that a column's lie in different banks. */
const sharedStride = columnsPerBlock + 1;

export interface ColumnLayout {
  readonly strides: readonly ColumnStride[];
  /** How many threads share a column's rows: 32 or 128. */
  readonly rowLanes: number;
}

/** The parameters: the inputs, the output, rows and columns as u32, each input's row stride; then the kernel's scalars. */
export function printColumnKernel(kernel: ColumnKernel, { strides, rowLanes }: ColumnLayout): KernelSource {
  checkColumnKernel(kernel);
  const text = new KernelText();
  const { inputs, output, scalars, value, op } = kernel;
  for (const [index, dtype] of inputs.entries()) text.pointer("in", elementTypes[dtype].type, `in${index}`);
  text.pointer("inout", elementTypes[output].type, "out");
  text.scalar("u32", "rows");
  text.scalar("u32", "columns");
  for (const index of inputs.keys()) text.scalar("i32", `step${index}`);
  for (const [index, type] of scalars.entries()) text.scalar(type, `scalar${index}`);

  const { type } = value;
  const real = computeTypes[type];
  const identity = literal(type, identityOf(op, type));
  const join = (a: string, b: string): string => binary(text, op, type, a, b);
  const threads = columnsPerBlock * rowLanes;
  const warps = threads / warp;
  text.line(`__shared__ ${real} shared[${warps * sharedStride}];`);
  text.line(
    `const unsigned position = blockIdx.x * ${columnsPerBlock}u + threadIdx.x % ${columnsPerBlock}u;`,
  );
  // Threads with no column stay to the end, since the others join their results with all of the block.
  text.line("const unsigned end = position < columns ? rows : 0u;");
  text.line(`${real} sum = ${identity};`);
  // Several rows on their way at a time: each comes from far.
  text.line(`#pragma unroll ${inputs.length > 2 ? 4 : 8}`);
  text.block(`for (unsigned row = threadIdx.x / ${columnsPerBlock}u; row < end; row += ${rowLanes}u)`, () => {
    const leaves: Leaves = {
      load({ input }, at) {
        const column = strides[input] === "none" ? "" : " + position";
        const index = at === undefined ? "" : ` + ${at}`;
        const place = `in${input}[(long long)(int)row * step${input}${column}${index}]`;
        return widened(text, inputs[input] ?? "f32", place);
      },
      scalar: (index) => `scalar${index}`,
      reduced: () => "",
      position: () => "(int)position",
      row: () => "(int)row",
    };
    text.line(`sum = ${join("sum", printExpression(text, value, leaves))};`);
  });
  for (let distance = columnsPerBlock; distance < warp; distance *= 2) {
    text.line(`sum = ${join("sum", `__shfl_xor_sync(0xffffffffu, sum, ${distance})`)};`);
  }
  text.line(`const unsigned lane = threadIdx.x % ${warp}u;`);
  text.line(`const unsigned warp = threadIdx.x / ${warp}u;`);
  text.line(`if (lane < ${columnsPerBlock}u) shared[warp * ${sharedStride}u + lane] = sum;`);
  text.line("__syncthreads();");
  // From here on each of the first warps has one column, and its lanes have what the warps made of it.
  text.line(`if (warp >= ${columnsPerBlock}u) return;`);
  text.line(`sum = shared[lane % ${warps}u * ${sharedStride}u + warp];`);
  for (let distance = warps / 2; distance >= 1; distance /= 2) {
    text.line(`sum = ${join("sum", `__shfl_xor_sync(0xffffffffu, sum, ${distance})`)};`);
  }
  text.line(`const unsigned column = blockIdx.x * ${columnsPerBlock}u + warp;`);
  text.line(`if (lane == 0u && column < columns) out[column] = ${narrowed(text, output, "sum")};`);
  return text.finish(kernel.name, threads);
}
