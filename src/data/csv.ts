/** Tables in CSV: comma-separated values with quotes, as RFC 4180 describes them. */

import { checkOptions, HoldfastError } from "../errors/index.js";

/** Options of `parseCsv`. */
export interface CsvOptions {
  /** The character between values. Default: a comma. */
  readonly delimiter?: string;
  /** True: the first line has the names of the columns. False: the names are "0", "1" and so on. Default: true. */
  readonly header?: boolean;
}

/** The columns of a table by name. */
export interface CsvTable {
  readonly rows: number;
  /** A Float64Array if all values of the column are numbers or empty (NaN), and at least one is a number; otherwise strings. */
  readonly columns: Readonly<Record<string, Float64Array | readonly string[]>>;
}

/**
 * Reads a table. A column of numbers becomes a Float64Array, and any other column a list of strings. Pass columns to a `TensorDataset`, which
 * rejects NaN, or fill in missing values first.
 *
 * @example
 * ```ts
 * import { parseCsv, TensorDataset } from "holdfast";
 * const { rows, columns } = parseCsv('size,"name, short"\n1.5,"a ""b"""\n2,c\n');
 * const { size } = columns;
 * console.log(rows, size, columns["name, short"]); // → 2 Float64Array(2) [ 1.5, 2 ] [ 'a "b"', 'c' ]
 * if (size instanceof Float64Array) console.log(new TensorDataset({ values: size, shape: [rows, 1], dtype: "f32" }).rows); // → 2
 * ```
 */
export function parseCsv(text: string, options: CsvOptions = {}): CsvTable {
  const { delimiter = ",", header = true } = checkOptions("parseCsv", options, {
    delimiter: true,
    header: true,
  });
  if (delimiter.length !== 1 || delimiter === '"' || delimiter === "\n" || delimiter === "\r") {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `parseCsv: the delimiter is ${JSON.stringify(delimiter)}; it must be one character that is no quote and no line break.`,
    );
  }
  const records = recordsOf(text.startsWith("\uFEFF") ? text.slice(1) : text, delimiter);
  const first = records[0]?.values ?? [];
  const names = header ? first : first.map((_, index) => String(index));
  const repeated = names.find((name, index) => names.indexOf(name) !== index);
  if (repeated !== undefined) throw badCsv(1, `the column "${repeated}" comes twice`);
  const body = records.slice(header ? 1 : 0);
  for (const { line, values } of body) {
    if (values.length !== names.length)
      throw badCsv(line, `there are ${values.length} values, but ${names.length} columns`);
  }
  const columns = names.map((name, index) => {
    const values = body.map(({ values }) => values[index] ?? "");
    return [name, asNumbers(values) ?? values] as const;
  });
  // Without a prototype, no name of a column has another meaning.
  return { rows: body.length, columns: Object.assign(Object.create(null), Object.fromEntries(columns)) };
}

interface CsvRecord {
  /** The number of its first line. */
  readonly line: number;
  readonly values: readonly string[];
}

function recordsOf(text: string, delimiter: string): readonly CsvRecord[] {
  const records: CsvRecord[] = [];
  let values: string[] = [];
  let [line, firstLine, position] = [1, 1, 0];
  while (position < text.length) {
    let value: string;
    if (text[position] === '"') {
      const start = position + 1;
      let end = text.indexOf('"', start);
      while (end >= 0 && text[end + 1] === '"') end = text.indexOf('"', end + 2);
      if (end < 0) throw badCsv(firstLine, "a quote is not closed");
      const quoted = text.slice(start, end);
      line += quoted.split("\n").length - 1;
      value = quoted.replaceAll('""', '"');
      position = end + 1;
    } else {
      const end = endOfValue(text, position, delimiter);
      value = text.slice(position, end);
      if (value.includes('"')) throw badCsv(line, "a quote is inside a value that is not quoted");
      position = end;
    }
    values.push(value);
    if (text[position] === delimiter) {
      position += 1;
      // A delimiter at the very end is followed by one more value.
      if (position < text.length) continue;
      values.push("");
    } else if (position < text.length) {
      if (text[position] === "\r") position += 1;
      if (text[position] !== "\n") throw badCsv(line, "text follows a closing quote");
      position += 1;
    }
    line += 1;
    const isEmpty = values.length === 1 && values[0] === "";
    if (!isEmpty) records.push({ line: firstLine, values });
    values = [];
    firstLine = line;
  }
  return records;
}

function endOfValue(text: string, from: number, delimiter: string): number {
  let end = from;
  while (end < text.length) {
    const character = text[end];
    if (character === delimiter || character === "\n") return end;
    if (character === "\r" && text[end + 1] === "\n") return end;
    end += 1;
  }
  return end;
}

const numberFormat = /^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$|^[+-]?(?:inf|infinity)$|^nan$/i;

/** The numbers of a column; undefined if a value is none, or if there are none at all. */
function asNumbers(values: readonly string[]): Float64Array | undefined {
  const isNumeric = values.every((value) => value.trim() === "" || numberFormat.test(value.trim()));
  if (!isNumeric || values.every((value) => value.trim() === "")) return undefined;
  return Float64Array.from(values, (value) => {
    const text = value.trim().toLowerCase();
    if (/^[+-]?inf/.test(text)) return text.startsWith("-") ? -Infinity : Infinity;
    return text === "" || text === "nan" ? Number.NaN : Number(text);
  });
}

function badCsv(line: number, why: string): HoldfastError {
  return new HoldfastError(
    "BAD_FILE",
    `Line ${line} of the CSV text can't be read: ${why}. Correct the line.`,
    {
      numbers: { line },
    },
  );
}
