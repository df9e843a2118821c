/** The open handles of one kind and their state. Handles are compared by object identity, not by number. */

import { HoldfastError } from "../errors/index.js";

interface Handle {
  readonly id: number;
}

export class HandleTable<H extends Handle, State> {
  readonly #what: string;
  readonly #states = new Map<H, State>();
  #lastId = 0;

  /** `what` names the kind in messages: "Stream", "Host memory". */
  constructor(what: string) {
    this.#what = what;
  }

  nextId(): number {
    this.#lastId++;
    return this.#lastId;
  }

  open(handle: H, state: State): H {
    this.#states.set(handle, state);
    return handle;
  }

  get(handle: H): State {
    const state = this.#states.get(handle);
    if (state === undefined) {
      const message = `${this.#what} #${handle.id} is closed or belongs to another driver. Create a new one with this driver.`;
      throw new HoldfastError("CLOSED", message, { numbers: { id: handle.id } });
    }
    return state;
  }

  has(handle: H): boolean {
    return this.#states.has(handle);
  }

  close(handle: H): void {
    this.#states.delete(handle);
  }

  closeAll(): void {
    this.#states.clear();
  }

  states(): Iterable<State> {
    return this.#states.values();
  }
}
