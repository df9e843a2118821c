/** What ops that take indices share: which dtypes an index has, and the rejection of one that points outside its axis. */

import { HoldfastError } from "../../errors/index.js";
import { dtypes, type Expression, term, viewElements } from "../../ir/index.js";
import { contiguousStrides, type DeviceArray } from "../device-array.js";
import { type CheckContext, type OperandType, typeAt, type ValueType } from "../op.js";
import { lowerReduction, type Reduction } from "../reduction/reduce.js";
import { asIndexList } from "./index-list.js";
import { checkInStep, type IndexRange } from "./step-check.js";

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

/** By the index that counts as none, or by undefined. */
const highest = new Map<number | undefined, Reduction>();

/** A negative index counts as one beyond every axis, so that one pass finds both. */
function highestBut(ignored: number | undefined): Reduction {
  const beyond = (x: Expression): Expression =>
    term.select(term.lt(x, 0), term.constant(2 ** 31 - 1, "i32"), x);
  const reduction = highest.get(ignored) ?? {
    name: ignored === undefined ? "highest index" : `highest index but ${ignored}`,
    op: "max",
    value: (x) => (ignored === undefined ? beyond(x) : term.select(term.eq(x, ignored), 0, beyond(x))),
    identity: 0,
  };
  highest.set(ignored, reduction);
  return reduction;
}

/**
 * Are all indices inside? Waits for the device, reads one number. A compiled step can't wait: it looks on the device each
 * time that it runs. A captured function can't look, and the runs before the capture have looked.
 */
export function areInside(context: CheckContext, index: DeviceArray, range: IndexRange): boolean {
  const { runtime } = context;
  if (runtime.isTracing) checkInStep(context, index, range);
  return runtime.isCapturing || highestIndex(context, index, range.ignored) < range.size;
}

/** The highest index there is, and more than any axis has where one is negative. */
function highestIndex(context: CheckContext, index: DeviceArray, ignored: number | undefined): number {
  if (!index.storage) return -1;
  const end = context.scratchArray([], "i32");
  const axes = index.shape.map((_, axis) => axis);
  lowerReduction(context, highestBut(ignored), index, axes, end);
  const [found = -1] = end.storage ? viewElements("i32", context.read(end.storage)) : [];
  return found;
}

/** Rejects indices outside 0 … size − 1, by the first of them; `range` is for the message: "axis 0 has 7". */
export function requireInside(context: CheckContext, index: DeviceArray, size: number, range: string): void {
  if (!areInside(context, index, { size, range })) throw firstOutside(context, index, size, range);
}

function firstOutside(context: CheckContext, index: DeviceArray, size: number, range: string): HoldfastError {
  const { op } = context;
  const { storage, shape } = asIndexList(context, index);
  const values = storage ? viewElements("i32", context.read(storage)) : new Int32Array(0);
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
