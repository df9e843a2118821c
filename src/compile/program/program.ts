/**
 * A program that passes edit in place: the calls in order, the readers and writers of each buffer, and the dependency graph. All three
 * are kept up to date by every edit.
 *
 * The graph has an edge between two calls that access the same bytes if at least one of them writes, and no call between them writes.
 * An edit that moves a call keeps the order of calls with an edge; `fusionAnchor` and `mayReorder` tell which moves do.
 */

import { beat } from "../../units/index.js";
import type { Access } from "./access.js";
import { AccessIndex, type Uses } from "./access-index.js";
import type { Buffer } from "./buffer.js";
import { accessesOf, type Call } from "./call.js";
import { ListItem } from "./list-item.js";

export type { Access, Visits } from "./access.js";
export { type Buffer, type BufferSlice, type ConvertedWeights, isSameSlice } from "./buffer.js";
export { accessesOf, type Call, isLaunched, latestPhase, mapSlices, membersOf } from "./call.js";
export type { ChunkedReduceCall } from "./kinds/chunked-reduce.js";
export type { ColumnCall } from "./kinds/column.js";
export type { ComboCall } from "./kinds/combo.js";
export type { CopyCall } from "./kinds/copy.js";
export type { FillCall } from "./kinds/fill.js";
export type { GemmCall } from "./kinds/gemm.js";
export type { GemmEpilogueCall } from "./kinds/gemm-epilogue.js";
export type { GemmPrologueCall } from "./kinds/gemm-prologue.js";
export type { GemmSumCall } from "./kinds/gemm-sum.js";
export type { GroupedGemmCall } from "./kinds/grouped-gemm.js";
export type { GroupedReduceCall } from "./kinds/grouped-reduce.js";
export type { GroupedScatterCall } from "./kinds/grouped-scatter.js";
export type { Work } from "./kinds/index.js";
export type { LaunchCall } from "./kinds/launch.js";
export type { LoopCall } from "./kinds/loop.js";
export type { PartialReduceCall } from "./kinds/partial-reduce.js";
export { forwardedOutput, type RowCall } from "./kinds/row.js";
export type { RowMapCall } from "./kinds/row-map.js";
export type { ScatterCall } from "./kinds/scatter.js";
export type { Plan, Schedule, ScheduledCall } from "./plan.js";

/** How far in the program a call may move to be fused with another: its operands and results live longer for it. */
export const maxFusionDistance = 128;

/** A call of a program, or several fused calls that run one after the other until a pass replaces them by one. */
export class Node extends ListItem {
  #calls: readonly Call[];
  #accesses: readonly Access[];
  /** The node that this one was fused into. */
  #fusedInto: Node | undefined;

  constructor(call: Call) {
    super();
    this.#calls = [call];
    this.#accesses = accessesOf(call);
  }

  /** The first of the calls. */
  get call(): Call {
    return this.#calls[0] as Call;
  }

  get calls(): readonly Call[] {
    return this.#calls;
  }

  get accesses(): readonly Access[] {
    return this.#accesses;
  }

  /** The node that has this node's calls by now. */
  get root(): Node {
    let root: Node = this;
    while (root.#fusedInto) root = root.#fusedInto;
    // Path compression.
    for (let node: Node = this; node.#fusedInto && node.#fusedInto !== root; ) {
      const next = node.#fusedInto;
      node.#fusedInto = root;
      node = next;
    }
    return root;
  }

  /** @internal Only Program changes the calls of its nodes. */
  setCalls(calls: readonly Call[]): void {
    this.#calls = calls;
    this.#accesses = calls.flatMap(accessesOf);
  }

  /** @internal */
  fuseInto(root: Node): void {
    this.#fusedInto = root;
  }
}

/**
 * The writers that a node's reads depend on, the latest other readers of the same bytes, and the last writers of the bytes that the node
 * writes.
 */
export interface Neighbours {
  readonly writers: readonly Node[];
  readonly readers: readonly Node[];
  readonly previousWriters: readonly Node[];
}

/** How many readers of a value are reported. */
const maxReaders = 4;

export class Program {
  readonly #head = new ListItem();
  readonly #index = new AccessIndex<Node>();
  #calls: readonly Call[] | undefined;
  #lastBufferId: number | undefined;

  constructor(calls: readonly Call[] = []) {
    for (const call of calls) this.append(call);
    this.#calls = calls;
  }

  /** The calls in order. Later edits do not change the array, and without edits it stays the same array. */
  get calls(): readonly Call[] {
    this.#calls ??= this.nodes.flatMap(({ calls }) => calls);
    return this.#calls;
  }

  /** The nodes in order, as they are now. */
  get nodes(): readonly Node[] {
    const nodes: Node[] = [];
    for (let node = this.first; node; node = this.next(node)) nodes.push(node);
    return nodes;
  }

  get first(): Node | undefined {
    return asNode(this.#head.next);
  }

  next(node: Node): Node | undefined {
    return asNode(node.next);
  }

  previous(node: Node): Node | undefined {
    return asNode(node.previous);
  }

  /** Starts a phase: distances count the present calls, and ids of new buffers follow those of the present ones. */
  renumber(): void {
    this.#head.renumber();
    this.#lastBufferId = undefined;
  }

  /** How many calls lie between two nodes, about: calls that were fused or removed in this phase still count. */
  distance(a: Node, b: Node): number {
    return a.distanceTo(b);
  }

  /** Every buffer that a node accesses. */
  get buffers(): Iterable<Buffer> {
    return this.#index.buffers;
  }

  /** The nodes that access a buffer. */
  uses(buffer: Buffer): Uses<Node> {
    return this.#index.usesOf(buffer);
  }

  /** The nodes from one to another that access a buffer, both included; those that read and write it twice. */
  usersBetween(buffer: Buffer, from: Node, to: Node): readonly Node[] {
    return this.#index.usersBetween(buffer, from, to);
  }

  /** The nodes that a node depends on directly. */
  producersOf(node: Node): ReadonlySet<Node> {
    return this.#index.predecessorsOf(node);
  }

  /** The nodes that depend on a node directly. */
  consumersOf(node: Node): ReadonlySet<Node> {
    return this.#index.successorsOf(node);
  }

  firstConsumerOf(node: Node): Node | undefined {
    return earliestOf(this.consumersOf(node));
  }

  neighboursOf(node: Node): Neighbours {
    const reads = node.accesses.filter((access) => access.reads);
    const writes = node.accesses.filter((access) => access.writes);
    return {
      writers: [...this.#index.lastWriters(node, reads)],
      readers: [...this.#index.latestReaders(node, reads, maxReaders)],
      previousWriters: [...this.#index.lastWriters(node, writes)],
    };
  }

  /** The last node before `node` that writes bytes of some of its accesses. */
  lastWriterOf(node: Node, accesses: readonly Access[]): Node | undefined {
    return latestOf(this.#index.lastWriters(node, accesses));
  }

  /** True if no path leads from one node to the other, so that they may run in either order. */
  mayReorder(a: Node, b: Node): boolean {
    const [first, last] = a.isBefore(b) ? [a, b] : [b, a];
    const reached = new Set([first]);
    for (const node of reached) {
      for (const next of this.consumersOf(node)) {
        if (next === last) return false;
        if (next.isBefore(last)) reached.add(next);
      }
    }
    return true;
  }

  /**
   * Where two nodes can run as one: in the position of the node that is returned, if it is one of the two, and otherwise directly after
   * it. Undefined if another node has to run between them. If both have to move, they meet in the middle between the last producer and
   * the first consumer, so that neither operands nor results live much longer.
   */
  fusionAnchor(a: Node, b: Node): Node | undefined {
    let after: Node | undefined;
    let before: Node | undefined;
    for (const fused of [a, b]) {
      for (const node of this.producersOf(fused))
        if (node !== a && node !== b && (!after || after.isBefore(node))) after = node;
      for (const node of this.consumersOf(fused))
        if (node !== a && node !== b && (!before || node.isBefore(before))) before = node;
    }
    const isFree = (node: Node): boolean =>
      (!after || after.isBefore(node)) && (!before || node.isBefore(before));
    const candidate = (a.isBefore(b) ? [a, b] : [b, a]).find(isFree);
    if (candidate || !after || !before || !after.isBefore(before)) return candidate;
    return asNode(after.middleTo(before));
  }

  /** Makes `b` part of `a`, at an anchor from `fusionAnchor`. The calls of both stay as they are, the earlier ones first. */
  fuse(a: Node, b: Node, anchor: Node): void {
    const calls = a.isBefore(b) ? [...a.calls, ...b.calls] : [...b.calls, ...a.calls];
    this.#removeAccesses(a);
    this.#removeAccesses(b);
    if (anchor !== a) a.unlink();
    if (anchor === b) a.takePositionOf(b);
    else {
      if (anchor !== a) a.linkAfter(anchor, this.#head);
      b.unlink();
    }
    b.fuseInto(a);
    a.setCalls(calls);
    this.#addAccesses(a);
  }

  /** Adds a call at the end. */
  append(call: Call): Node {
    return this.#insert(call, this.#head.previous);
  }

  insertBefore(anchor: Node, call: Call): Node {
    return this.#insert(call, anchor.previous);
  }

  /** Without an anchor: at the start of the program. */
  insertAfter(anchor: Node | undefined, call: Call): Node {
    return this.#insert(call, anchor ?? this.#head);
  }

  /** Another call instead of a node's calls. */
  replace(node: Node, call: Call): void {
    if (node.calls.length === 1 && node.call === call) return;
    this.#removeAccesses(node);
    node.setCalls([call]);
    this.#addAccesses(node);
  }

  remove(node: Node): void {
    this.#removeAccesses(node);
    node.unlink();
  }

  /** Moves a node directly before another. The caller makes sure that all its consumers come later. */
  moveBefore(node: Node, anchor: Node): void {
    if (anchor.previous !== node) this.#move(node, anchor.previous);
  }

  /** Moves a node directly after another, or to the start of the program. The caller makes sure that all its producers come earlier. */
  moveAfter(node: Node, anchor: Node | undefined): void {
    const after = anchor ?? this.#head;
    if (after.next !== node) this.#move(node, after);
  }

  /** A new step buffer with an id of its own. */
  makeBuffer(bytes: number, label: string): Buffer {
    let last = this.#lastBufferId;
    if (last === undefined) {
      last = 0;
      for (const { id } of this.#index.buffers) last = Math.max(last, id);
    }
    this.#lastBufferId = last + 1;
    return { id: last + 1, bytes, label };
  }

  #insert(call: Call, anchor: ListItem): Node {
    beat();
    const node = new Node(call);
    node.linkAfter(anchor, this.#head);
    this.#addAccesses(node);
    return node;
  }

  #move(node: Node, anchor: ListItem): void {
    this.#removeAccesses(node);
    node.unlink();
    node.linkAfter(anchor, this.#head);
    this.#addAccesses(node);
  }

  #addAccesses(node: Node): void {
    this.#calls = undefined;
    this.#index.add(node);
  }

  #removeAccesses(node: Node): void {
    this.#calls = undefined;
    this.#index.remove(node);
  }
}

function asNode(item: ListItem): Node | undefined {
  return item instanceof Node ? item : undefined;
}

function latestOf(nodes: Iterable<Node>): Node | undefined {
  let latest: Node | undefined;
  for (const node of nodes) if (!latest || latest.isBefore(node)) latest = node;
  return latest;
}

function earliestOf(nodes: Iterable<Node>): Node | undefined {
  let earliest: Node | undefined;
  for (const node of nodes) if (!earliest || node.isBefore(earliest)) earliest = node;
  return earliest;
}
