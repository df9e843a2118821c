/** Parses and validates a header, as far as possible without the rest of the file. */

import { dtypes } from "../../ir/index.js";
import { foreignElementBytes } from "./foreign-dtypes.js";
import { arrayBytes, dtypesByFileName, headerLimit, lengthBytes, metadataName } from "./format.js";
import { JsonCursor } from "./json-cursor.js";
import { badFile, quote } from "./rejection.js";

/** A tensor's entry: bytes [begin, end) of the data after the header, as many as its shape needs. */
export interface Entry {
  readonly name: string;
  /** The format's name; any text, so that an unknown dtype does not affect the other tensors. */
  readonly fileDtype: string;
  readonly shape: readonly number[];
  readonly begin: number;
  readonly end: number;
}

export interface Header {
  /** By name, in the order of the header. */
  readonly entries: ReadonlyMap<string, Entry>;
  readonly metadata: ReadonlyMap<string, string>;
}

const openingBrace = 0x7b;

/** The length of a file's header, from the file's first bytes and its size. */
export function headerLength(start: Uint8Array, fileBytes: number): number {
  if (fileBytes < lengthBytes || start.length < lengthBytes) {
    const message = `The file has ${fileBytes} bytes; a safetensors file begins with ${lengthBytes} that hold its header's length.`;
    throw badFile(message, { length: fileBytes });
  }
  const statedLength = new DataView(start.buffer, start.byteOffset, lengthBytes).getBigUint64(0, true);
  const availableBytes = fileBytes - lengthBytes;
  const limit = Math.min(availableBytes, headerLimit);
  if (statedLength > limit) {
    const why =
      limit === availableBytes ? `${availableBytes} bytes follow` : `the format allows ${headerLimit}`;
    throw badFile(`The file states a header of ${statedLength} bytes, but ${why}.`, {
      told: String(statedLength),
      limit,
    });
  }
  return Number(statedLength);
}

export function parseHeader(header: Uint8Array): Header {
  if (header[0] !== openingBrace) {
    const found = header[0] === undefined ? "is empty" : `begins with the byte ${header[0]}`;
    throw badFile(`The header ${found}; it must begin with {.`, { length: header.length });
  }
  let current = "";
  const subjects = {
    list: () => "the list of tensors",
    metadata: () => metadataName,
    tensor: () => `tensor ${quote(current)}`,
  };
  const cursor = new JsonCursor(header, subjects.list);
  const entries = new Map<string, Entry>();
  const metadata = new Map<string, string>();
  let hasMetadata = false;
  cursor.object(entries, (name) => {
    if (name === metadataName) {
      if (hasMetadata) throw cursor.rejection(`a second ${metadataName}`, "a unique name");
      hasMetadata = true;
      cursor.subject = subjects.metadata;
      cursor.object(metadata, (key) => metadata.set(key, cursor.string()));
    } else {
      current = name;
      cursor.subject = subjects.tensor;
      entries.set(name, readEntry(cursor, name));
    }
    cursor.subject = subjects.list;
  });
  cursor.end();
  return { entries, metadata };
}

const fieldNames = ["dtype", "shape", "data_offsets"] as const;

function readEntry(cursor: JsonCursor, name: string): Entry {
  let dtype: string | undefined;
  let shape: number[] | undefined;
  let offsets: number[] | undefined;
  cursor.fields(fieldNames, (field) => {
    if (field === "dtype") dtype = cursor.repeatedString();
    else if (field === "shape") shape = cursor.counts();
    else offsets = cursor.counts();
  });
  if (dtype === undefined || shape === undefined || offsets === undefined) {
    const values = { dtype, shape, data_offsets: offsets };
    const found = fieldNames.filter((field) => values[field] !== undefined).join(", ") || "no field";
    throw cursor.rejection(`an entry with ${found}`, "one with dtype, shape and data_offsets");
  }
  const [begin, end] = offsets;
  if (begin === undefined || end === undefined || offsets.length !== 2) {
    throw cursor.rejection(`${offsets.length} data_offsets`, "two, the start and the end");
  }
  checkSize(name, dtype, shape, begin, end);
  return { name, fileDtype: dtype, shape, begin, end };
}

/** Bytes of an element in the file; undefined for an unknown dtype. */
function findElementBytes(fileDtype: string): number | undefined {
  const dtype = dtypesByFileName.get(fileDtype);
  return dtype ? dtypes[dtype].bytes : foreignElementBytes(fileDtype);
}

function checkSize(name: string, dtype: string, shape: readonly number[], begin: number, end: number): void {
  const elementBytes = findElementBytes(dtype);
  // For an unknown dtype only this can be checked: the shape is valid, and the end is not before the beginning.
  const size = elementBytes === undefined ? undefined : arrayBytes(elementBytes, shape);
  if (end - begin === size) return;
  if (elementBytes === undefined && end >= begin && arrayBytes(1, shape) !== undefined) return;
  const dimensions = `[${shape.slice(0, 16).join(", ")}${shape.length > 16 ? ", …" : ""}]`;
  const need = size === undefined ? "more bytes than can be counted" : `${size} bytes`;
  const offsets = `[${begin}, ${end}]`;
  const fault =
    end < begin
      ? `has the data_offsets ${offsets}: the end is before the start.`
      : `needs ${need}, but its data_offsets are ${offsets}.`;
  throw badFile(`Tensor ${quote(name)}, ${quote(dtype)} ${dimensions}, ${fault}`, {
    name: quote(name),
    begin,
    end,
    size: size ?? null,
  });
}

/** Checks that the tensors cover the data exactly: no overlaps and no gaps. */
export function checkPlacement(entries: Header["entries"], dataBytes: number): void {
  let covered = 0;
  for (const { name, begin, end } of [...entries.values()].sort(
    (a, b) => a.begin - b.begin || a.end - b.end,
  )) {
    if (begin !== covered || end > dataBytes) {
      const fault =
        end > dataBytes
          ? `but the file has ${dataBytes} bytes of data`
          : begin < covered
            ? `but another tensor reaches to ${covered}`
            : `and nothing covers the bytes from ${covered} on`;
      const numbers = { name: quote(name), begin, end, covered, dataBytes };
      throw badFile(`Tensor ${quote(name)} is at [${begin}, ${end}), ${fault}.`, numbers);
    }
    covered = end;
  }
  if (covered === dataBytes) return;
  const message = `The tensors end at ${covered}, but the file has ${dataBytes} bytes of data.`;
  throw badFile(message, { covered, dataBytes });
}
