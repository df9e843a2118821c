/**
 * Decodes bars from a Parquet file, one row group at a time: memory holds the columns and one group. It blocks the event loop, so it
 * runs in a worker thread (`thread.ts`).
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
import { openRegularFile, readSpan } from "../../../files/index.js";
import { type Bars, barColumns } from "../bars.js";
import { BarColumns, findColumns } from "../columns.js";
import { badBars, wrapFault } from "../rejection.js";
import { checkRows, decodedLimit, maxFooterBytes, maxValueBytes } from "./limits.js";
import { type DecodeBudget, readPages } from "./pages.js";
import { checkThrift } from "./thrift-check.js";

/** `onPage` is called after each page, as a sign of progress. */
export function decodeParquet(path: string, onPage: () => void = () => undefined): Bars {
  try {
    const { file, stats } = openRegularFile(path);
    try {
      return new ParquetFile(path, file, stats.size, onPage).read();
    } finally {
      closeSync(file);
    }
  } catch (error) {
    // The parser may throw any error for a wrong byte: RangeError, TypeError or its own.
    const advice = "The file is truncated, altered or not Parquet. Write or download it again.";
    throw wrapFault(path, "it can't be read as Parquet", error, advice);
  }
}

const magic = 0x31_52_41_50;
/** The length of the footer and the magic number after it. */
const tailBytes = 8;

class ParquetFile {
  readonly #path: string;
  readonly #file: number;
  readonly #size: number;
  readonly #onPage: () => void;

  constructor(path: string, file: number, size: number, onPage: () => void) {
    this.#path = path;
    this.#file = file;
    this.#size = size;
    this.#onPage = onPage;
  }

  read(): Bars {
    const metadata = this.#readFooter();
    const [root, ...elements] = topLevel(metadata.schema);
    const header = elements.map(({ name }) => name);
    const selected = findColumns(this.#path, header).flatMap((index) => elements[index] ?? []);
    for (const element of selected) this.#requireNumbers(element);
    const groups = metadata.row_groups.map((group) => ({ group, rows: this.#rowsOf(group) }));
    const rows = groups.reduce((sum, group) => sum + group.rows, 0);
    checkRows(this.#path, rows, this.#size);
    const chunks = groups.map(({ group }) => selected.map((element) => chunkOf(group, element)));
    this.#requireDisjoint(chunks.flat());
    const columns = new BarColumns(this.#path);
    const budget: DecodeBudget = { bytes: decodedLimit(rows, selected.length) };
    groups.forEach((group, index) => {
      if (group.rows === 0) return;
      const cursors = selected.map((element, column) => {
        const meta = chunks[index]?.[column];
        if (!meta) throw new RangeError(`a row group has no column ${element.name}`);
        const pages = this.#readChunk(meta, group.rows, { root, element, meta }, budget);
        const values = pages.reduce((sum, page) => sum + page.length, 0);
        if (values !== group.rows) throw shortGroup(this.#path, barColumns[column], values, group.rows);
        return new CellCursor(pages);
      });
      const cells = new Array<unknown>(cursors.length);
      for (let row = 0; row < group.rows; row++) {
        for (let column = 0; column < cells.length; column++) cells[column] = cursors[column]?.next();
        columns.add(cells);
      }
    });
    return columns.finish();
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

  #rowsOf({ num_rows }: RowGroup): number {
    const rows = Number(num_rows);
    if (!(Number.isSafeInteger(rows) && rows >= 0)) throw new RangeError(`a row group has ${num_rows} rows`);
    return rows;
  }

  #readChunk(
    meta: ColumnMetaData,
    rows: number,
    column: Parameters<typeof readPages>[2],
    budget: DecodeBudget,
  ): DecodedArray[] {
    const { start, length } = spanOf(meta);
    const pages: DecodedArray[] = [];
    for (const page of readPages(this.#readSpan(start, length), rows, column, budget)) {
      pages.push(page);
      this.#onPage();
    }
    return pages;
  }

  /** Throws for values that can't be bars; hyparquet would parse them. */
  #requireNumbers({
    name,
    num_children,
    repetition_type,
    type_length,
    converted_type,
    logical_type,
  }: SchemaElement): void {
    const kind = converted_type ?? logical_type?.type ?? "";
    const isFlat = !num_children && repetition_type !== "REPEATED";
    if (isFlat && !otherKinds.has(kind) && !((type_length ?? 0) > maxValueBytes)) return;
    const actual = isFlat
      ? `values of the kind ${kind === "" ? `fixed length ${type_length}` : kind}`
      : "lists or records";
    throw badBars(this.#path, `the column "${name}" has ${actual}.`, "Use numbers, times or text.");
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

/** Iterates over a column's values across its pages. */
class CellCursor {
  readonly #pages: readonly DecodedArray[];
  #page: DecodedArray = [];
  #next = 0;
  #at = 0;

  constructor(pages: readonly DecodedArray[]) {
    this.#pages = pages;
  }

  next(): unknown {
    while (this.#at >= this.#page.length) {
      const page = this.#pages[this.#next++];
      if (!page) return undefined;
      this.#page = page;
      this.#at = 0;
    }
    return this.#page[this.#at++];
  }
}

function shortGroup(path: string, column: string | undefined, values: number, rows: number): Error {
  return badBars(
    path,
    `a row group of ${rows} rows has ${values} values of ${column}.`,
    "The file is altered. Write or download it again.",
    { values, rows },
  );
}
