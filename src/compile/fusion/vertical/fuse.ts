/**
 * Vertical fusion: elementwise chains, prologues and epilogues of row reductions, per-row values, and calls that read the same memory share
 * a kernel. In program order, each call is fused with earlier ones if possible. So the head of a classifier (norm, GEMM, loss and their
 * gradients) is three kernels, and after a deep model one.
 */

import type { DeviceInfo } from "../../../driver/index.js";
import {
  DependencyGraph,
  maxFusionDistance,
  type Neighbours,
  type Node,
  rootOf,
} from "../../program/dependency-graph.js";
import { accessesOf, type Buffer, type BufferSlice, type Call, latestPhase } from "../../program/program.js";
import { accesses, isReading, type Uses, usesOf } from "../../program/uses.js";
import { isDeadOnExit } from "../../trace/dead-on-exit.js";
import { combine, type Draft, rowsOf } from "./combine.js";
import { maxMembers } from "./cost.js";
import { type FusionNode, fusionNodeOf, fusionNodeOfCopy } from "./fusion-node.js";
import { joinNames } from "./kernel-memo.js";
import { countElements } from "./strided-access.js";

/** How many of the latest one-row calls are tried for a call that shares no memory with them. */
const latestOfOneRow = 8;

/**
 * The same program with fewer calls, for a kind of device. `keep` tells which step buffers are read after it; persistent ones are,
 * unless they are dead on exit.
 */
export function fuse(
  program: readonly Call[],
  keep: (buffer: Buffer) => boolean,
  device: DeviceInfo["kind"] = "cpu",
  deadOnExit: readonly BufferSlice[] = [],
): readonly Call[] {
  const fusion = new Fusion(program, keep, device, deadOnExit);
  for (const call of program) fusion.add(call);
  return fusion.calls();
}

/** Calls that are fused into one. */
interface Group {
  readonly members: readonly FusionNode[];
  readonly draft: Draft | undefined;
}

class Fusion {
  readonly #program: readonly Call[];
  /** The index of each call in the program. */
  readonly #places: ReadonlyMap<Call, number>;
  readonly #uses: ReadonlyMap<Buffer, Uses>;
  readonly #keep: (buffer: Buffer) => boolean;
  readonly #device: DeviceInfo["kind"];
  readonly #deadOnExit: readonly BufferSlice[];
  readonly #order = new DependencyGraph();
  readonly #groups = new Map<Node, Group>();
  /** Nodes with one row, in the order in which they were added. */
  readonly #ofOneRow: Node[] = [];

  constructor(
    program: readonly Call[],
    keep: (buffer: Buffer) => boolean,
    device: DeviceInfo["kind"],
    deadOnExit: readonly BufferSlice[],
  ) {
    this.#program = program;
    this.#places = new Map(program.map((call, place) => [call, place]));
    this.#uses = usesOf(program);
    this.#keep = keep;
    this.#device = device;
    this.#deadOnExit = deadOnExit;
  }

  add(call: Call): void {
    const neighbours = this.#order.add(call);
    const member = fusionNodeOf(call);
    if (member) this.#groups.set(neighbours.node, { members: [member], draft: undefined });
    // A rematerialised call is not fused with earlier calls, which would recompute it too early; later ones may join it.
    if (call.isRematerialized || !(member || call.work.kind === "copy")) return;
    this.#combineNeighbours(neighbours);
    if (member && hasOneRow(member)) this.#combineOfOneRow(neighbours.node);
  }

  calls(): readonly Call[] {
    return this.#order.nodes.map((node) => {
      const group = this.#groups.get(node);
      const draft = group?.draft ?? (group && this.#withoutUnread(group));
      return group && draft ? callOf(group.members, draft) : node.call;
    });
  }

  #combineNeighbours({ node, writers, readers }: Neighbours): void {
    // The largest producer first: a per-row value belongs to the kernel over the row's elements.
    const bySize = writers.toReversed().sort((a, b) => this.#elementsOf(b) - this.#elementsOf(a));
    for (const writer of bySize) this.#join(rootOf(writer), rootOf(node));
    for (const reader of readers.toReversed()) {
      const [one, other] = [rootOf(reader), rootOf(node)];
      if (this.#readSameMemory(one, other)) this.#join(one, other);
    }
    this.#joinValuesOfRows(rootOf(node));
  }

  #elementsOf(node: Node): number {
    const members = this.#groups.get(rootOf(node))?.members ?? [];
    return members.reduce((most, { elements }) => Math.max(most, elements), 0);
  }

  /**
   * Do not inline a per-row producer into an elementwise consumer (it would be recomputed per element) unless the consumer already
   * contains a row reduction, where it runs once per row.
   */
  #joinValuesOfRows(node: Node): void {
    const own = this.#groups.get(node)?.members ?? [];
    if (own.length < 2 || !own.some(({ reduces }) => reduces)) return;
    const elements = this.#elementsOf(node);
    const earlier = [...new Set([...node.predecessors].map(rootOf))].sort((a, b) => b.position - a.position);
    for (const one of earlier) {
      const isOfRows = this.#groups.get(one)?.members.every((member) => member.elements < elements);
      if (isOfRows) this.#join(rootOf(one), rootOf(node));
    }
  }

  /**
   * A one-row call uses one block of a GPU and takes the time of its launch. Fused with another one it takes no longer, whatever the
   * two compute. So the step counts of an optimizer's groups are one call, with the end of the norm.
   */
  #combineOfOneRow(node: Node): void {
    for (const other of this.#ofOneRow.slice(-latestOfOneRow).toReversed()) {
      const [one, own] = [rootOf(other), rootOf(node)];
      if (this.#groups.get(one)?.members.every(hasOneRow)) this.#join(one, own);
    }
    this.#ofOneRow.push(node);
  }

  #join(a: Node, b: Node): void {
    if (a === b) return;
    const place = this.#order.fusionPosition(a, b);
    if (place === undefined) return;
    if (Math.max(Math.abs(a.position - place), Math.abs(b.position - place)) > maxFusionDistance) return;
    const [first, second] = a.position < b.position ? [a, b] : [b, a];
    const [earlier, later] = [this.#membersOf(first, second), this.#membersOf(second, first)];
    if (!earlier || !later || areHoisted(earlier) !== areHoisted(later)) return;
    const members = [...earlier, ...later];
    if (members.length > maxMembers) return;
    const draft = combine(members, this.#neededByOthers(members), this.#device);
    if (!draft) return;
    this.#order.fuse(a, b, place);
    this.#groups.delete(b);
    this.#groups.set(a, { members, draft });
  }

  /** A node's calls; a plain copy takes the dtype that the other node has for the copied memory. */
  #membersOf(node: Node, other: Node): readonly FusionNode[] | undefined {
    const { work } = node.call;
    const own = this.#groups.get(node)?.members;
    if (own || work.kind !== "copy") return own;
    const ends = [work.source, work.target];
    const met = this.#groups
      .get(other)
      ?.members.flatMap(({ inputs, outputs }) => [...inputs, ...outputs])
      .find(({ slice }) =>
        ends.some(({ buffer, offset }) => slice.buffer === buffer && slice.offset === offset),
      );
    const member = met && fusionNodeOfCopy(node.call, work, met.dtype);
    return member && [member];
  }

  /** True if two nodes read most of some memory at the same points, so that one read pays. */
  #readSameMemory(a: Node, b: Node): boolean {
    const [one, other] = [this.#groups.get(a), this.#groups.get(b)];
    if (!one || !other) return false;
    const read = new Set(one.members.flatMap(({ inputs }) => inputs.map(({ key }) => key)));
    return other.members.some(({ inputs, elements }) =>
      inputs.some(
        ({ key, steps, isIndexed }) => !isIndexed && read.has(key) && countElements(steps) * 2 > elements,
      ),
    );
  }

  /** Tells which memory other calls read. */
  #neededByOthers(members: readonly FusionNode[]): (slice: BufferSlice) => boolean {
    const own = new Map<Buffer, number>();
    for (const { call } of members) {
      const read = accessesOf(call).filter(({ reads }) => reads);
      for (const buffer of new Set(read.map(({ slice }) => slice.buffer)))
        own.set(buffer, (own.get(buffer) ?? 0) + 1);
    }
    return (slice) => {
      const { buffer } = slice;
      if (isDeadOnExit(this.#deadOnExit, slice)) return this.#isReadAfter(slice, members);
      if (buffer.storage || this.#keep(buffer)) return true;
      return (this.#uses.get(buffer)?.readers.length ?? 0) > (own.get(buffer) ?? 0);
    };
  }

  /** True if another call reads a slice after the first of these calls. Earlier readers see the old value. */
  #isReadAfter(slice: BufferSlice, members: readonly FusionNode[]): boolean {
    const own = new Set(members.map(({ call }) => call));
    const first = Math.min(...members.map(({ call }) => this.#places.get(call) ?? 0));
    return (this.#uses.get(slice.buffer)?.readers ?? []).some((place) => {
      const call = this.#program[place];
      return call !== undefined && place >= first && !own.has(call) && accesses(call, [slice], isReading);
    });
  }

  /** A lone call without the outputs that nothing reads. */
  #withoutUnread({ members }: Group): Draft | undefined {
    const isNeeded = this.#neededByOthers(members);
    const isUnread = members.some(({ outputs }) => outputs.some(({ slice }) => !isNeeded(slice)));
    return isUnread ? combine(members, isNeeded, this.#device) : undefined;
  }
}

const areHoisted = (members: readonly FusionNode[]): boolean => members.some(({ call }) => call.isHoisted);

/** True if the call has a single row, or a single element. */
function hasOneRow({ elements, rowSize }: FusionNode): boolean {
  return elements === (rowSize ?? 1);
}

const originalCalls = new WeakMap<Call, readonly Call[]>();

function callOf(members: readonly FusionNode[], draft: Draft): Call {
  const calls = members.map(({ call }) => call);
  const call: Call = {
    op: joinNames(calls.map(({ op }) => op)),
    phase: latestPhase(calls),
    ...(areHoisted(members) && { isHoisted: true }),
    work: rowsOf(draft),
  };
  originalCalls.set(call, calls);
  return call;
}

/** A fused call. */
export interface FusionNote {
  readonly kernel: string;
  /** The ops of the original calls. */
  readonly ops: readonly string[];
  /** Buffers that the original calls access and the fused one does not: their values stay in registers. */
  readonly gone: readonly Buffer[];
}

/** The calls that `fuse` made of several, in order. */
export function describeFusions(after: readonly Call[]): readonly FusionNote[] {
  return after.flatMap((call) => {
    const calls = originalCalls.get(call) ?? [];
    if (calls.length < 2 || call.work.kind !== "row") return [];
    const left = new Set(accessesOf(call).map(({ slice }) => slice.buffer));
    const met = new Set(calls.flatMap((one) => accessesOf(one).map(({ slice }) => slice.buffer)));
    const gone = [...met].filter((buffer) => !left.has(buffer));
    return [{ kernel: call.work.kernel.name, ops: calls.map(({ op }) => op), gone }];
  });
}
