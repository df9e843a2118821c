/**
 * Many copies in one launch, where a launch costs more than most copies: the gradients of a model's parameters on their way
 * to their places.
 */

import type { KernelSource, Parameter } from "../../driver/index.js";
import type { LaunchCommand, Storage } from "../../runtime/index.js";
import { awaiting, awaitingFirst } from "../codegen/cuda/kernel-text.js";
import { cachedSource } from "../source-cache.js";

export interface PlainCopy {
  readonly source: Storage;
  /** Of the source's size. */
  readonly target: Storage;
}

/** More of them go in several launches: a kernel's arguments have a limit of 4 KiB. */
const maxCopies = 64;
/**
 * The kernel is printed for 1, 2, 4, 8 and 16 copies, and for multiples of 16; what is not used is empty. Every place costs the
 * host time, and a step with one input has one copy.
 */
const copiesPerSize = 16;
const wordBytes = 4;
const threads = 256;
const wordsPerBlock = 4096;

/** Can these bytes be copied in words, as the kernel does? */
export function isInWords({ source, target }: PlainCopy): boolean {
  return [source.span.size, source.span.address, target.span.address].every((one) => one % wordBytes === 0);
}

/** Copies, in no order: no target may overlap another, or a source. All of them `isInWords`. Only on CUDA. */
export function lowerCopies(copies: readonly PlainCopy[], op = "copy"): readonly LaunchCommand[] {
  const launches: LaunchCommand[] = [];
  for (let first = 0; first < copies.length; first += maxCopies) {
    launches.push(...lowerSome(copies.slice(first, first + maxCopies), op));
  }
  return launches;
}

function lowerSome(copies: readonly PlainCopy[], op: string): readonly LaunchCommand[] {
  const [any] = copies;
  if (!any) return [];
  if (copies.length === 1) {
    // Before every step with one input: no lists are made for it.
    const { source, target } = any;
    const words = source.span.size / wordBytes;
    const blocks = Math.ceil(words / wordsPerBlock);
    return [{ kind: "launch", op, source: kernelOf(1), blocks, arguments: [source, target, words, blocks] }];
  }
  const size = placesFor(copies.length);
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
    ...repeated(any.source),
    ...copies.map(({ target }) => target),
    ...repeated(any.target),
    ...words,
    ...repeated(0),
    ...ends,
    ...repeated(blocks),
  ];
  return [{ kind: "launch", op, source: kernelOf(size), blocks, arguments: values }];
}

function placesFor(copies: number): number {
  if (copies > copiesPerSize) return Math.ceil(copies / copiesPerSize) * copiesPerSize;
  return 2 ** Math.ceil(Math.log2(copies));
}

function kernelOf(size: number): KernelSource {
  return cachedSource(`cuda copy of ${size}`, () => printKernel(size));
}

function printKernel(size: number): KernelSource {
  const each = (parameter: Parameter): Parameter[] => new Array<Parameter>(size).fill(parameter);
  const entry = `hf_copy_many_${size}`;
  return {
    name: `copy of ${size}`,
    // "partial-out": where fewer are copied than there are places, a target stands there twice.
    parameters: [...each("in"), ...each("partial-out"), ...each("u32"), ...each("u32")],
    cuda: { code: printCopies(entry, size), entry, threads, waits: true },
  };
}

function printCopies(entry: string, size: number): string {
  const list = (one: (index: number) => string): string =>
    Array.from({ length: size }, (_, index) => one(index)).join("");
  const choose = list((index) => {
    const start = index === 0 ? "0u" : `e${index - 1}`;
    return `if (block < e${index}) { s = s${index}; t = t${index}; n = n${index}; first = block - ${start}; } else `;
  });
  return `${awaiting}extern "C" __global__ void __launch_bounds__(${threads}) ${entry}(
${list((index) => `const unsigned* s${index}, `)}
${list((index) => `unsigned* t${index}, `)}
${list((index) => `unsigned n${index}, `)}
${list((index) => `unsigned e${index}, `).replace(/, $/, "")}) {
${awaitingFirst}  const unsigned block = blockIdx.x;
  const unsigned* s;
  unsigned* t;
  unsigned n;
  unsigned first;
  ${choose} return;
  first = first * ${wordsPerBlock}u;
  const unsigned end = n - first < ${wordsPerBlock}u ? n : first + ${wordsPerBlock}u;
  const bool wide = n % 4u == 0u && ((size_t)s | (size_t)t) % 16u == 0u;
  if (wide) {
    for (unsigned i = first + threadIdx.x * 4u; i < end; i += ${4 * threads}u)
      *reinterpret_cast<uint4*>(t + i) = *reinterpret_cast<const uint4*>(s + i);
  } else {
    for (unsigned i = first + threadIdx.x; i < end; i += ${threads}u) t[i] = s[i];
  }
}
`;
}
