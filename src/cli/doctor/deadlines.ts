/** How long each phase of the test may take: tens of times what it takes on a machine that is well. */

import type { DoctorPhase } from "./phase-log.js";

export type Deadlines = Readonly<Record<DoctorPhase, number>>;

const seconds = 1000;

/** The first runs of a GPU's kernels include their compilation. */
const ofGpu: Deadlines = {
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

const ofCpu: Deadlines = {
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

export const usualBatch = { cuda: 256, cpu: 16 } as const;

/** A batch beyond the usual one takes longer by as much. */
export function deadlinesFor(device: "cpu" | "cuda", batch: number): Deadlines {
  const factor = Math.max(1, batch / usualBatch[device]);
  const grows: ReadonlySet<string> = new Set(["forward", "backward", "eager", "capture", "replay"]);
  const usual = device === "cuda" ? ofGpu : ofCpu;
  return Object.fromEntries(
    Object.entries(usual).map(([phase, ms]) => [phase, grows.has(phase) ? ms * factor : ms]),
  ) as Deadlines;
}
