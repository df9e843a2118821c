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
const cohortBytes = cellBytes * (1 + numbersPerStep);

/** What a group needs for its cohorts: at worst every parameter is one. */
export function cohortMemoryBytes(parameters: number): number {
  return Math.max(1, parameters) * cohortBytes;
}

export interface Cohort {
  readonly members: readonly Member[];
  readonly wide: Wide;
  /** How many steps it has made; f64. */
  readonly t: Storage;
  readonly numbers: readonly Storage[];
}

export class Cohorts {
  readonly #runtime: Runtime;
  readonly #memory: Storage;
  #cohorts: Cohort[] = [];
  #divisions = 0;

  /** The memory is zero, and so is every count. */
  constructor(runtime: Runtime, memory: Storage, members: readonly Member[]) {
    this.#runtime = runtime;
    this.#memory = memory;
    for (const cohort of groupBy(members, ({ tensor }) => wideOf(tensor.dtype)).values()) this.#add(cohort);
  }

  /** How often cohorts were divided or made anew: what was worked out for the old ones is no good from then on. */
  get divisions(): number {
    return this.#divisions;
  }

  /** The cohorts of members that make a step now, divided from those that don't; tells whether any had to be. */
  select(stepping: ReadonlySet<Member>): {
    readonly cohorts: readonly Cohort[];
    readonly hasDivided: boolean;
  } {
    const selected: Cohort[] = [];
    let hasDivided = false;
    for (const [place, cohort] of [...this.#cohorts.entries()]) {
      const going = cohort.members.filter((member) => stepping.has(member));
      if (going.length === 0) continue;
      if (going.length === cohort.members.length) {
        selected.push(cohort);
        continue;
      }
      const staying = cohort.members.filter((member) => !stepping.has(member));
      this.#cohorts[place] = { ...cohort, members: staying };
      const divided = this.#add(going);
      // Once and at once, also where the step that found it out is only imagined: it is imagined again, with the new ones.
      this.#runtime.actually(() => this.#runtime.copy(divided.t, cohort.t));
      selected.push(divided);
      hasDivided = true;
      this.#divisions += 1;
    }
    return { cohorts: selected, hasDivided };
  }

  /** Where a member's steps are counted. */
  countOf(member: Member): Storage | undefined {
    return this.#cohorts.find(({ members }) => members.includes(member))?.t;
  }

  /** Takes over counts; members with equal ones become a cohort. */
  restore(counts: ReadonlyMap<Member, number>): void {
    this.#cohorts = [];
    this.#divisions += 1;
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

  #add(members: readonly Member[]): Cohort {
    const wide = wideOf(members[0]?.tensor.dtype ?? "f32");
    const start = this.#cohorts.length * cohortBytes;
    const cell = (index: number, size: number): Storage =>
      this.#runtime.view(this.#memory, start + index * cellBytes, size, index === 0 ? "t" : "step number");
    const cohort: Cohort = {
      members,
      wide,
      t: cell(0, cellBytes),
      numbers: Array.from({ length: numbersPerStep }, (_, index) => cell(1 + index, dtypes[wide].bytes)),
    };
    this.#cohorts.push(cohort);
    return cohort;
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
