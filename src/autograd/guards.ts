/**
 * Guards: the host state that a trace read, such as a module's mode or whether a tensor requires a gradient. A plan is
 * valid while that state is what it was. State that the traced function changed is known too, so that a replay leaves the
 * same behind.
 */

/** A property that traces read, of all objects of one kind. */
export interface GuardedField<S extends object> {
  readonly read: (subject: S) => unknown;
  readonly write: (subject: S, value: unknown) => void;
  /**
   * Is it a plain property, which anybody may write to? It is looked at before every replay, with the data inside it. Who
   * writes to any other field calls `stateChanged`, so that guards look only then.
   */
  readonly isPlain?: boolean;
}

let changes = 0;

/** Some guarded field that is not plain has another value. */
export function stateChanged(): void {
  changes += 1;
}

type AnyField = GuardedField<never>;

/** One field of one object, with a value that it had or is to have. */
interface Note {
  readonly subject: never;
  readonly field: AnyField;
  value: unknown;
  readonly name: () => string;
}

export class Guards {
  /** What the trace found and did not write itself; of plain properties, and of others. */
  readonly #plain = new Notes();
  readonly #own = new Notes();
  /** How many changes there had been when all of the others were as the trace found them. */
  #metAt = -1;
  /** What the trace overwrote, and what it left in its place. */
  readonly #before = new Notes();
  readonly #left = new Notes();
  readonly #made = new WeakSet<object>();
  readonly #unguarded = new Notes();

  /** Is everything as the trace found it? Asked at every call. */
  get areMet(): boolean {
    if (this.#metAt !== changes) {
      for (const note of this.#own.list) if (!isMet(note)) return false;
      this.#metAt = changes;
    }
    for (const note of this.#plain.list) if (!isMet(note)) return false;
    return true;
  }

  /** What is no longer as the trace found it, by name. */
  get broken(): readonly string[] {
    return [...this.#own.list, ...this.#plain.list].filter((note) => !isMet(note)).map(({ name }) => name());
  }

  /** How many there are. */
  get count(): number {
    return this.#own.list.length + this.#plain.list.length;
  }

  /** Leaves the state that the traced function left. */
  leave(): void {
    this.#left.apply();
  }

  /** Puts back the state from before the trace. */
  undo(): void {
    this.#before.apply();
  }

  /** Runs a function that is traced on a device, and notes what it reads. */
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

  /** Notes that the trace read a field. What it made or wrote itself says nothing about the state before it. */
  noteRead<S extends object>(subject: S, field: GuardedField<S>, value: unknown, name: () => string): void {
    if (this.#made.has(subject) || this.#left.has(subject, field) || this.#unguarded.has(subject, field))
      return;
    if (this.#own.has(subject, field) || this.#plain.has(subject, field)) return;
    if (field.isPlain) this.#plain.set(subject, field, copyOf(value), name);
    else this.#own.set(subject, field, value, name);
  }

  /** Notes a write that every replay repeats. What the trace reads after it is the trace's own. */
  noteWrite<S extends object>(subject: S, field: GuardedField<S>, value: unknown, name: () => string): void {
    if (this.#made.has(subject)) return;
    if (!this.#before.has(subject, field)) this.#before.set(subject, field, field.read(subject), name);
    this.#left.set(subject, field, value, name);
  }

  /** Notes that a write was taken back: the field is again what it was before the trace. */
  noteRestored<S extends object>(subject: S, field: GuardedField<S>): void {
    this.#before.delete(subject, field);
    this.#left.delete(subject, field);
  }

  /** Notes a write that no replay repeats, to a field of the user's: nothing can be said about it from here on. */
  noteUserWrite<S extends object>(subject: S, field: GuardedField<S>): void {
    this.#plain.delete(subject, field);
    this.#unguarded.set(subject, field, undefined, () => "");
  }

  /** Notes that the trace made this object: its state is the trace's own. */
  noteMade(subject: object): void {
    this.#made.add(subject);
  }

  /** Did the trace make this object? */
  hasMade(subject: object): boolean {
    return this.#made.has(subject);
  }
}

/** The guards of the function that is traced now. Callers note what they read: `tracing.guards?.noteRead(…)`. */
export const tracing: { guards: Guards | undefined } = { guards: undefined };

const scopes = new Set<(device: object) => () => void>();

/** Calls a function with the device when a trace begins, and what that returns when the trace ends. */
export function onTrace(begin: (device: object) => () => void): void {
  scopes.add(begin);
}

/** Notes by subject and field. Every replay walks all of them, which is faster over a list than over maps. */
class Notes {
  list: Note[] = [];
  readonly #bySubject = new Map<object, Map<object, Note>>();

  has(subject: object, field: object): boolean {
    return this.#bySubject.get(subject)?.has(field) ?? false;
  }

  set(subject: object, field: object, value: unknown, name: () => string): void {
    const fields = this.#bySubject.get(subject) ?? new Map<object, Note>();
    this.#bySubject.set(subject, fields);
    const known = fields.get(field);
    if (known) {
      known.value = value;
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
    this.list = this.list.filter((one) => one !== note);
  }

  apply(): void {
    for (const { subject, field, value } of this.list) {
      if (Object.is(field.read(subject), value)) continue;
      field.write(subject, value);
      stateChanged();
    }
  }
}

function isMet({ subject, field, value }: Note): boolean {
  const found = field.read(subject);
  return Object.is(found, value) || (field.isPlain === true && isSame(found, value));
}

/** Plain data is compared by its members, to this depth and up to this many of them; anything else by identity. */
const maxDepth = 4;
const maxMembers = 256;

/** A copy of plain data, so that a change inside it shows; any other value as it is. */
function copyOf(value: unknown, depth = 0): unknown {
  if (depth === maxDepth) return value;
  if (Array.isArray(value) && value.length <= maxMembers) return value.map((one) => copyOf(one, depth + 1));
  if (value instanceof Map && value.size <= maxMembers)
    return new Map([...value].map(([key, one]) => [key, copyOf(one, depth + 1)]));
  if (value instanceof Set && value.size <= maxMembers) return new Set(value);
  if (!isPlainObject(value) || Object.keys(value).length > maxMembers) return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, copyOf(one, depth + 1)]));
}

function isSame(found: unknown, copy: unknown): boolean {
  if (Object.is(found, copy)) return true;
  if (typeof found !== "object" || typeof copy !== "object" || found === null || copy === null) return false;
  if (Array.isArray(found))
    return (
      Array.isArray(copy) && found.length === copy.length && found.every((one, at) => isSame(one, copy[at]))
    );
  if (found instanceof Map)
    return (
      copy instanceof Map &&
      found.size === copy.size &&
      [...found].every(([key, one]) => isSame(one, copy.get(key)))
    );
  if (found instanceof Set)
    return copy instanceof Set && found.size === copy.size && [...found].every((one) => copy.has(one));
  if (!isPlainObject(found) || !isPlainObject(copy)) return false;
  const keys = Object.keys(found);
  return (
    keys.length === Object.keys(copy).length &&
    keys.every((key) => key in copy && isSame(found[key], copy[key]))
  );
}

function isPlainObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && Object.getPrototypeOf(value) === Object.prototype;
}
