/** What ops that take indices share: which dtypes an index has, and the refusal of one that points outside its axis. */

import { HoldfastError } from "../../errors/index.js";
import { dtypes, term, viewElements } from "../../kernels/index.js";
import { copyArray } from "../copy.js";
import { contiguousStrides, type DeviceArray, isContiguous } from "../device-array.js";
import { type Lowering, type OperandType, typeAt, type ValueType } from "../op.js";
import { lowerReduction, type Reduction } from "../reduction/reduce.js";
import { sizeOf } from "../shape.js";

/** The type of an operand that holds indices: whole numbers. */
export function indexTypeAt(op: string, operands: readonly OperandType[], place: number): ValueType {
  const type = typeAt(op, operands, place);
  if (dtypes[type.dtype].kind === "integer") return type;
  throw new HoldfastError(
    "BAD_DTYPE",
    `${op} was given an index of ${type.dtype}; indices are i32 or u8. Convert with to("i32").`,
    { numbers: { op } },
  );
}

/** A negative index counts as one beyond every axis, so that one pass finds both. */
const highest: Reduction = {
  name: "highest index",
  op: "max",
  value: (x) => term.select(term.lt(x, 0), term.constant(2 ** 31 - 1, "i32"), x),
  identity: 0,
};

/**
 * Refuses indices outside 0 … size − 1, by the first of them. It waits for the device and reads one number back.
 * `range` says what there is, for the message: "axis 0 has 7".
 */
export function requireInside(lowering: Lowering, index: DeviceArray, size: number, range: string): void {
  if (!index.storage) return;
  const axes = index.shape.map((_, axis) => axis);
  const end = lowering.scratchArray([], "i32");
  lowerReduction(lowering, highest, index, axes, end);
  const [high = 0] = end.storage ? viewElements("i32", lowering.runtime.read(end.storage)) : [];
  if (high >= size) throw firstOutside(lowering, index, size, range);
}

function firstOutside(lowering: Lowering, index: DeviceArray, size: number, range: string): HoldfastError {
  const { op, runtime } = lowering;
  const { storage, shape } = asIndexList(lowering, index);
  const values = storage ? viewElements("i32", runtime.read(storage)) : new Int32Array(0);
  const at = values.findIndex((value) => value < 0 || value >= size);
  const steps = contiguousStrides(shape);
  const place = shape.map((length, axis) => Math.floor(at / (steps[axis] ?? 1)) % length);
  const fits = size === 0 ? "it has no index" : `indices are 0 to ${size - 1}`;
  const value = values[at] ?? 0;
  return new HoldfastError(
    "BAD_INDEX",
    `${op}: index ${value} at [${place.join(", ")}], and ${range}; ${fits}. Correct the data.`,
    { numbers: { op, index: value, place: at, size } },
  );
}

/** The index as contiguous i32: itself, or a copy that ends with the op. */
export function asIndexList(lowering: Lowering, index: DeviceArray): DeviceArray {
  if (index.dtype === "i32" && isContiguous(index)) return index;
  const copy = lowering.scratchArray(index.shape, "i32");
  if (sizeOf(index.shape) > 0) copyArray(lowering.runtime, index, copy);
  return copy;
}
