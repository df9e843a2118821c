/** Multi-tensor copy: many copies in one launch, such as the gradients of a model's parameters. A launch costs more than most copies. */

import type { KernelSource, Parameter } from "../../driver/index.js";
import type { LaunchCommand, Storage } from "../../runtime/index.js";
import { indented, numberedLocal, selectMember } from "../codegen/cuda/combo/select-member.js";
import { pdlDeclaration, pdlWait } from "../codegen/cuda/intrinsics/pdl.js";
import { cachedSource } from "../source-cache.js";
import { paddedGroupSize } from "./group-size.js";

export interface PlainCopy {
  readonly source: Storage;
  /** Has the source's size. */
  readonly target: Storage;
}

/** Copies of one launch: its arguments take at most 4 KiB. */
const maxCopies = 64;
const wordBytes = 4;
const threads = 256;
const wordsPerBlock = 4096;

/** True if size and addresses are multiples of a word, which the kernel copies. */
export function isInWords({ source, target }: PlainCopy): boolean {
  return [source.span.size, source.span.address, target.span.address].every(
    (bytes) => bytes % wordBytes === 0,
  );
}

/** Copies in any order: no target may overlap another one or a source. All of them must be `isInWords`. CUDA only. */
export function lowerCopies(copies: readonly PlainCopy[], op = "copy"): readonly LaunchCommand[] {
  const launches: LaunchCommand[] = [];
  for (let first = 0; first < copies.length; first += maxCopies) {
    launches.push(...lowerLaunch(copies.slice(first, first + maxCopies), op));
  }
  return launches;
}

function lowerLaunch(copies: readonly PlainCopy[], op: string): readonly LaunchCommand[] {
  const [first] = copies;
  if (!first) return [];
  if (copies.length === 1) {
    // A fast path for steps with one input: it allocates few arrays.
    const { source, target } = first;
    const words = source.span.size / wordBytes;
    const blocks = Math.ceil(words / wordsPerBlock);
    return [{ kind: "launch", op, source: kernelOf(1), blocks, arguments: [source, target, words, blocks] }];
  }
  const size = paddedGroupSize(copies.length);
  const words = copies.map(({ source }) => source.span.size / wordBytes);
  const ends: number[] = [];
  let blocks = 0;
  for (const count of words) {
    blocks += Math.ceil(count / wordsPerBlock);
    ends.push(blocks);
  }
  const padding = size - copies.length;
  const repeated = <T>(value: T): T[] => new Array<T>(padding).fill(value);
  const values = [
    ...copies.map(({ source }) => source),
    ...repeated(first.source),
    ...copies.map(({ target }) => target),
    ...repeated(first.target),
    ...words,
    ...repeated(0),
    ...ends,
    ...repeated(blocks),
  ];
  return [{ kind: "launch", op, source: kernelOf(size), blocks, arguments: values }];
}

function kernelOf(size: number): KernelSource {
  return cachedSource(`cuda copy of ${size}`, () => printKernel(size));
}

function printKernel(size: number): KernelSource {
  const each = (parameter: Parameter): Parameter[] => new Array<Parameter>(size).fill(parameter);
  const entry = `hf_multi_copy_${size}`;
  return {
    name: `copy of ${size}`,
    // "partial-out": padding repeats the first target.
    parameters: [...each("in"), ...each("partial-out"), ...each("u32"), ...each("u32")],
    cuda: { code: printCopies(entry, size), entry, threads, hasGridDependencyWait: true },
  };
}

function printCopies(entry: string, size: number): string {
  const list = (parameter: (index: number) => string): string =>
    Array.from({ length: size }, (_, index) => parameter(index)).join("");
  const locals = [
    numberedLocal("const unsigned*", "source"),
    numberedLocal("unsigned*", "target"),
    numberedLocal("unsigned", "words"),
  ];
  // The last copy takes all blocks after the others, so that its end has no use and no name.
  const ends = list((index) => (index < size - 1 ? `unsigned end${index}, ` : "unsigned"));
  return `${pdlDeclaration}extern "C" __global__ void __launch_bounds__(${threads}) ${entry}(
${list((index) => `const unsigned* source${index}, `)}
${list((index) => `unsigned* target${index}, `)}
${list((index) => `unsigned words${index}, `)}
${ends}) {
${pdlWait}${indented(selectMember({ end: size, locals, index: "block" }))}  const unsigned first = block * ${wordsPerBlock}u;
  const unsigned end = words - first < ${wordsPerBlock}u ? words : first + ${wordsPerBlock}u;
  const bool isVectorised = words % 4u == 0u && ((size_t)source | (size_t)target) % 16u == 0u;
  if (isVectorised) {
    for (unsigned i = first + threadIdx.x * 4u; i < end; i += ${4 * threads}u)
      *reinterpret_cast<uint4*>(target + i) = *reinterpret_cast<const uint4*>(source + i);
  } else {
    for (unsigned i = first + threadIdx.x; i < end; i += ${threads}u) target[i] = source[i];
  }
}
`;
}
