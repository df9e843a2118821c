/**
 * Dtypes of the format that Holdfast lacks. Integers become i32 if every value fits, and 8-bit floats become bf16,
 * which represents each exactly. A tensor is decoded when its elements are first accessed.
 */

import type { ErrorNumbers, HoldfastError } from "../../errors/index.js";
import { type Dtype, narrowToBf16 } from "../../ir/index.js";
import type { StoredTensor } from "./format.js";
import { quote, rejectTensor } from "./rejection.js";

type Reject = (what: string, numbers?: ErrorNumbers) => HoldfastError;

/** Converts elements of a file. */
interface ForeignDtype {
  /** Bytes of an element in the file. */
  readonly bytes: number;
  readonly dtype: Dtype;
  /** The converted elements; `reject` names the tensor. */
  readonly decode: (view: DataView, reject: Reject) => Uint8Array;
}

const foreignDtypes: ReadonlyMap<string, ForeignDtype> = new Map([
  ["U64", integers(8, (view, at) => view.getBigUint64(at, true))],
  ["U32", integers(4, (view, at) => view.getUint32(at, true))],
  ["I16", integers(2, (view, at) => view.getInt16(at, true))],
  ["U16", integers(2, (view, at) => view.getUint16(at, true))],
  // Exponent and mantissa bits. E4M3 has no infinities, and its only NaN is all ones.
  ["F8_E4M3", smallFloats({ mantissaBits: 3, bias: 7, hasInfinity: false })],
  ["F8_E5M2", smallFloats({ mantissaBits: 2, bias: 15, hasInfinity: true })],
]);

/** The format's names of the dtypes that are converted. */
export const foreignDtypeNames: readonly string[] = [...foreignDtypes.keys()];

const unknown = `which is not supported; these are converted: ${foreignDtypeNames.join(", ")}.`;

/** Bytes of an element in the file; undefined for an unsupported dtype. */
export function foreignElementBytes(fileDtype: string): number | undefined {
  return foreignDtypes.get(fileDtype)?.bytes;
}

/** A tensor that needs conversion. One that cannot be converted is rejected, by name, when it is accessed. */
export function foreignTensor(
  name: string,
  shape: readonly number[],
  fileDtype: string,
  fileBytes: Uint8Array,
): StoredTensor {
  const foreign = foreignDtypes.get(fileDtype);
  const reject: Reject = (what, numbers) =>
    rejectTensor(name, `Tensor ${quote(name)} has the dtype ${quote(fileDtype)}, ${what}`, numbers);
  let decoded: Uint8Array | undefined;
  // Own properties, so that a spread includes them.
  return {
    ...{ name, shape, stored: { dtype: fileDtype, bytes: fileBytes } },
    get dtype() {
      if (!foreign) throw reject(unknown);
      return foreign.dtype;
    },
    get bytes() {
      if (!foreign) throw reject(unknown);
      decoded ??= foreign.decode(asDataView(fileBytes), reject);
      return decoded;
    },
  };
}

const [smallestInt, largestInt] = [-(2 ** 31), 2 ** 31 - 1];

function integers(bytes: number, read: (view: DataView, at: number) => number | bigint): ForeignDtype {
  const decode = (view: DataView, reject: Reject): Uint8Array => {
    const values = new Int32Array(view.byteLength / bytes);
    for (let index = 0; index < values.length; index++) {
      const value = read(view, index * bytes);
      if (value < smallestInt || value > largestInt) {
        const numbers = { index, value: String(value) };
        throw reject(`and its element ${index} is ${value}, which does not fit i32.`, numbers);
      }
      values[index] = Number(value);
    }
    return new Uint8Array(values.buffer);
  };
  return { bytes, dtype: "i32", decode };
}

interface SmallFloat {
  readonly mantissaBits: number;
  readonly bias: number;
  readonly hasInfinity: boolean;
}

function smallFloats(format: SmallFloat): ForeignDtype {
  // Each of the 256 values once. bf16 has more exponent and mantissa bits than either format.
  const table = narrowToBf16(Float32Array.from({ length: 256 }, (_, bits) => decodeSmallFloat(bits, format)));
  const decode = (view: DataView): Uint8Array => {
    const halves = new Uint16Array(view.byteLength);
    for (let index = 0; index < halves.length; index++) halves[index] = table[view.getUint8(index)] ?? 0;
    return new Uint8Array(halves.buffer);
  };
  return { bytes: 1, dtype: "bf16", decode };
}

function decodeSmallFloat(bits: number, { mantissaBits, bias, hasInfinity }: SmallFloat): number {
  const sign = bits & 0x80 ? -1 : 1;
  const steps = 2 ** mantissaBits;
  const exponent = (bits & 0x7f) >> mantissaBits;
  const mantissa = bits & (steps - 1);
  const isTop = exponent === 0x7f >> mantissaBits;
  if (isTop && hasInfinity) return mantissa === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
  if (isTop && mantissa === steps - 1) return Number.NaN;
  if (exponent === 0) return sign * mantissa * 2 ** (1 - bias - mantissaBits);
  return sign * (1 + mantissa / steps) * 2 ** (exponent - bias);
}

function asDataView({ buffer, byteOffset, byteLength }: Uint8Array): DataView {
  return new DataView(buffer, byteOffset, byteLength);
}
