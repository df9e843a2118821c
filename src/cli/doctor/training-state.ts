/** Everything that training goes on from, byte by byte: weights, gradients, moments, step counts, random counters. */

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

/** Rejects two states that differ in any bit; names the first tensor that does. */
export function requireSameState(what: string, expected: TrainingState, found: TrainingState): void {
  for (const [region, bytes] of expected) {
    const own = found.get(region);
    check(own !== undefined && Buffer.compare(bytes, own) === 0, () => {
      const at = bytes.findIndex((byte, index) => byte !== own?.[index]);
      return `${what}: first in ${placeOf(region, at)}.`;
    });
  }
}

function placeOf({ name, span, storages }: Region, offset: number): string {
  const address = span.address + offset;
  const storage = storages.findLast((one) => one.span.address <= address);
  if (!storage) return `"${name}" at byte ${offset}`;
  return `"${storage.label}" of ${name} at byte ${address - storage.span.address} of ${storage.span.size}`;
}
