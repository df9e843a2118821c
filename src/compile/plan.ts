/** temporary */
import { accessesOf, type Buffer, type Plan, type Schedule } from "./program.js";
export interface Lifetime {
  readonly buffer: Buffer;
  readonly first: number;
  readonly last: number;
}
export interface MemoryReport {
  readonly peak: number;
}
export function lifetimesOf(s: Schedule): readonly Lifetime[] {
  const m = new Map<Buffer, { first: number; last: number }>();
  s.calls.forEach(({ call }, i) => {
    for (const { part } of accessesOf(call)) {
      if (part.buffer.storage) continue;
      const e = m.get(part.buffer);
      if (e) e.last = i;
      else m.set(part.buffer, { first: i, last: i });
    }
  });
  return [...m].map(([buffer, e]) => ({ buffer, ...e }));
}
export function planMemory(l: readonly Lifetime[]): Plan {
  const offsets = new Map<Buffer, number>();
  let at = 0;
  for (const { buffer } of l) {
    offsets.set(buffer, at);
    at += Math.ceil(buffer.bytes / 256) * 256;
  }
  return { bytes: at, offsets };
}
export function memoryOf(_s: Schedule, p: Plan): MemoryReport {
  return { peak: p.bytes };
}
