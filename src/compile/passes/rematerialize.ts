/**
 * Rematerialisation: a value that is live across the memory peak is recomputed after it, if a row kernel made it from inputs that are
 * still live there. Vertical fusion can then compute it inside its reader.
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

/** The same program with values that are live at the peak recomputed after it, if possible. */
function rematerializeAtPeak(calls: readonly Call[]): readonly Call[] {
  const lifetimes = lifetimesOf(inOrder(calls));
  const { position: peak, bytes } = peakOf(lifetimes);
  const uses = usesOf(calls);
  const make = bufferMaker(calls);
  const lastUse = new Map(lifetimes.map(({ buffer, last }) => [buffer, last]));
  /** Calls to insert before an index, and the buffer that readers use from there on. */
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
    if (!isFar || !areInputsLive(maker.call, uses, lastUse, maker.place, place)) continue;
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
  /** All buffers that the call writes. */
  readonly made: ReadonlySet<Buffer>;
}

/** The row call that is the only writer of a buffer and writes nothing persistent. */
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

/** True if the inputs of a call are unchanged at a later index, and live there anyway. */
function areInputsLive(
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
