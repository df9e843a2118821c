/**
 * Choices that the runtimes of several ranks must make alike, such as those by measurement: rank 0 makes them, and the others follow its
 * notes. Collectives of ranks that choose by themselves would wait for each other for ever.
 */

import { createHash } from "node:crypto";
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
  #comparison: RankLink | undefined;
  /** The notes that are being shared: rank 0's. */
  #notes: Map<string, string> | undefined;

  constructor(store: NoteStore) {
    this.#store = store;
  }

  link(link: RankLink): void {
    this.#link = link;
    this.compare(link);
  }

  /** Choices stay those of each rank, but `requireSame` compares. */
  compare(link: RankLink): void {
    this.#comparison = link;
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

  /**
   * Throws on every rank if one of them has other lines: those of most ranks count. Compares nothing if `given` is not the same on all ranks.
   * All ranks call it.
   */
  requireSame(name: string, lines: readonly string[], given = ""): void {
    const link = this.#comparison;
    if (!link) return;
    const hash = createHash("sha256").update(JSON.stringify(lines)).digest("hex");
    const all = link.exchange(name, { hash, given });
    if (all.some((other) => other.given !== given) || all.every((other) => other.hash === hash)) return;
    const counts = new Map<string, number>();
    for (const { hash } of all) counts.set(hash, (counts.get(hash) ?? 0) + 1);
    const usual = Math.max(...counts.values());
    const reference = all.findIndex(({ hash }) => counts.get(hash) === usual);
    const differing = [...all.keys()].filter((rank) => all[rank]?.hash !== all[reference]?.hash);
    const [rank = 0] = differing;
    const lists = link.exchange(`all of ${name}`, lines);
    const [expected = [], other = []] = [lists[reference], lists[rank]];
    const length = Math.max(expected.length, other.length);
    const at = Array.from({ length }, (_, index) => index).find((index) => expected[index] !== other[index]);
    const place = at ?? 0;
    const also = differing.length > 1 ? ` Other ranks that differ: ${differing.slice(1).join(", ")}.` : "";
    throw new HoldfastError(
      "RANKS_DIFFER",
      `The ranks differ in ${name}, at place ${place + 1}: rank ${reference} has ${expected[place] ?? "nothing"}, and rank ${rank} has ${other[place] ?? "nothing"}.${also} ` +
        "All ranks must run the same program, with the same settings and with inputs of the same shapes.",
      { numbers: { rank, place: place + 1 } },
    );
  }
}
