/**
 * Splits off a kernel's outputs that have fewer dependencies than the others, if their inputs are ready long before the rest.
 * Readers of such an output need not wait: a mean's divisor is counted while the model still runs, so backward starts in the
 * kernel that makes the loss.
 */

import type { Runtime } from "../../runtime/index.js";
import { beat } from "../../units/index.js";
import { combine, rowsOf } from "../fusion/vertical/combine.js";
import { memberOf } from "../fusion/vertical/fusion-node.js";
import { Order } from "../program/dependency-graph.js";
import { accessesOf, type Buffer, type BufferSlice, type Call, isSameSlice } from "../program/program.js";
import { bytesOf } from "../report/call-table.js";

/** What it moves, and what each call on the way to it makes: no more than takes as long as a launch. */
const maxBytes = 256 * 1024;

/** The chain of calls to the other results is longer by so many; with fewer nobody would wait much less. */
const minCalls = 4;

export function hoistOutputs({ device }: Runtime, calls: readonly Call[]): readonly Call[] {
  if (device.kind !== "cuda") return calls;
  const writers = new Writers();
  const early = new Set<Call>();
  for (const call of calls) {
    const cut = cutOf(call, writers);
    for (const one of cut?.way ?? []) early.add(one);
    for (const one of cut ? [cut.early, cut.rest] : [call]) writers.add(one);
  }
  return early.size === 0 ? calls : moveUp(writers.calls, early);
}

/** Each of these calls behind what it waits for, and at once. */
function moveUp(calls: readonly Call[], early: ReadonlySet<Call>): readonly Call[] {
  const order = new Order();
  // So little that all of them find room before the next call.
  const step = 1 / (calls.length + 1);
  const nodes = calls.map((call) => order.add(early.has(call) ? { ...call, isHoisted: true } : call).node);
  for (const node of nodes) {
    if (!node.call.isHoisted) continue;
    node.position = Math.max(-1, ...[...node.before].map(({ position }) => position)) + step;
  }
  return order.nodes.map(({ call }) => call);
}

/** Who has written a buffer last, and how many calls wait for each other up to there. */
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
    return slices.reduce((most, { buffer }) => Math.max(most, this.#last.get(buffer)?.depth ?? 0), 0);
  }

  /** All calls that a call waits for, and itself; nothing where that is much. */
  wayTo(last: Call): readonly Call[] | undefined {
    const way = new Set([last]);
    if (bytesOf(last).read > maxBytes) return undefined;
    for (const call of way) {
      if (call.work.kind !== "row" || bytesOf(call).written > maxBytes) return undefined;
      for (const { buffer } of readBy(call)) {
        const writer = this.#last.get(buffer)?.call;
        if (writer) way.add(writer);
      }
    }
    return [...way];
  }
}

interface Cut {
  /** One of a call's results by itself, and the others. */
  readonly early: Call;
  readonly rest: Call;
  /** What leads to the one. */
  readonly way: readonly Call[];
}

function cutOf(call: Call, writers: Writers): Cut | undefined {
  const member = call.isRematerialized ? undefined : memberOf(call);
  if (!member || member.outputs.length < 2) return undefined;
  const depth = writers.depthOf(member.inputs.map(({ slice }) => slice));
  if (depth < minCalls) return undefined;
  const makingOnly = (isWanted: (slice: BufferSlice) => boolean): Call | undefined => {
    const draft = combine([member], isWanted, "cuda");
    return draft && { ...call, work: rowsOf(draft) };
  };
  for (const { slice: own } of member.outputs) {
    const early = own.buffer.storage ? undefined : makingOnly((slice) => isSameSlice(slice, own));
    if (!early || depth - writers.depthOf(readBy(early)) < minCalls) continue;
    const way = writers.wayTo(early);
    const rest = way && makingOnly((slice) => !isSameSlice(slice, own));
    if (rest) return { early, rest, way };
  }
  return undefined;
}

const readBy = (call: Call): readonly BufferSlice[] =>
  accessesOf(call).flatMap(({ slice, reads }) => (reads ? slice : []));
