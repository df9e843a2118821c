/** Decompresses a page to exactly the length in its header; a longer result is an error. */

import { brotliDecompressSync } from "node:zlib";
import type { CompressionCodec } from "hyparquet";
import { compressors, decompressZstd } from "hyparquet-compressors";

export function decompress(codec: CompressionCodec, input: Uint8Array, length: number): Uint8Array {
  const page = decompressAny(codec, input, length);
  if (page.length !== length)
    throw new RangeError(`a page has ${page.length} bytes, but its header says ${length}`);
  return page;
}

function decompressAny(codec: CompressionCodec, input: Uint8Array, length: number): Uint8Array {
  if (codec === "UNCOMPRESSED") return input;
  if (length === 0) return new Uint8Array(0);
  if (codec === "SNAPPY") requireSnappyLength(input, length);
  // The library's decompressors for these two ignore the length in the header.
  if (codec === "ZSTD") return decompressZstd(input, new Uint8Array(length));
  if (codec === "BROTLI") return brotliDecompressSync(input, { maxOutputLength: length });
  const decompressor = compressors[codec];
  if (!decompressor) throw new RangeError(`the compression ${codec} is not supported`);
  return decompressor(input, length);
}

/** The library writes as many bytes as the input says; if that is less, the buffer would keep old bytes. */
function requireSnappyLength(input: Uint8Array, length: number): void {
  let declared = 0;
  for (let index = 0; index < 5; index++) {
    const byte = input[index] ?? 0;
    declared += (byte & 0x7f) * 2 ** (7 * index);
    if (byte >= 0x80) continue;
    if (declared === length) return;
    break;
  }
  throw new RangeError(`a page declares ${length} bytes, but its compressed data ${declared}`);
}
