/** Objects in the order in which they were added, none of them kept alive by the list. */

export class WeakList<T extends object> {
  readonly #references = new Set<WeakRef<T>>();
  readonly #known = new WeakSet<T>();
  readonly #collected = new FinalizationRegistry<WeakRef<T>>((reference) => {
    this.#references.delete(reference);
  });

  /** Harmless where it is there already. */
  add(item: T): void {
    if (this.#known.has(item)) return;
    this.#known.add(item);
    const reference = new WeakRef(item);
    this.#references.add(reference);
    this.#collected.register(item, reference);
  }

  /** Those that nobody has let go. Each of them stays until the end of the turn of the event loop. */
  *items(): Generator<T> {
    for (const reference of this.#references) {
      const item = reference.deref();
      if (item) yield item;
    }
  }
}
