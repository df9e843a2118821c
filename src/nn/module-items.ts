/**
 * The items of a module: the values in its fields, and in arrays, plain objects, Maps and Sets there, at any depth. A
 * name is the path to a value, so it is stable while the fields are.
 */

import { HoldfastError } from "../errors/index.js";

export type NamedItem<Item> = [name: string, item: Item];

/**
 * The items among an object's fields, in order. Keys of objects, and of Maps if they are texts or numbers, are part of
 * the names; other items are numbered from 0.
 */
export function* itemsIn<Item extends object>(
  fields: Iterable<readonly [name: string, field: unknown]>,
  isItem: (value: object) => value is Item,
): Generator<NamedItem<Item>> {
  // Containers on the current path: a container that contains itself would never end.
  const open = new Set<object>();
  for (const [name, field] of fields) yield* itemsAt(name, field);

  function* itemsAt(name: string, value: unknown): Generator<NamedItem<Item>> {
    if (typeof value !== "object" || value === null) return;
    if (isItem(value)) {
      yield [name, value];
      return;
    }
    const entries = entriesOf(value);
    if (!entries || open.has(value)) return;
    open.add(value);
    for (const [key, member] of entries) {
      // A list of numbers may be long: names are built only if there is something to name.
      if (typeof member === "object" && member !== null) yield* itemsAt(`${name}.${key}`, member);
    }
    open.delete(value);
  }
}

/** The entries of a container; undefined for any other object. */
function entriesOf(value: object): Iterable<[key: string | number, member: unknown]> | undefined {
  if (Array.isArray(value)) return value.entries();
  if (value instanceof Set) return [...value].entries();
  if (value instanceof Map) return mapEntries(value);
  return isPlainObject(value) ? Object.entries(value) : undefined;
}

function* mapEntries(map: ReadonlyMap<unknown, unknown>): Generator<[string | number, unknown]> {
  let index = 0;
  for (const [key, member] of map) {
    yield [typeof key === "string" || typeof key === "number" ? key : index, member];
    index++;
  }
}

function isPlainObject(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

/** Rejects two items with the same name: a state can hold only one of them. */
export function requireOwnNames(owner: string, items: readonly NamedItem<object>[]): void {
  const itemsByName = new Map<string, object>();
  for (const [name, item] of items) {
    const other = itemsByName.get(name);
    itemsByName.set(name, item);
    if (other === undefined || other === item) continue;
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `${owner} has two items with the name "${name}". Give one of them another field, key or registered name.`,
      { numbers: { name } },
    );
  }
}
