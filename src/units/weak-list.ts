/** Objects in the order in which they were added, none of them kept alive by the list. */

export class WeakList<T extends object> {
  #references: WeakRef<T>[] = [];
  readonly #known = new WeakSet<T>();

  /** Harmless where it is there already. */
  add(item: T): void {
    if (this.#known.has(item)) return;
    this.#known.add(item);
    this.#references.push(new WeakRef(item));
  }

  /** Those that nobody has let go. Each of them stays until the end of the turn of the event loop. */
  items(): T[] {
    const items = this.#references.map((reference) => reference.deref());
    this.#references = this.#references.filter((_, index) => items[index] !== undefined);
    return items.filter((item) => item !== undefined);
  }
}
