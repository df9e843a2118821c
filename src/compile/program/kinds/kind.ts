/** A kind of call: everything that the passes and the emission need to know about its work. */

import type { Backend } from "../../../kernels/index.js";
import type { Command, LoadedCommand, Storage } from "../../../runtime/index.js";
import type { Access } from "../access.js";
import type { BufferSlice } from "../buffer.js";

export type SliceMap = (slice: BufferSlice) => BufferSlice;

/** How the parts of a call become text in its CSE key. */
export interface KeyParts {
  /** A slice with the value that it has now. */
  read(slice: BufferSlice): string;
  /** A slice by its size alone. */
  written(slice: BufferSlice): string;
  /** Numbers and layouts. */
  literal(value: unknown): string;
  /** An object by its identity. */
  identity(object: object): string;
}

/** Where and how a call is emitted. */
export interface Emission {
  readonly backend: Backend;
  readonly op: string;
  /** The storage of a slice. */
  resolve(slice: BufferSlice): Storage;
  /** With programmatic dependent launch: the operands to prefetch before the grid dependency wait. Without: undefined. */
  readonly prefetches: readonly BufferSlice[] | undefined;
}

/** For each operand, whether it is prefetched; undefined without programmatic dependent launch. */
export function prefetchesOf(
  operands: readonly BufferSlice[],
  { prefetches }: Emission,
): readonly boolean[] | undefined {
  return prefetches && operands.map((slice) => prefetches.includes(slice));
}

export interface Kind<Work> {
  /** Each operand by itself, even if several are the same slice. */
  accesses(work: Work): readonly Access[];
  /**
   * The accesses of each kernel that the launch runs concurrently; missing if the kind runs one kernel. Scratch memory is a member of its
   * own, because all kernels share it.
   */
  members?(work: Work): readonly (readonly Access[])[];
  /** The same work on other slices. */
  mapSlices(work: Work, to: SliceMap): Work;
  /** Two calls with equal keys compute equal results. */
  key(work: Work, parts: KeyParts): string;
  /** The kernel's name, for people. */
  name(work: Work): string;
  /** Rows × columns, or m×n×k; for people. */
  shape(work: Work): string;
  /** Operands that the kernel can prefetch before the grid dependency wait. Default: none. */
  prefetchable?(work: Work): readonly BufferSlice[];
  /** The kernel always prefetches all of them: without that it can't use programmatic dependent launch. Default: false. */
  readonly alwaysPrefetches?: boolean;
  /** The commands that do the work. Commands with kernels that are already loaded are allowed. */
  emit(work: Work, emission: Emission): readonly (Command | LoadedCommand)[];
  /** True if all commands are kernel launches: fills and copies run on the main stream only, and without PDL. Default: true. */
  isLaunched?(work: Work): boolean;
}

/** How often each kernel occurs, as in `2 × add`. */
export function countNames(members: readonly { readonly kernel: { readonly name: string } }[]): string[] {
  const counts = new Map<string, number>();
  for (const { kernel } of members) counts.set(kernel.name, (counts.get(kernel.name) ?? 0) + 1);
  return [...counts].map(([name, count]) => (count === 1 ? name : `${count} × ${name}`));
}
