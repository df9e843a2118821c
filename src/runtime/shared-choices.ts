/**
 * Choices that the runtimes of several ranks must make alike, such as those by measurement: rank 0 makes them, and the others follow its
 * notes. Collectives of ranks that choose by themselves would wait for each other for ever.
 */

import { HoldfastError } from "../errors/index.js";

/** How a runtime reaches those of the other ranks. */
export interface RankLink {
  readonly rank: number;
  /** What every rank passes to the same call, in the order of ranks. */
  exchange<T>(name: string, value: T): readonly T[];
}

/** Notes by key; see `Driver.recall`. */
interface NoteStore {
  recall(key: string): string | undefined;
  remember(key: string, note: string): void;
}

export class SharedChoices {
  readonly #store: NoteStore;
  #link: RankLink | undefined;
  /** The notes that are being shared: rank 0's. */
  #notes: Map<string, string> | undefined;

  constructor(store: NoteStore) {
    this.#store = store;
  }

  link(link: RankLink): void {
    this.#link = link;
  }

  /** True while choices are shared: they are kept apart from those that a rank has made by itself. */
  get isSharing(): boolean {
    return this.#notes !== undefined;
  }

  /** True while choices are those of another rank, and nothing may be measured. */
  get isFollowing(): boolean {
    return this.isSharing && this.#link?.rank !== 0;
  }

  /** Runs a function that makes choices by notes and measurements: on rank 0 first, then on the others by its notes. All ranks call it. */
  share<T>(name: string, make: () => T): T {
    const link = this.#link;
    if (!link || this.#notes) return make();
    const what = `the choices for ${name}`;
    const isFirst = link.rank === 0;
    this.#notes = new Map(isFirst ? [] : link.exchange<readonly (readonly [string, string])[]>(what, [])[0]);
    try {
      const made = make();
      if (isFirst) link.exchange(what, [...this.#notes]);
      return made;
    } finally {
      this.#notes = undefined;
    }
  }

  recall(key: string): string | undefined {
    if (this.isFollowing) return this.#notes?.get(key);
    const note = this.#store.recall(key);
    if (note !== undefined) this.#notes?.set(key, note);
    return note;
  }

  remember(key: string, note: string): void {
    this.#notes?.set(key, note);
    this.#store.remember(key, note);
  }

  /** Rank 0's value. All ranks call it. */
  decide<T>(name: string, value: T): T {
    if (!this.#link) return value;
    // undefined is no value of JSON.
    const [first] = this.#link.exchange<readonly T[]>(name, value === undefined ? [] : [value]);
    return (first ?? [])[0] as T;
  }

  /** Throws on every rank if one of them has other lines. All ranks call it. */
  requireSame(name: string, lines: readonly string[]): void {
    const all = this.#link?.exchange(name, lines) ?? [];
    const [first = []] = all;
    for (const [rank, other] of all.entries()) {
      const at = Array.from({ length: Math.max(first.length, other.length) }, (_, index) => index).find(
        (index) => first[index] !== other[index],
      );
      if (at === undefined) continue;
      throw new HoldfastError(
        "RANKS_DIFFER",
        `The ranks differ in ${name}, at place ${at + 1}: rank 0 has ${first[at] ?? "nothing"}, and rank ${rank} has ${other[at] ?? "nothing"}. All ranks must run the same ` +
          "program, with the same settings and with inputs of the same shapes.",
        { numbers: { rank, place: at + 1 } },
      );
    }
  }
}
