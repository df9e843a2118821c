/** Writes PNG images for tests. */

import { deflateSync } from "node:zlib";
import { crc32 } from "../../src/data/crc32.js";

export interface PngOptions {
  readonly depth?: number;
  /** The color type. Default: 2, RGB. */
  readonly type?: number;
  readonly interlace?: number;
  readonly palette?: readonly number[];
  readonly alpha?: readonly number[];
}

/** A PNG of rows of bytes, each with its filter first. */
export function makePng(
  width: number,
  height: number,
  rows: readonly number[],
  { depth = 8, type = 2, interlace = 0, palette, alpha }: PngOptions = {},
): Uint8Array {
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([depth, type, 0, 0, interlace], 8);
  return new Uint8Array(
    Buffer.concat([
      Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]),
      chunk("IHDR", header),
      ...(palette ? [chunk("PLTE", Buffer.from(palette))] : []),
      ...(alpha ? [chunk("tRNS", Buffer.from(alpha))] : []),
      chunk("IDAT", deflateSync(Buffer.from(rows))),
      chunk("IEND", Buffer.alloc(0)),
    ]),
  );
}

function chunk(name: string, data: Buffer): Buffer {
  const body = Buffer.concat([Buffer.from(name, "latin1"), data]);
  const bytes = Buffer.alloc(body.length + 8);
  bytes.writeUInt32BE(data.length, 0);
  bytes.set(body, 4);
  bytes.writeUInt32BE(crc32(body), body.length + 4);
  return bytes;
}
