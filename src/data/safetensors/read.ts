/** Reads a safetensors file from its bytes. Nothing in it is trusted; what comes out lies inside the bytes given. */

import { headerLimit, lengthBytes, type SafetensorsFile } from "./format.js";
import { checkPlacement, parseHeader } from "./header.js";
import { badFile } from "./refusal.js";

const openingBrace = 0x7b;

/**
 * Reads the tensors of a safetensors file without copying them: each one's `bytes` is a view of `bytes`. A file that
 * is not exactly what the format says is refused with the code BAD_FILE.
 *
 * @example
 * ```ts
 * import { readSafetensors, viewElements, writeSafetensors } from "holdfast";
 * const bytes = new Uint8Array(new Float32Array([1, 2, 3]).buffer);
 * const file = writeSafetensors([{ name: "bias", dtype: "f32", shape: [3], bytes }]);
 *
 * const bias = readSafetensors(file).tensors.get("bias");
 * if (bias?.dtype === "f32") console.log(viewElements("f32", bias.bytes).join()); // → 1,2,3
 * ```
 */
export function readSafetensors(bytes: Uint8Array): SafetensorsFile {
  const dataStart = lengthBytes + headerLength(bytes);
  const { entries, metadata } = parseHeader(decodeHeader(bytes.subarray(lengthBytes, dataStart)));
  checkPlacement(entries, bytes.length - dataStart);
  const tensors = new Map(
    entries.map(({ name, dtype, shape, begin, end }) => {
      // Not subarray(), which gives a Buffer for a Buffer.
      const view = new Uint8Array(bytes.buffer, bytes.byteOffset + dataStart + begin, end - begin);
      return [name, { name, dtype, shape, bytes: view }];
    }),
  );
  return { tensors, metadata };
}

function headerLength(bytes: Uint8Array): number {
  const { length } = bytes;
  if (length < lengthBytes) {
    const message = `The file has ${length} bytes; a safetensors file begins with ${lengthBytes} that hold its header's length.`;
    throw badFile(message, { length });
  }
  const told = new DataView(bytes.buffer, bytes.byteOffset, lengthBytes).getBigUint64(0, true);
  const room = length - lengthBytes;
  const limit = Math.min(room, headerLimit);
  if (told > limit) {
    const why = limit === room ? `${room} bytes follow` : `the format allows ${headerLimit}`;
    throw badFile(`The header is said to be ${told} bytes long, but ${why}.`, { told: String(told), limit });
  }
  return Number(told);
}

function decodeHeader(header: Uint8Array): string {
  if (header[0] !== openingBrace) {
    const found = header[0] === undefined ? "is empty" : `begins with the byte ${header[0]}`;
    throw badFile(`The header ${found}; it must begin with {.`, { length: header.length });
  }
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(header);
  } catch (cause) {
    throw badFile("The header is not text in UTF-8.", { length: header.length }, cause);
  }
}
