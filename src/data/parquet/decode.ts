/**
 * Decodes columns of a Parquet file, one row group at a time: memory holds the columns and one group. It blocks the event loop, so it
 * runs in a worker thread (`decode-thread.ts`).
 */

import { closeSync } from "node:fs";
import {
  type ColumnMetaData,
  type DecodedArray,
  type FileMetaData,
  parquetMetadata,
  type RowGroup,
  type SchemaElement,
} from "hyparquet";
import { openRegularFile, readSpan } from "../../files/index.js";
import { badData, wrapFault } from "../rejection.js";
import { ColumnValues, type ParquetColumn } from "./column-values.js";
import { checkRows, decodedLimit, maxFooterBytes, type ValueLimits } from "./limits.js";
import { type DecodeBudget, readPages } from "./pages.js";
import { checkThrift } from "./thrift-check.js";

/** Chooses columns by the names of all; returns their positions. */
export type SelectColumns = (names: readonly string[]) => readonly number[];

/** `onPage` is called after each page, as a sign of progress. */
export function decodeParquet(
  path: string,
  select: SelectColumns,
  limits: ValueLimits,
  onPage: () => void = () => undefined,
): readonly ParquetColumn[] {
  const file = new ParquetFile(path);
  try {
    return file.read(select(file.names), limits, onPage);
  } finally {
    file.close();
  }
}

const magic = 0x31_52_41_50;
/** The length of the footer and the magic number after it. */
const tailBytes = 8;

/** An open file whose footer has been read. */
export class ParquetFile {
  /** The names of its columns. */
  readonly names: readonly string[];
  readonly #path: string;
  readonly #file: number;
  readonly #size: number;
  readonly #root: SchemaElement;
  readonly #elements: readonly SchemaElement[];
  readonly #groups: readonly RowGroup[];

  constructor(path: string) {
    this.#path = path;
    const { file, stats } = this.#guard(() => openRegularFile(path));
    this.#file = file;
    this.#size = stats.size;
    try {
      const metadata = this.#guard(() => this.#readFooter());
      [this.#root, ...this.#elements] = this.#guard(() => topLevel(metadata.schema));
      this.names = this.#elements.map(({ name }) => name);
      this.#groups = metadata.row_groups;
    } catch (error) {
      closeSync(file);
      throw error;
    }
  }

  close(): void {
    closeSync(this.#file);
  }

  /** The columns at these positions. */
  read(indices: readonly number[], limits: ValueLimits, onPage: () => void): readonly ParquetColumn[] {
    return this.#guard(() => this.#read(indices, limits, onPage));
  }

  #read(indices: readonly number[], limits: ValueLimits, onPage: () => void): readonly ParquetColumn[] {
    const selected = indices.flatMap((index) => this.#elements[index] ?? []);
    for (const element of selected) this.#requirePlain(element, limits.valueBytes);
    const groups = this.#groups.map((group) => ({ group, rows: rowsOf(group) }));
    const rows = groups.reduce((sum, group) => sum + group.rows, 0);
    checkRows(this.#path, rows, this.#size);
    const chunks = groups.map(({ group }) => selected.map((element) => chunkOf(group, element)));
    this.#requireDisjoint(chunks.flat());
    const { valueBytes } = limits;
    const budget: DecodeBudget = { bytes: decodedLimit(rows, selected.length, limits), valueBytes };
    const columns = selected.map((element) => new ColumnValues(element));
    groups.forEach((group, index) => {
      if (group.rows === 0) return;
      for (const [position, element] of selected.entries()) {
        const meta = chunks[index]?.[position];
        if (!meta) throw new RangeError(`a row group has no column ${element.name}`);
        const pages: DecodedArray[] = [];
        const column = { root: this.#root, element, meta };
        const { start, length } = spanOf(meta);
        for (const page of readPages(this.#readSpan(start, length), group.rows, column, budget)) {
          pages.push(page);
          onPage();
        }
        const values = pages.reduce((sum, page) => sum + page.length, 0);
        if (values !== group.rows) throw shortGroup(this.#path, element.name, values, group.rows);
        columns[position]?.add(pages, values, budget);
      }
    });
    return columns.map((column) => column.finish());
  }

  #readFooter(): FileMetaData {
    const tail = this.#readSpan(Math.max(0, this.#size - tailBytes), Math.min(tailBytes, this.#size));
    const view = new DataView(tail.buffer, tail.byteOffset, tail.byteLength);
    if (tail.length < tailBytes || view.getUint32(4, true) !== magic)
      throw new RangeError("it does not end with PAR1");
    const length = view.getUint32(0, true);
    if (length > Math.min(this.#size - tailBytes, maxFooterBytes))
      throw new RangeError(`its metadata has ${length} bytes, but the file has ${this.#size}`);
    const bytes = this.#readSpan(this.#size - tailBytes - length, length + tailBytes);
    checkThrift(bytes, 0, length);
    return parquetMetadata(bytes.buffer, { geoparquet: false });
  }

  /** The parser may throw any error for a wrong byte: RangeError, TypeError or its own. */
  #guard<Result>(body: () => Result): Result {
    try {
      return body();
    } catch (error) {
      const advice = "The file is truncated, altered or not Parquet. Write or download it again.";
      throw wrapFault(this.#path, "it can't be read as Parquet", error, advice);
    }
  }

  /** Throws for values that are no numbers, times or text; hyparquet would parse them. */
  #requirePlain(
    { name, num_children, repetition_type, type_length, converted_type, logical_type }: SchemaElement,
    maxValueBytes: number,
  ): void {
    const kind = converted_type ?? logical_type?.type ?? "";
    const isFlat = !num_children && repetition_type !== "REPEATED";
    if (isFlat && !otherKinds.has(kind) && !((type_length ?? 0) > maxValueBytes)) return;
    const actual = isFlat
      ? `values of the kind ${kind === "" ? `fixed length ${type_length}` : kind}`
      : "lists or records";
    throw badData(
      this.#path,
      `the column "${name}" has ${actual}.`,
      "Use numbers, times or text, or select other columns.",
    );
  }

  /** Overlapping chunks would let a small file take unbounded decoding time. */
  #requireDisjoint(chunks: readonly (ColumnMetaData | undefined)[]): void {
    let total = 0;
    for (const meta of chunks) if (meta) total += spanOf(meta).length;
    if (total > this.#size)
      throw new RangeError(`its columns have ${total} bytes, but the file has ${this.#size}`);
  }

  #readSpan(start: number, length: number): Uint8Array<ArrayBuffer> {
    if (!(start >= 0 && length >= 0 && start + length <= this.#size))
      throw new RangeError(
        `it refers to bytes ${start} to ${start + length}, but the file has ${this.#size}`,
      );
    const bytes = readSpan(this.#file, start, length);
    if (bytes.length < length)
      throw new RangeError(`the file shrank to ${start + bytes.length} bytes while it was read`);
    // A copy, because hyparquet needs a separate ArrayBuffer.
    return new Uint8Array(bytes);
  }
}

/** Types that are not numbers, times or text. */
const otherKinds: ReadonlySet<string> = new Set([
  ...["MAP", "MAP_KEY_VALUE", "LIST", "JSON", "BSON", "INTERVAL", "UUID"],
  ...["VARIANT", "GEOMETRY", "GEOGRAPHY", "NULL"],
]);

function rowsOf({ num_rows }: RowGroup): number {
  const rows = Number(num_rows);
  if (!(Number.isSafeInteger(rows) && rows >= 0)) throw new RangeError(`a row group has ${num_rows} rows`);
  return rows;
}

/** The root and its direct children. */
function topLevel(schema: readonly SchemaElement[]): [SchemaElement, ...SchemaElement[]] {
  const [root] = schema;
  if (!root) throw new RangeError("it has no schema");
  const children: SchemaElement[] = [];
  for (let at = 1; children.length < (root.num_children ?? 0); ) {
    const child = schema[at];
    if (!child) throw new RangeError(`its schema lacks columns after ${children.length}`);
    children.push(child);
    // Skips the child's descendants.
    for (let left = 1; left > 0; at++) {
      const element = schema[at];
      if (!element) throw new RangeError("its schema is cut off");
      left += Math.max(0, element.num_children ?? 0) - 1;
    }
  }
  return [root, ...children];
}

function chunkOf({ columns }: RowGroup, { name }: SchemaElement): ColumnMetaData | undefined {
  const chunk = columns.find(({ meta_data }) => meta_data?.path_in_schema[0] === name);
  if (chunk?.file_path) throw new RangeError(`the column ${name} is in another file`);
  return chunk?.meta_data;
}

/** The span of a column's pages. A dictionary page comes first. */
function spanOf(meta: ColumnMetaData): { readonly start: number; readonly length: number } {
  const start = Number(meta.dictionary_page_offset || meta.data_page_offset);
  const length = Number(meta.total_compressed_size);
  if (!(Number.isSafeInteger(start) && Number.isSafeInteger(length) && length >= 0))
    throw new RangeError(`a column claims ${length} bytes at offset ${start}`);
  return { start, length };
}

function shortGroup(path: string, column: string, values: number, rows: number): Error {
  return badData(
    path,
    `a row group of ${rows} rows has ${values} values of ${column}.`,
    "The file is altered. Write or download it again.",
    { values, rows },
  );
}
