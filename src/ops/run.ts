/** Runs ops of the table on arrays in memory: infer, allocate, lower, submit. The tape records elsewhere. */

import { HoldfastError } from "../errors/index.js";
import { type Dtype, dtypes, isFloat8 } from "../ir/index.js";
import { backendOf, capabilitiesOf, lowerCalls, submit } from "../kernels/index.js";
import type { Runtime, Storage } from "../runtime/index.js";
import { copyCalls } from "./copy.js";
import { allocateArray, type DeviceArray, viewArray } from "./device-array.js";
import { OpCheck, OpLowering } from "./lowering.js";
import {
  type CachedLowering,
  cacheableLowering,
  isUsable,
  loweringCacheOf,
  type OutputType,
  replayLowering,
} from "./lowering-cache.js";
import type { Apply, Attributes, KernelOp, Op, ValueType, ViewOp } from "./op.js";
import { copyInto, inComposite, OpTrace } from "./op-trace.js";
import { formatShape, isSameShape } from "./shape.js";
import { SignatureTable, writeCallSignature, writeViewSignature } from "./signature.js";

type Operand = DeviceArray | number;

/** Runs one op. Returns all of its outputs; those after the first are for backward. */
export function runOp<A extends Attributes>(
  runtime: Runtime,
  op: Op<A>,
  operands: readonly Operand[],
  attributes: A,
): readonly DeviceArray[] {
  switch (op.kind) {
    case "view":
      return [runTracedView(runtime, op, operands, attributes)];
    case "composite": {
      op.infer(operands, attributes);
      const build = { apply: applyTo(runtime), capabilities: capabilitiesOf(runtime), typeOf: typeOfOperand };
      return inComposite(
        runtime,
        () => ({ name: op.name, operands, attributes }),
        () => op.compose<DeviceArray>(build, operands, attributes),
        (array) => array,
      );
    }
    case "kernel":
      return runKernel(runtime, op, operands, attributes);
  }
}

/** Runs a kernel op. If it fails, it frees the outputs, which have no other owner. */
function runKernel<A extends Attributes>(
  runtime: Runtime,
  op: KernelOp<A>,
  operands: readonly Operand[],
  attributes: A,
): readonly DeviceArray[] {
  const { cachedLowering, keep } = lookUp(runtime, op, operands, attributes);
  const types = cachedLowering?.types ?? outputTypes(runtime, op, operands, attributes);
  const outputs: DeviceArray[] = [];
  try {
    if (op.check) checkOperands(runtime, op, operands, attributes);
    for (const { shape, dtype, strides } of types)
      outputs.push(allocateArray(runtime, shape, dtype, op.name, strides));
    if (cachedLowering) replayLowering(runtime, op.name, cachedLowering, storagesOf(operands, outputs));
    else lowerAndSubmit(runtime, op, { operands, outputs, attributes, types, keep });
    return outputs;
  } catch (failure) {
    for (const { storage } of outputs) if (storage) runtime.arena.free(storage);
    throw failure;
  }
}

/** The cached lowering of a call with these layouts, or a function that caches one. */
function lookUp<A extends Attributes>(
  runtime: Runtime,
  op: KernelOp<A>,
  operands: readonly Operand[],
  attributes: A,
  target?: DeviceArray,
): { readonly cachedLowering?: CachedLowering; readonly keep?: (cachedLowering: CachedLowering) => void } {
  // A trace records kernel calls. A cached lowering has only their commands.
  if (runtime.isTracing) return {};
  const cache = loweringCacheOf(runtime);
  if (!cache.isOn) return {};
  const table = cache.tableOf(op);
  writeCallSignature(operands, attributes, {
    ...(target && { target }),
    withAddresses: op.dependsOnAddresses ?? false,
  });
  const cachedLowering = table.find();
  return cachedLowering && isUsable(runtime, cachedLowering) ? { cachedLowering } : { keep: table.reserve() };
}

/** The types and layouts of a kernel op's outputs. Copies shapes, because a caller may modify its shape later. */
function outputTypes<A extends Attributes>(
  runtime: Runtime,
  op: KernelOp<A>,
  operands: readonly Operand[],
  attributes: A,
): readonly OutputType[] {
  const types = copyTypes(inferTypes(op, operands, attributes));
  const strides = op.outputStrides?.(backendOf(runtime), operands, types, attributes);
  return strides ? types.map((type, index) => ({ ...type, strides: strides[index] })) : types;
}

/** The ops that take 8-bit floats: they move or convert elements. */
const storageOps: ReadonlySet<string> = new Set(
  "cast contiguous cat indexSelect gather flip pad fill upsampleNearest".split(" "),
);

function inferTypes<A extends Attributes>(
  op: KernelOp<A>,
  operands: readonly Operand[],
  attributes: A,
): readonly ValueType[] {
  const stored = operands.find((operand) => typeof operand === "object" && isFloat8(operand.dtype));
  if (typeof stored === "object" && !storageOps.has(op.name)) {
    throw new HoldfastError(
      "BAD_DTYPE",
      `${op.name} of ${stored.dtype}: 8-bit floats only store numbers. Convert first, for example with to("bf16").`,
      { numbers: { op: op.name, dtype: stored.dtype } },
    );
  }
  return op.infer(operands, attributes);
}

function copyTypes(types: readonly ValueType[]): readonly ValueType[] {
  return types.map(({ shape, dtype }) => ({ shape: [...shape], dtype }));
}

function storagesOf(operands: readonly Operand[], outputs: readonly DeviceArray[]): (Storage | undefined)[] {
  const storages: (Storage | undefined)[] = [];
  for (const operand of operands) storages.push(typeof operand === "number" ? undefined : operand.storage);
  for (const { storage } of outputs) storages.push(storage);
  return storages;
}

interface LoweredCall<A extends Attributes> {
  readonly operands: readonly Operand[];
  readonly outputs: readonly DeviceArray[];
  readonly attributes: A;
  readonly types: readonly OutputType[];
  /** Caches the lowering. */
  readonly keep: ((cachedLowering: CachedLowering) => void) | undefined;
}

/** Lowers an op, submits its calls, and caches their commands. */
function lowerAndSubmit<A extends Attributes>(
  runtime: Runtime,
  op: KernelOp<A>,
  { operands, outputs, attributes, types, keep }: LoweredCall<A>,
): void {
  const lowering = new OpLowering(runtime, op.name);
  try {
    op.lower(lowering, operands, outputs, attributes);
    const { calls } = lowering;
    const trace = runtime.traceSink;
    if (trace instanceof OpTrace) {
      trace.recordOp({ name: op.name, operands, outputs, attributes, calls });
      return;
    }
    const commands = runtime.load(lowerCalls(backendOf(runtime), calls));
    runtime.submit(commands);
    if (!keep) return;
    const { dependsOnAddresses: looksAtAddresses = false } = op;
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

/** Runs an op and stores its result in `target`, which keeps its address. */
export function runInto<A extends Attributes>(
  runtime: Runtime,
  op: Op<A>,
  target: DeviceArray,
  operands: readonly Operand[],
  attributes: A,
): void {
  if (op.kind === "kernel" && op.inPlace !== undefined && canRunInPlace(target, operands)) {
    runInPlace(runtime, op, target, operands, attributes);
    return;
  }
  const [type] = op.infer(operands, attributes);
  requireFits(op.name, type, target);
  const [result, ...others] = runOp(runtime, op, operands, attributes);
  if (result) copyInto(runtime, result, target);
  if (op.kind !== "kernel") return;
  for (const output of [result, ...others]) if (output?.storage) runtime.arena.free(output.storage);
}

function runInPlace<A extends Attributes>(
  runtime: Runtime,
  op: KernelOp<A>,
  target: DeviceArray,
  operands: readonly Operand[],
  attributes: A,
): void {
  const { cachedLowering, keep } = lookUp(runtime, op, operands, attributes, target);
  const types = cachedLowering?.types ?? copyTypes(inferTypes(op, operands, attributes));
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
  if (first === undefined) throw new HoldfastError("BAD_ARGUMENT", `${op} has no output.`);
  return first;
}

/** A literal number has type f32 without axes, before promotion with a tensor. */
export function typeOfOperand(operand: ValueType | number): ValueType {
  if (typeof operand === "number") return { shape: [], dtype: "f32" };
  return { shape: operand.shape, dtype: operand.dtype };
}

function runTracedView<A extends Attributes>(
  runtime: Runtime,
  op: ViewOp<A>,
  operands: readonly Operand[],
  attributes: A,
): DeviceArray {
  const view = runView(runtime, op, operands, attributes);
  const trace = runtime.traceSink;
  if (trace instanceof OpTrace) trace.recordView({ name: op.name, operands, attributes }, view);
  return view;
}

function runView<A extends Attributes>(
  runtime: Runtime,
  op: ViewOp<A>,
  operands: readonly Operand[],
  attributes: A,
): DeviceArray {
  const [array] = operands;
  if (typeof array !== "object") throw new HoldfastError("BAD_ARGUMENT", `${op.name} takes a tensor.`);
  const layout = cachedView(op, array, attributes);
  if (layout) return viewArray(runtime, array, layout, op.name);
  const copy = allocateArray(runtime, array.shape, array.dtype, op.name);
  submit(runtime, copyCalls(array, copy));
  const layoutOfCopy = op.view(copy, attributes);
  if (layoutOfCopy) return viewArray(runtime, copy, layoutOfCopy, op.name);
  throw new HoldfastError("BAD_SHAPE", `${op.name}: ${formatShape(array.shape)} has no such view.`);
}

type ViewLayout = ReturnType<ViewOp["view"]>;

/** Cached view layouts by op: every step uses the same few. */
const viewTables = new Map<object, SignatureTable<{ readonly layout: ViewLayout }>>();

function cachedView<A extends Attributes>(op: ViewOp<A>, array: DeviceArray, attributes: A): ViewLayout {
  let table = viewTables.get(op);
  if (!table) {
    table = new SignatureTable();
    viewTables.set(op, table);
  }
  writeViewSignature(array, attributes);
  const cached = table.find();
  if (cached) return cached.layout;
  const keep = table.reserve();
  op.infer([array], attributes);
  const view = op.view(array, attributes);
  const layout = view && { ...view, shape: [...view.shape], strides: [...view.strides] };
  keep({ layout });
  return layout;
}

/** Rejects a result type that can't be stored in the target. */
export function requireFits(op: string, type: ValueType | undefined, target: DeviceArray): void {
  if (target.storage && target.shape.some((size, axis) => size > 1 && target.strides[axis] === 0)) {
    throw new HoldfastError(
      "BAD_SHAPE",
      `${op} in place: the tensor ${formatShape(target.shape)} is expanded, so several of its elements share memory. ` +
        "Use the op that returns a new tensor, or clone() it first.",
      { numbers: { op } },
    );
  }
  const fits = type && isSameShape(type.shape, target.shape);
  // As in PyTorch: results of the same kind of dtype or a lower kind can be stored, but no float in an integer.
  if (type && fits && isStorable(type.dtype, target.dtype)) return;
  throw new HoldfastError(
    "BAD_SHAPE",
    `${op} in place: the result is ${type ? `${type.dtype} ${formatShape(type.shape)}` : "nothing"} and the tensor is ` +
      `${target.dtype} ${formatShape(target.shape)}. Use the op that returns a new tensor.`,
    { numbers: { op } },
  );
}

/** True if the op can write to `target` while it reads: each operand is the target itself or does not overlap it. */
function canRunInPlace(target: DeviceArray, operands: readonly Operand[]): boolean {
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

const kindOrder = { boolean: 0, integer: 1, float: 2, storage: 2 } as const;

function isStorable(result: Dtype, target: Dtype): boolean {
  return kindOrder[dtypes[result].kind] <= kindOrder[dtypes[target].kind];
}
