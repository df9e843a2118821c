/**
 * Cohorts: parameters that have had their gradients in the same steps. PyTorch counts steps for each parameter, and
 * one that had no gradient does not count; here a cohort has one count and one set of numbers that follow from it, in
 * persistent memory. All parameters begin as one cohort (one a width), which is divided when a step finds gradients
 * for a part of it.
 */

import { dtypes } from "../ir/index.js";
import type { Runtime, Storage } from "../runtime/index.js";
import type { Member } from "./parameter-slot.js";
import { numbersPerStep, type Wide, wideOf } from "./update-rule.js";

const cellBytes = 8;

/** The memory of one cohort: t, then the step's numbers. */
const stepCountBytes = cellBytes * (1 + numbersPerStep);

/** What a group needs for its cohorts: at worst every parameter is one. */
export function stepCountMemoryBytes(parameters: number): number {
  return Math.max(1, parameters) * stepCountBytes;
}

export interface StepCountGroup {
  readonly members: readonly Member[];
  readonly wide: Wide;
  /** How many steps it has made; f64. */
  readonly t: Storage;
  readonly numbers: readonly Storage[];
}

export class StepCountGroups {
  readonly #runtime: Runtime;
  readonly #memory: Storage;
  #stepCountGroups: StepCountGroup[] = [];
  #regroupings = 0;

  /** The memory is zero, and so is every count. */
  constructor(runtime: Runtime, memory: Storage, members: readonly Member[]) {
    this.#runtime = runtime;
    this.#memory = memory;
    for (const stepCountGroup of groupBy(members, ({ tensor }) => wideOf(tensor.dtype)).values())
      this.#add(stepCountGroup);
  }

  /** How often cohorts were divided or made anew: what was worked out for the old ones is no good from then on. */
  get regroupings(): number {
    return this.#regroupings;
  }

  /** The cohorts of members that make a step now, divided from those that don't; tells whether any had to be. */
  select(stepping: ReadonlySet<Member>): {
    readonly stepCountGroups: readonly StepCountGroup[];
    readonly hasDivided: boolean;
  } {
    const selected: StepCountGroup[] = [];
    let hasDivided = false;
    for (const [place, stepCountGroup] of [...this.#stepCountGroups.entries()]) {
      const going = stepCountGroup.members.filter((member) => stepping.has(member));
      if (going.length === 0) continue;
      if (going.length === stepCountGroup.members.length) {
        selected.push(stepCountGroup);
        continue;
      }
      const staying = stepCountGroup.members.filter((member) => !stepping.has(member));
      this.#stepCountGroups[place] = { ...stepCountGroup, members: staying };
      const divided = this.#add(going);
      // Once and at once, also where the step that found it out is only imagined: it is imagined again, with the new ones.
      this.#runtime.outsideTrace(() => this.#runtime.copy(divided.t, stepCountGroup.t));
      selected.push(divided);
      hasDivided = true;
      this.#regroupings += 1;
    }
    return { stepCountGroups: selected, hasDivided };
  }

  /** Where a member's steps are counted. */
  countOf(member: Member): Storage | undefined {
    return this.#stepCountGroups.find(({ members }) => members.includes(member))?.t;
  }

  /** Takes over counts; members with equal ones become a cohort. */
  restore(counts: ReadonlyMap<Member, number>): void {
    this.#stepCountGroups = [];
    this.#regroupings += 1;
    const uploads = [
      ...groupBy(
        [...counts.keys()],
        (member) => `${wideOf(member.tensor.dtype)} ${counts.get(member)}`,
      ).values(),
    ].map((members) => ({
      source: Float64Array.of(members[0] ? (counts.get(members[0]) ?? 0) : 0),
      target: this.#add(members).t,
    }));
    this.#runtime.upload(uploads);
  }

  #add(members: readonly Member[]): StepCountGroup {
    const wide = wideOf(members[0]?.tensor.dtype ?? "f32");
    const start = this.#stepCountGroups.length * stepCountBytes;
    const cell = (index: number, size: number): Storage =>
      this.#runtime.view(this.#memory, start + index * cellBytes, size, index === 0 ? "t" : "step number");
    const stepCountGroup: StepCountGroup = {
      members,
      wide,
      t: cell(0, cellBytes),
      numbers: Array.from({ length: numbersPerStep }, (_, index) => cell(1 + index, dtypes[wide].bytes)),
    };
    this.#stepCountGroups.push(stepCountGroup);
    return stepCountGroup;
  }
}

/** Items by what the function says of each, in the order in which it first says it. */
function groupBy<T, K>(items: readonly T[], keyOf: (item: T) => K): Map<K, T[]> {
  const groups = new Map<K, T[]>();
  for (const item of items) {
    const key = keyOf(item);
    groups.set(key, [...(groups.get(key) ?? []), item]);
  }
  return groups;
}
