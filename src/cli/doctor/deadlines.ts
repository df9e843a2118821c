/** The deadline of each phase: tens of times its duration on a healthy machine. */

import type { DoctorPhase } from "./phase-log.js";

export type Deadlines = Readonly<Record<DoctorPhase, number>>;

const seconds = 1000;

/** The first run of a kernel includes its compilation. */
const gpuDeadlines: Deadlines = {
  open: 20 * seconds,
  upload: 30 * seconds,
  forward: 90 * seconds,
  backward: 90 * seconds,
  update: 30 * seconds,
  eager: 30 * seconds,
  capture: 60 * seconds,
  replay: 20 * seconds,
  close: 20 * seconds,
};

const cpuDeadlines: Deadlines = {
  open: 20 * seconds,
  upload: 60 * seconds,
  forward: 30 * seconds,
  backward: 60 * seconds,
  update: 30 * seconds,
  eager: 90 * seconds,
  capture: 90 * seconds,
  replay: 90 * seconds,
  close: 20 * seconds,
};

export const defaultBatch = { cuda: 256, cpu: 16 } as const;

/** Deadlines grow with batches above the default. */
export function deadlinesFor(device: "cpu" | "cuda", batch: number): Deadlines {
  const factor = Math.max(1, batch / defaultBatch[device]);
  const grows: ReadonlySet<string> = new Set(["forward", "backward", "eager", "capture", "replay"]);
  const deadlines = device === "cuda" ? gpuDeadlines : cpuDeadlines;
  return Object.fromEntries(
    Object.entries(deadlines).map(([phase, ms]) => [phase, grows.has(phase) ? ms * factor : ms]),
  ) as Deadlines;
}
