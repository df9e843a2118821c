/**
 * Prints reductions of the chunks of a vector that consists of sections, some of them compact rows with a row map. One warp reduces a chunk,
 * because few of its elements are in memory; the others are zeros, which do not change the result. chunked-reduce-kernel.ts reduces a chunk with
 * eight warps. Here one warp does the work of those eight in turn, and skips those without elements. The order of additions stays the same, and
 * so do the bits.
 */

import type { KernelSource } from "../../../driver/index.js";
import type { ChunkedReduceKernel } from "../../../ir/index.js";
import { warpSize } from "../../cost-model.js";
import { chunkShape, leavesOfElement } from "./chunked-reduce-kernel.js";
import { computeTypes, elementTypes } from "./element-types.js";
import { binary, printExpression } from "./expressions.js";
import { KernelText } from "./kernel-text.js";
import { widened } from "./row-operands.js";

/** Chunks of a block, one per warp. */
export const chunksPerBlock = 8;
const { threads, vectorWidth, vectorsPerThread } = chunkShape;
const warps = threads / warpSize;
const groupsPerChunk = threads * vectorsPerThread;

/** The numbers of a section: groups of four elements before it, elements up to its end, and groups of a row with their divisor. */
export const sectionNumbers = ["first", "end", "rowGroups", "magic", "shift"] as const;

/**
 * The parameters: the sections' elements and row maps, the results; as u32 the numbers of each section by `sectionNumbers`, the first
 * chunk and the number of chunks; then the kernel's scalars. A section without a row map has rows of 0 groups.
 */
export function printSectionedReduceKernel(kernel: ChunkedReduceKernel, sections: number): KernelSource {
  const { name, dtype, op, value, scalars } = kernel;
  const text = new KernelText();
  const { type } = elementTypes[dtype];
  const real = computeTypes[value.type];
  const combine = (a: string, b: string): string => binary(text, op, value.type, a, b);
  const indices = Array.from({ length: sections }, (_, index) => index);
  for (const index of indices) text.pointer("in", type, `elements${index}`);
  for (const index of indices) text.pointer("in", "int", `map${index}`);
  text.pointer("out", real, "results");
  for (const number of sectionNumbers) for (const index of indices) text.scalar("u32", `${number}${index}`);
  for (const number of ["firstChunk", "chunks"]) text.scalar("u32", number);
  for (const [index, scalarType] of scalars.entries()) text.scalar(scalarType, `scalar${index}`);

  text.line(`const unsigned lane = threadIdx.x % ${warpSize}u;`);
  text.line(`const unsigned chunk = blockIdx.x * ${chunksPerBlock}u + threadIdx.x / ${warpSize}u;`);
  text.line("if (chunk >= chunks) return;");
  text.line(`const unsigned firstGroup = (firstChunk + chunk) * ${groupsPerChunk}u;`);
  // Bit w: the block's warp w has elements.
  text.line("unsigned present = 0u;");
  for (const index of indices) printPresence(index);
  for (let distance = warpSize / 2; distance >= 1; distance /= 2)
    text.line(`present |= __shfl_xor_sync(0xffffffffu, present, ${distance});`);
  // Lane w keeps the total of the block's warp w.
  text.line(`${real} total, ofWarps = 0;`);
  text.line("#pragma unroll 1");
  text.block(`for (unsigned warp = 0u; warp < ${warps}u; warp++)`, () => {
    text.line("if ((present >> warp & 1u) == 0u) continue;");
    text.line(`const ${type}* at[${vectorsPerThread}];`);
    text.line(`unsigned left[${vectorsPerThread}];`);
    text.unrolled("v", vectorsPerThread, () => {
      text.line(`const unsigned group = firstGroup + (v * ${warps}u + warp) * ${warpSize}u + lane;`);
      text.line("at[v] = nullptr;");
      text.line("left[v] = 0u;");
      for (const index of indices) printLocation(index);
    });
    text.line(`${real} acc[${vectorWidth}] = {};`);
    text.unrolled("v", vectorsPerThread, () => {
      text.line("if (at[v] == nullptr) continue;");
      text.line(`${text.use("Vec")}<${type}, ${vectorWidth}> vec;`);
      text.line(`if (left[v] >= ${vectorWidth}u) vec = ${text.use("loadVec")}<${vectorWidth}>(at[v]);`);
      text.line(`else vec = ${text.call("loadTail", "at[v]", "1", "left[v]")};`);
      text.unrolled("k", vectorWidth, () => {
        const element = widened(text, dtype, "vec.element[k]");
        const computed = printExpression(text, value, leavesOfElement(element));
        text.line(`if (k < left[v]) acc[k] = ${combine("acc[k]", computed)};`);
      });
    });
    text.line(`total = ${combine(combine("acc[0]", "acc[1]"), combine("acc[2]", "acc[3]"))};`);
    printButterfly(warpSize);
    text.line("if (lane == warp) ofWarps = total;");
  });
  text.line(`total = __shfl_sync(0xffffffffu, ofWarps, (int)(lane % ${warps}u));`);
  printButterfly(warps);
  text.line("if (lane == 0u) results[chunk] = total;");
  return text.toKernel(`${name} in sections`, chunksPerBlock * warpSize);

  /** Sets the bits of the warps that have elements of a section. A lane looks up a row of a table at a time. */
  function printPresence(index: number): void {
    const [first, end, rowGroups] = [`first${index}`, `end${index}`, `rowGroups${index}`];
    const overlaps = `firstGroup + ${groupsPerChunk}u > ${first} && firstGroup * ${vectorWidth}u < ${end}`;
    text.line(`if (${overlaps} && ${rowGroups} == 0u) present = ${2 ** warps - 1}u;`);
    text.block(`if (${overlaps} && ${rowGroups} != 0u)`, () => {
      // Groups of the section, counted from its start.
      text.line(`const unsigned from = firstGroup > ${first} ? firstGroup - ${first} : 0u;`);
      text.line(`const unsigned chunkEnd = firstGroup + ${groupsPerChunk}u - ${first};`);
      text.line(`const unsigned sectionEnd = ${end} / ${vectorWidth}u - ${first};`);
      text.line("const unsigned to = chunkEnd < sectionEnd ? chunkEnd : sectionEnd;");
      text.line(`unsigned row = ${quotient("from", index)} + lane;`);
      text.block(`for (; row * ${rowGroups} < to; row += ${warpSize}u)`, () => {
        text.line(`if (map${index}[row] < 0) continue;`);
        text.line(`const unsigned start = row * ${rowGroups}, stop = start + ${rowGroups};`);
        text.line(`const unsigned begin = (start > from ? start : from) + ${first} - firstGroup;`);
        text.line(`const unsigned last = (stop < to ? stop : to) + ${first} - firstGroup - 1u;`);
        text.line(
          `for (unsigned part = begin / ${warpSize}u; part <= last / ${warpSize}u; part++) present |= 1u << part % ${warps}u;`,
        );
      });
    });
  }

  /** Sets where the group's elements are in a section, and how many there are up to its end. */
  function printLocation(index: number): void {
    const condition = `group >= first${index} && group * ${vectorWidth}u < end${index}`;
    text.block(`if (${condition})`, () => {
      text.line(`const unsigned offset = group - first${index};`);
      text.line(`left[v] = end${index} - group * ${vectorWidth}u;`);
      text.block(`if (rowGroups${index} == 0u)`, () => {
        text.line(`at[v] = elements${index} + (size_t)offset * ${vectorWidth}u;`);
      });
      text.block("else", () => {
        text.line(`const unsigned row = ${quotient("offset", index)};`);
        text.line(`const int position = map${index}[row];`);
        text.line(`const unsigned column = offset - row * rowGroups${index};`);
        text.line(
          `if (position >= 0) at[v] = elements${index} + ((size_t)position * rowGroups${index} + column) * ${vectorWidth}u;`,
        );
      });
    });
  }

  /** Granlund and Montgomery: the division by a row's groups, which the host knows. */
  function quotient(groups: string, index: number): string {
    return `((__umulhi(${groups}, magic${index}) + ${groups}) >> shift${index})`;
  }

  /** Warp-reduce butterfly over neighbouring lanes. */
  function printButterfly(lanes: number): void {
    for (let distance = lanes / 2; distance >= 1; distance /= 2)
      text.line(`total = ${combine("total", `__shfl_xor_sync(0xffffffffu, total, ${distance})`)};`);
  }
}
