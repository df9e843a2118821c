/** The lines of a file, one at a time: a file may be larger than the memory, and a line has a maximum. */

import { closeSync } from "node:fs";
import { withFileError } from "../../data/index.js";
import { HoldfastError } from "../../errors/index.js";
import { openRegularFile, readSpan } from "../../files/index.js";
import { formatBytes } from "../../units/index.js";

export interface Line {
  /** Counted from 1. */
  readonly number: number;
  /** With its line end, except the last line of a file that ends without one. */
  readonly bytes: Uint8Array;
}

export interface ReadLinesOptions {
  /** Called with each part of the file. */
  readonly onBytes: (bytes: Uint8Array) => void;
  readonly maxLineBytes?: number;
}

const MiB = 2 ** 20;
const chunkBytes = 4 * MiB;
const newline = 0x0a;

/** Reads a regular file line by line. A byte order mark at its start is left out. */
export function* readLines(
  path: string,
  { onBytes, maxLineBytes = 64 * MiB }: ReadLinesOptions,
): Generator<Line> {
  const what = `${path} can't be read`;
  const { file } = withFileError(what, path, () => openRegularFile(path));
  let number = 1;
  let parts: Uint8Array[] = [];
  let size = 0;
  const add = (bytes: Uint8Array): void => {
    size += bytes.length;
    if (size > maxLineBytes) throw tooLong(path, number, maxLineBytes);
    parts.push(bytes);
  };
  const take = (): Line => {
    const bytes = parts.length === 1 && parts[0] ? parts[0] : Buffer.concat(parts);
    [parts, size] = [[], 0];
    return { number: number++, bytes };
  };
  try {
    let offset = 0;
    for (;;) {
      const chunk = withFileError(what, path, () => readSpan(file, offset, chunkBytes));
      if (chunk.length === 0) break;
      onBytes(chunk);
      const hasMark = offset === 0 && chunk[0] === 0xef && chunk[1] === 0xbb && chunk[2] === 0xbf;
      offset += chunk.length;
      let start = hasMark ? 3 : 0;
      for (let end = chunk.indexOf(newline, start); end >= 0; end = chunk.indexOf(newline, start)) {
        add(chunk.subarray(start, end + 1));
        start = end + 1;
        yield take();
      }
      if (start < chunk.length) add(chunk.subarray(start));
    }
    if (size > 0) yield take();
  } finally {
    closeSync(file);
  }
}

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The text of a line. Rejects bytes that are not UTF-8. */
export function decodeLine(path: string, { number, bytes }: Line): string {
  try {
    return decoder.decode(bytes);
  } catch (cause) {
    throw new HoldfastError("BAD_FILE", `${path}, line ${number}, is not UTF-8 text. Correct the line.`, {
      numbers: { path, line: number },
      cause,
    });
  }
}

function tooLong(path: string, line: number, maxBytes: number): HoldfastError {
  return new HoldfastError(
    "BAD_FILE",
    `${path}, line ${line}, has more than ${formatBytes(maxBytes)}, the maximum of a line. Split the line.`,
    { numbers: { path, line, maxBytes } },
  );
}
