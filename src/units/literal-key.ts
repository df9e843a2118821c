/**
 * Keys of plain data, for sharing equal calls and caching generated kernels. JSON is not suitable: it writes Infinity
 * and NaN as null, and -0 as 0.
 */

/**
 * Returns a text that two values share only if they are the same: numbers by `Object.is`, lists and records by their
 * members. An undefined member counts as missing. Records with a different member order have different keys.
 */
export function literalKey(value: unknown): string {
  switch (typeof value) {
    case "number":
      return Object.is(value, -0) ? "-0" : `${value}`;
    case "string":
      return JSON.stringify(value);
    case "boolean":
    case "undefined":
      return `${value}`;
    case "bigint":
      return `${value}n`;
    case "object":
      return value === null ? "null" : membersKey(value);
    default:
      throw new Error(`A ${typeof value} has no key. Pass plain data.`);
  }
}

function membersKey(value: object): string {
  if (Array.isArray(value)) {
    let text = "[";
    for (const member of value) text += `${literalKey(member)},`;
    return `${text}]`;
  }
  if (Object.getPrototypeOf(value) !== Object.prototype)
    throw new Error(
      `A ${value.constructor?.name ?? "record without a prototype"} has no key. Pass plain data.`,
    );
  let text = "{";
  for (const [name, member] of Object.entries(value))
    if (member !== undefined) text += `${JSON.stringify(name)}:${literalKey(member)},`;
  return `${text}}`;
}
