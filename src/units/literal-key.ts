/**
 * Keys of plain data: the text under which equal calls are shared and printed kernels are kept. JSON is no such text: it
 * writes Infinity and NaN as null, and -0 as 0.
 */

/**
 * A text that two values share only if they are the same: numbers by `Object.is`, lists and records by their members. A
 * member that is undefined counts as missing. Records with the same members in another order have other keys.
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
      throw new Error(`A ${typeof value} has no key: only plain data does.`);
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
      `A ${value.constructor?.name ?? "record without a prototype"} has no key: only plain data does.`,
    );
  let text = "{";
  for (const [name, member] of Object.entries(value))
    if (member !== undefined) text += `${JSON.stringify(name)}:${literalKey(member)},`;
  return `${text}}`;
}
