/**
 * Reserves all draws of a step in one launch. Without this pass, each op that draws launches `reserveDraw`, which copies the random state and
 * advances it. The copies differ only in their counters. They become slices of one buffer, and the first launch writes all of them.
 */

import { stateBytes } from "../../kernels/index.js";
import type { Buffer, BufferSlice, LaunchCall, Node, Program } from "../program/program.js";
import { type Location, relocateCalls } from "../program/relocation.js";
import { touches } from "../program/uses.js";

/** A launch of `reserveDraw` that reserves one draw, and the random state that it advances. */
interface Reservation {
  readonly node: Node;
  readonly work: LaunchCall;
  readonly draw: Buffer;
  readonly state: BufferSlice;
}

export function mergeDraws(program: Program): void {
  const all = program.nodes.flatMap((node) => reservationOf(program, node) ?? []);
  for (const members of chainsOf(program, all)) merge(program, members);
}

/** Undefined for any other call, and if the draw is not a buffer of its own that nothing else writes. */
function reservationOf(program: Program, node: Node): Reservation | undefined {
  const { work } = node.call;
  if (work.kind !== "launch" || work.kernel.name !== "reserveDraw") return undefined;
  const [draw, state, count] = work.arguments;
  if (typeof draw !== "object" || typeof state !== "object" || count !== 1) return undefined;
  const { buffer } = draw;
  const isOwn = !buffer.storage && buffer.bytes === stateBytes && program.uses(buffer).writers.length === 1;
  return isOwn ? { node, work, draw: buffer, state } : undefined;
}

/** Reservations of one state, between which no other call accesses it. */
function chainsOf(program: Program, all: readonly Reservation[]): readonly (readonly Reservation[])[] {
  const chains: Reservation[][] = [];
  for (const one of all) {
    const chain = chains.at(-1);
    const last = chain?.at(-1);
    if (chain && last && areNeighbours(program, last, one)) chain.push(one);
    else chains.push([one]);
  }
  return chains.filter(({ length }) => length > 1);
}

function areNeighbours(program: Program, a: Reservation, b: Reservation): boolean {
  const { buffer, offset, size } = a.state;
  if (b.state.buffer !== buffer || b.state.offset !== offset || b.state.size !== size) return false;
  return program
    .usersBetween(buffer, a.node, b.node)
    .every((user) => user === a.node || user === b.node || !touches(user.accesses, [a.state]));
}

function merge(program: Program, [first, ...others]: readonly Reservation[]): void {
  if (!first) return;
  const count = 1 + others.length;
  const buffer = program.makeBuffer(count * stateBytes, first.draw.label);
  const moved = new Map<Buffer, Location>();
  for (const [index, { draw }] of [first, ...others].entries())
    moved.set(draw, { buffer, offset: index * stateBytes });
  for (const { node } of others) program.remove(node);
  const draws: BufferSlice = { buffer, offset: 0, size: buffer.bytes };
  program.replace(first.node, {
    ...first.node.call,
    op: `${first.node.call.op} of ${count}`,
    work: { ...first.work, arguments: [draws, first.state, count] },
  });
  relocateCalls(program, moved);
}
