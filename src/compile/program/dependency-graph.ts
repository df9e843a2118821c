/**
 * The dependency graph of a program. Each call is a node, with edges to the calls that access the same memory if at least one of the
 * two writes. Passes move, fuse, insert, replace and remove calls through it, so that every order it gives respects the edges.
 *
 * A node's order key is private to this file. Keys start as program indices; a node that moves gets a key between its new neighbours.
 */

import { beat } from "../../units/index.js";
import { accessesOf, type Buffer, type Call } from "./program.js";
import { areDisjoint, type device, type Extent, extentOf } from "./slices.js";

/** How far in the program a call may move to be fused with another: its operands and results live longer for it. */
export const maxFusionDistance = 128;

export class Node {
  call: Call;
  /** @internal Only DependencyGraph changes it. */
  position: number;
  /** The node that this one was fused into. */
  fusedInto: Node | undefined;
  /** Nodes that run before it and after it. Fused nodes stay in these sets until they are visited. */
  readonly predecessors = new Set<Node>();
  readonly successors = new Set<Node>();

  constructor(call: Call, position: number) {
    this.call = call;
    this.position = position;
  }
}

/** The node that a node is part of by now. */
export function rootOf(node: Node): Node {
  let root = node;
  while (root.fusedInto) root = root.fusedInto;
  for (let current = node; current.fusedInto; ) {
    const next = current.fusedInto;
    current.fusedInto = root === current ? undefined : root;
    current = next;
  }
  return root;
}

/** True if `node` depends directly on `other`. Such a pair can still be fused vertically, but never launched concurrently. */
export function dependsDirectly(node: Node, other: Node): boolean {
  return [...node.predecessors].some((earlier) => rootOf(earlier) === other);
}

/** Bytes with the same access history: their last writer, and the readers since. */
interface Segment {
  from: number;
  to: number;
  writer: Node | undefined;
  readers: Node[];
}

/** A new node with the writers of its operands and their latest other readers. */
export interface Neighbours {
  readonly node: Node;
  readonly writers: readonly Node[];
  readonly readers: readonly Node[];
}

/** How many readers of a value are reported. */
const maxReaders = 4;

export class DependencyGraph {
  readonly #spaces = new Map<Buffer | typeof device, Segment[]>();
  readonly #nodes: Node[] = [];
  readonly #removed = new Set<Node>();
  #next = 0;

  constructor(calls: Iterable<Call> = []) {
    for (const call of calls) this.add(call);
  }

  /** The nodes in order, without those that were fused into others or removed. */
  get nodes(): readonly Node[] {
    return this.#nodes
      .filter((node) => !node.fusedInto && !this.#removed.has(node))
      .sort((a, b) => a.position - b.position);
  }

  /** The program in its present order. */
  get calls(): readonly Call[] {
    return this.nodes.map(({ call }) => call);
  }

  /** Appends a call to the program. */
  add(call: Call): Neighbours {
    beat();
    const node = new Node(call, this.#next++);
    this.#nodes.push(node);
    const [writers, readers] = [new Set<Node>(), new Set<Node>()];
    const accesses = accessesOf(call);
    for (const { slice } of accesses.filter(({ reads }) => reads)) {
      for (const segment of this.#segmentsOf(extentOf(slice))) {
        if (segment.writer) writers.add(rootOf(segment.writer));
        for (const reader of segment.readers.slice(-maxReaders)) readers.add(rootOf(reader));
        link(segment.writer, node);
        segment.readers.push(node);
      }
    }
    for (const { slice } of accesses.filter(({ writes }) => writes)) {
      for (const segment of this.#segmentsOf(extentOf(slice))) {
        link(segment.writer, node);
        for (const reader of segment.readers) link(reader, node);
        segment.writer = node;
        segment.readers = [];
      }
    }
    writers.delete(node);
    readers.delete(node);
    return { node, writers: [...writers], readers: [...readers] };
  }

  /** The nodes that a node waits for, and those that wait for it, as they are now. */
  producersOf(node: Node): ReadonlySet<Node> {
    return rootsOf(node.predecessors);
  }

  consumersOf(node: Node): ReadonlySet<Node> {
    return rootsOf(node.successors);
  }

  /** True if no path leads from one node to the other, so that they may run in either order. */
  mayReorder(a: Node, b: Node): boolean {
    const [first, last] = a.position < b.position ? [a, b] : [b, a];
    const reached = new Set([first]);
    for (const node of reached) {
      for (const next of this.consumersOf(node)) {
        if (next === last) return false;
        if (next.position < last.position) reached.add(next);
      }
    }
    return true;
  }

  /** How many calls lie between two nodes, about: moved nodes count as lying between two calls. */
  distance(a: Node, b: Node): number {
    return Math.abs(a.position - b.position);
  }

  /** A position for two nodes as one; undefined if another node has to run between them. */
  fusionPosition(a: Node, b: Node): number | undefined {
    let [lower, upper] = [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY];
    for (const fused of [a, b]) {
      for (const node of rootsOf(fused.predecessors)) {
        if (node !== a && node !== b) lower = Math.max(lower, node.position);
      }
      for (const node of rootsOf(fused.successors)) {
        if (node !== a && node !== b) upper = Math.min(upper, node.position);
      }
    }
    const [first, second] = a.position < b.position ? [a, b] : [b, a];
    const candidates = [first.position, second.position, (lower + upper) / 2];
    return candidates.find((position) => lower < position && position < upper);
  }

  /** Makes `b` part of `a`, at a position from `fusionPosition`. */
  fuse(a: Node, b: Node, position: number): void {
    b.fusedInto = a;
    a.position = position;
    for (const node of b.predecessors) a.predecessors.add(node);
    for (const node of b.successors) a.successors.add(node);
    for (const set of [a.predecessors, a.successors])
      for (const node of set) if (rootOf(node) === a) set.delete(node);
  }

  /** Moves a node directly before another. The caller makes sure that all its consumers come later. */
  moveBefore(node: Node, anchor: Node): void {
    this.#place(node, () => [this.#neighbourOf(anchor, -1), anchor.position]);
  }

  /** Moves a node directly after another, or to the start of the program. The caller makes sure that all its producers come earlier. */
  moveAfter(node: Node, anchor: Node | undefined): void {
    this.#place(node, () =>
      anchor
        ? [anchor.position, this.#neighbourOf(anchor, 1)]
        : [Number.NEGATIVE_INFINITY, this.#firstPosition()],
    );
  }

  insertBefore(anchor: Node, call: Call): Node {
    return this.#insert(call, (node) => this.moveBefore(node, anchor));
  }

  insertAfter(anchor: Node, call: Call): Node {
    return this.#insert(call, (node) => this.moveAfter(node, anchor));
  }

  /** Another call at the same position; its edges follow from what the new call accesses. */
  replace(node: Node, call: Call): void {
    this.#unlink(node);
    node.call = call;
    this.#linkByAccesses(node);
  }

  remove(node: Node): void {
    this.#unlink(node);
    this.#removed.add(node);
  }

  #insert(call: Call, place: (node: Node) => void): Node {
    const node = new Node(call, this.#next++);
    this.#nodes.push(node);
    place(node);
    this.#linkByAccesses(node);
    return node;
  }

  /** Gives a node a key between two others. After some 40 moves into one gap, numbers run out: then all keys are renewed. */
  #place(node: Node, bounds: () => readonly [number, number]): void {
    const key = (): number => {
      const [lower, upper] = bounds();
      if (lower === Number.NEGATIVE_INFINITY) return upper - 1;
      return upper === Number.POSITIVE_INFINITY ? lower + 1 : (lower + upper) / 2;
    };
    const isBetween = (position: number): boolean => {
      const [lower, upper] = bounds();
      return lower < position && position < upper;
    };
    if (!isBetween(key())) for (const [index, other] of this.nodes.entries()) other.position = index;
    node.position = key();
    this.#next = Math.max(this.#next, Math.ceil(node.position) + 1);
  }

  #neighbourOf(anchor: Node, direction: 1 | -1): number {
    let nearest = direction * Number.POSITIVE_INFINITY;
    for (const { position, fusedInto } of this.#nodes) {
      if (fusedInto || (position - anchor.position) * direction <= 0) continue;
      nearest = direction > 0 ? Math.min(nearest, position) : Math.max(nearest, position);
    }
    return nearest;
  }

  #firstPosition(): number {
    return this.#nodes.reduce((first, { position }) => Math.min(first, position), 0);
  }

  /** The order that a removed call gave to its neighbours stays where they conflict. */
  #unlink(node: Node): void {
    const [producers, consumers] = [[...this.producersOf(node)], [...this.consumersOf(node)]];
    for (const earlier of producers) earlier.successors.delete(node);
    for (const later of consumers) later.predecessors.delete(node);
    node.predecessors.clear();
    node.successors.clear();
    for (const earlier of producers)
      for (const later of consumers) if (doConflict(earlier.call, later.call)) link(earlier, later);
  }

  #linkByAccesses(node: Node): void {
    for (const other of this.nodes) {
      if (other === node || !doConflict(node.call, other.call)) continue;
      if (other.position < node.position) link(other, node);
      else link(node, other);
    }
  }

  /** The segments of some bytes, split at their start and end; missing ones are created. */
  #segmentsOf({ space, from, to }: Extent): readonly Segment[] {
    let segments = this.#spaces.get(space);
    if (!segments) {
      segments = [];
      this.#spaces.set(space, segments);
    }
    const first = splitAt(segments, from);
    let index = first;
    let begin = from;
    while (begin < to) {
      const segment = segments[index];
      if (segment && segment.from === begin) {
        if (segment.to > to) splitAt(segments, to);
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
}

/** The index of the first segment from an offset on; a segment that spans it is split. */
function splitAt(segments: Segment[], offset: number): number {
  let [low, high] = [0, segments.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((segments[middle]?.to ?? 0) <= offset) low = middle + 1;
    else high = middle;
  }
  const spanning = segments[low];
  if (!spanning || spanning.from >= offset) return low;
  segments.splice(low + 1, 0, { ...spanning, from: offset, readers: [...spanning.readers] });
  spanning.to = offset;
  return low + 1;
}

function link(earlier: Node | undefined, later: Node): void {
  if (!earlier) return;
  const root = rootOf(earlier);
  if (root === later) return;
  later.predecessors.add(root);
  root.successors.add(later);
}

function doConflict(a: Call, b: Call): boolean {
  return accessesOf(a).some((first) =>
    accessesOf(b).some(
      (second) =>
        (first.writes || second.writes) && !areDisjoint(extentOf(first.slice), extentOf(second.slice)),
    ),
  );
}

/** The nodes of a set as they are now: fused ones are replaced by their roots. */
function rootsOf(set: Set<Node>): Set<Node> {
  for (const node of set) {
    if (!node.fusedInto) continue;
    set.delete(node);
    set.add(rootOf(node));
  }
  return set;
}
