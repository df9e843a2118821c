/** PNG images with up to 8 bits per channel, not interlaced. Node's zlib decompresses them, to the length that the header gives and no further. */

import { inflateSync } from "node:zlib";
import { crc32 } from "../crc32.js";
import { badImage, type Pixels, requireSize } from "./image-array.js";

const signature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);

/** Samples per pixel by color type; 3 is an index into the palette. */
const samplesByType: Readonly<Record<number, number>> = { 0: 1, 2: 3, 3: 1, 4: 2, 6: 4 };
const paletteType = 3;

export function isPng(bytes: Uint8Array): boolean {
  return signature.equals(bytes.subarray(0, signature.length));
}

export function decodePng(bytes: Uint8Array, maxPixels: number): Pixels {
  const { header, palette, alpha, packed } = readChunks(bytes);
  const { width, height, depth, type } = header;
  requireSize(width, height, maxPixels);
  const samples = samplesByType[type] ?? 0;
  const rowBytes = Math.ceil((width * samples * depth) / 8);
  const rows = inflate(packed, height * (rowBytes + 1));
  const plain = undoFilters(rows, height, rowBytes, Math.max(1, (samples * depth) >> 3));
  if (type === paletteType) return fromPalette(unpack(plain, header, rowBytes, 1), header, palette, alpha);
  const scale = depth === 8 ? 1 : 255 / (2 ** depth - 1);
  const data = depth === 8 ? plain : unpack(plain, header, rowBytes, scale);
  return { data, width, height, channels: samples };
}

interface Header {
  readonly width: number;
  readonly height: number;
  /** Bits per sample. */
  readonly depth: number;
  readonly type: number;
}

interface Chunks {
  readonly header: Header;
  /** Three bytes for each color. */
  readonly palette: Uint8Array;
  /** The alpha of the first colors of the palette. */
  readonly alpha: Uint8Array;
  readonly packed: Uint8Array;
}

function readChunks(bytes: Uint8Array): Chunks {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let header: Header | undefined;
  let palette = new Uint8Array();
  let alpha = new Uint8Array();
  const parts: Uint8Array[] = [];
  for (let at = signature.length; ; ) {
    if (at + 12 > buffer.length) throw badImage("the PNG is cut off");
    const length = buffer.readUInt32BE(at);
    const name = buffer.toString("latin1", at + 4, at + 8);
    if (length > buffer.length - at - 12) throw badImage("the PNG is cut off");
    const data = new Uint8Array(buffer.subarray(at + 8, at + 8 + length));
    if (crc32(buffer.subarray(at + 4, at + 8 + length)) !== buffer.readUInt32BE(at + 8 + length))
      throw badImage(`the checksum of its chunk ${JSON.stringify(name)} is wrong`);
    if ((header === undefined) !== (name === "IHDR")) throw badImage("its header is missing or comes twice");
    at += 12 + length;
    if (name === "IHDR") header = readHeader(data);
    else if (name === "PLTE") palette = data;
    else if (name === "tRNS") alpha = data;
    else if (name === "IDAT") parts.push(data);
    else if (name === "IEND") break;
    // A chunk whose name begins with a lower-case letter may be ignored.
    else if (!/^[a-z]/.test(name)) throw badImage(`the PNG has the unknown chunk ${JSON.stringify(name)}`);
  }
  if (header === undefined) throw badImage("the PNG has no header");
  return { header, palette, alpha, packed: Buffer.concat(parts) };
}

function readHeader(data: Uint8Array): Header {
  if (data.length !== 13) throw badImage(`its header has ${data.length} bytes`);
  const view = new DataView(data.buffer);
  const [width, height] = [view.getUint32(0), view.getUint32(4)];
  const [depth = 0, type = 0, compression, filter, interlace] = data.subarray(8);
  const depths = type === 0 || type === paletteType ? [1, 2, 4, 8] : [8];
  if (samplesByType[type] === undefined || compression !== 0 || filter !== 0)
    throw badImage(`the PNG has the color type ${type}, compression ${compression} and filter ${filter}`);
  if (!depths.includes(depth))
    throw badImage(`the PNG has ${depth} bits per sample; convert it to 8 bits first`);
  if (interlace !== 0) throw badImage("the PNG is interlaced; save it without interlacing");
  return { width, height, depth, type };
}

function inflate(packed: Uint8Array, length: number): Uint8Array {
  try {
    const rows = inflateSync(packed, { maxOutputLength: length });
    if (rows.length === length) return rows;
  } catch {
    // Reported below.
  }
  throw badImage(`its pixels do not decompress to the ${length} bytes of its size`);
}

/** Undoes the filter of each row; `distance` is that of a byte to the same byte of the pixel before. */
function undoFilters(rows: Uint8Array, height: number, rowBytes: number, distance: number): Uint8Array {
  const plain = new Uint8Array(height * rowBytes);
  for (let row = 0; row < height; row++) {
    const from = row * (rowBytes + 1);
    const filter = rows[from] ?? 0;
    if (filter > 4) throw badImage(`row ${row} has the filter ${filter}`);
    const to = row * rowBytes;
    for (let column = 0; column < rowBytes; column++) {
      const raw = rows[from + 1 + column] ?? 0;
      const left = column < distance ? 0 : (plain[to + column - distance] ?? 0);
      const above = row === 0 ? 0 : (plain[to + column - rowBytes] ?? 0);
      let predicted = 0;
      if (filter === 1) predicted = left;
      else if (filter === 2) predicted = above;
      else if (filter === 3) predicted = (left + above) >> 1;
      else if (filter === 4) {
        const isFirst = row === 0 || column < distance;
        predicted = paeth(left, above, isFirst ? 0 : (plain[to + column - rowBytes - distance] ?? 0));
      }
      plain[to + column] = raw + predicted;
    }
  }
  return plain;
}

/** The neighbor that is closest to left + above − upper left. */
function paeth(left: number, above: number, corner: number): number {
  const byLeft = Math.abs(above - corner);
  const byAbove = Math.abs(left - corner);
  const byCorner = Math.abs(left + above - 2 * corner);
  if (byLeft <= byAbove && byLeft <= byCorner) return left;
  return byAbove <= byCorner ? above : corner;
}

/** One byte for each sample of fewer than 8 bits. */
function unpack(
  plain: Uint8Array,
  { width, height, depth }: Header,
  rowBytes: number,
  scale: number,
): Uint8Array {
  if (depth === 8) return plain;
  const samples = new Uint8Array(width * height);
  const mask = 2 ** depth - 1;
  for (let row = 0, at = 0; row < height; row++) {
    for (let column = 0; column < width; column++, at++) {
      const bit = column * depth;
      const byte = plain[row * rowBytes + (bit >> 3)] ?? 0;
      samples[at] = ((byte >> (8 - depth - (bit & 7))) & mask) * scale;
    }
  }
  return samples;
}

function fromPalette(
  indices: Uint8Array,
  { width, height }: Header,
  palette: Uint8Array,
  alpha: Uint8Array,
): Pixels {
  const colors = palette.length / 3;
  if (!Number.isInteger(colors) || colors === 0 || colors > 256 || alpha.length > colors)
    throw badImage(`its palette has ${palette.length} bytes and ${alpha.length} of alpha`);
  const channels = alpha.length > 0 ? 4 : 3;
  const data = new Uint8Array(indices.length * channels);
  for (const [pixel, index] of indices.entries()) {
    if (index >= colors) throw badImage(`a pixel has color ${index} of ${colors}`);
    for (let channel = 0; channel < 3; channel++)
      data[pixel * channels + channel] = palette[3 * index + channel] ?? 0;
    if (channels === 4) data[pixel * channels + 3] = alpha[index] ?? 255;
  }
  return { data, width, height, channels };
}
