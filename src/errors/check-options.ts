/** Rejects unknown names in an object of options. Without a check, a misspelled option would have no effect. */

import { HoldfastError } from "./holdfast-error.js";

/** The names of the options of type `T`. The compiler checks that it has them all. */
export type OptionNames<T> = Readonly<Record<keyof T, true>>;

/** Returns the options. Throws if one has a name that is not known, or if they are not an object. */
export function checkOptions<T extends object>(what: string, options: T, known: OptionNames<T>): T {
  if (typeof options !== "object" || options === null) throw notAnObject(what, options, known);
  for (const name in options) if (known[name] !== true) throw unknownOption(what, name, known);
  return options;
}

function notAnObject(what: string, options: unknown, known: object): HoldfastError {
  const names = Object.keys(known);
  return new HoldfastError(
    "BAD_ARGUMENT",
    `${what}: the options are ${String(options)}; pass an object, such as { ${names[0]}: … }. ${listOf(names)}`,
    { numbers: { what } },
  );
}

function unknownOption(what: string, option: string, known: object): HoldfastError {
  const names = Object.keys(known);
  const nearest = nearestOf(option, names);
  const advice = nearest === undefined ? "" : ` Did you mean ${nearest}?`;
  return new HoldfastError("BAD_ARGUMENT", `${what}: unknown option ${option}.${advice} ${listOf(names)}`, {
    numbers: { what, option },
  });
}

function listOf(names: readonly string[]): string {
  return names.length === 1 ? `The only option is ${names[0]}.` : `The options are ${names.join(", ")}.`;
}

/** PyTorch's names of options that have another name here. */
const otherNames: Readonly<Record<string, string>> = { dim: "axis", dims: "axes" };

/** The known name with the fewest edits from a name; undefined if none is near. Case and underscores do not count. */
function nearestOf(name: string, known: readonly string[]): string | undefined {
  const wanted = plain(otherNames[name] ?? name);
  const near = known
    .map((candidate) => ({ candidate, edits: editsBetween(wanted, plain(candidate)) }))
    .filter(({ candidate, edits }) => edits <= Math.max(1, Math.min(wanted.length, candidate.length) * 0.4));
  return near.sort((a, b) => a.edits - b.edits)[0]?.candidate;
}

function plain(name: string): string {
  return name.replaceAll("_", "").toLowerCase();
}

/** The Levenshtein distance. */
function editsBetween(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (const [index, letter] of [...a].entries()) {
    const next = [index + 1];
    for (const [at, other] of [...b].entries()) {
      const replaced = (row[at] ?? 0) + Number(letter !== other);
      next.push(Math.min(replaced, (row[at + 1] ?? 0) + 1, (next[at] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
