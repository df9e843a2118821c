/** NumPy's .npz files: zip archives of .npy files. */

import { deflateRawSync, inflateRawSync } from "node:zlib";
import { checkOptions } from "../errors/index.js";
import type { HostArray } from "./collate.js";
import { crc32 } from "./crc32.js";
import { badNpy, readNpy, writeNpy } from "./npy.js";

/** Options of `readNpz`. */
export interface ReadNpzOptions {
  /** The maximum size of one array, because a small archive can hold a very large array. Default: 4 GiB. */
  readonly maxBytes?: number;
}

const endSignature = 0x06054b50;
const entrySignature = 0x02014b50;
const fileSignature = 0x04034b50;
const stored = 0;
const deflated = 8;

/**
 * Reads the arrays of an .npz file by name. Archives with 64-bit sizes or encryption are rejected.
 *
 * @example
 * ```ts
 * import { readNpz, writeNpz } from "holdfast";
 * const bytes = writeNpz({ x: { values: Float32Array.of(1, 2), shape: [2] }, y: { values: Int32Array.of(7), shape: [] } });
 * const { x, y } = readNpz(bytes);
 * console.log(x?.values, y?.shape); // → Float32Array(2) [ 1, 2 ] []
 * ```
 */
export function readNpz(
  bytes: Uint8Array,
  options: ReadNpzOptions = {},
): Readonly<Record<string, HostArray>> {
  const { maxBytes = 4 * 1024 ** 3 } = checkOptions("readNpz", options, { maxBytes: true });
  const archive = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const found = new Map<string, HostArray>();
  for (const entry of entriesOf(archive)) {
    if (!entry.name.endsWith(".npy")) throw badNpy(`the archive has "${entry.name}", which is no .npy file`);
    const name = entry.name.slice(0, -".npy".length);
    if (found.has(name)) throw badNpy(`the archive has "${name}" twice`);
    found.set(name, readNpy(contentsOf(archive, entry, maxBytes)));
  }
  return Object.fromEntries(found);
}

/** Options of `writeNpz`. */
export interface WriteNpzOptions {
  /** Compress the arrays, like NumPy's `savez_compressed`. Default: false. */
  readonly compressed?: boolean;
}

/**
 * Returns the bytes of an .npz file with these arrays, which NumPy's `load` can read.
 *
 * @example
 * ```ts
 * import { readNpz, writeNpz } from "holdfast";
 * const bytes = writeNpz({ zeros: { values: new Float64Array(1000), shape: [10, 100] } }, { compressed: true });
 * console.log(bytes.length < 1000, readNpz(bytes)["zeros"]?.shape); // → true [ 10, 100 ]
 * ```
 */
export function writeNpz(
  arrays: Readonly<Record<string, HostArray>>,
  options: WriteNpzOptions = {},
): Uint8Array {
  const { compressed = false } = checkOptions("writeNpz", options, { compressed: true });
  const files: Buffer[] = [];
  const directory: Buffer[] = [];
  let offset = 0;
  for (const [key, array] of Object.entries(arrays)) {
    const name = Buffer.from(`${key}.npy`, "utf8");
    const plain = writeNpy(array);
    const data = compressed ? deflateRawSync(plain) : plain;
    const common = Buffer.alloc(26);
    common.writeUInt16LE(20, 0); // the version that a reader needs
    common.writeUInt16LE(0x0800, 2); // names are UTF-8
    common.writeUInt16LE(compressed ? deflated : stored, 4);
    common.writeUInt16LE(0x21, 8); // the first day that a zip can name
    common.writeUInt32LE(crc32(plain), 10);
    common.writeUInt32LE(data.length, 14);
    common.writeUInt32LE(plain.length, 18);
    common.writeUInt16LE(name.length, 22);
    files.push(word(fileSignature), common, name, Buffer.from(data));
    const tail = Buffer.alloc(14);
    tail.writeUInt32LE(offset, 10);
    directory.push(word(entrySignature), Buffer.from([20, 0]), common, tail, name);
    offset += 30 + name.length + data.length;
  }
  const entries = Buffer.concat(directory);
  const end = Buffer.alloc(18);
  const count = Object.keys(arrays).length;
  end.writeUInt16LE(count, 4);
  end.writeUInt16LE(count, 6);
  end.writeUInt32LE(entries.length, 8);
  end.writeUInt32LE(offset, 12);
  return Buffer.concat([...files, entries, word(endSignature), end]);
}

interface Entry {
  readonly name: string;
  readonly method: number;
  readonly crc: number;
  readonly packedSize: number;
  readonly size: number;
  readonly offset: number;
}

/** The directory at the end of the archive. */
function entriesOf(archive: Buffer): readonly Entry[] {
  const end = archive.lastIndexOf(word(endSignature));
  if (end < 0 || end + 22 > archive.length)
    throw badNpy("it has no directory at its end, as a zip archive has");
  const count = archive.readUInt16LE(end + 10);
  let position = archive.readUInt32LE(end + 16);
  return Array.from({ length: count }, (): Entry => {
    if (position + 46 > end || archive.readUInt32LE(position) !== entrySignature)
      throw badNpy(`its directory is damaged at byte ${position}`);
    const lengths = [28, 30, 32].map((at) => archive.readUInt16LE(position + at));
    const [nameLength = 0, extra = 0, comment = 0] = lengths;
    const next = position + 46 + nameLength + extra + comment;
    if (next > end) throw badNpy(`its directory is damaged at byte ${position}`);
    const entry = {
      name: archive.toString("utf8", position + 46, position + 46 + nameLength),
      method: archive.readUInt16LE(position + 10),
      crc: archive.readUInt32LE(position + 16),
      packedSize: archive.readUInt32LE(position + 20),
      size: archive.readUInt32LE(position + 24),
      offset: archive.readUInt32LE(position + 42),
    };
    if ((archive.readUInt16LE(position + 8) & 1) !== 0) throw badNpy(`"${entry.name}" is encrypted`);
    position = next;
    return entry;
  });
}

function contentsOf(archive: Buffer, entry: Entry, maxBytes: number): Uint8Array {
  const { name, method, crc, packedSize, size, offset } = entry;
  if (size > maxBytes)
    throw badNpy(`"${name}" has ${size} bytes, more than ${maxBytes}; raise maxBytes to read it`);
  if (offset + 30 > archive.length || archive.readUInt32LE(offset) !== fileSignature)
    throw badNpy(`"${name}" is not where the directory says`);
  const start = offset + 30 + archive.readUInt16LE(offset + 26) + archive.readUInt16LE(offset + 28);
  if (start + packedSize > archive.length) throw badNpy(`"${name}" ends after the archive`);
  const packed = archive.subarray(start, start + packedSize);
  const contents = unpack(name, method, packed, size);
  if (contents.length !== size || crc32(contents) !== crc)
    throw badNpy(`the contents of "${name}" are damaged`);
  return contents;
}

function unpack(name: string, method: number, packed: Buffer, size: number): Uint8Array {
  if (method === stored) return packed;
  if (method !== deflated) throw badNpy(`"${name}" is compressed by method ${method}; 0 and 8 are known`);
  try {
    return inflateRawSync(packed, { maxOutputLength: Math.max(1, size) });
  } catch (error) {
    throw badNpy(
      `"${name}" can't be decompressed: ${error instanceof Error ? error.message : String(error)}`,
    );
  }
}

function word(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}
