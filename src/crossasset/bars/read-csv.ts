/** Reads bars from a CSV file as it streams in: what is held is the columns and a piece of the text. */

import { createReadStream } from "node:fs";
import { type Bars, barColumns } from "./bars.js";
import { BarColumns, placeColumns } from "./columns.js";
import { CsvRecords } from "./csv-records.js";
import { badBars, wrapFault } from "./rejection.js";

const pieceBytes = 256 * 1024;

export async function readCsv(path: string): Promise<Bars> {
  const rows = new CsvRows(path);
  const records = new CsvRecords(
    (fields) => rows.take(fields),
    (found) => rows.reject(found),
  );
  try {
    for await (const piece of createReadStream(path, { encoding: "utf8", highWaterMark: pieceBytes })) {
      records.push(piece);
    }
    records.end();
  } catch (error) {
    throw wrapFault(path, "it can't be read", error, "Check the path and the permissions.");
  }
  return rows.finish();
}

/** What the records are: first the header, then a bar each. */
class CsvRows {
  readonly #path: string;
  readonly #columns: BarColumns;
  /** One row's cells, in the order of `barColumns`; used again for every row. */
  readonly #cells = new Array<string | undefined>(barColumns.length);
  #places: readonly number[] | undefined;
  #headerLength = 0;
  #isBehindBlank = false;

  constructor(path: string) {
    this.#path = path;
    this.#columns = new BarColumns(path);
  }

  take(fields: readonly string[]): void {
    if (fields.length === 1 && fields[0]?.trim() === "") {
      this.#isBehindBlank = true;
      return;
    }
    if (this.#places === undefined) {
      this.#places = placeColumns(this.#path, fields);
      this.#headerLength = fields.length;
      this.#isBehindBlank = false;
      return;
    }
    // Blank lines end a file; before a row they are a row that got lost.
    if (this.#isBehindBlank) throw this.#columns.rejectRow("is blank");
    if (fields.length !== this.#headerLength)
      throw this.#columns.rejectRow(`has ${fields.length} fields, the header has ${this.#headerLength}`);
    for (let column = 0; column < this.#cells.length; column++) {
      this.#cells[column] = fields[this.#places[column] ?? -1];
    }
    this.#columns.add(this.#cells);
  }

  reject(found: string): Error {
    if (this.#places !== undefined) return this.#columns.rejectRow(found);
    return badBars(this.#path, `the header ${found}.`, "Give a CSV file with a header.");
  }

  finish(): Bars {
    if (this.#places === undefined) {
      throw badBars(this.#path, "it is empty.", `Give a CSV file with the columns ${barColumns.join(", ")}.`);
    }
    return this.#columns.finish();
  }
}
