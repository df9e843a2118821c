/**
 * Multi-tensor reduction of a vector that consists of sections. A chunk inside a section without a row map is reduced by a block, as in a
 * contiguous vector. Any other chunk is reduced by one warp.
 */

import type { KernelSource } from "../../driver/index.js";
import { type ChunkedReduceKernel, dtypes, kernelKey } from "../../ir/index.js";
import type { LaunchCommand, Storage } from "../../runtime/index.js";
import { chunkLength } from "../codegen/cuda/chunked-reduce-kernel.js";
import { chunksPerBlock, printSectionedReduceKernel } from "../codegen/cuda/sectioned-reduce-kernel.js";
import { divisorArguments } from "../convolution/cuda/divisor.js";
import { cachedSource } from "../source-cache.js";
import { paddedGroupSize } from "./group-size.js";
import type { ChunkedReduceLaunch, ReducedVector, VectorSection } from "./reduce-problem.js";

/** Elements of a vector load. */
const groupSize = 4;
/** Sections of one launch: every thread compares its position with all of them. A chunk must not have more. */
const maxSections = 16;

type Section = VectorSection<Storage>;
export type SectionedVector = Extract<ReducedVector<Storage>, { readonly sections: unknown }>;

interface ChunkRange {
  readonly first: number;
  readonly end: number;
}

/** Consecutive chunks: inside of a section without a row map, or any others. */
interface ChunkRun extends ChunkRange {
  readonly inside?: Section;
}

/** The chunks of a launch. */
interface LaunchRange extends ChunkRange {
  readonly present: readonly [Section, ...Section[]];
}

/** A contiguous vector of the launch, and where its results go. */
export interface PlainVector {
  readonly storage: Storage;
  readonly length: number;
  readonly results: Storage;
}

/** The launches of a vector, whose results begin at the start of `results`. `lowerPlain` lowers a contiguous vector. */
export function lowerSections(
  launch: ChunkedReduceLaunch,
  { length, sections }: SectionedVector,
  results: Storage,
  lowerPlain: (vector: PlainVector) => readonly LaunchCommand[],
): readonly LaunchCommand[] {
  const { kernel, view } = launch;
  const [elementBytes, resultBytes] = [dtypes[kernel.dtype].bytes, dtypes[kernel.value.type].bytes];
  const ofChunks = ({ first, end }: ChunkRange): Storage =>
    view(results, first * resultBytes, (end - first) * resultBytes);
  return chunkRuns(length, sections).flatMap(({ first, end, inside }) => {
    if (!inside) {
      return launchRanges(sections, { first, end }).map((range) =>
        lowerRange(launch, range, ofChunks(range)),
      );
    }
    const start = first * chunkLength;
    const count = Math.min(end * chunkLength, length) - start;
    const storage = view(inside.storage, (start - inside.first) * elementBytes, count * elementBytes);
    return lowerPlain({ storage, length: count, results: ofChunks({ first, end }) });
  });
}

/** All chunks of a vector, in order. */
export function chunkRuns(length: number, sections: readonly Section[]): readonly ChunkRun[] {
  const chunks = Math.ceil(length / chunkLength);
  const runs: ChunkRun[] = [];
  let done = 0;
  for (const section of sections.filter(({ rowMap }) => !rowMap)) {
    const sectionEnd = section.first + section.length;
    const first = Math.ceil(section.first / chunkLength);
    const end = sectionEnd === length ? chunks : Math.floor(sectionEnd / chunkLength);
    if (end <= first) continue;
    if (done < first) runs.push({ first: done, end: first });
    runs.push({ first, end, inside: section });
    done = end;
  }
  if (done < chunks) runs.push({ first: done, end: chunks });
  return runs;
}

/** The chunks of each launch, with the sections that are there. */
function launchRanges(sections: readonly Section[], { first, end }: ChunkRange): readonly LaunchRange[] {
  const ranges: LaunchRange[] = [];
  for (let done = first; done < end; done = ranges.at(-1)?.end ?? end) {
    const rest = sections.filter((section) => section.first + section.length > done * chunkLength);
    const next = rest[maxSections];
    const last = next ? Math.min(end, Math.floor(next.first / chunkLength)) : end;
    const [any, ...others] = rest
      .slice(0, maxSections)
      .filter((section) => section.first < last * chunkLength);
    if (!any || last === done) {
      const inChunk = rest.filter((section) => section.first < (done + 1) * chunkLength);
      throw new Error(
        `Chunk ${done} of a vector has ${inChunk.length} sections; a kernel reads 1 to ${maxSections} of a chunk.`,
      );
    }
    ranges.push({ first: done, end: last, present: [any, ...others] });
  }
  return ranges;
}

function lowerRange(
  { kernel, scalars = [] }: ChunkedReduceLaunch,
  { first, end, present }: LaunchRange,
  results: Storage,
): LaunchCommand {
  const [{ storage: any }] = present;
  const size = paddedGroupSize(present.length);
  const padded = <T>(list: readonly T[], value: T): T[] => [
    ...list,
    ...new Array<T>(size - list.length).fill(value),
  ];
  const divisors = present.map(({ rowMap }) =>
    divisorArguments({ row: (rowMap?.width ?? groupSize) / groupSize }),
  );
  const numbers = [
    padded(
      present.map((section) => section.first / groupSize),
      0,
    ),
    // A padded section ends where it begins.
    padded(
      present.map((section) => section.first + section.length),
      0,
    ),
    padded(
      present.map(({ rowMap }) => (rowMap?.width ?? 0) / groupSize),
      0,
    ),
    ...["rowMagic", "rowShift"].map((name) =>
      padded(
        divisors.map((divisor) => divisor[name] ?? 0),
        0,
      ),
    ),
  ];
  const chunks = end - first;
  return {
    ...{ kind: "launch", op: kernel.name, source: sourceOf(kernel, size) },
    blocks: Math.ceil(chunks / chunksPerBlock),
    arguments: [
      ...padded(
        present.map(({ storage }) => storage),
        any,
      ),
      ...padded(
        present.map(({ storage, rowMap }) => rowMap?.storage ?? storage),
        any,
      ),
      results,
      ...numbers.flat(),
      ...[first, chunks, ...scalars],
    ],
  };
}

function sourceOf(kernel: ChunkedReduceKernel, size: number): KernelSource {
  const key = `cuda chunked reduce in sections ${kernelKey(kernel)} of ${size}`;
  return cachedSource(key, () => printSectionedReduceKernel(kernel, size));
}
