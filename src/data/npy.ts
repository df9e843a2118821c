/** NumPy's .npy files, which hold one array. Files are untrusted input. */

import { HoldfastError } from "../errors/index.js";
import { type Shape, sizeOf } from "../ops/index.js";
import type { TypedNumbers } from "../tensor/index.js";
import type { HostArray } from "./collate.js";

/** NumPy's type codes with a typed array of their own. Booleans are bytes. */
const arrays = {
  "|b1": Uint8Array,
  "|i1": Int8Array,
  "|u1": Uint8Array,
  "<i2": Int16Array,
  "<u2": Uint16Array,
  "<i4": Int32Array,
  "<u4": Uint32Array,
  "<i8": BigInt64Array,
  "<u8": BigUint64Array,
  "<f4": Float32Array,
  "<f8": Float64Array,
} as const;
type TypeCode = keyof typeof arrays;

const magic = "\x93NUMPY";
const maxHeaderBytes = 64 * 1024;
const maxDimensions = 64;

/**
 * Reads the bytes of an .npy file. The result has a typed array, its shape, and the dtype `bool` for booleans.
 *
 * @example
 * ```ts
 * import { readNpy, writeNpy } from "holdfast";
 * const { values, shape } = readNpy(writeNpy({ values: Float32Array.of(1, 2, 3, 4), shape: [2, 2] }));
 * console.log(values, shape); // → Float32Array(4) [ 1, 2, 3, 4 ] [ 2, 2 ]
 * ```
 */
export function readNpy(bytes: Uint8Array): HostArray {
  const { code, isFortran, shape, start } = readHeader(bytes);
  const Typed = arrays[code];
  const count = sizeOf(shape);
  const expected = count * Typed.BYTES_PER_ELEMENT;
  if (!Number.isSafeInteger(expected) || bytes.length - start !== expected) {
    throw badNpy(
      `it has ${bytes.length - start} bytes of elements, but [${shape.join(", ")}] of ${code} takes ${expected}`,
    );
  }
  // A copy: the elements must be aligned.
  const values: TypedNumbers = new Typed(new Uint8Array(bytes.subarray(start)).buffer);
  const ordered = isFortran && shape.length > 1 ? inRowMajorOrder(values, shape) : values;
  return code === "|b1" ? { values: ordered, shape, dtype: "bool" } : { values: ordered, shape };
}

/**
 * Writes an array in NumPy's .npy format.
 *
 * @example
 * ```ts
 * import { writeNpy } from "holdfast";
 * const bytes = writeNpy({ values: new Int32Array(6), shape: [2, 3] });
 * console.log(bytes.length); // → 152
 * ```
 */
export function writeNpy({ values, shape, dtype }: HostArray): Uint8Array {
  const code = dtype === "bool" ? "|b1" : codeOf(values);
  if (values.length !== sizeOf(shape)) {
    throw new HoldfastError(
      "BAD_SHAPE",
      `writeNpy got ${values.length} elements, but the shape [${shape.join(", ")}] has ${sizeOf(shape)}. Pass matching values and shape.`,
    );
  }
  const tuple = shape.length === 1 ? `${shape[0]},` : shape.join(", ");
  const text = `{'descr': '${code}', 'fortran_order': False, 'shape': (${tuple}), }`;
  // The elements begin at a multiple of 64 bytes.
  const padded = `${text.padEnd(Math.ceil((text.length + 11) / 64) * 64 - 11)}\n`;
  const start = 10 + padded.length;
  const bytes = new Uint8Array(start + values.byteLength);
  bytes.set(Buffer.from(magic, "latin1"));
  bytes.set([1, 0, padded.length & 0xff, padded.length >> 8], magic.length);
  bytes.set(Buffer.from(padded, "latin1"), 10);
  bytes.set(new Uint8Array(values.buffer, values.byteOffset, values.byteLength), start);
  return bytes;
}

interface Header {
  readonly code: TypeCode;
  readonly isFortran: boolean;
  readonly shape: Shape;
  /** The offset of the elements. */
  readonly start: number;
}

function readHeader(bytes: Uint8Array): Header {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (buffer.length < 12 || buffer.toString("latin1", 0, 6) !== magic)
    throw badNpy("it does not begin with \\x93NUMPY");
  const version = buffer.readUInt8(6);
  if (version < 1 || version > 3) throw badNpy(`its version is ${version}; 1 to 3 are known`);
  const length = version === 1 ? buffer.readUInt16LE(8) : buffer.readUInt32LE(8);
  const first = version === 1 ? 10 : 12;
  const start = first + length;
  if (length > maxHeaderBytes || start > buffer.length) throw badNpy(`its header has ${length} bytes`);
  const text = buffer.toString("latin1", first, start);
  const match =
    /^\{'descr': '([^']{1,8})', 'fortran_order': (True|False), 'shape': \(((?:\d{1,15}, ?)*(?:\d{1,15})?)\),? *\}\s*$/.exec(
      text,
    );
  if (!match)
    throw badNpy(`its header is not that of a plain array: ${JSON.stringify(text.slice(0, 120).trim())}`);
  const [, code = "", order, dimensions = ""] = match;
  if (!Object.hasOwn(arrays, code)) {
    throw badNpy(
      `its type is ${code}; ${Object.keys(arrays).join(", ")} can be read. Convert it with astype`,
    );
  }
  const shape = dimensions.split(",").flatMap((size) => (size.trim() === "" ? [] : [Number(size)]));
  if (shape.length > maxDimensions) throw badNpy(`it has ${shape.length} dimensions`);
  return { code: code as TypeCode, isFortran: order === "True", shape, start };
}

function codeOf(values: TypedNumbers): TypeCode {
  const found = (Object.keys(arrays) as TypeCode[]).find(
    (code) => code !== "|b1" && values instanceof arrays[code],
  );
  if (found) return found;
  throw new HoldfastError(
    "BAD_DTYPE",
    `writeNpy got a ${values.constructor.name}, for which NumPy has no type. Convert it to another typed array.`,
  );
}

/** From NumPy's Fortran order, in which the first axis is the fastest. */
function inRowMajorOrder(values: TypedNumbers, shape: Shape): TypedNumbers {
  const strides = shape.map((_, axis) => sizeOf(shape.slice(0, axis)));
  const copy = values.slice() as Float64Array;
  const index = shape.map(() => 0);
  let offset = 0;
  for (let position = 0; position < copy.length; position++) {
    copy[position] = (values as Float64Array)[offset] ?? 0;
    for (let axis = shape.length - 1; axis >= 0; axis--) {
      const [size = 1, stride = 0] = [shape[axis], strides[axis]];
      index[axis] = (index[axis] ?? 0) + 1;
      offset += stride;
      if ((index[axis] ?? 0) < size) break;
      offset -= stride * size;
      index[axis] = 0;
    }
  }
  return copy;
}

export function badNpy(why: string): HoldfastError {
  return new HoldfastError("BAD_FILE", `The NumPy file can't be read: ${why}.`);
}
