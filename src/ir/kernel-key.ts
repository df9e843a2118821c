/** Keys of kernels by their content: kernels that are made anew, for a trace or a dtype, are the same kernel if their keys are. */

import { literalKey } from "../units/index.js";

const keys = new WeakMap<object, string>();
const keysByStructure = new Map<string, string>();

/**
 * A short text for the structure of a kernel, or of any other plain record. Expressions share nodes, so each node is looked at
 * once.
 */
export function kernelKey(record: object): string {
  const known = keys.get(record);
  if (known !== undefined) return known;
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
