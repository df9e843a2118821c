/** Keys of kernels by their content: two kernel records are the same kernel if their keys are equal. */

import { literalKey } from "../units/index.js";

const keys = new WeakMap<object, string>();
const keysByStructure = new Map<string, string>();

/**
 * A short key for the structure of a kernel, or of any other plain record. Expressions share nodes, so each node is visited once.
 */
export function kernelKey(record: object): string {
  const cached = keys.get(record);
  if (cached !== undefined) return cached;
  const members = Object.entries(record).map(
    ([name, member]) => `${name}:${isObject(member) ? kernelKey(member) : literalKey(member)}`,
  );
  const structure = `${Array.isArray(record) ? "list" : ""}${members.join()}`;
  const key = keysByStructure.get(structure) ?? `#${keysByStructure.size}`;
  keysByStructure.set(structure, key);
  keys.set(record, key);
  return key;
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}
