/** Runs ops of the table on arrays in memory, now: infer, allocate, lower. Nothing is recorded here. */

import { HoldfastError } from "../errors/index.js";
import { type Dtype, dtypes } from "../ir/index.js";
import type { Runtime, Storage } from "../runtime/index.js";
import { copyArray } from "./copy.js";
import { allocateArray, type DeviceArray, viewArray } from "./device-array.js";
import {
  type CachedLowering,
  isUsable,
  LoweringWriter,
  loweringsOf,
  replayLowering,
} from "./lowering-cache.js";
import type { Apply, Attributes, KernelOp, Lowering, Op, ValueType, ViewOp } from "./op.js";
import { asPartOf } from "./op-listener.js";
import { formatShape, isSameShape } from "./shape.js";
import { SignatureTable, signCall, signView } from "./signature.js";

type Operand = DeviceArray | number;

/** Runs one op; all of its outputs, those for backward behind the first. */
export function runOp<A extends Attributes>(
  runtime: Runtime,
  op: Op<A>,
  operands: readonly Operand[],
  attributes: A,
): readonly DeviceArray[] {
  switch (op.kind) {
    case "view":
      return [runView(runtime, op, operands, attributes)];
    case "composite": {
      op.infer(operands, attributes);
      return op.compose<DeviceArray>(
        { apply: applyTo(runtime), typeOf: typeOfOperand },
        operands,
        attributes,
      );
    }
    case "kernel":
      return runKernel(runtime, op, operands, attributes);
  }
}

/** The outputs of an op that fails halfway are nobody's, so they end here and not with a step. */
function runKernel<A extends Attributes>(
  runtime: Runtime,
  op: KernelOp<A>,
  operands: readonly Operand[],
  attributes: A,
): readonly DeviceArray[] {
  const { cachedLowering, keep } = lookUp(runtime, op, operands, attributes);
  const types = cachedLowering?.types ?? lastingTypes(op.infer(operands, attributes));
  const outputs: DeviceArray[] = [];
  try {
    if (op.check) withLowering(runtime, op, (lowering) => op.check?.(lowering, operands, attributes));
    for (const { shape, dtype } of types) outputs.push(allocateArray(runtime, shape, dtype, op.name));
    if (cachedLowering) replayLowering(runtime, op.name, cachedLowering, storagesOf(operands, outputs));
    else {
      const written = lowerAndWrite(runtime, op, operands, outputs, attributes)?.finish(types);
      if (written) keep?.(written);
    }
    return outputs;
  } catch (failure) {
    for (const { storage } of outputs) if (storage) runtime.arena.free(storage);
    throw failure;
  }
}

/** What is known of a call that lies like this one; else the place where it can be kept. */
function lookUp<A extends Attributes>(
  runtime: Runtime,
  op: KernelOp<A>,
  operands: readonly Operand[],
  attributes: A,
  target?: DeviceArray,
): { readonly cachedLowering?: CachedLowering; readonly keep?: (cachedLowering: CachedLowering) => void } {
  // What is only imagined is lowered each time: a recipe knows its launches, and not the kernels they came of.
  if (runtime.isTracing) return {};
  const cachedLowerings = loweringsOf(runtime, op);
  signCall(operands, attributes, { ...(target && { target }), withAddresses: op.looksAtAddresses ?? false });
  const cachedLowering = cachedLowerings.find();
  return cachedLowering && isUsable(runtime, cachedLowering)
    ? { cachedLowering }
    : { keep: cachedLowerings.reserve() };
}

/** A caller's own list may change; these stay. */
function lastingTypes(types: readonly ValueType[]): readonly ValueType[] {
  return types.map(({ shape, dtype }) => ({ shape: [...shape], dtype }));
}

function storagesOf(operands: readonly Operand[], outputs: readonly DeviceArray[]): (Storage | undefined)[] {
  const storages: (Storage | undefined)[] = [];
  for (const one of operands) storages.push(typeof one === "number" ? undefined : one.storage);
  for (const { storage } of outputs) storages.push(storage);
  return storages;
}

/** Lowers an op, and writes down what it comes to; nothing where another one is being written. */
function lowerAndWrite<A extends Attributes>(
  runtime: Runtime,
  op: KernelOp<A>,
  operands: readonly Operand[],
  outputs: readonly DeviceArray[],
  attributes: A,
): LoweringWriter | undefined {
  const lower = (writer?: LoweringWriter): void =>
    withLowering(runtime, op, (lowering) => op.lower(lowering, operands, outputs, attributes), writer);
  if (runtime.isTracing) {
    asPartOf(runtime, { name: op.name, operands, outputs }, lower);
    return undefined;
  }
  if (runtime.onWork) {
    lower();
    return undefined;
  }
  const writer = new LoweringWriter(operands, outputs, op.looksAtAddresses ?? false);
  runtime.onWork = (piece) => writer.noteWork(piece);
  try {
    lower(writer);
    return writer;
  } finally {
    runtime.onWork = undefined;
  }
}

/** Runs an op so that its result stands in `target`, at the same address as before. */
export function runInto<A extends Attributes>(
  runtime: Runtime,
  op: Op<A>,
  target: DeviceArray,
  operands: readonly Operand[],
  attributes: A,
): void {
  if (op.kind === "kernel" && op.inPlace !== undefined && mayShare(target, operands)) {
    runInPlace(runtime, op, target, operands, attributes);
    return;
  }
  const [type] = op.infer(operands, attributes);
  requireFits(op.name, type, target);
  const [result, ...others] = runOp(runtime, op, operands, attributes);
  if (result) copyArray(runtime, result, target);
  if (op.kind !== "kernel") return;
  for (const made of [result, ...others]) if (made?.storage) runtime.arena.free(made.storage);
}

function runInPlace<A extends Attributes>(
  runtime: Runtime,
  op: KernelOp<A>,
  target: DeviceArray,
  operands: readonly Operand[],
  attributes: A,
): void {
  const { cachedLowering, keep } = lookUp(runtime, op, operands, attributes, target);
  const types = cachedLowering?.types ?? lastingTypes(op.infer(operands, attributes));
  if (!cachedLowering) requireFits(op.name, types[0], target);
  if (op.check) withLowering(runtime, op, (lowering) => op.check?.(lowering, operands, attributes));
  if (cachedLowering) replayLowering(runtime, op.name, cachedLowering, storagesOf(operands, [target]));
  else {
    const written = lowerAndWrite(runtime, op, operands, [target], attributes)?.finish(types);
    if (written) keep?.(written);
  }
}

/** Calls ops on arrays, for gradient rules and composites. */
export function applyTo(runtime: Runtime): Apply<DeviceArray> {
  return <A extends Attributes>(op: Op<A>, operands: readonly Operand[], attributes?: A) =>
    firstOf(op.name, runOp(runtime, op, operands, attributes ?? ({} as A)));
}

export function firstOf<T>(op: string, outputs: readonly T[]): T {
  const [first] = outputs;
  if (first === undefined) throw new HoldfastError("BAD_ARGUMENT", `${op} has no output to go on with.`);
  return first;
}

/** A literal number counts as f32 of no axes until it meets a tensor. */
export function typeOfOperand(operand: ValueType | number): ValueType {
  if (typeof operand === "number") return { shape: [], dtype: "f32" };
  return { shape: operand.shape, dtype: operand.dtype };
}

function runView<A extends Attributes>(
  runtime: Runtime,
  op: ViewOp<A>,
  operands: readonly Operand[],
  attributes: A,
): DeviceArray {
  const [array] = operands;
  if (typeof array !== "object") throw new HoldfastError("BAD_ARGUMENT", `${op.name} takes a tensor.`);
  const seen = seenThrough(op, array, attributes);
  if (seen) return viewArray(runtime, array, seen, op.name);
  const copy = allocateArray(runtime, array.shape, array.dtype, op.name);
  copyArray(runtime, array, copy);
  const again = op.view(copy, attributes);
  if (again) return viewArray(runtime, copy, again, op.name);
  throw new HoldfastError("BAD_SHAPE", `${op.name}: ${formatShape(array.shape)} can't be seen so.`);
}

type SeenLayout = ReturnType<ViewOp["view"]>;

/** What views of layouts came to, by op: the same few are taken in every step. */
const seenLayouts = new Map<object, SignatureTable<{ readonly seen: SeenLayout }>>();

function seenThrough<A extends Attributes>(op: ViewOp<A>, array: DeviceArray, attributes: A): SeenLayout {
  let table = seenLayouts.get(op);
  if (!table) {
    table = new SignatureTable();
    seenLayouts.set(op, table);
  }
  signView(array, attributes);
  const known = table.find();
  if (known) return known.seen;
  const keep = table.reserve();
  op.infer([array], attributes);
  const found = op.view(array, attributes);
  const seen = found && { ...found, shape: [...found.shape], strides: [...found.strides] };
  keep({ seen });
  return seen;
}

/** Scratch memory and views end with the op: what is launched later on the stream may have it. */
function withLowering<A extends Attributes, T>(
  runtime: Runtime,
  op: KernelOp<A>,
  body: (lowering: Lowering) => T,
  writer?: LoweringWriter,
): T {
  const taken: Storage[] = [];
  const scratch = (bytes: number): Storage => {
    const storage = runtime.arena.allocate(bytes, `${op.name} scratch`);
    taken.push(storage);
    writer?.noteScratch(storage);
    return storage;
  };
  const scratchArray: Lowering["scratchArray"] = (shape, dtype) => {
    const array = allocateArray(runtime, shape, dtype, `${op.name} scratch`);
    if (array.storage) {
      taken.push(array.storage);
      writer?.noteScratch(array.storage);
    }
    return array;
  };
  const views: Storage[] = [];
  const view: Lowering["view"] = (storage, offset, size) => {
    const part = runtime.view(storage, offset, size, op.name);
    if (part.kind === "step") views.push(part);
    writer?.noteView(part, storage, offset);
    return part;
  };
  try {
    return body({ runtime, op: op.name, scratch, scratchArray, view });
  } finally {
    for (const part of views) runtime.arena.dropView(part);
    for (const storage of taken) runtime.arena.free(storage);
  }
}

/** Rejects a result that can't stand where the target stands. */
export function requireFits(op: string, type: ValueType | undefined, target: DeviceArray): void {
  if (target.storage && target.shape.some((size, axis) => size > 1 && target.strides[axis] === 0)) {
    throw new HoldfastError(
      "BAD_SHAPE",
      `${op} in place: the tensor ${formatShape(target.shape)} is stretched, so several of its elements lie in one place. ` +
        "Use the form that makes a new tensor, or clone() it first.",
      { numbers: { op } },
    );
  }
  const fits = type && isSameShape(type.shape, target.shape);
  // As in PyTorch: any width of the same kind or a lower one may be stored, but no float in an integer.
  if (type && fits && isStorable(type.dtype, target.dtype)) return;
  throw new HoldfastError(
    "BAD_SHAPE",
    `${op} in place: the result is ${type ? `${type.dtype} ${formatShape(type.shape)}` : "nothing"} and the tensor is ` +
      `${target.dtype} ${formatShape(target.shape)}. Use the form that makes a new tensor.`,
    { numbers: { op } },
  );
}

/** An element may be written where it was read only if no other element is read from there later. */
function mayShare(target: DeviceArray, operands: readonly Operand[]): boolean {
  return operands.every((operand) => {
    if (typeof operand === "number" || !operand.storage || !target.storage) return true;
    const isSame =
      operand.storage.span.address === target.storage.span.address &&
      isSameShape(operand.shape, target.shape) &&
      isSameShape(operand.strides, target.strides) &&
      operand.dtype === target.dtype;
    return isSame || !overlaps(operand.storage, target.storage);
  });
}

function overlaps(a: Storage, b: Storage): boolean {
  return a.span.address < b.span.address + b.span.size && b.span.address < a.span.address + a.span.size;
}

const kindOrder = { boolean: 0, integer: 1, float: 2 } as const;

function isStorable(result: Dtype, target: Dtype): boolean {
  return kindOrder[dtypes[result].kind] <= kindOrder[dtypes[target].kind];
}
