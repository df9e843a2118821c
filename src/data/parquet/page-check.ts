/**
 * Checks the runs and deltas of a decompressed page before hyparquet decodes them. hyparquet trusts run lengths, even past the end of
 * the page, and never ends on a negative length.
 */

import { deltaBinaryUnpack } from "hyparquet/src/delta.js";

/** Writers pad the last bit-packed run: to 8 values by the format, some to 512. */
const padding = 512;

/** Throws if the runs have more than `count` values, or do not end before `end`. */
export function checkRuns(
  bytes: Uint8Array,
  offset: number,
  end: number,
  width: number,
  count: number,
): void {
  if (!(width >= 0 && width <= 32)) throw new RangeError(`a page has values of ${width} bits`);
  let at = offset;
  for (let seen = 0; seen < count; ) {
    const [header, next] = readVarint(bytes, at, end);
    const isPacked = (header & 1) === 1;
    const values = isPacked ? (header >>> 1) * 8 : header >>> 1;
    if (values > count - seen + (isPacked ? padding : 0))
      throw new RangeError(`a run has ${values} values, but ${count - seen} are left in the page`);
    at = next + (isPacked ? packedBytes(header, width) : Math.ceil(width / 8));
    seen += values;
  }
}

/** The bytes that hyparquet reads of a bit-packed run: one at least, even if the run has no values or no bits. */
function packedBytes(header: number, width: number): number {
  return Math.max(1, (header >>> 1) * width);
}

/** Like `checkRuns` for one-bit runs. Returns the number of 1 bits. */
export function countDefined(bytes: Uint8Array, offset: number, end: number, count: number): number {
  checkRuns(bytes, offset, end, 1, count);
  let defined = 0;
  let at = offset;
  for (let seen = 0; seen < count; ) {
    const [header, next] = readVarint(bytes, at, end);
    if ((header & 1) === 0) {
      if (bytes[next] === 1) defined += header >>> 1;
      at = next + 1;
      seen += header >>> 1;
      continue;
    }
    const values = Math.min((header >>> 1) * 8, count - seen);
    for (let bit = 0; bit < values; bit++) defined += ((bytes[next + (bit >> 3)] ?? 0) >> (bit & 7)) & 1;
    at = next + packedBytes(header, 1);
    seen += (header >>> 1) * 8;
  }
  return defined;
}

/** Throws if the header of delta-packed values is invalid. */
export function checkDelta(bytes: Uint8Array, offset: number): void {
  const [blockSize, next] = readVarint(bytes, offset, bytes.length);
  const [miniblocks] = readVarint(bytes, next, bytes.length);
  const isValid = miniblocks > 0 && blockSize > 0 && blockSize % miniblocks === 0 && miniblocks <= 65_536;
  if (!isValid) throw new RangeError(`a page has blocks of ${blockSize} deltas in ${miniblocks} miniblocks`);
}

/** Throws if a string's prefix is longer than the previous string, or if the strings need too many bytes. */
export function checkPrefixes(bytes: Uint8Array, offset: number, count: number, maxBytes: number): void {
  checkDelta(bytes, offset);
  const reader = { view: new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength), offset };
  const prefixes = new Int32Array(count);
  deltaBinaryUnpack(reader, count, prefixes);
  checkDelta(bytes, reader.offset);
  const suffixes = new Int32Array(count);
  deltaBinaryUnpack(reader, count, suffixes);
  let before = 0;
  let total = 0;
  for (let index = 0; index < count; index++) {
    const prefix = prefixes[index] ?? 0;
    const suffix = suffixes[index] ?? 0;
    total += prefix + suffix;
    if (!(prefix >= 0 && prefix <= before && suffix >= 0 && total <= maxBytes))
      throw new RangeError(`text ${index + 1} of a page has ${prefix} + ${suffix} bytes`);
    before = prefix + suffix;
  }
}

/** An unsigned varint of at most five bytes, and the offset after it. */
function readVarint(bytes: Uint8Array, offset: number, end: number): [number, number] {
  let value = 0;
  for (let index = 0; index < 5; index++) {
    const byte = offset + index < end ? bytes[offset + index] : undefined;
    if (byte === undefined) throw new RangeError("a page is cut off");
    value |= (byte & 0x7f) << (7 * index);
    if (byte < 0x80) return [value >>> 0, offset + index + 1];
  }
  throw new RangeError("a page has a length of more than 5 bytes");
}
