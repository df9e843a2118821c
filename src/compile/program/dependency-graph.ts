/**
 * In which order calls may run. Each call is a node behind those whose memory it meets; nodes have positions that keep to
 * that, and two become one only at a position that keeps to it too: no third one is made to wait for itself.
 */

import { beat } from "../../units/index.js";
import { accessesOf, type Buffer, type Call } from "./program.js";
import { type device, extentOf } from "./slices.js";

/** How far in the program a call may move to join another: memory that it reads or writes lives longer for it. */
export const maxFusionDistance = 128;

export class Node {
  readonly call: Call;
  position: number;
  /** The node that this one has become a part of. */
  joined: Node | undefined;
  /** What has to run before it, and what behind it. Joined nodes stay in here until they are looked at. */
  readonly before = new Set<Node>();
  readonly behind = new Set<Node>();

  constructor(call: Call, position: number) {
    this.call = call;
    this.position = position;
  }
}

/** The node that a node is a part of by now. */
export function rootOf(node: Node): Node {
  let root = node;
  while (root.joined) root = root.joined;
  for (let one = node; one.joined; ) {
    const next = one.joined;
    one.joined = root === one ? undefined : root;
    one = next;
  }
  return root;
}

/** Does a node wait for another one itself? Both can stand at one place all the same; side by side they can't run there. */
export function dependsDirectly(node: Node, other: Node): boolean {
  return [...node.before].some((earlier) => rootOf(earlier) === other);
}

/** Bytes that were met alike so far: by whom they were last written, and who has read them since. */
interface Segment {
  from: number;
  to: number;
  writer: Node | undefined;
  readers: Node[];
}

/** Whom a call follows: who has written what it reads, and who else has read it lately. */
export interface Neighbours {
  readonly node: Node;
  readonly writers: readonly Node[];
  readonly readers: readonly Node[];
}

/** How many of a value's readers are looked at. */
const lateReaders = 4;

export class Order {
  readonly #spaces = new Map<Buffer | typeof device, Segment[]>();
  readonly #nodes: Node[] = [];

  /** The nodes that are no part of another, in order. */
  get nodes(): readonly Node[] {
    return this.#nodes.filter(({ joined }) => !joined).sort((a, b) => a.position - b.position);
  }

  add(call: Call): Neighbours {
    beat();
    const node = new Node(call, this.#nodes.length);
    this.#nodes.push(node);
    const [writers, readers] = [new Set<Node>(), new Set<Node>()];
    const accesses = accessesOf(call);
    for (const { slice } of accesses.filter(({ reads }) => reads)) {
      for (const segment of this.#segmentsOf(extentOf(slice))) {
        if (segment.writer) writers.add(rootOf(segment.writer));
        for (const reader of segment.readers.slice(-lateReaders)) readers.add(rootOf(reader));
        follow(node, segment.writer);
        segment.readers.push(node);
      }
    }
    for (const { slice } of accesses.filter(({ writes }) => writes)) {
      for (const segment of this.#segmentsOf(extentOf(slice))) {
        follow(node, segment.writer);
        for (const reader of segment.readers) follow(node, reader);
        segment.writer = node;
        segment.readers = [];
      }
    }
    writers.delete(node);
    readers.delete(node);
    return { node, writers: [...writers], readers: [...readers] };
  }

  /** Where two nodes could stand as one; nothing where something has to run between them. */
  fusionPosition(a: Node, b: Node): number | undefined {
    let [lower, upper] = [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY];
    for (const own of [a, b]) {
      for (const node of rootsOf(own.before)) {
        if (node !== a && node !== b) lower = Math.max(lower, node.position);
      }
      for (const node of rootsOf(own.behind)) {
        if (node !== a && node !== b) upper = Math.min(upper, node.position);
      }
    }
    const [first, second] = a.position < b.position ? [a, b] : [b, a];
    const places = [first.position, second.position, (lower + upper) / 2];
    return places.find((place) => lower < place && place < upper);
  }

  /** Makes `b` a part of `a`, at a position that `fusionPosition` gave. */
  join(a: Node, b: Node, place: number): void {
    b.joined = a;
    a.position = place;
    for (const node of b.before) a.before.add(node);
    for (const node of b.behind) a.behind.add(node);
    for (const set of [a.before, a.behind]) for (const node of set) if (rootOf(node) === a) set.delete(node);
  }

  /** The segments of some bytes, cut where the bytes begin and end; where there was none there is one now. */
  #segmentsOf({ space, from, to }: ReturnType<typeof extentOf>): readonly Segment[] {
    let segments = this.#spaces.get(space);
    if (!segments) {
      segments = [];
      this.#spaces.set(space, segments);
    }
    const first = this.#cutAt(segments, from);
    let index = first;
    let begin = from;
    while (begin < to) {
      const segment = segments[index];
      if (segment && segment.from === begin) {
        if (segment.to > to) this.#cutAt(segments, to);
        begin = segment.to;
      } else {
        const end = Math.min(to, segment?.from ?? to);
        segments.splice(index, 0, { from: begin, to: end, writer: undefined, readers: [] });
        begin = end;
      }
      index++;
    }
    return segments.slice(first, index);
  }

  /** The index of the first segment from a place on; one that spans it is cut in two. */
  #cutAt(segments: Segment[], place: number): number {
    let [low, high] = [0, segments.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((segments[middle]?.to ?? 0) <= place) low = middle + 1;
      else high = middle;
    }
    const found = segments[low];
    if (!found || found.from >= place) return low;
    segments.splice(low + 1, 0, { ...found, from: place, readers: [...found.readers] });
    found.to = place;
    return low + 1;
  }
}

function follow(node: Node, earlier: Node | undefined): void {
  if (!earlier) return;
  const root = rootOf(earlier);
  if (root === node) return;
  node.before.add(root);
  root.behind.add(node);
}

/** The nodes of a set as they are now, joined ones replaced. */
function rootsOf(set: Set<Node>): Set<Node> {
  for (const node of set) {
    if (!node.joined) continue;
    set.delete(node);
    set.add(rootOf(node));
  }
  return set;
}
