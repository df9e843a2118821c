/**
 * Splits a multi-output kernel if one output depends on far fewer calls, and hoists that output so that its consumers can start early.
 * For example, a mean's divisor is counted while the model still runs, so that backward starts in the kernel that makes the loss.
 */

import { capabilitiesOf } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { beat } from "../../units/index.js";
import { maxHoistedBytes, minHoistedCalls } from "../cost-model.js";
import { combine, rowsOf } from "../fusion/vertical/combine.js";
import { fusionNodeOf } from "../fusion/vertical/fusion-node.js";
import { DependencyGraph, type Node } from "../program/dependency-graph.js";
import { accessesOf, type Buffer, type BufferSlice, type Call, isSameSlice } from "../program/program.js";
import { bytesOf } from "../program/traffic.js";

export function hoistOutputs(runtime: Runtime, calls: readonly Call[]): readonly Call[] {
  if (!capabilitiesOf(runtime).hasStreams) return calls;
  const writers = new Writers();
  const hoisted = new Set<Call>();
  for (const call of calls) {
    const cut = cutOf(call, writers);
    for (const producer of cut?.producers ?? []) hoisted.add(producer);
    for (const part of cut ? [cut.hoisted, cut.rest] : [call]) writers.add(part);
  }
  return hoisted.size === 0 ? calls : hoist(writers.calls, hoisted);
}

/** Moves each of these calls to directly after the last call it depends on, in the order of their dependency chains. */
function hoist(calls: readonly Call[], hoisted: ReadonlySet<Call>): readonly Call[] {
  const graph = new DependencyGraph(
    calls.map((call) => (hoisted.has(call) ? { ...call, isHoisted: true } : call)),
  );
  /** The last call that stays, of those that a moved call depends on, and how many moved calls come before it on the chain from there. */
  const chains = new Map<Node, Chain>();
  const moved = new Map<Node | undefined, Node[][]>();
  for (const node of graph.nodes) {
    if (!node.call.isHoisted) continue;
    const { anchor, depth } = [...node.predecessors]
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
      graph.moveAfter(node, previous);
      previous = node;
    }
  }
  return graph.calls;
}

interface Chain {
  /** Undefined: the start of the program. */
  readonly anchor: Node | undefined;
  readonly depth: number;
}

function isLater(a: Chain, b: Chain): boolean {
  const [first, second] = [a, b].map(({ anchor }) => anchor?.position ?? -1) as [number, number];
  return first > second || (first === second && a.depth > b.depth);
}

/** The last writer of each buffer, and the length of the dependency chain that ends with it. */
class Writers {
  readonly calls: Call[] = [];
  readonly #last = new Map<Buffer, { readonly call: Call; readonly depth: number }>();

  add(call: Call): void {
    beat();
    this.calls.push(call);
    const accesses = accessesOf(call);
    const depth = 1 + this.depthOf(accesses.map(({ slice }) => slice));
    for (const { slice, writes } of accesses) if (writes) this.#last.set(slice.buffer, { call, depth });
  }

  depthOf(slices: readonly BufferSlice[]): number {
    return slices.reduce((depth, { buffer }) => Math.max(depth, this.#last.get(buffer)?.depth ?? 0), 0);
  }

  /** A call and all calls that it depends on; undefined if one of them is not a small row kernel. */
  producersOf(last: Call): readonly Call[] | undefined {
    const producers = new Set([last]);
    if (bytesOf(last).read > maxHoistedBytes) return undefined;
    for (const call of producers) {
      if (call.work.kind !== "row" || bytesOf(call).written > maxHoistedBytes) return undefined;
      for (const { buffer } of readBy(call)) {
        const writer = this.#last.get(buffer)?.call;
        if (writer) producers.add(writer);
      }
    }
    return [...producers];
  }
}

interface Cut {
  /** A call with one of the outputs, and one with the others. */
  readonly hoisted: Call;
  readonly rest: Call;
  /** The calls that the hoisted one depends on, and itself. */
  readonly producers: readonly Call[];
}

function cutOf(call: Call, writers: Writers): Cut | undefined {
  const member = call.isRematerialized ? undefined : fusionNodeOf(call);
  if (!member || member.outputs.length < 2) return undefined;
  const depth = writers.depthOf(member.inputs.map(({ slice }) => slice));
  if (depth < minHoistedCalls) return undefined;
  const withOutputs = (isWanted: (slice: BufferSlice) => boolean): Call | undefined => {
    const draft = combine([member], isWanted, "cuda");
    return draft && { ...call, work: rowsOf(draft) };
  };
  for (const { slice: own } of member.outputs) {
    const split = own.buffer.storage ? undefined : withOutputs((slice) => isSameSlice(slice, own));
    if (!split || depth - writers.depthOf(readBy(split)) < minHoistedCalls) continue;
    const producers = writers.producersOf(split);
    const rest = producers && withOutputs((slice) => !isSameSlice(slice, own));
    if (rest) return { hoisted: split, rest, producers };
  }
  return undefined;
}

const readBy = (call: Call): readonly BufferSlice[] =>
  accessesOf(call).flatMap(({ slice, reads }) => (reads ? slice : []));
