/** Elements in file format, and how they are loaded into a module's weights or an optimizer's state. */

import { noteWrite } from "../autograd/index.js";
import { type Dtype, dtypes, isFloat8, viewElements, widenBf16, widenF16, widenFloat8 } from "../ir/index.js";
import { formatShape, isSameShape, type Shape, sizeOf } from "../ops/index.js";
import { chooseDtype, type NumberArray } from "./format/nested.js";
import { asNumbers, encodeElements } from "./host-values.js";
import { Tensor } from "./tensor.js";

/** Elements in file format: row-major, little-endian. */
export interface StoredElements {
  readonly dtype: Dtype;
  readonly shape: Shape;
  readonly bytes: Uint8Array;
}

/** Why a value does not fit a tensor; undefined if it fits. `where` names the owner of the tensor. */
export function misfitOf(
  { shape }: Tensor,
  value: Tensor | StoredElements,
  where: string,
): string | undefined {
  if (!isSameShape(shape, value.shape)) {
    return `is ${formatShape(value.shape)} in the state and ${formatShape(shape)} ${where}`;
  }
  if (value instanceof Tensor) return undefined;
  const size = sizeOf(shape) * dtypes[value.dtype].bytes;
  if (value.bytes.length === size) return undefined;
  return `has ${value.bytes.length} bytes in the state where ${value.dtype} ${formatShape(shape)} takes ${size}`;
}

/** Overwrites a tensor with a value of its shape, at its address. */
export function writeElements(target: Tensor, value: Tensor | StoredElements): void {
  const { device, dtype, array } = target;
  if (!array.storage) return;
  device.runtime.upload([{ source: elementsAs(value, dtype), target: array.storage }]);
  noteWrite(array.storage);
}

/** The number of a scalar. */
export function numberOf(value: Tensor | StoredElements): number {
  return value instanceof Tensor ? value.item() : (numbersOf(value)[0] ?? Number.NaN);
}

/** A value's elements in the storage format of a dtype; a file's bytes are unchanged if it has the same dtype. */
export function elementsAs(value: Tensor | StoredElements, dtype: Dtype): ArrayBufferView {
  if (value instanceof Tensor) return encodeElements(value.device.readExact(value), dtype);
  if (value.dtype === dtype) return value.bytes;
  const values = numbersOf(value);
  // Files of PyTorch have indices and counters in i64. Those beyond a narrower integer must not wrap.
  if (value.dtype === "i64" && dtypes[dtype].kind === "integer")
    chooseDtype({ shape: value.shape, values, kind: "integer" }, dtype);
  return encodeElements(values, dtype);
}

function numbersOf({ dtype, bytes }: StoredElements): NumberArray {
  if (dtype === "i64") return asNumbers(viewElements(dtype, bytes));
  if (dtype === "bf16") return widenBf16(viewElements(dtype, bytes));
  if (dtype === "f16") return widenF16(viewElements(dtype, bytes));
  if (isFloat8(dtype)) return widenFloat8(dtype, viewElements(dtype, bytes));
  return viewElements(dtype, bytes);
}
