/**
 * What a traced step takes for granted of gradients, and what it leaves behind: whether one had arrived at each leaf before
 * it, and whether one has after it. A replay may stand for the step only where it finds the same.
 */

/** A leaf's one bit of state: has a gradient arrived since it was cleared? */
export interface GradientState {
  hasArrived: boolean;
}

export class GradientStates {
  readonly #expected = new Notes();
  readonly #before = new Notes();
  readonly #left = new Notes();

  /** Is everything as the traced step had found it? */
  get isMet(): boolean {
    for (const { state, hasArrived } of this.#expected.list)
      if (state.hasArrived !== hasArrived) return false;
    return true;
  }

  /** Leaves things as the traced step had left them. */
  leave(): void {
    this.#left.apply();
  }

  /** Puts things back as they were before the traced step. */
  undo(): void {
    this.#before.apply();
  }

  /** Runs the step that is traced. */
  watch<T>(body: () => T): T {
    watching = this;
    try {
      return body();
    } finally {
      watching = undefined;
    }
  }

  /** What the step has itself set before is no news. */
  noteAsked(state: GradientState): void {
    if (!this.#left.has(state)) this.#expected.set(state, state.hasArrived);
  }

  noteSet(state: GradientState, hasArrived: boolean): void {
    if (!this.#before.has(state)) this.#before.set(state, state.hasArrived);
    this.#left.set(state, hasArrived);
  }
}

interface Note {
  readonly state: GradientState;
  hasArrived: boolean;
}

/** A bit for each of some leaves. Every replay passes over all of them, which is quicker by a list than by a map. */
class Notes {
  readonly list: Note[] = [];
  readonly #byState = new Map<GradientState, Note>();

  has(state: GradientState): boolean {
    return this.#byState.has(state);
  }

  set(state: GradientState, hasArrived: boolean): void {
    const known = this.#byState.get(state);
    if (known) {
      known.hasArrived = hasArrived;
      return;
    }
    const note = { state, hasArrived };
    this.#byState.set(state, note);
    this.list.push(note);
  }

  apply(): void {
    for (const { state, hasArrived } of this.list) state.hasArrived = hasArrived;
  }
}

let watching: GradientStates | undefined;

export function hasArrived(state: GradientState): boolean {
  watching?.noteAsked(state);
  return state.hasArrived;
}

export function setArrived(state: GradientState, value: boolean): void {
  watching?.noteSet(state, value);
  state.hasArrived = value;
}
