/**
 * Guards: the host state that a trace read, such as a module's mode or a tensor's requiresGrad. A plan is valid while
 * that state is unchanged. State that the traced function wrote is recorded too, so that a replay leaves the same
 * state.
 */

/** A property that traces read, for all objects of one kind. */
export interface GuardedField<S extends object> {
  readonly read: (subject: S) => unknown;
  readonly write: (subject: S, value: unknown) => void;
  /**
   * True for a plain property, which anyone may write. It is checked before every replay, including the data inside it.
   * Writers of other fields call `stateChanged`, so that their guards are checked only then.
   */
  readonly isPlain?: boolean;
}

let changes = 0;

/** Call after a guarded, non-plain field has changed. */
export function stateChanged(): void {
  changes += 1;
}

type AnyField = GuardedField<never>;

/** A field of an object, with its value. */
interface Note {
  readonly subject: never;
  readonly field: AnyField;
  value: unknown;
  readonly name: () => string;
}

export class Guards {
  /** Values that the trace read and did not write: of plain properties, and of others. */
  readonly #plain = new Notes();
  readonly #tracked = new Notes();
  /** The change count at which all non-plain guards last held. */
  #checkedAt = -1;
  /** Values that the trace overwrote, and the values it left. */
  readonly #before = new Notes();
  readonly #left = new Notes();
  readonly #created = new WeakSet<object>();
  readonly #unguarded = new Notes();

  /** True if all guards hold. Called before every replay. */
  get hold(): boolean {
    if (this.#checkedAt !== changes) {
      for (const note of this.#tracked.list) if (!holds(note)) return false;
      this.#checkedAt = changes;
    }
    for (const note of this.#plain.list) if (!holds(note)) return false;
    return true;
  }

  /** The names of the guards that no longer hold. */
  get broken(): readonly string[] {
    return [...this.#tracked.list, ...this.#plain.list]
      .filter((note) => !holds(note))
      .map(({ name }) => name());
  }

  /** The number of guards. */
  get count(): number {
    return this.#tracked.list.length + this.#plain.list.length;
  }

  /** Applies the state that the traced function left. */
  leave(): void {
    this.#left.apply();
  }

  /** Restores the state from before the trace. */
  undo(): void {
    this.#before.apply();
  }

  /** Runs a function that is traced on a device, and records its reads. */
  watch<T>(device: object, body: () => T): T {
    const outer = tracing.guards;
    tracing.guards = this;
    const ends = [...scopes].map((begin) => begin(device));
    try {
      return body();
    } finally {
      for (const end of ends) end();
      tracing.guards = outer;
    }
  }

  /**
   * Records that the trace read a field. Fields that it created or wrote itself say nothing about the earlier state.
   */
  noteRead<S extends object>(subject: S, field: GuardedField<S>, value: unknown, name: () => string): void {
    if (this.#created.has(subject) || this.#left.has(subject, field) || this.#unguarded.has(subject, field))
      return;
    if (this.#tracked.has(subject, field) || this.#plain.has(subject, field)) return;
    if (field.isPlain) this.#plain.set(subject, field, copyPlainData(value), name);
    else this.#tracked.set(subject, field, value, name);
  }

  /** Records a write that every replay repeats. */
  noteWrite<S extends object>(subject: S, field: GuardedField<S>, value: unknown, name: () => string): void {
    if (this.#created.has(subject)) return;
    if (!this.#before.has(subject, field)) this.#before.set(subject, field, field.read(subject), name);
    this.#left.set(subject, field, value, name);
  }

  /** Records that a write was undone: the field has its value from before the trace again. */
  noteRestored<S extends object>(subject: S, field: GuardedField<S>): void {
    this.#before.delete(subject, field);
    this.#left.delete(subject, field);
  }

  /** Records a write to a user's field, which no replay repeats: the field is no longer guarded. */
  noteUserWrite<S extends object>(subject: S, field: GuardedField<S>): void {
    this.#plain.delete(subject, field);
    this.#unguarded.set(subject, field, undefined, () => "");
  }

  /** Records that the trace created this object. */
  noteCreated(subject: object): void {
    this.#created.add(subject);
  }

  /** True if the trace created this object. */
  hasCreated(subject: object): boolean {
    return this.#created.has(subject);
  }
}

/** The guards of the function that is being traced. Callers record their reads: `tracing.guards?.noteRead(…)`. */
export const tracing: { guards: Guards | undefined } = { guards: undefined };

const scopes = new Set<(device: object) => () => void>();

/** Registers a function to call with the device when a trace starts; its result is called when the trace ends. */
export function onTrace(begin: (device: object) => () => void): void {
  scopes.add(begin);
}

/** Values by subject and field. Every replay walks all of them, which is faster over a list than over maps. */
class Notes {
  list: Note[] = [];
  readonly #bySubject = new Map<object, Map<object, Note>>();

  has(subject: object, field: object): boolean {
    return this.#bySubject.get(subject)?.has(field) ?? false;
  }

  set(subject: object, field: object, value: unknown, name: () => string): void {
    const fields = this.#bySubject.get(subject) ?? new Map<object, Note>();
    this.#bySubject.set(subject, fields);
    const existing = fields.get(field);
    if (existing) {
      existing.value = value;
      return;
    }
    const note: Note = { subject: subject as never, field: field as AnyField, value, name };
    fields.set(field, note);
    this.list.push(note);
  }

  delete(subject: object, field: object): void {
    const note = this.#bySubject.get(subject)?.get(field);
    if (!note) return;
    this.#bySubject.get(subject)?.delete(field);
    this.list = this.list.filter((other) => other !== note);
  }

  apply(): void {
    for (const { subject, field, value } of this.list) {
      if (Object.is(field.read(subject), value)) continue;
      field.write(subject, value);
      stateChanged();
    }
  }
}

function holds({ subject, field, value }: Note): boolean {
  const current = field.read(subject);
  return Object.is(current, value) || (field.isPlain === true && isSame(current, value));
}

/** Plain data is compared by its members, to this depth and up to this many; anything else by identity. */
const maxDepth = 4;
const maxMembers = 256;

/** Copies plain data, so that a change inside it shows; returns other values unchanged. */
function copyPlainData(value: unknown, depth = 0): unknown {
  if (depth === maxDepth) return value;
  if (Array.isArray(value) && value.length <= maxMembers)
    return value.map((element) => copyPlainData(element, depth + 1));
  if (value instanceof Map && value.size <= maxMembers)
    return new Map([...value].map(([key, member]) => [key, copyPlainData(member, depth + 1)]));
  if (value instanceof Set && value.size <= maxMembers) return new Set(value);
  if (!isPlainObject(value) || Object.keys(value).length > maxMembers) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, member]) => [key, copyPlainData(member, depth + 1)]),
  );
}

function isSame(current: unknown, copy: unknown): boolean {
  if (Object.is(current, copy)) return true;
  if (typeof current !== "object" || typeof copy !== "object" || current === null || copy === null)
    return false;
  if (Array.isArray(current))
    return (
      Array.isArray(copy) &&
      current.length === copy.length &&
      current.every((element, index) => isSame(element, copy[index]))
    );
  if (current instanceof Map)
    return (
      copy instanceof Map &&
      current.size === copy.size &&
      [...current].every(([key, member]) => isSame(member, copy.get(key)))
    );
  if (current instanceof Set)
    return (
      copy instanceof Set && current.size === copy.size && [...current].every((member) => copy.has(member))
    );
  if (!isPlainObject(current) || !isPlainObject(copy)) return false;
  const keys = Object.keys(current);
  return (
    keys.length === Object.keys(copy).length &&
    keys.every((key) => key in copy && isSame(current[key], copy[key]))
  );
}

function isPlainObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && Object.getPrototypeOf(value) === Object.prototype;
}
