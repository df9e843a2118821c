/** Reads bars from a CSV file as a stream: memory holds the columns and one chunk of text. */

import { createReadStream } from "node:fs";
import { badData, wrapFault } from "../../data/index.js";
import { type Bars, barColumns } from "./bars.js";
import { BarColumns, findColumns } from "./columns.js";
import { CsvRecords } from "./csv-records.js";

const chunkBytes = 256 * 1024;

export async function readCsv(path: string): Promise<Bars> {
  const rows = new CsvRows(path);
  const records = new CsvRecords(
    (fields) => rows.take(fields),
    (problem) => rows.reject(problem),
  );
  try {
    for await (const chunk of createReadStream(path, { encoding: "utf8", highWaterMark: chunkBytes })) {
      records.push(chunk);
    }
    records.end();
  } catch (error) {
    throw wrapFault(path, "it can't be read", error, "Check the path and the permissions.");
  }
  return rows.finish();
}

/** Interprets records: first the header, then one bar each. */
class CsvRows {
  readonly #path: string;
  readonly #columns: BarColumns;
  /** One row's cells, in the order of `barColumns`; reused for every row. */
  readonly #cells = new Array<string | undefined>(barColumns.length);
  #columnIndices: readonly number[] | undefined;
  #headerLength = 0;
  #isAfterBlank = false;

  constructor(path: string) {
    this.#path = path;
    this.#columns = new BarColumns(path);
  }

  take(fields: readonly string[]): void {
    if (fields.length === 1 && fields[0]?.trim() === "") {
      this.#isAfterBlank = true;
      return;
    }
    if (this.#columnIndices === undefined) {
      this.#columnIndices = findColumns(this.#path, fields);
      this.#headerLength = fields.length;
      this.#isAfterBlank = false;
      return;
    }
    // Blank lines are allowed at the end; before a row, a row is missing.
    if (this.#isAfterBlank) throw this.#columns.rejectRow("is blank");
    if (fields.length !== this.#headerLength)
      throw this.#columns.rejectRow(`has ${fields.length} fields, the header has ${this.#headerLength}`);
    for (let column = 0; column < this.#cells.length; column++) {
      this.#cells[column] = fields[this.#columnIndices[column] ?? -1];
    }
    this.#columns.add(this.#cells);
  }

  reject(problem: string): Error {
    if (this.#columnIndices !== undefined) return this.#columns.rejectRow(problem);
    return badData(this.#path, `the header ${problem}.`, "Use a CSV file with a header.");
  }

  finish(): Bars {
    if (this.#columnIndices === undefined) {
      throw badData(this.#path, "it is empty.", `Use a CSV file with the columns ${barColumns.join(", ")}.`);
    }
    return this.#columns.finish();
  }
}
