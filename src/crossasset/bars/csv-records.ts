/**
 * Splits CSV text, piece by piece, into records of fields, as RFC 4180 has them. Written out because a general
 * parser takes more than twice as long for a million rows: most records have no quote and are one call of split().
 */

/** No bar comes near it; a longer record is a file of another kind, or a quote that nobody closes. */
const longestRecord = 65_536;
const byteOrderMark = "\uFEFF";

export class CsvRecords {
  readonly #take: (fields: string[]) => void;
  readonly #reject: (found: string) => Error;
  #rest = "";
  #hasBegun = false;

  /** `take` gets each record's fields, a blank line as one empty field; `reject` makes the error for the next record. */
  constructor(take: (fields: string[]) => void, reject: (found: string) => Error) {
    this.#take = take;
    this.#reject = reject;
  }

  push(piece: string): void {
    const begun = this.#hasBegun || !piece.startsWith(byteOrderMark) ? piece : piece.slice(1);
    this.#hasBegun ||= piece !== "";
    const text = this.#rest + begun;
    const hasQuotes = text.includes('"');
    let start = 0;
    for (;;) {
      const end = hasQuotes ? findEnd(text, start) : text.indexOf("\n", start);
      if ((end < 0 ? text.length : end) - start > longestRecord)
        throw this.#reject(
          `is longer than ${longestRecord} characters: the file is no CSV, or a quote is not closed`,
        );
      if (end < 0) break;
      this.#emit(text.slice(start, end));
      start = end + 1;
    }
    this.#rest = text.slice(start);
  }

  end(): void {
    if (this.#rest !== "") this.#emit(this.#rest);
    this.#rest = "";
  }

  #emit(line: string): void {
    const record = line.endsWith("\r") ? line.slice(0, -1) : line;
    const fields = record.includes('"') ? splitQuoted(record) : record.split(",");
    if (fields === undefined)
      throw this.#reject("has a quote that is not closed, or text beside a quoted field");
    this.#take(fields);
  }
}

/** The next line end that does not lie between quotes, or -1. */
function findEnd(text: string, start: number): number {
  let end = text.indexOf("\n", start);
  let quote = text.indexOf('"', start);
  let isInside = false;
  while (end >= 0) {
    for (; quote >= 0 && quote < end; quote = text.indexOf('"', quote + 1)) isInside = !isInside;
    if (!isInside) return end;
    if (end - start > longestRecord) return end;
    end = text.indexOf("\n", end + 1);
  }
  return -1;
}

/** The fields of a record that has quotes; undefined where the quotes don't enclose whole fields. */
function splitQuoted(record: string): string[] | undefined {
  const fields: string[] = [];
  for (let at = 0; at <= record.length; ) {
    const isQuoted = record.charAt(at) === '"';
    const end = isQuoted ? findFieldEnd(record, at) : endOf(record, at);
    const field = record.slice(at, end);
    if (isQuoted ? end < 0 || end !== endOf(record, end) : field.includes('"')) return undefined;
    fields.push(isQuoted ? field.slice(1, -1).replaceAll('""', '"') : field);
    at = end + 1;
  }
  return fields;
}

/** Behind the quote that closes the field opened at `at`, or -1; a doubled quote is a quote in the field. */
function findFieldEnd(record: string, at: number): number {
  let close = record.indexOf('"', at + 1);
  while (close >= 0 && record.charAt(close + 1) === '"') close = record.indexOf('"', close + 2);
  return close < 0 ? -1 : close + 1;
}

/** The next comma, or the record's end. */
function endOf(record: string, at: number): number {
  const comma = record.indexOf(",", at);
  return comma < 0 ? record.length : comma;
}
