/**
 * Makes values again instead of keeping them: a value that a row kernel made long before it is needed again, of memory that
 * is still there then, need not be held where memory is shortest. A fused kernel that reads the same memory then makes it
 * by the way.
 */

import { maxRematerializeRounds, minRematerializedGap, minRematerializedShare } from "../cost-model.js";
import { accessesOf, type Buffer, type BufferSlice, type Call, mapSlices } from "../program/program.js";
import { bufferMaker, type Uses, usesOf } from "../program/uses.js";
import { lifetimesOf, peakOf, plannedBytes } from "../schedule/liveness.js";

export function rematerialize(calls: readonly Call[]): readonly Call[] {
  let [best, bestBytes] = [calls, peakBytesOf(calls)];
  for (let round = 0; round < maxRematerializeRounds; round++) {
    const next = rematerializeAtPeak(best);
    const bytes = peakBytesOf(next);
    if (bytes >= bestBytes) return best;
    [best, bestBytes] = [next, bytes];
  }
  return best;
}

function peakBytesOf(calls: readonly Call[]): number {
  return peakOf(lifetimesOf(inOrder(calls))).bytes;
}

function inOrder(calls: readonly Call[]) {
  return { calls: calls.map((call) => ({ call, stream: 0, after: [] })) };
}

/** The same program, with what is live at its peak made again behind it where that can be. */
function rematerializeAtPeak(calls: readonly Call[]): readonly Call[] {
  const lifetimes = lifetimesOf(inOrder(calls));
  const { place: peak, bytes } = peakOf(lifetimes);
  const uses = usesOf(calls);
  const make = bufferMaker(calls);
  const lastUse = new Map(lifetimes.map(({ buffer, last }) => [buffer, last]));
  /** What is to be inserted before a place, and which buffer its readers from there on see. */
  const again = new Map<number, Call[]>();
  const seenFrom = new Map<Buffer, { readonly place: number; readonly buffer: Buffer }>();
  for (const { buffer, first, last } of lifetimes) {
    if (first >= peak || last <= peak || plannedBytes(buffer) < minRematerializedShare * bytes) continue;
    const maker = makerOf(calls, uses.get(buffer), buffer);
    if (!maker) continue;
    const readers = uses.get(buffer)?.readers ?? [];
    const place = readers.find((reader) => reader > peak);
    const before = readers.findLast((reader) => reader < peak) ?? first;
    const isFar = place !== undefined && !readers.includes(peak) && place - before >= minRematerializedGap;
    if (!isFar || !areThere(maker.call, uses, lastUse, maker.place, place)) continue;
    const copies = new Map<Buffer, Buffer>();
    const call: Call = {
      ...maker.call,
      isRematerialized: true,
      work: mapSlices(maker.call.work, (slice) => copyOf(slice, maker.made, copies, make)),
    };
    again.set(place, [...(again.get(place) ?? []), call]);
    const copy = copies.get(buffer);
    if (copy) seenFrom.set(buffer, { place, buffer: copy });
  }
  if (again.size === 0) return calls;
  return calls.flatMap((call, place) => {
    const seen = (slice: BufferSlice): BufferSlice => {
      const other = seenFrom.get(slice.buffer);
      return other && place >= other.place ? { ...slice, buffer: other.buffer } : slice;
    };
    return [...(again.get(place) ?? []), { ...call, work: mapSlices(call.work, seen) }];
  });
}

interface Maker {
  readonly place: number;
  readonly call: Call;
  /** Everything that the call makes. */
  readonly made: ReadonlySet<Buffer>;
}

/** The one row call that has made a buffer, and nothing that lasts with it. */
function makerOf(calls: readonly Call[], uses: Uses | undefined, buffer: Buffer): Maker | undefined {
  const [place, ...others] = uses?.writers ?? [];
  const call = place === undefined ? undefined : calls[place];
  if (!call || place === undefined || others.length > 0 || call.work.kind !== "row" || call.isRematerialized)
    return undefined;
  const written = accessesOf(call).filter(({ writes }) => writes);
  const made = new Set(written.map(({ slice }) => slice.buffer));
  const isOwn = written.every(({ slice, reads }) => !reads && !slice.buffer.storage) && made.has(buffer);
  return isOwn ? { place, call, made } : undefined;
}

/** Is what a call reads still there at a later place, unchanged, and needed there by others anyway? */
function areThere(
  call: Call,
  uses: ReadonlyMap<Buffer, Uses>,
  lastUse: ReadonlyMap<Buffer, number>,
  made: number,
  place: number,
): boolean {
  return accessesOf(call)
    .filter(({ reads }) => reads)
    .every(({ slice: { buffer } }) => {
      const isChanged = uses.get(buffer)?.writers.some((writer) => writer > made && writer < place);
      const isHeld = buffer.storage !== undefined || (lastUse.get(buffer) ?? 0) >= place;
      return !isChanged && isHeld;
    });
}

function copyOf(
  slice: BufferSlice,
  made: ReadonlySet<Buffer>,
  copies: Map<Buffer, Buffer>,
  make: ReturnType<typeof bufferMaker>,
): BufferSlice {
  if (!made.has(slice.buffer)) return slice;
  const { bytes, label } = slice.buffer;
  const copy = copies.get(slice.buffer) ?? make(bytes, `${label} again`);
  copies.set(slice.buffer, copy);
  return { ...slice, buffer: copy };
}
