/**
 * Step-count groups: parameters that have had their gradients in the same steps. PyTorch counts steps per parameter,
 * and a step without a gradient does not count. Here a group has one count and one set of derived numbers, in persistent
 * memory. All parameters start in one group (one for each dtype of moments), which is split when a step has gradients for only some of
 * it.
 */

import { dtypes } from "../ir/index.js";
import type { Runtime, Storage } from "../runtime/index.js";
import type { ParameterSlot } from "./parameter-slot.js";
import { type MomentDtype, momentDtype, type UpdateRule } from "./update-rule.js";

const cellBytes = 8;

/** The memory of one step-count group: t, the carried numbers, and the step's numbers. */
function stepCountBytes({ numbers, carried = [] }: UpdateRule): number {
  return cellBytes * (1 + carried.length + numbers.length);
}

/** The memory for a group's step-count groups: in the worst case one per parameter. */
export function stepCountMemoryBytes(rule: UpdateRule, parameters: number): number {
  return Math.max(1, parameters) * stepCountBytes(rule);
}

/** What a step-count group keeps between steps. */
export interface StepCounts {
  readonly t: number;
  readonly carried: readonly number[];
}

export interface StepCountGroup {
  readonly slots: readonly ParameterSlot[];
  readonly momentDtype: MomentDtype;
  /** The number of steps made; f64. */
  readonly t: Storage;
  /** f64. */
  readonly carried: readonly Storage[];
  readonly numbers: readonly Storage[];
}

export class StepCountGroups {
  readonly #runtime: Runtime;
  readonly #memory: Storage;
  readonly #rule: UpdateRule;
  #stepCountGroups: StepCountGroup[] = [];
  #regroupings = 0;

  /** The memory is zero, and so is every count. */
  constructor(runtime: Runtime, memory: Storage, rule: UpdateRule, slots: readonly ParameterSlot[]) {
    this.#runtime = runtime;
    this.#rule = rule;
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
      this.#runtime.outsideTrace(() => {
        this.#runtime.copy(split.t, stepCountGroup.t);
        for (const [index, cell] of split.carried.entries()) {
          const source = stepCountGroup.carried[index];
          if (source) this.#runtime.copy(cell, source);
        }
      });
      selected.push(split);
      hasSplit = true;
      this.#regroupings += 1;
    }
    return { stepCountGroups: selected, hasSplit };
  }

  /** The storages of a slot's step count and of its carried numbers. */
  find(slot: ParameterSlot): Pick<StepCountGroup, "t" | "carried"> | undefined {
    return this.#stepCountGroups.find(({ slots }) => slots.includes(slot));
  }

  /** Restores counts; slots with equal counts and carried numbers form a group. */
  restore(counts: ReadonlyMap<ParameterSlot, StepCounts>): void {
    this.#stepCountGroups = [];
    this.#regroupings += 1;
    const groups = groupBy([...counts], ([slot, { t, carried }]) =>
      [momentDtype(slot.tensor.dtype), t, ...carried].join(" "),
    );
    const uploads = [...groups.values()].flatMap((entries) => {
      const added = this.#add(entries.map(([slot]) => slot));
      const { t = 0, carried = [] } = entries[0]?.[1] ?? {};
      return [
        { source: Float64Array.of(t), target: added.t },
        ...added.carried.map((target, index) => ({ source: Float64Array.of(carried[index] ?? 0), target })),
      ];
    });
    this.#runtime.upload(uploads);
  }

  #add(slots: readonly ParameterSlot[]): StepCountGroup {
    const dtype = momentDtype(slots[0]?.tensor.dtype ?? "f32");
    const { numbers, carried = [] } = this.#rule;
    const start = this.#stepCountGroups.length * stepCountBytes(this.#rule);
    const cell = (index: number, name: string, size: number): Storage =>
      this.#runtime.view(this.#memory, start + index * cellBytes, size, name);
    const first = 1 + carried.length;
    const stepCountGroup: StepCountGroup = {
      slots,
      momentDtype: dtype,
      t: cell(0, "t", cellBytes),
      carried: carried.map((name, index) => cell(1 + index, name, cellBytes)),
      numbers: numbers.map((name, index) => cell(first + index, name, dtypes[dtype].bytes)),
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
