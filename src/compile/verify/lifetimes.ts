/**
 * Rule `lifetimes`: if the plan gives two buffers the same bytes, all work on one has ended before any work on the
 * other starts. This rule keeps a saved tensor intact until backward has read it.
 */

import { beat } from "../../units/index.js";
import type { Buffer } from "../program/program.js";
import { boundsOf, LatestIndices } from "./latest-indices.js";
import { nameBuffer, nameRange, rejection } from "./plan-error.js";
import { accessesAt, nameCallAt, type Proposal } from "./proposal.js";
import { none, type Order } from "./streams.js";

/** The live range of a step buffer: its first and last position on each stream; `none` if no call of the stream accesses it. */
interface Lifetime {
  readonly buffer: Buffer;
  readonly start: number;
  readonly end: number;
  readonly firsts: Int32Array;
  readonly lasts: Int32Array;
}

/**
 * Visits the buffers in the order of their first use. Of two that share bytes, work on the earlier one must have ended. Of all
 * earlier buffers together, only the latest position on each stream counts.
 */
export function requireLifetimes(proposal: Proposal, order: Order): void {
  const lifetimes = lifetimesOf(proposal, order);
  const bounds = boundsOf(lifetimes.flatMap(({ start, end }) => [start, end]));
  const used = new LatestIndices(bounds, order.streams);
  for (const lifetime of lifetimes) {
    beat();
    const { start, end, firsts, lasts } = lifetime;
    const latest = used.latest(start, end);
    for (const last of latest) {
      for (const first of firsts) {
        if (last === none || first === none || order.isBefore(last, first)) continue;
        throw clash(proposal, lifetimes, { lifetime, first, last });
      }
    }
    for (const [stream, last] of lasts.entries()) if (last !== none) used.note(start, end, stream, last);
  }
}

/** The live ranges of all accessed step buffers, in the order of first use. */
function lifetimesOf(proposal: Proposal, order: Order): Lifetime[] {
  const { schedule, plan } = proposal;
  const lifetimes = new Map<Buffer, Lifetime>();
  for (const position of schedule.calls.keys()) {
    const stream = order.streamAt(position);
    for (const { slice } of accessesAt(proposal, position)) {
      const { buffer } = slice;
      if (buffer.storage !== undefined) continue;
      let lifetime = lifetimes.get(buffer);
      if (lifetime === undefined) {
        const start = plan.offsets.get(buffer) ?? 0;
        const firsts = new Int32Array(order.streams).fill(none);
        lifetime = { buffer, start, end: start + buffer.bytes, firsts, lasts: firsts.slice() };
        lifetimes.set(buffer, lifetime);
      }
      if (lifetime.firsts[stream] === none) lifetime.firsts[stream] = position;
      lifetime.lasts[stream] = position;
    }
  }
  return [...lifetimes.values()];
}

interface Clash {
  readonly lifetime: Lifetime;
  readonly first: number;
  readonly last: number;
}

function clash(proposal: Proposal, lifetimes: readonly Lifetime[], { lifetime, first, last }: Clash): Error {
  const other = lifetimes.find(
    (candidate) =>
      candidate !== lifetime &&
      candidate.lasts.includes(last) &&
      candidate.start < lifetime.end &&
      lifetime.start < candidate.end,
  );
  const finding =
    `${describe(lifetime)} is in use from ${nameCallAt(proposal, first)} on, and ` +
    `${other === undefined ? "another buffer there" : describe(other)} until ` +
    `${nameCallAt(proposal, last)}, which may still be running`;
  return rejection("lifetimes", finding, {
    first: other?.buffer.id ?? none,
    second: lifetime.buffer.id,
    firstPosition: last,
    secondPosition: first,
  });
}

function describe({ buffer, start }: Lifetime): string {
  return `${nameBuffer(buffer)} in ${nameRange(start, buffer.bytes)} of the plan`;
}
