/** Reads the pages of one column chunk. Each page is checked before and after decompression; then hyparquet decodes it. */

import type { ColumnMetaData, DecodedArray, SchemaElement } from "hyparquet";
import { readPage } from "hyparquet/src/column.js";
import { Encodings, PageTypes } from "hyparquet/src/constants.js";
import { convert, DEFAULT_PARSERS } from "hyparquet/src/convert.js";
import { deserializeTCompactProtocol } from "hyparquet/src/thrift.js";
import { decompress } from "./decompress.js";
import { checkPageSize, pageOverhead } from "./limits.js";
import { checkDelta, checkPrefixes, checkRuns, countDefined } from "./page-check.js";
import { checkThrift } from "./thrift-check.js";

/** What a file may still use. */
export interface DecodeBudget {
  /** The remaining decompressed bytes. */
  bytes: number;
  /** Max. bytes of one value. */
  readonly valueBytes: number;
}

type PageHeader = Parameters<typeof readPage>[1];
type ColumnDecoder = Parameters<typeof readPage>[2];

/** Min. allowed dictionary size: a small row group may have unused entries. */
const freeDictionary = 65_536;

/** Yields the values of a flat column, page by page: `rows` in total, or fewer if the chunk ends. */
export function* readPages(
  bytes: Uint8Array,
  rows: number,
  column: { readonly root: SchemaElement; readonly element: SchemaElement; readonly meta: ColumnMetaData },
  budget: DecodeBudget,
): Generator<DecodedArray> {
  const decoder = decoderOf(column);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let dictionary: DecodedArray | undefined;
  let count = 0;
  for (let offset = 0; count < rows && offset < bytes.length - 1; ) {
    const reader = { view, offset };
    checkThrift(bytes, offset, bytes.length);
    const header = toHeader(deserializeTCompactProtocol(reader));
    const size = header.compressed_page_size;
    if (!(Number.isInteger(size) && size >= 0 && size <= bytes.length - reader.offset))
      throw new RangeError(`a page has ${size} bytes, but ${bytes.length - reader.offset} are left`);
    const page = bytes.subarray(reader.offset, reader.offset + size);
    offset = reader.offset + size;
    budget.bytes -= header.uncompressed_page_size;
    if (budget.bytes < 0) throw new RangeError("its pages decompress to more than its rows need");
    const data = decode(page, header, column.meta.codec, decoder, dictionary, rows - count, budget);
    if (header.type === "DICTIONARY_PAGE") {
      dictionary = convert(data, decoder);
    } else {
      count += data.length;
      yield data;
    }
  }
}

function decoderOf({
  root,
  element,
  meta,
}: {
  readonly root: SchemaElement;
  readonly element: SchemaElement;
  readonly meta: ColumnMetaData;
}): ColumnDecoder {
  const leaf = { element, children: [], count: 1, path: [element.name] };
  return {
    pathInSchema: [element.name],
    type: meta.type,
    element,
    schemaPath: [{ element: root, children: [leaf], count: 2, path: [] }, leaf],
    // Pages are decompressed here.
    codec: "UNCOMPRESSED",
    parsers: DEFAULT_PARSERS,
  };
}

/** The values of one page. Dictionary values stay unconverted. */
function decode(
  page: Uint8Array,
  header: PageHeader,
  codec: ColumnMetaData["codec"],
  decoder: ColumnDecoder,
  dictionary: DecodedArray | undefined,
  maxRows: number,
  { bytes: bytesLeft, valueBytes }: DecodeBudget,
): DecodedArray {
  const maxTextBytes = (values: number): number => Math.min(bytesLeft, values * valueBytes) + pageOverhead;
  const pageBytes = header.uncompressed_page_size;
  const { data_page_header: v1, data_page_header_v2: v2, dictionary_page_header: dictionaryHeader } = header;
  if (header.type === "DICTIONARY_PAGE" && dictionaryHeader) {
    checkPageSize(dictionaryHeader.num_values, pageBytes, Math.max(maxRows, freeDictionary), valueBytes);
    return readWhole(decompress(codec, page, pageBytes), header, decoder, undefined);
  }
  if (header.type === "DATA_PAGE" && v1) {
    checkPageSize(v1.num_values, pageBytes, maxRows, valueBytes);
    requireDictionary(v1.encoding, dictionary);
    const plain = decompress(codec, page, pageBytes);
    checkV1(plain, v1.num_values, v1.encoding, decoder, maxTextBytes);
    return readWhole(plain, header, decoder, dictionary);
  }
  if (header.type === "DATA_PAGE_V2" && v2) {
    checkPageSize(v2.num_values, pageBytes, maxRows, valueBytes);
    requireDictionary(v2.encoding, dictionary);
    const levels = checkV2(page, header, v2, decoder);
    const isPacked = v2.is_compressed !== false;
    const rest = page.subarray(levels);
    const plain = isPacked ? decompress(codec, rest, pageBytes - levels) : rest;
    // hyparquet uses the encoding here, but the column's type in v1 pages.
    checkValues(plain, 0, v2.num_values - v2.num_nulls, v2.encoding, v2.encoding === "RLE", maxTextBytes);
    const unpackedPage = new Uint8Array(levels + plain.length);
    unpackedPage.set(page.subarray(0, levels));
    unpackedPage.set(plain, levels);
    const unpacked = { ...header, data_page_header_v2: { ...v2, is_compressed: false } };
    return readWhole(unpackedPage, unpacked, decoder, dictionary);
  }
  throw new RangeError(`a page has the type ${header.type}`);
}

/** Runs hyparquet's decoder on an uncompressed page. */
function readWhole(
  bytes: Uint8Array,
  header: PageHeader,
  decoder: ColumnDecoder,
  dictionary: DecodedArray | undefined,
): DecodedArray {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const sized = { ...header, compressed_page_size: bytes.length, uncompressed_page_size: bytes.length };
  return readPage({ view, offset: 0 }, sized, decoder, dictionary, undefined, 0).data ?? [];
}

/** Without its dictionary, a page's indices would be taken for values. */
function requireDictionary(encoding: string | undefined, dictionary: DecodedArray | undefined): void {
  if (dictionary === undefined && encoding?.endsWith("_DICTIONARY"))
    throw new RangeError("a page needs a dictionary that is missing");
}

/** The max. bytes of that many texts. */
type MaxTextBytes = (values: number) => number;

/** A v1 data page: levels after their length, then values. */
function checkV1(
  bytes: Uint8Array,
  count: number,
  encoding: string | undefined,
  decoder: ColumnDecoder,
  maxTextBytes: MaxTextBytes,
): void {
  const levels = isRequired(decoder) ? 0 : 4 + checkLength(bytes, 0);
  const defined = levels === 0 ? count : countDefined(bytes, 4, bytes.length, count);
  // For values of 0 bits (all are the first entry) hyparquet reads no runs here.
  const isBoolean = decoder.type === "BOOLEAN";
  const hasNoRuns = hasRuns(encoding) && !isBoolean && bytes[levels] === 0;
  if (!hasNoRuns) checkValues(bytes, levels, defined, encoding, isBoolean, maxTextBytes);
}

/** A v2 data page: its header has the lengths of the uncompressed levels. Returns their total length. */
function checkV2(
  page: Uint8Array,
  header: PageHeader,
  v2: NonNullable<PageHeader["data_page_header_v2"]>,
  decoder: ColumnDecoder,
): number {
  const { num_values: values, num_nulls: nulls } = v2;
  const { repetition_levels_byte_length: repetition, definition_levels_byte_length: definition } = v2;
  const levels = repetition + (isRequired(decoder) ? 0 : definition);
  const fits = repetition >= 0 && definition >= 0 && levels <= page.length;
  if (!(fits && levels <= header.uncompressed_page_size && nulls >= 0 && nulls <= values))
    throw new RangeError(`a page has ${levels} bytes of levels and ${nulls} nulls of ${values} values`);
  if (!isRequired(decoder)) checkRuns(page, repetition, page.length, 1, values);
  return levels;
}

/** `hasLength`: one-bit runs after their length. Otherwise the runs follow their bit width. */
function checkValues(
  bytes: Uint8Array,
  offset: number,
  count: number,
  encoding: string | undefined,
  hasLength: boolean,
  maxTextBytes: MaxTextBytes,
): void {
  if (encoding === "DELTA_BINARY_PACKED" || encoding === "DELTA_LENGTH_BYTE_ARRAY") {
    checkDelta(bytes, offset);
  } else if (encoding === "DELTA_BYTE_ARRAY") {
    checkPrefixes(bytes, offset, count, maxTextBytes(count));
  } else if (hasRuns(encoding) && hasLength) {
    checkLength(bytes, offset);
    checkRuns(bytes, offset + 4, bytes.length, 1, count);
  } else if (hasRuns(encoding)) {
    checkRuns(bytes, offset + 1, bytes.length, bytes[offset] ?? 0, count);
  }
}

function hasRuns(encoding: string | undefined): boolean {
  return encoding === "RLE" || encoding?.endsWith("_DICTIONARY") === true;
}

/** The length before the runs. */
function checkLength(bytes: Uint8Array, offset: number): number {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const length = view.getUint32(offset, true);
  if (length > bytes.length - offset - 4)
    throw new RangeError(`a page has ${length} bytes of runs, but ${bytes.length - offset - 4} are left`);
  return length;
}

function isRequired({ element }: ColumnDecoder): boolean {
  return element.repetition_type === "REQUIRED";
}

type Struct = ReturnType<typeof deserializeTCompactProtocol>;

function toHeader(fields: Struct): PageHeader {
  const {
    field_5: v1,
    field_7: dictionaryHeader,
    field_8: v2,
  } = fields as Readonly<Record<string, Struct | undefined>>;
  const type = PageTypes[fields["field_1"]];
  if (type === undefined) throw new RangeError(`a page has the unknown type ${fields["field_1"]}`);
  return {
    type,
    uncompressed_page_size: fields["field_2"],
    compressed_page_size: fields["field_3"],
    ...(v1 && {
      data_page_header: {
        num_values: v1["field_1"],
        encoding: encodingOf(v1["field_2"]),
        definition_level_encoding: encodingOf(v1["field_3"]),
        repetition_level_encoding: encodingOf(v1["field_4"]),
      },
    }),
    ...(dictionaryHeader && {
      dictionary_page_header: {
        num_values: dictionaryHeader["field_1"],
        encoding: encodingOf(dictionaryHeader["field_2"]),
      },
    }),
    ...(v2 && {
      data_page_header_v2: {
        num_values: v2["field_1"],
        num_nulls: v2["field_2"],
        num_rows: v2["field_3"],
        encoding: encodingOf(v2["field_4"]),
        definition_levels_byte_length: v2["field_5"],
        repetition_levels_byte_length: v2["field_6"],
        is_compressed: v2["field_7"] ?? true,
      },
    }),
  };
}

function encodingOf(index: number): (typeof Encodings)[number] {
  const encoding = Encodings[index];
  if (encoding === undefined) throw new RangeError(`a page has the unknown encoding ${index}`);
  return encoding;
}
