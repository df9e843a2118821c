/**
 * Step-count groups: parameters that have had their gradients in the same steps. PyTorch counts steps per parameter,
 * and a step without a gradient does not count. Here a group has one count and one set of derived numbers, in persistent
 * memory. All parameters start in one group (one for each dtype of moments), which is split when a step has gradients for only some of
 * it.
 */

import { dtypes } from "../ir/index.js";
import type { Runtime, Storage } from "../runtime/index.js";
import type { ParameterSlot } from "./parameter-slot.js";
import { type MomentDtype, momentDtype, numbersPerStep } from "./update-rule.js";

const cellBytes = 8;

/** The memory of one step-count group: t, then the step's numbers. */
const stepCountBytes = cellBytes * (1 + numbersPerStep);

/** The memory for a group's step-count groups: in the worst case one per parameter. */
export function stepCountMemoryBytes(parameters: number): number {
  return Math.max(1, parameters) * stepCountBytes;
}

export interface StepCountGroup {
  readonly slots: readonly ParameterSlot[];
  readonly momentDtype: MomentDtype;
  /** The number of steps made; f64. */
  readonly t: Storage;
  readonly numbers: readonly Storage[];
}

export class StepCountGroups {
  readonly #runtime: Runtime;
  readonly #memory: Storage;
  #stepCountGroups: StepCountGroup[] = [];
  #regroupings = 0;

  /** The memory is zero, and so is every count. */
  constructor(runtime: Runtime, memory: Storage, slots: readonly ParameterSlot[]) {
    this.#runtime = runtime;
    this.#memory = memory;
    for (const stepCountGroup of groupBy(slots, ({ tensor }) => momentDtype(tensor.dtype)).values())
      this.#add(stepCountGroup);
  }

  /** Counts the times that step-count groups were split or rebuilt: plans for the old ones are invalid afterwards. */
  get regroupings(): number {
    return this.#regroupings;
  }

  /** The step-count groups of the slots that step now, split from those that do not; also whether any was split. */
  select(stepping: ReadonlySet<ParameterSlot>): {
    readonly stepCountGroups: readonly StepCountGroup[];
    readonly hasSplit: boolean;
  } {
    const selected: StepCountGroup[] = [];
    let hasSplit = false;
    for (const [index, stepCountGroup] of [...this.#stepCountGroups.entries()]) {
      const steppingSlots = stepCountGroup.slots.filter((slot) => stepping.has(slot));
      if (steppingSlots.length === 0) continue;
      if (steppingSlots.length === stepCountGroup.slots.length) {
        selected.push(stepCountGroup);
        continue;
      }
      const restingSlots = stepCountGroup.slots.filter((slot) => !stepping.has(slot));
      this.#stepCountGroups[index] = { ...stepCountGroup, slots: restingSlots };
      const split = this.#add(steppingSlots);
      // Once and at once, even while tracing: the step is then traced again with the new groups.
      this.#runtime.outsideTrace(() => this.#runtime.copy(split.t, stepCountGroup.t));
      selected.push(split);
      hasSplit = true;
      this.#regroupings += 1;
    }
    return { stepCountGroups: selected, hasSplit };
  }

  /** The storage of a slot's step count. */
  stepCount(slot: ParameterSlot): Storage | undefined {
    return this.#stepCountGroups.find(({ slots }) => slots.includes(slot))?.t;
  }

  /** Restores counts; slots with equal counts form a group. */
  restore(counts: ReadonlyMap<ParameterSlot, number>): void {
    this.#stepCountGroups = [];
    this.#regroupings += 1;
    const uploads = [
      ...groupBy(
        [...counts.keys()],
        (slot) => `${momentDtype(slot.tensor.dtype)} ${counts.get(slot)}`,
      ).values(),
    ].map((slots) => ({
      source: Float64Array.of(slots[0] ? (counts.get(slots[0]) ?? 0) : 0),
      target: this.#add(slots).t,
    }));
    this.#runtime.upload(uploads);
  }

  #add(slots: readonly ParameterSlot[]): StepCountGroup {
    const dtype = momentDtype(slots[0]?.tensor.dtype ?? "f32");
    const start = this.#stepCountGroups.length * stepCountBytes;
    const cell = (index: number, size: number): Storage =>
      this.#runtime.view(this.#memory, start + index * cellBytes, size, index === 0 ? "t" : "step number");
    const stepCountGroup: StepCountGroup = {
      slots,
      momentDtype: dtype,
      t: cell(0, cellBytes),
      numbers: Array.from({ length: numbersPerStep }, (_, index) => cell(1 + index, dtypes[dtype].bytes)),
    };
    this.#stepCountGroups.push(stepCountGroup);
    return stepCountGroup;
  }
}

/** Groups items by key, in order of first occurrence. */
function groupBy<T, K>(items: readonly T[], makeKey: (item: T) => K): Map<K, T[]> {
  const groups = new Map<K, T[]>();
  for (const item of items) {
    const key = makeKey(item);
    groups.set(key, [...(groups.get(key) ?? []), item]);
  }
  return groups;
}
