/** A run's steps and metrics as CSV (RFC 4180). */

import { type JsonRecord, stepColumns } from "../records/index.js";
import type { StepSeries } from "../train/index.js";

/** Rows per chunk of the answer. */
const rowsPerChunk = 4096;

/** Yields chunks, because a million steps are 100 MB. Unknown losses are empty. */
export function* stepsCsv(steps: StepSeries): Generator<string> {
  yield `${stepColumns.join()}\r\n`;
  const columns = stepColumns.map((name) => steps[name]);
  const rows = steps.step.length;
  for (let from = 0; from < rows; from += rowsPerChunk) {
    let chunk = "";
    for (let row = from; row < Math.min(rows, from + rowsPerChunk); row++)
      chunk += `${columns.map((column) => numberCell(column[row] ?? Number.NaN)).join()}\r\n`;
    yield chunk;
  }
}

function numberCell(value: number): string {
  return Number.isNaN(value) ? "" : String(value);
}

/** One line per record. Nested fields have names with dots; lists are JSON. */
export function metricsCsv(records: readonly JsonRecord[]): string {
  const rows = records.map((record) => new Map(cellsOf(record, "")));
  const columns = [...new Set(rows.flatMap((row) => [...row.keys()]))];
  const lines = [columns.map(quote), ...rows.map((row) => columns.map((name) => quote(row.get(name) ?? "")))];
  return lines.map((line) => `${line.join()}\r\n`).join("");
}

function cellsOf(record: object, prefix: string): [string, string][] {
  return Object.entries(record).flatMap(([name, value]: [string, unknown]): [string, string][] => {
    if (Array.isArray(value)) return [[prefix + name, JSON.stringify(value)]];
    if (typeof value === "object" && value !== null) return cellsOf(value, `${prefix}${name}.`);
    if (typeof value === "number") return [[prefix + name, numberCell(value)]];
    return [[prefix + name, value === null || value === undefined ? "" : String(value)]];
  });
}

function quote(text: string): string {
  // A spreadsheet would treat such text as a formula.
  const safe = /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
