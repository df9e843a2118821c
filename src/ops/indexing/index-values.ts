/** Shared by ops that take indices: the dtypes of an index, and the rejection of indices outside their axis. */

import { HoldfastError } from "../../errors/index.js";
import { dtypes, type Expression, term, viewElements } from "../../ir/index.js";
import { contiguousStrides, type DeviceArray } from "../device-array.js";
import { type CheckContext, type OperandType, typeAt, type ValueType } from "../op.js";
import { lowerReduction } from "../reduction/reduce.js";
import type { Reduction } from "../reduction/reduction.js";
import { asIndexList } from "./index-list.js";
import { checkInStep, type IndexRange } from "./step-check.js";

/** The type of an operand that must hold indices. */
export function indexTypeAt(op: string, operands: readonly OperandType[], position: number): ValueType {
  const type = typeAt(op, operands, position);
  if (dtypes[type.dtype].kind === "integer") return type;
  throw new HoldfastError(
    "BAD_DTYPE",
    `${op} got an index of ${type.dtype}; indices are integers. Convert with to("i32").`,
    { numbers: { op } },
  );
}

/** By the ignored index. */
const highestIndexReductions = new Map<number | undefined, Reduction>();

/** The highest index. A negative index counts as higher than any axis, so that one pass finds both. */
function highestIndexReduction(ignored: number | undefined): Reduction {
  const outOfRangeAsMax = (x: Expression): Expression =>
    term.select(term.lt(x, 0), term.constant(2 ** 31 - 1, "i32"), x);
  const reduction = highestIndexReductions.get(ignored) ?? {
    name: ignored === undefined ? "highest index" : `highest index but ${ignored}`,
    op: "max",
    value: (x) =>
      ignored === undefined ? outOfRangeAsMax(x) : term.select(term.eq(x, ignored), 0, outOfRangeAsMax(x)),
    identity: 0,
  };
  highestIndexReductions.set(ignored, reduction);
  return reduction;
}

/**
 * True if all indices are inside the range. Waits for the device and reads one number. A compiled step can't wait: it checks on the
 * device each time it runs. A captured function does not check; the runs before the capture have checked.
 */
export function areIndicesInside(context: CheckContext, indices: DeviceArray, range: IndexRange): boolean {
  const { runtime } = context;
  const index = indices.dtype === "i64" ? asIndexList(context, indices) : indices;
  if (runtime.isTracing) checkInStep(context, index, range);
  return runtime.isCapturing || highestIndex(context, index, range.ignored) < range.size;
}

/** The highest index, higher than any axis if one is negative; -1 for no indices. */
function highestIndex(context: CheckContext, index: DeviceArray, ignored: number | undefined): number {
  if (!index.storage) return -1;
  const result = context.scratchArray([], "i32");
  const axes = index.shape.map((_, axis) => axis);
  lowerReduction(context, highestIndexReduction(ignored), index, axes, result);
  const [highest = -1] = result.storage ? viewElements("i32", context.read(result.storage)) : [];
  return highest;
}

/** Rejects indices outside 0 … size − 1; the error names the first one. `range` is for the message: "axis 0 has 7". */
export function requireIndicesInside(
  context: CheckContext,
  index: DeviceArray,
  size: number,
  range: string,
): void {
  if (!areIndicesInside(context, index, { size, range }))
    throw firstIndexOutside(context, index, size, range);
}

function firstIndexOutside(
  context: CheckContext,
  index: DeviceArray,
  size: number,
  range: string,
): HoldfastError {
  const { op } = context;
  const { storage, shape } = asIndexList(context, index);
  const values = storage ? viewElements("i32", context.read(storage)) : new Int32Array(0);
  const position = values.findIndex((value) => value < 0 || value >= size);
  const strides = contiguousStrides(shape);
  const coordinates = shape.map((length, axis) => Math.floor(position / (strides[axis] ?? 1)) % length);
  const validIndices = size === 0 ? "it has no index" : `indices are 0 to ${size - 1}`;
  const value = values[position] ?? 0;
  return new HoldfastError(
    "BAD_INDEX",
    `${op}: index ${value} at [${coordinates.join(", ")}], but ${range}; ${validIndices}. Correct the data.`,
    { numbers: { op, index: value, place: position, size } },
  );
}
