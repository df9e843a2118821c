/** Objects in insertion order; the list keeps none of them alive. */

export class WeakList<T extends object> {
  #references: WeakRef<T>[] = [];
  readonly #added = new WeakSet<T>();

  /** Does nothing if the item is already in the list. */
  add(item: T): void {
    if (this.#added.has(item)) return;
    this.#added.add(item);
    this.#references.push(new WeakRef(item));
  }

  /** The items that are still alive. Each stays alive until the end of the current turn of the event loop. */
  items(): T[] {
    const items = this.#references.map((reference) => reference.deref());
    this.#references = this.#references.filter((_, index) => items[index] !== undefined);
    return items.filter((item) => item !== undefined);
  }
}
