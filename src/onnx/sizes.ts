/**
 * Symbolic sizes: numbers of a traced program that depend on dynamic axes. The program is traced at several sizes of each axis, and a
 * number that differs is fitted by a polynomial that is linear in each axis, such as `4*batch` or `batch*sequence + 1`.
 */

/** The names of dynamic axes: by input, then by axis. Axes with one name have one size. A name may be a sum of others: "past + rows". */
export type DynamicAxes = Readonly<Record<string, Readonly<Record<number, string>>>>;

/** A number of a program: the same in all traces, or depending on dynamic axes. */
export type Size = number | SymbolicSize;

interface Term {
  readonly coefficient: number;
  /** In alphabetical order; none for the constant term. */
  readonly symbols: readonly string[];
}

export class SymbolicSize {
  /** Undefined if no polynomial fits: the number can't be expressed. */
  readonly terms: readonly Term[] | undefined;

  constructor(terms: readonly Term[] | undefined) {
    this.terms = terms;
  }

  /** For example "2*batch + 1". */
  toString(): string {
    if (!this.terms) return "?";
    return this.terms
      .map(({ coefficient, symbols }) => {
        if (symbols.length === 0) return String(coefficient);
        return [...(coefficient === 1 ? [] : [coefficient]), ...symbols].join("*");
      })
      .join(" + ");
  }
}

export function isSameSize(a: Size | undefined, b: Size | undefined): boolean {
  if (typeof a === "number" || typeof b === "number" || !a || !b) return a === b;
  return a.terms !== undefined && String(a) === String(b);
}

/** The sizes of the symbols in one trace. */
export type Assignment = Readonly<Record<string, number>>;

/** The sizes of each symbol in the traces: two for the polynomial, and a third to check it. */
export type Samples = Readonly<Record<string, readonly [number, number, number]>>;

/** All combinations of the first two sizes, in the order of the bits of their index; then the third size of all symbols. */
export function assignmentsOf(samples: Samples): readonly Assignment[] {
  const symbols = Object.entries(samples);
  if (symbols.length === 0) return [{}];
  const corners = Array.from({ length: 2 ** symbols.length }, (_, corner) =>
    Object.fromEntries(symbols.map(([name, sizes], bit) => [name, sizes[(corner >> bit) & 1] as number])),
  );
  return [...corners, Object.fromEntries(symbols.map(([name, sizes]) => [name, sizes[2]]))];
}

/** The number with these values in the traces of `assignmentsOf(samples)`. */
export function fitSize(samples: Samples, values: readonly number[]): Size {
  const [first = 0] = values;
  if (values.every((value) => Object.is(value, first))) return first;
  const symbols = Object.entries(samples);
  // Divided differences give the coefficients of products of (symbol − first size).
  const coefficients = values.slice(0, -1);
  for (const [bit, [, [from, to]]] of symbols.entries()) {
    for (const corner of coefficients.keys()) {
      if (((corner >> bit) & 1) === 0) continue;
      const low = coefficients[corner - 2 ** bit] ?? 0;
      coefficients[corner] = ((coefficients[corner] ?? 0) - low) / (to - from);
    }
  }
  // Expanded to products of symbols.
  for (const [bit, [, [from]]] of symbols.entries()) {
    for (const corner of coefficients.keys()) {
      if (((corner >> bit) & 1) === 1) continue;
      coefficients[corner] = (coefficients[corner] ?? 0) - from * (coefficients[corner + 2 ** bit] ?? 0);
    }
  }
  const terms = coefficients.flatMap((coefficient, corner) =>
    coefficient === 0
      ? []
      : [{ coefficient, symbols: symbols.flatMap(([name], bit) => ((corner >> bit) & 1 ? [name] : [])) }],
  );
  const check = Object.fromEntries(symbols.map(([name, sizes]) => [name, sizes[2]]));
  const fits = terms.every(({ coefficient }) => Number.isInteger(coefficient));
  return new SymbolicSize(fits && evaluate(terms, check) === values.at(-1) ? terms.toReversed() : undefined);
}

function evaluate(terms: readonly Term[], assignment: Assignment): number {
  return terms.reduce(
    (sum, { coefficient, symbols }) =>
      sum + symbols.reduce((product, symbol) => product * (assignment[symbol] ?? 1), coefficient),
    0,
  );
}
