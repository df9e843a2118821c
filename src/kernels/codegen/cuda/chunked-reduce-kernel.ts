/**
 * Prints the reduction of several vectors, part by part, as CUDA C++. A block takes a part; each of its threads takes every
 * so many-th pack of four elements, reduces the four places apart, and the threads' results are joined in a fixed order.
 * So a part's bits follow from its elements, not from where it lies or what is reduced beside it.
 */

import type { KernelSource } from "../../../driver/index.js";
import type { ChunkedReduceKernel } from "../../../ir/index.js";
import { checkColumnKernel, identityOf } from "../../../ir/index.js";
import { computeTypes, elementTypes } from "./element-types.js";
import { binary, type Leaves, literal, printExpression } from "./expressions.js";
import { KernelText } from "./kernel-text.js";
import { widened } from "./row-operands.js";

const warp = 32;
const threads = 256;
const [vectorWidth, vectorsPerThread] = [4, 4];
/** The alignment that moves the largest packs as a whole. */
const vectorAlignment = 16;

export const chunkLength = threads * vectorWidth * vectorsPerThread;

/**
 * The parameters: the vectors, where the results go, then as u32 the vectors' lengths and the parts of each and those
 * before it; then the kernel's scalars.
 */
export function printChunkedReduceKernel(kernel: ChunkedReduceKernel, vectors: number): KernelSource {
  const { name, dtype, op, value, scalars } = kernel;
  checkColumnKernel({ name, inputs: [dtype], outputs: [value.type], scalars, op, values: [value] });
  const text = new KernelText();
  const { type } = elementTypes[dtype];
  const real = computeTypes[value.type];
  const join = (a: string, b: string): string => binary(text, op, value.type, a, b);
  const numbers = Array.from({ length: vectors }, (_, index) => index);
  for (const index of numbers) text.pointer("in", type, `in${index}`);
  text.pointer("out", real, "results");
  for (const index of numbers) text.scalar("u32", `length${index}`);
  for (const index of numbers) text.scalar("u32", `end${index}`);
  for (const [index, one] of scalars.entries()) text.scalar(one, `scalar${index}`);

  text.line(`const ${type}* from;`);
  text.line("unsigned left, before;");
  const choices = numbers.slice(0, -1).map((index) => `if (blockIdx.x < end${index}) ${chosen(index)} else `);
  text.line(`${choices.join("")}${chosen(vectors - 1)}`);
  text.define("const unsigned", "start", `(blockIdx.x - before) * ${chunkLength}u`);
  text.line("from += start;");
  text.line("left -= start;");
  text.line(
    `${real} sums[4] = {${Array(4)
      .fill(literal(value.type, identityOf(op, value.type)))
      .join(", ")}};`,
  );

  const forEachVector = (body: () => void): void =>
    text.unrolled("pack", vectorsPerThread, () => {
      text.line(`const unsigned position = (pack * ${threads}u + threadIdx.x) * ${vectorWidth}u;`);
      body();
    });
  const addUp = (element: string): void => {
    const computed = printExpression(text, value, leavesOf(widened(text, dtype, element)));
    text.line(`sums[k] = ${join("sums[k]", computed)};`);
  };
  text.block(`if (left >= ${chunkLength}u && (size_t)from % ${vectorAlignment}u == 0u)`, () => {
    // All of them on their way at once: each comes from far.
    text.line(`${text.use("Vec")}<${type}, ${vectorWidth}> packs[${vectorsPerThread}];`);
    forEachVector(() => text.line(`packs[pack] = ${text.use("load")}<${vectorWidth}>(from + position);`));
    text.unrolled("pack", vectorsPerThread, () => {
      text.unrolled("k", vectorWidth, () => addUp("packs[pack].lane[k]"));
    });
  });
  text.block("else", () => {
    forEachVector(() => {
      text.unrolled("k", vectorWidth, () => {
        text.block("if (position + k < left)", () => addUp("from[position + k]"));
      });
    });
  });
  text.line(`${real} total = ${join(join("sums[0]", "sums[1]"), join("sums[2]", "sums[3]"))};`);
  flattenSpans(warp);
  text.line(`__shared__ ${real} shared[${threads / warp}];`);
  text.line(`if (threadIdx.x % ${warp}u == 0u) shared[threadIdx.x / ${warp}u] = total;`);
  text.line("__syncthreads();");
  text.line(`total = shared[threadIdx.x % ${threads / warp}u];`);
  flattenSpans(threads / warp);
  text.line("if (threadIdx.x == 0u) results[blockIdx.x] = total;");
  return text.finish(name, threads);

  function flattenSpans(lanes: number): void {
    for (let distance = lanes / 2; distance >= 1; distance /= 2)
      text.line(`total = ${join("total", `__shfl_xor_sync(0xffffffffu, total, ${distance})`)};`);
  }
}

function chosen(index: number): string {
  const before = index === 0 ? "0u" : `end${index - 1}`;
  return `{ from = in${index}; left = length${index}; before = ${before}; }`;
}

function leavesOf(element: string): Leaves {
  return {
    load: () => element,
    scalar: (index) => `scalar${index}`,
    reduced: () => "",
    position: () => "0",
    row: () => "0",
  };
}
