/** Safetensors files built by hand, so that a test can build an invalid one. */

/** A file with this header, after its true length, and this many bytes of data. */
export function fileWith(header: string | Uint8Array, dataBytes = 0): Uint8Array {
  const text = Buffer.from(header);
  const file = new Uint8Array(8 + text.length + dataBytes);
  new DataView(file.buffer).setBigUint64(0, BigInt(text.length), true);
  file.set(text, 8);
  return file;
}

/** An entry of u8, with as many bytes as elements. */
export function entry(shape: string, begin: number | string, end: number | string): string {
  return `{"dtype":"U8","shape":${shape},"data_offsets":[${begin},${end}]}`;
}
