/**
 * Vertical fusion: elementwise chains, prologues and epilogues of row reductions, per-row values, and calls that read the same memory share
 * a kernel. In program order, each call is fused with earlier ones if possible. So the head of a classifier (norm, GEMM, loss and their
 * gradients) is three kernels, and after a deep model one.
 */

import { type Capabilities, capabilitiesOf } from "../../../kernels/index.js";
import type { Runtime } from "../../../runtime/index.js";
import { beat } from "../../../units/index.js";
import { comboLimits } from "../../cost-model.js";
import {
  accessesOf,
  type Buffer,
  type BufferSlice,
  type Call,
  latestPhase,
  maxFusionDistance,
  type Neighbours,
  type Node,
  type Program,
} from "../../program/program.js";
import { bytesOf } from "../../program/traffic.js";
import { isReadAfterFirst, isReading, touches } from "../../program/uses.js";
import { isDeadOnExit } from "../../trace/dead-on-exit.js";
import { combine, type Draft, rowsOf } from "./combine.js";
import { maxMembers } from "./cost.js";
import { type FusionNode, fusionNodeOf, fusionNodeOfCopy } from "./fusion-node.js";
import { joinNames } from "./kernel-memo.js";
import { countElements } from "./strided-access.js";

/** How many of the latest one-row calls are tried for a call that shares no memory with them. */
const latestOfOneRow = 8;

export interface FusionOptions {
  /** Tells which step buffers are read after the program. Default: none. */
  readonly isRead?: (buffer: Buffer) => boolean;
  /** Persistent memory that is not read after the program; all other is. Default: none. */
  readonly deadOnExit?: readonly BufferSlice[];
}

export function fuse(runtime: Runtime, program: Program, options: FusionOptions = {}): void {
  const fusion = new Fusion(runtime, program, options);
  fusion.fuseNodes();
  fusion.replaceFused();
}

/** Calls that are fused into one. */
interface Group {
  readonly members: readonly FusionNode[];
  readonly draft: Draft | undefined;
}

class Fusion {
  readonly #program: Program;
  readonly #capabilities: Capabilities;
  /** Memory traffic up to which a kernel takes little more than its launch. */
  readonly #smallBytes: number;
  readonly #options: FusionOptions;
  /** The index of each call before fusion. */
  readonly #indices: ReadonlyMap<Call, number>;
  readonly #groups = new Map<Node, Group>();
  /** Nodes with one row, in the order in which they were visited. */
  readonly #ofOneRow: Node[] = [];

  constructor(runtime: Runtime, program: Program, options: FusionOptions) {
    this.#program = program;
    this.#capabilities = capabilitiesOf(runtime);
    this.#smallBytes = this.#capabilities.combinesKernels ? comboLimits(runtime.device).largeBytes : 0;
    this.#options = options;
    this.#indices = new Map(program.calls.map((call, index) => [call, index]));
  }

  /** In program order, fuses each call with earlier ones. */
  fuseNodes(): void {
    // Neighbours by the order before fusion.
    const all = this.#program.nodes.map((node) => ({ node, neighbours: this.#program.neighboursOf(node) }));
    for (const { node, neighbours } of all) {
      beat();
      this.#visit(node, neighbours);
    }
  }

  #visit(node: Node, neighbours: Neighbours): void {
    const { call } = node;
    const member = fusionNodeOf(call);
    if (member) this.#groups.set(node, { members: [member], draft: undefined });
    if (!(member || call.work.kind === "copy")) return;
    this.#combineNeighbours(node, neighbours);
    if (member && hasOneRow(member)) this.#combineOfOneRow(node);
  }

  replaceFused(): void {
    for (const node of this.#program.nodes) {
      const group = this.#groups.get(node);
      const draft = group?.draft ?? (group && this.#withoutUnread(node, group));
      if (group && draft) this.#program.replace(node, callOf(group.members, draft));
    }
  }

  #combineNeighbours(node: Node, { writers, readers, previousWriters }: Neighbours): void {
    // The largest producer first: a per-row value belongs to the kernel over the row's elements.
    const roots = rootsOf(writers).toReversed();
    for (const writer of roots.sort((a, b) => this.#elementsOf(b) - this.#elementsOf(a)))
      this.#fusePair(writer.root, node.root);
    for (const reader of rootsOf(readers).toReversed())
      if (this.#readSameMemory(reader.root, node.root)) this.#fusePair(reader.root, node.root);
    for (const writer of rootsOf(previousWriters).toReversed())
      if (this.#writeInterleaved(writer.root, node.root)) this.#fusePair(writer.root, node.root);
    this.#combineValuesOfRows(node.root);
  }

  #elementsOf(node: Node): number {
    const members = this.#groups.get(node.root)?.members ?? [];
    return members.reduce((most, { elements }) => Math.max(most, elements), 0);
  }

  /**
   * Do not inline a per-row producer into an elementwise consumer (it would be recomputed per element) unless the consumer already
   * contains a row reduction, where it runs once per row.
   */
  #combineValuesOfRows(node: Node): void {
    const members = this.#groups.get(node)?.members ?? [];
    if (members.length < 2 || !members.some(({ reduces }) => reduces)) return;
    const elements = this.#elementsOf(node);
    const producers = [...this.#program.producersOf(node)].sort((a, b) => (a.isBefore(b) ? 1 : -1));
    for (const producer of producers) {
      const isOfRows = this.#groups.get(producer)?.members.every((member) => member.elements < elements);
      if (isOfRows) this.#fusePair(producer.root, node.root);
    }
  }

  /**
   * A one-row call uses one block of a GPU and takes the time of its launch. Fused with another one it takes no longer, whatever the
   * two compute. So the step counts of an optimizer's groups are one call, with the end of the norm.
   */
  #combineOfOneRow(node: Node): void {
    for (const other of this.#ofOneRow.slice(-latestOfOneRow).toReversed()) {
      if (this.#groups.get(other.root)?.members.every(hasOneRow)) this.#fusePair(other.root, node.root);
    }
    this.#ofOneRow.push(node);
  }

  #fusePair(a: Node, b: Node): void {
    if (a === b) return;
    const program = this.#program;
    const anchor = program.fusionAnchor(a, b);
    if (!anchor) return;
    if (Math.max(program.distance(a, anchor), program.distance(b, anchor)) > maxFusionDistance) return;
    const [first, second] = a.isBefore(b) ? [a, b] : [b, a];
    const [earlier, later] = [this.#membersOf(first, second), this.#membersOf(second, first)];
    if (!earlier || !later || areHoisted(earlier) !== areHoisted(later)) return;
    // Fused with an earlier call of another kind, a rematerialised call would run too early; later ones may join it.
    if (later.some(isRematerialized) && !earlier.every(isRematerialized) && !later.some(isFirstRun)) return;
    const members = [...earlier, ...later];
    if (members.length > maxMembers) return;
    const draft = combine(members, this.#neededByOthers([a, b], members), this.#capabilities);
    if (!draft) return;
    program.fuse(a, b, anchor);
    this.#groups.delete(b);
    this.#groups.set(a, { members, draft });
  }

  /** A node's calls; a plain copy takes the dtype that the other node has for the copied memory. */
  #membersOf(node: Node, other: Node): readonly FusionNode[] | undefined {
    const { work } = node.call;
    const members = this.#groups.get(node)?.members;
    if (members || work.kind !== "copy") return members;
    const ends = [work.source, work.target];
    const dtype = this.#groups
      .get(other)
      ?.members.flatMap(({ inputs, outputs }) => [...inputs, ...outputs])
      .find(({ slice }) =>
        ends.some(({ buffer, offset }) => slice.buffer === buffer && slice.offset === offset),
      )?.dtype;
    const member = dtype && dtype !== "draw" && fusionNodeOfCopy(node.call, work, dtype);
    return member ? [member] : undefined;
  }

  /** True if two nodes read most of some memory at the same points, so that one read pays. */
  #readSameMemory(a: Node, b: Node): boolean {
    const [one, other] = [this.#groups.get(a), this.#groups.get(b)];
    if (!one || !other) return false;
    const read = new Set(one.members.flatMap(({ inputs }) => inputs.map(({ key }) => key)));
    return other.members.some(({ inputs, elements }) =>
      inputs.some(
        ({ key, steps, isIndexed, dtype }) =>
          !isIndexed && dtype !== "draw" && read.has(key) && countElements(steps) * 2 > elements,
      ),
    );
  }

  /**
   * True for two small elementwise nodes that write interleaved views of a buffer, such as concatenated columns. Their byte ranges
   * overlap, so they cannot share a launch as a combo kernel.
   */
  #writeInterleaved(a: Node, b: Node): boolean {
    const [one, other] = [this.#groups.get(a), this.#groups.get(b)];
    if (a === b || !one || !other) return false;
    const members = [...one.members, ...other.members];
    const [first] = members;
    if (!members.every(({ elements, rowSize }) => elements === first?.elements && rowSize === undefined))
      return false;
    const written = new Set(one.members.flatMap(({ outputs }) => outputs.map(({ slice }) => slice.buffer)));
    const isShared = other.members.some(({ outputs }) =>
      outputs.some(({ slice }) => written.has(slice.buffer)),
    );
    return isShared && trafficOf(one) + trafficOf(other) <= this.#smallBytes;
  }

  /** Tells which memory is read by other nodes than these, which have these members. */
  #neededByOthers(nodes: readonly Node[], members: readonly FusionNode[]): (slice: BufferSlice) => boolean {
    const { isRead, deadOnExit = [] } = this.#options;
    return (slice) => {
      const { buffer } = slice;
      if (isDeadOnExit(deadOnExit, slice)) return this.#isReadAfter(slice, members);
      if (buffer.storage || isRead?.(buffer)) return true;
      return isReadAfterFirst(this.#program, buffer, nodes);
    };
  }

  /** True if another call reads a slice after the first of these calls. Earlier readers see the old value. */
  #isReadAfter(slice: BufferSlice, members: readonly FusionNode[]): boolean {
    const memberCalls = new Set(members.map(({ call }) => call));
    const indexOf = (call: Call): number => this.#indices.get(call) ?? 0;
    const first = Math.min(...members.map(({ call }) => indexOf(call)));
    return this.#program
      .uses(slice.buffer)
      .readers.flatMap(({ calls }) => calls)
      .some(
        (call) =>
          indexOf(call) >= first && !memberCalls.has(call) && touches(accessesOf(call), [slice], isReading),
      );
  }

  /** A lone call without the outputs that nothing reads. */
  #withoutUnread(node: Node, { members }: Group): Draft | undefined {
    const isNeeded = this.#neededByOthers([node], members);
    const isUnread = members.some(({ outputs }) => outputs.some(({ slice }) => !isNeeded(slice)));
    return isUnread ? combine(members, isNeeded, this.#capabilities) : undefined;
  }
}

/** The present nodes of the calls of some nodes. */
const rootsOf = (nodes: readonly Node[]): Node[] => [...new Set(nodes.map(({ root }) => root))];

/** The memory traffic of a group, as one call if it is fused. */
function trafficOf({ members, draft }: Group): number {
  const calls = draft ? [callOf(members, draft)] : members.map(({ call }) => call);
  return calls.map(bytesOf).reduce((sum, { read, written }) => sum + read + written, 0);
}

const areHoisted = (members: readonly FusionNode[]): boolean => members.some(({ call }) => call.isHoisted);

const isRematerialized = ({ call }: FusionNode): boolean => call.isRematerialized === true;
const isFirstRun = (member: FusionNode): boolean => !isRematerialized(member);

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
    ...(members.every(isRematerialized) && { isRematerialized: true }),
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
    const accessed = new Set(
      calls.flatMap((original) => accessesOf(original).map(({ slice }) => slice.buffer)),
    );
    const gone = [...accessed].filter((buffer) => !left.has(buffer));
    return [{ kernel: call.work.kernel.name, ops: calls.map(({ op }) => op), gone }];
  });
}
