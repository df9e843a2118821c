/**
 * Splits CSV text, chunk by chunk, into records of fields (RFC 4180). Hand-written because a general parser takes more than twice as
 * long for a million rows: most records have no quote and need one call of split().
 */

/** A longer record means another kind of file, or an unclosed quote. */
const maxRecordLength = 65_536;
const byteOrderMark = "\uFEFF";

export class CsvRecords {
  readonly #take: (fields: string[]) => void;
  readonly #reject: (problem: string) => Error;
  #rest = "";
  #hasStarted = false;

  /** `take` receives each record's fields, a blank line as one empty field. `reject` makes the error for the next record. */
  constructor(take: (fields: string[]) => void, reject: (problem: string) => Error) {
    this.#take = take;
    this.#reject = reject;
  }

  push(chunk: string): void {
    const content = this.#hasStarted || !chunk.startsWith(byteOrderMark) ? chunk : chunk.slice(1);
    this.#hasStarted ||= chunk !== "";
    const text = this.#rest + content;
    const hasQuotes = text.includes('"');
    let start = 0;
    for (;;) {
      const end = hasQuotes ? findEnd(text, start) : text.indexOf("\n", start);
      if ((end < 0 ? text.length : end) - start > maxRecordLength)
        throw this.#reject(
          `is longer than ${maxRecordLength} characters: the file is not CSV, or a quote is not closed`,
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
    if (fields === undefined) throw this.#reject("has an unclosed quote, or text next to a quoted field");
    this.#take(fields);
  }
}

/** The next newline outside quotes, or -1. */
function findEnd(text: string, start: number): number {
  let end = text.indexOf("\n", start);
  let quote = text.indexOf('"', start);
  let isInside = false;
  while (end >= 0) {
    for (; quote >= 0 && quote < end; quote = text.indexOf('"', quote + 1)) isInside = !isInside;
    if (!isInside) return end;
    if (end - start > maxRecordLength) return end;
    end = text.indexOf("\n", end + 1);
  }
  return -1;
}

/** The fields of a record with quotes; undefined if the quotes do not enclose whole fields. */
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

/** The index after the closing quote of the field at `at`, or -1. A doubled quote is a quote in the field. */
function findFieldEnd(record: string, at: number): number {
  let close = record.indexOf('"', at + 1);
  while (close >= 0 && record.charAt(close + 1) === '"') close = record.indexOf('"', close + 2);
  return close < 0 ? -1 : close + 1;
}

/** The index of the next comma, or the record's end. */
function endOf(record: string, at: number): number {
  const comma = record.indexOf(",", at);
  return comma < 0 ? record.length : comma;
}
