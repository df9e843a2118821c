/**
 * The accesses of a program's nodes by memory: the readers and writers of each buffer, and of each byte range the order in which nodes
 * write and read it. From the latter follow the edges of the dependency graph.
 */

import type { Access } from "./access.js";
import type { Buffer, BufferSlice } from "./buffer.js";
import { type device, type Extent, extentOf } from "./slices.js";

/** What the index needs to know about a node. */
export interface Accessor {
  readonly accesses: readonly Access[];
  isBefore(other: this): boolean;
}

/** The nodes that access a buffer, in program order. */
export interface Uses<Node> {
  readonly writers: readonly Node[];
  readonly readers: readonly Node[];
}

/** Bytes that the same nodes access. */
interface Segment<Node> {
  from: number;
  to: number;
  /** In program order. A node that reads and writes is a writer only. */
  readonly writers: Node[];
  readonly readers: Node[];
}

const unused: Uses<never> = { writers: [], readers: [] };

export class AccessIndex<Node extends Accessor> {
  readonly #uses = new Map<Buffer, { readonly writers: Node[]; readonly readers: Node[] }>();
  readonly #spaces = new Map<Buffer | typeof device, Segment<Node>[]>();
  /** Edges, computed when they are asked for and dropped when an edit may change them. */
  readonly #predecessors = new Map<Node, ReadonlySet<Node>>();
  readonly #successors = new Map<Node, ReadonlySet<Node>>();

  /** Buffers with at least one access. */
  get buffers(): Iterable<Buffer> {
    return this.#uses.keys();
  }

  usesOf(buffer: Buffer): Uses<Node> {
    return this.#uses.get(buffer) ?? unused;
  }

  /** The nodes from one to another that access a buffer: the writers, then the readers. */
  usersBetween(buffer: Buffer, from: Node, to: Node): readonly Node[] {
    const { writers, readers } = this.usesOf(buffer);
    return [writers, readers].flatMap((sorted) => {
      const end = countBefore(sorted, to);
      return sorted.slice(countBefore(sorted, from), sorted[end] === to ? end + 1 : end);
    });
  }

  add(node: Node): void {
    for (const { slice, reads, writes } of node.accesses) {
      let uses = this.#uses.get(slice.buffer);
      if (!uses) {
        uses = { writers: [], readers: [] };
        this.#uses.set(slice.buffer, uses);
      }
      if (reads) insertSorted(uses.readers, node);
      if (writes) insertSorted(uses.writers, node);
    }
    // All segments are split before the node is added to any.
    for (const { slice } of node.accesses) this.#splitSegments(extentOf(slice));
    for (const [segment, writes] of this.#rolesOf(node)) {
      insertSorted(writes ? segment.writers : segment.readers, node);
      this.#dropEdges(segment, node, writes);
    }
  }

  /** Must be called before the node changes its accesses or its position. */
  remove(node: Node): void {
    for (const { slice, reads, writes } of node.accesses) {
      const uses = this.#uses.get(slice.buffer);
      if (!uses) continue;
      if (reads) removeSorted(uses.readers, node);
      if (writes) removeSorted(uses.writers, node);
      if (uses.readers.length + uses.writers.length === 0) this.#uses.delete(slice.buffer);
    }
    for (const [segment, writes] of this.#rolesOf(node)) {
      this.#dropEdges(segment, node, writes);
      removeSorted(writes ? segment.writers : segment.readers, node);
    }
    this.#predecessors.delete(node);
    this.#successors.delete(node);
  }

  /** The nodes that a node depends on directly: first for its reads, then for its writes. */
  predecessorsOf(node: Node): ReadonlySet<Node> {
    const known = this.#predecessors.get(node);
    if (known) return known;
    const predecessors = new Set<Node>();
    for (const { slice, reads } of node.accesses) if (reads) this.#addLastWriters(slice, node, predecessors);
    for (const { slice, writes } of node.accesses) {
      if (!writes) continue;
      this.#addLastWriters(slice, node, predecessors);
      this.#addReaders(slice, node, predecessors, Infinity);
    }
    this.#predecessors.set(node, predecessors);
    return predecessors;
  }

  /** The nodes that depend on a node directly. */
  successorsOf(node: Node): ReadonlySet<Node> {
    const known = this.#successors.get(node);
    if (known) return known;
    const successors = new Set<Node>();
    for (const [{ writers, readers }, writes] of this.#rolesOf(node)) {
      const next = writers[countBefore(writers, node) + (writes ? 1 : 0)];
      if (next) successors.add(next);
      if (!writes) continue;
      const end = next ? countBefore(readers, next) : readers.length;
      for (let index = countBefore(readers, node); index < end; index++)
        successors.add(readers[index] as Node);
    }
    this.#successors.set(node, successors);
    return successors;
  }

  /** The last writers before a node of the bytes of some of its accesses. */
  lastWriters(node: Node, accesses: readonly Access[]): ReadonlySet<Node> {
    const writers = new Set<Node>();
    for (const { slice } of accesses) this.#addLastWriters(slice, node, writers);
    return writers;
  }

  /** Nodes that read bytes of some of a node's accesses, after the last writer and before the node: the latest few of each segment. */
  latestReaders(node: Node, accesses: readonly Access[], maxReaders: number): ReadonlySet<Node> {
    const readers = new Set<Node>();
    for (const { slice } of accesses) this.#addReaders(slice, node, readers, maxReaders);
    return readers;
  }

  #addLastWriters(slice: BufferSlice, node: Node, found: Set<Node>): void {
    this.#visitSegments(extentOf(slice), ({ writers }) => {
      const writer = writers[countBefore(writers, node) - 1];
      if (writer) found.add(writer);
    });
  }

  #addReaders(slice: BufferSlice, node: Node, found: Set<Node>, maxReaders: number): void {
    this.#visitSegments(extentOf(slice), ({ writers, readers }) => {
      if (readers.length === 0) return;
      const writer = writers[countBefore(writers, node) - 1];
      const end = countBefore(readers, node);
      const start = Math.max(writer ? countBefore(readers, writer) : 0, end - maxReaders);
      for (let index = start; index < end; index++) found.add(readers[index] as Node);
    });
  }

  /** Drops the edges that depend on a node's presence in a segment: to and from the nodes between the writers before and after it. */
  #dropEdges({ writers, readers }: Segment<Node>, node: Node, writes: boolean): void {
    // While a program is built, there are none.
    if (this.#predecessors.size + this.#successors.size === 0) return;
    const index = countBefore(writers, node);
    const [previous, next] = [writers[index - 1], writers[writes ? index + 1 : index]];
    if (previous) this.#successors.delete(previous);
    if (next) this.#predecessors.delete(next);
    if (!writes) return;
    for (let reader = previous ? countBefore(readers, previous) : 0; reader < readers.length; reader++) {
      const other = readers[reader] as Node;
      if (next?.isBefore(other)) return;
      (other.isBefore(node) ? this.#successors : this.#predecessors).delete(other);
    }
  }

  /** The segments that a node accesses, and whether it writes them. */
  #rolesOf(node: Node): ReadonlyMap<Segment<Node>, boolean> {
    const roles = new Map<Segment<Node>, boolean>();
    for (const { slice, writes } of node.accesses) {
      this.#visitSegments(extentOf(slice), (segment) => {
        if (writes || !roles.has(segment)) roles.set(segment, writes);
      });
    }
    return roles;
  }

  /** Visits the segments of bytes that `#splitSegments` has seen. */
  #visitSegments({ space, from, to }: Extent, visit: (segment: Segment<Node>) => void): void {
    const segments = this.#spaces.get(space) ?? [];
    for (let index = indexAt(segments, from); ; index++) {
      const segment = segments[index];
      if (!segment || segment.from >= to) return;
      visit(segment);
    }
  }

  /** Splits segments at the start and at the end of some bytes, and creates missing ones. */
  #splitSegments({ space, from, to }: Extent): void {
    let segments = this.#spaces.get(space);
    if (!segments) {
      segments = [];
      this.#spaces.set(space, segments);
    }
    let index = splitAt(segments, from);
    for (let start = from; start < to; index++) {
      const segment = segments[index];
      if (segment?.from === start) {
        if (segment.to > to) splitAt(segments, to);
        start = segment.to;
      } else {
        const end = Math.min(to, segment?.from ?? to);
        segments.splice(index, 0, { from: start, to: end, writers: [], readers: [] });
        start = end;
      }
    }
  }
}

/** How many of the sorted nodes come before a node. */
function countBefore<Node extends Accessor>(sorted: readonly Node[], node: Node): number {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (sorted[middle]?.isBefore(node)) low = middle + 1;
    else high = middle;
  }
  return low;
}

function insertSorted<Node extends Accessor>(sorted: Node[], node: Node): void {
  const index = sorted.at(-1)?.isBefore(node) ? sorted.length : countBefore(sorted, node);
  if (sorted[index] !== node) sorted.splice(index, 0, node);
}

function removeSorted<Node extends Accessor>(sorted: Node[], node: Node): void {
  const index = countBefore(sorted, node);
  if (sorted[index] === node) sorted.splice(index, 1);
}

/** The index of the first segment that ends after an offset. */
function indexAt(segments: readonly { readonly to: number }[], offset: number): number {
  let [low, high] = [0, segments.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((segments[middle]?.to ?? 0) <= offset) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The index of the first segment from an offset on; a segment that spans the offset is split. */
function splitAt<Node>(segments: Segment<Node>[], offset: number): number {
  const index = indexAt(segments, offset);
  const spanning = segments[index];
  if (!spanning || spanning.from >= offset) return index;
  const { writers, readers, to } = spanning;
  segments.splice(index + 1, 0, { from: offset, to, writers: [...writers], readers: [...readers] });
  spanning.to = offset;
  return index + 1;
}
