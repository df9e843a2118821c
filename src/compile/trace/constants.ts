/** Puts a trace's constants into persistent memory. */

import type { Region, Runtime } from "../../runtime/index.js";
import { type Buffer, type BufferSlice, type Call, mapSlices } from "../program/program.js";
import type { Constant } from "./trace.js";

export interface PlacedConstants {
  readonly calls: readonly Call[];
  readonly regions: readonly Region[];
}

/** The same calls, with their constants in a region that the step owns. */
export function placeConstants(
  runtime: Runtime,
  calls: readonly Call[],
  constants: readonly Constant[],
): PlacedConstants {
  if (constants.length === 0) return { calls, regions: [] };
  const sizes = constants.map(({ buffer, bytes }) => ({ name: buffer.label, size: bytes.length }));
  const region = runtime.persistent.place("scalars", "constants of a compiled step", sizes);
  runtime.upload(
    constants.flatMap(({ bytes }, index) => {
      const target = region.storages[index];
      return target ? [{ source: bytes, target }] : [];
    }),
  );
  const whole: Buffer = {
    id: -1,
    bytes: region.whole.span.size,
    label: region.name,
    storage: region.whole,
  };
  const offsets = new Map(
    constants.map(({ buffer }, index) => {
      const address = region.storages[index]?.span.address ?? region.span.address;
      return [buffer, address - region.span.address];
    }),
  );
  const toRegion = (slice: BufferSlice): BufferSlice => {
    const offset = offsets.get(slice.buffer);
    return offset === undefined ? slice : { buffer: whole, offset: offset + slice.offset, size: slice.size };
  };
  return {
    calls: calls.map((call) => ({ ...call, work: mapSlices(call.work, toRegion) })),
    regions: [region],
  };
}
