/** Runs ops of the table on arrays in memory, now: infer, allocate, lower. Nothing is recorded here. */

import { HoldfastError } from "../errors/index.js";
import { type Dtype, dtypes } from "../ir/index.js";
import { backendOf, lowerCalls, submit } from "../kernels/index.js";
import type { Runtime, Storage } from "../runtime/index.js";
import { copyCalls } from "./copy.js";
import { allocateArray, type DeviceArray, viewArray } from "./device-array.js";
import { OpCheck, OpLowering } from "./lowering.js";
import {
  type CachedLowering,
  cacheableLowering,
  isUsable,
  loweringCacheOf,
  replayLowering,
} from "./lowering-cache.js";
import type { Apply, Attributes, KernelOp, Op, ValueType, ViewOp } from "./op.js";
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
    if (op.check) checkOperands(runtime, op, operands, attributes);
    for (const { shape, dtype } of types) outputs.push(allocateArray(runtime, shape, dtype, op.name));
    if (cachedLowering) replayLowering(runtime, op.name, cachedLowering, storagesOf(operands, outputs));
    else lowerAndSubmit(runtime, op, { operands, outputs, attributes, types, keep });
    return outputs;
  } catch (failure) {
    for (const { storage } of outputs) if (storage) runtime.arena.free(storage);
    throw failure;
  }
}

/** The cached lowering of a call whose operands lie like these; else the function that caches one. */
function lookUp<A extends Attributes>(
  runtime: Runtime,
  op: KernelOp<A>,
  operands: readonly Operand[],
  attributes: A,
  target?: DeviceArray,
): { readonly cachedLowering?: CachedLowering; readonly keep?: (cachedLowering: CachedLowering) => void } {
  // A trace keeps kernel calls, and a cached lowering only knows the commands that they were lowered to.
  if (runtime.isTracing) return {};
  const cache = loweringCacheOf(runtime);
  if (!cache.isOn) return {};
  const table = cache.tableOf(op);
  signCall(operands, attributes, { ...(target && { target }), withAddresses: op.looksAtAddresses ?? false });
  const cachedLowering = table.find();
  return cachedLowering && isUsable(runtime, cachedLowering) ? { cachedLowering } : { keep: table.reserve() };
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

interface LoweredCall<A extends Attributes> {
  readonly operands: readonly Operand[];
  readonly outputs: readonly DeviceArray[];
  readonly attributes: A;
  readonly types: readonly ValueType[];
  /** Caches the lowering. */
  readonly keep: ((cachedLowering: CachedLowering) => void) | undefined;
}

/** Lowers an op, submits its calls, and caches the commands that they came to. */
function lowerAndSubmit<A extends Attributes>(
  runtime: Runtime,
  op: KernelOp<A>,
  { operands, outputs, attributes, types, keep }: LoweredCall<A>,
): void {
  const lowering = new OpLowering(runtime, op.name);
  try {
    if (runtime.isTracing) {
      asPartOf(runtime, { name: op.name, operands, outputs }, () => {
        op.lower(lowering, operands, outputs, attributes);
        submit(runtime, lowering.calls);
      });
      return;
    }
    op.lower(lowering, operands, outputs, attributes);
    const commands = runtime.load(lowerCalls(backendOf(runtime), lowering.calls));
    runtime.submit(commands);
    if (!keep) return;
    const { looksAtAddresses = false } = op;
    const cached = cacheableLowering(
      types,
      [...operands, ...outputs],
      lowering.memory,
      commands,
      looksAtAddresses,
    );
    if (cached) keep(cached);
  } finally {
    lowering.close();
  }
}

function checkOperands<A extends Attributes>(
  runtime: Runtime,
  op: KernelOp<A>,
  operands: readonly Operand[],
  attributes: A,
): void {
  const context = new OpCheck(runtime, op.name);
  try {
    op.check?.(context, operands, attributes);
  } finally {
    context.close();
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
  if (result) submit(runtime, copyCalls(result, target));
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
  if (op.check) checkOperands(runtime, op, operands, attributes);
  if (cachedLowering) replayLowering(runtime, op.name, cachedLowering, storagesOf(operands, [target]));
  else lowerAndSubmit(runtime, op, { operands, outputs: [target], attributes, types, keep });
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
  submit(runtime, copyCalls(array, copy));
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
