/**
 * Prints multi-tensor reductions as CUDA C++: several tensors are reduced in chunks of equal length, one block per chunk. Each thread takes
 * every n-th vector of four elements and accumulates the four lanes separately; the threads' results are combined in a fixed order. So the
 * bits of a chunk's result follow from its elements, not from its address or from the other tensors.
 */

import type { KernelSource } from "../../../driver/index.js";
import type { ChunkedReduceKernel } from "../../../ir/index.js";
import { checkColumnKernel, identityOf } from "../../../ir/index.js";
import { maxVectorBytes, warpSize } from "../../cost-model.js";
import { selectMember } from "./combo/select-member.js";
import { computeTypes, elementTypes } from "./element-types.js";
import { binary, type Leaves, literal, printExpression } from "./expressions.js";
import { KernelText } from "./kernel-text.js";
import { widened } from "./row-operands.js";

/** The order of a chunk's sum follows from these numbers. */
export const chunkShape = { threads: 256, vectorWidth: 4, vectorsPerThread: 4 } as const;
const { threads, vectorWidth, vectorsPerThread } = chunkShape;
export const chunkLength = threads * vectorWidth * vectorsPerThread;

/**
 * The parameters: the tensors, the results, then as u32 the lengths of the tensors and the end of each tensor's chunks; then the
 * kernel's scalars.
 */
export function printChunkedReduceKernel(kernel: ChunkedReduceKernel, tensors: number): KernelSource {
  const { name, dtype, op, value, scalars } = kernel;
  checkColumnKernel({ name, inputs: [dtype], outputs: [value.type], scalars, op, values: [value] });
  const text = new KernelText();
  const { type } = elementTypes[dtype];
  const real = computeTypes[value.type];
  const combine = (a: string, b: string): string => binary(text, op, value.type, a, b);
  const indices = Array.from({ length: tensors }, (_, index) => index);
  for (const index of indices) text.pointer("in", type, `in${index}`);
  text.pointer("out", real, "results");
  for (const index of indices) text.scalar("u32", `length${index}`);
  for (const index of indices) text.scalar("u32", `end${index}`);
  for (const [index, scalarType] of scalars.entries()) text.scalar(scalarType, `scalar${index}`);

  const locals = [
    { type: `const ${type}*`, name: "source", valueOf: (tensor: number) => `in${tensor}` },
    { type: "unsigned", name: "remaining", valueOf: (tensor: number) => `length${tensor}` },
  ];
  for (const line of selectMember({ end: tensors, locals, index: "chunk" })) text.line(line);
  text.define("const unsigned", "start", `chunk * ${chunkLength}u`);
  text.line("source += start;");
  text.line("remaining -= start;");
  text.line(
    `${real} acc[4] = {${Array(4)
      .fill(literal(value.type, identityOf(op, value.type)))
      .join(", ")}};`,
  );

  const forEachVector = (body: () => void): void =>
    text.unrolled("v", vectorsPerThread, () => {
      text.line(`const unsigned position = (v * ${threads}u + threadIdx.x) * ${vectorWidth}u;`);
      body();
    });
  const accumulate = (element: string): void => {
    const computed = printExpression(text, value, leavesOfElement(widened(text, dtype, element)));
    text.line(`acc[k] = ${combine("acc[k]", computed)};`);
  };
  text.block(`if (remaining >= ${chunkLength}u && (size_t)source % ${maxVectorBytes}u == 0u)`, () => {
    // All loads are in flight together.
    text.line(`${text.use("Vec")}<${type}, ${vectorWidth}> vectors[${vectorsPerThread}];`);
    forEachVector(() => text.line(`vectors[v] = ${text.use("loadVec")}<${vectorWidth}>(source + position);`));
    text.unrolled("v", vectorsPerThread, () => {
      text.unrolled("k", vectorWidth, () => accumulate("vectors[v].element[k]"));
    });
  });
  text.block("else", () => {
    forEachVector(() => {
      text.unrolled("k", vectorWidth, () => {
        text.block("if (position + k < remaining)", () => accumulate("source[position + k]"));
      });
    });
  });
  text.line(`${real} total = ${combine(combine("acc[0]", "acc[1]"), combine("acc[2]", "acc[3]"))};`);
  printButterfly(warpSize);
  text.line(`__shared__ ${real} shared[${threads / warpSize}];`);
  text.line(`if (threadIdx.x % ${warpSize}u == 0u) shared[threadIdx.x / ${warpSize}u] = total;`);
  text.line("__syncthreads();");
  text.line(`total = shared[threadIdx.x % ${threads / warpSize}u];`);
  printButterfly(threads / warpSize);
  text.line("if (threadIdx.x == 0u) results[blockIdx.x] = total;");
  return text.toKernel(name, threads);

  /** Warp-reduce butterfly over neighbouring lanes. */
  function printButterfly(lanes: number): void {
    for (let distance = lanes / 2; distance >= 1; distance /= 2)
      text.line(`total = ${combine("total", `__shfl_xor_sync(0xffffffffu, total, ${distance})`)};`);
  }
}

/** The leaves of a value whose only load is this element. */
export function leavesOfElement(element: string): Leaves {
  return {
    load: () => element,
    scalar: (index) => `scalar${index}`,
    reduced: () => "",
    position: () => "0",
    row: () => "0",
  };
}
