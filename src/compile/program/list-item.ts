/**
 * Order maintenance: items of a doubly linked list that compare by integer order numbers, so that "is this before that" takes constant
 * time. An inserted item gets a number between its neighbours'. If their gap is used up, the whole list is renumbered.
 */

/** The distance of neighbours after a renumbering: 32 items fit into one gap before the next one. */
const gap = 2 ** 32;

/** A list is circular; its head is an item of its own, before the first and after the last. */
export class ListItem {
  #previous: ListItem = this;
  #next: ListItem = this;
  #order = 0;

  /** The neighbours; the head at an end of the list. */
  get previous(): ListItem {
    return this.#previous;
  }

  get next(): ListItem {
    return this.#next;
  }

  isBefore(other: ListItem): boolean {
    return this.#order < other.#order;
  }

  /** How many items lay between the two, plus one, at the last renumbering. Items that moved since count as fractions. */
  distanceTo(other: ListItem): number {
    return Math.abs(this.#order - other.#order) / gap;
  }

  /** The last item before the middle of the way to a later item. */
  middleTo(later: ListItem): ListItem {
    const middle = (this.#order + later.#order) / 2;
    let item: ListItem = this;
    while (item.#next.#order < middle) item = item.#next;
    return item;
  }

  /** Adds an unlinked item directly after `anchor`, which may be the head. */
  linkAfter(anchor: ListItem, head: ListItem): void {
    if (anchor.#gapAfter(head) < 2) head.renumber();
    const next = anchor.#next;
    this.#order = anchor.#order + Math.floor(anchor.#gapAfter(head) / 2);
    this.#previous = anchor;
    this.#next = next;
    anchor.#next = this;
    next.#previous = this;
  }

  /** Replaces a linked item by this unlinked one. */
  takePositionOf(other: ListItem): void {
    this.#order = other.#order;
    this.#previous = other.#previous;
    this.#next = other.#next;
    this.#previous.#next = this;
    this.#next.#previous = this;
    other.#previous = other;
    other.#next = other;
  }

  unlink(): void {
    this.#previous.#next = this.#next;
    this.#next.#previous = this.#previous;
    this.#previous = this;
    this.#next = this;
  }

  /** On the head: numbers all items at equal distances. */
  renumber(): void {
    let order = 0;
    for (let item = this.#next; item !== this; item = item.#next) item.#order = order += gap;
  }

  /** After the last item there is room for a whole gap. */
  #gapAfter(head: ListItem): number {
    return this.#next === head ? 2 * gap : this.#next.#order - this.#order;
  }
}
