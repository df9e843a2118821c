/** The complete training state as bytes: weights, gradients, moments, step counts, random counters. */

import type { BudgetLabel, Region, Runtime } from "../../runtime/index.js";
import { check } from "./phase-log.js";

export type TrainingState = ReadonlyMap<Region, Uint8Array>;

const labels: ReadonlySet<BudgetLabel> = new Set(["weights", "gradients", "moments", "scalars"]);

export function readState(runtime: Runtime): TrainingState {
  const regions = runtime.persistent.regions.filter(({ label }) => labels.has(label));
  return new Map(regions.map((region) => [region, runtime.read(region.whole)]));
}

export function restoreState(runtime: Runtime, state: TrainingState): void {
  runtime.upload([...state].map(([{ whole }, source]) => ({ source, target: whole })));
}

/** Throws if two states differ in any bit, and names the first tensor that differs. */
export function requireSameState(problem: string, expected: TrainingState, actual: TrainingState): void {
  for (const [region, bytes] of expected) {
    const current = actual.get(region);
    check(current !== undefined && Buffer.compare(bytes, current) === 0, () => {
      const at = bytes.findIndex((byte, index) => byte !== current?.[index]);
      return `${problem}: first in ${describeOffset(region, at)}.`;
    });
  }
}

function describeOffset({ name, span, storages }: Region, offset: number): string {
  const address = span.address + offset;
  const storage = storages.findLast((candidate) => candidate.span.address <= address);
  if (!storage) return `"${name}" at byte ${offset}`;
  return `"${storage.label}" of ${name} at byte ${address - storage.span.address} of ${storage.span.size}`;
}
