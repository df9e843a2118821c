/**
 * Splits a multi-output kernel if one output depends on far fewer calls, and hoists that output so that its consumers can start early.
 * For example, a mean's divisor is counted while the model still runs, so that backward starts in the kernel that makes the loss.
 */

import { capabilitiesOf } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { beat } from "../../units/index.js";
import { maxHoistedBytes, minHoistedCalls } from "../cost-model.js";
import { combine, type RowCapabilities, rowsOf } from "../fusion/vertical/combine.js";
import { fusionNodeOf } from "../fusion/vertical/fusion-node.js";
import {
  accessesOf,
  type Buffer,
  type BufferSlice,
  type Call,
  isSameSlice,
  type Node,
  type Program,
} from "../program/program.js";
import { bytesOf } from "../program/traffic.js";

export function hoistOutputs(runtime: Runtime, program: Program): void {
  const capabilities = capabilitiesOf(runtime);
  if (!capabilities.hasStreams) return;
  const writers = new Writers();
  const hoisted = new Set<Node>();
  for (const node of program.nodes) {
    const cut = cutOf(node.call, writers, capabilities);
    if (cut) {
      const first = program.insertBefore(node, cut.hoisted);
      program.replace(node, cut.rest);
      for (const producer of [...cut.producers, first]) hoisted.add(producer);
      writers.add(first);
    }
    writers.add(node);
  }
  if (hoisted.size > 0) hoist(program, hoisted);
}

/** Moves each of these calls to directly after the last call it depends on, in the order of their dependency chains. */
function hoist(program: Program, hoisted: ReadonlySet<Node>): void {
  const chains = new Map<Node, Chain>();
  const moved = new Map<Node | undefined, Node[][]>();
  for (const node of program.nodes) {
    if (hoisted.has(node)) program.replace(node, { ...node.call, isHoisted: true });
    if (!node.call.isHoisted) continue;
    const { anchor, depth } = [...program.producersOf(node)]
      .map((earlier): Chain => chains.get(earlier) ?? { anchor: earlier, depth: 0 })
      .reduce((last, chain) => (isLater(chain, last) ? chain : last), { anchor: undefined, depth: 0 });
    chains.set(node, { anchor, depth: depth + 1 });
    const levels = moved.get(anchor) ?? [];
    moved.set(anchor, levels);
    levels[depth] = [...(levels[depth] ?? []), node];
  }
  for (const [anchor, levels] of moved) {
    let previous = anchor;
    for (const node of levels.flat()) {
      program.moveAfter(node, previous);
      previous = node;
    }
  }
}

/** The last call that stays, of those that a moved call depends on, and how many moved calls come before it on the chain from there. */
interface Chain {
  /** Undefined: the start of the program. */
  readonly anchor: Node | undefined;
  readonly depth: number;
}

function isLater(a: Chain, b: Chain): boolean {
  if (a.anchor === b.anchor) return a.depth > b.depth;
  return a.anchor !== undefined && (!b.anchor || b.anchor.isBefore(a.anchor));
}

/** The last writer of each buffer, and the length of the dependency chain that ends with it. */
class Writers {
  readonly #last = new Map<Buffer, { readonly node: Node; readonly depth: number }>();

  add(node: Node): void {
    beat();
    const depth = 1 + this.depthOf(node.accesses.map(({ slice }) => slice));
    for (const { slice, writes } of node.accesses) if (writes) this.#last.set(slice.buffer, { node, depth });
  }

  depthOf(slices: readonly BufferSlice[]): number {
    return slices.reduce((depth, { buffer }) => Math.max(depth, this.#last.get(buffer)?.depth ?? 0), 0);
  }

  /** All nodes that a call depends on; undefined if the call or one of them is not a small row kernel. */
  producersOf(last: Call): readonly Node[] | undefined {
    if (bytesOf(last).read > maxHoistedBytes || !isSmall(last)) return undefined;
    const producers = new Set(this.#writersOf(last));
    for (const { call } of producers) {
      if (!isSmall(call)) return undefined;
      for (const writer of this.#writersOf(call)) producers.add(writer);
    }
    return [...producers];
  }

  #writersOf(call: Call): readonly Node[] {
    return readBy(call).flatMap(({ buffer }) => this.#last.get(buffer)?.node ?? []);
  }
}

const isSmall = (call: Call): boolean => call.work.kind === "row" && bytesOf(call).written <= maxHoistedBytes;

interface Cut {
  /** A call with one of the outputs, and one with the others. */
  readonly hoisted: Call;
  readonly rest: Call;
  /** The nodes that the hoisted call depends on. */
  readonly producers: readonly Node[];
}

function cutOf(call: Call, writers: Writers, capabilities: RowCapabilities): Cut | undefined {
  const member = call.isRematerialized ? undefined : fusionNodeOf(call);
  if (!member || member.outputs.length < 2) return undefined;
  const depth = writers.depthOf(member.inputs.map(({ slice }) => slice));
  if (depth < minHoistedCalls) return undefined;
  const withOutputs = (isWanted: (slice: BufferSlice) => boolean): Call | undefined => {
    const draft = combine([member], isWanted, capabilities);
    return draft && { ...call, work: rowsOf(draft) };
  };
  for (const { slice: output } of member.outputs) {
    const split = output.buffer.storage ? undefined : withOutputs((slice) => isSameSlice(slice, output));
    if (!split || depth - writers.depthOf(readBy(split)) < minHoistedCalls) continue;
    const producers = writers.producersOf(split);
    const rest = producers && withOutputs((slice) => !isSameSlice(slice, output));
    if (rest) return { hoisted: split, rest, producers };
  }
  return undefined;
}

const readBy = (call: Call): readonly BufferSlice[] =>
  accessesOf(call).flatMap(({ slice, reads }) => (reads ? slice : []));
