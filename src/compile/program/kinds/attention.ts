/** Attention, as the kernels take it, over slices. */

import type { Dtype } from "../../../ir/index.js";
import {
  type AttentionInput,
  type AttentionMask,
  type AttentionOperand,
  type AttentionShape,
  attentionBackwardCalls,
  attentionCalls,
  type BackwardProblem,
  type ForwardProblem,
  type KernelCall,
  lowerCalls,
} from "../../../kernels/index.js";
import type { Storage } from "../../../runtime/index.js";
import { accessOf } from "../access.js";
import type { BufferSlice } from "../buffer.js";
import type { Kind } from "./kind.js";

type Problem = ForwardProblem | BackwardProblem;
type Operand = Storage | AttentionOperand | AttentionMask;

export interface AttentionCall {
  readonly kind: "attention";
  readonly direction: "forward" | "backward";
  /** The sizes, the dtypes and the numbers. */
  readonly shape: AttentionShape & Pick<Problem, "scale" | "isCausal">;
  /** By the names that the problem gives them. */
  readonly operands: Readonly<Record<string, BufferSlice>>;
  /** Strides in elements of operands that are not contiguous, and the dtype of inputs that are half floats. */
  readonly layouts: Readonly<Record<string, Omit<AttentionInput, "storage">>>;
}

export const attention: Kind<AttentionCall> = {
  accesses: (work) =>
    Object.entries(work.operands).map(([name, slice]) =>
      accessOf(slice, isWritten(work, name) ? "out" : "in"),
    ),
  mapSlices: (work, to) => mapAttentionSlices(work, to),
  key(work, { read, written, literal }) {
    const { operands, ...rest } = work;
    const slices = Object.entries(operands).map(([name, slice]) =>
      isWritten(work, name) ? written(slice) : read(slice),
    );
    return `${slices.join(" ")} ${literal(rest)}`;
  },
  name: describeAttention,
  shape: ({ shape: { batch, heads, rows, columns, width } }) =>
    `${rows}×${columns}×${width}×${batch * heads}`,
  emit: (work, { backend, op, resolve }) => lowerCalls(backend, kernelCallsOf(work, resolve, op)),
};

/** Operands that are written in the result's dtype. The others that are written have the dtype of the computation. */
const results: Readonly<Record<AttentionCall["direction"], readonly string[]>> = {
  forward: ["out"],
  backward: ["queryGradient", "keyGradient", "valueGradient"],
};
const scores: typeof results = {
  forward: ["probabilities", "statistics", "keptBits"],
  backward: ["scoreGradient", "deltas"],
};

/** The call of an attention problem, over the slices that its storages are. */
export function attentionCall(
  direction: AttentionCall["direction"],
  problem: Problem,
  sliceOf: (storage: Storage) => BufferSlice,
): AttentionCall {
  const entries = Object.entries<Operand | AttentionShape[keyof AttentionShape] | boolean>({ ...problem });
  const numbers = entries.filter(([, value]) => typeof value !== "object");
  const memory = entries.flatMap(([name, value]) =>
    typeof value === "object" ? [[name, "storage" in value ? value : { storage: value }] as const] : [],
  );
  return {
    ...{ kind: "attention", direction },
    shape: Object.fromEntries(numbers) as unknown as AttentionCall["shape"],
    operands: Object.fromEntries(memory.map(([name, { storage }]) => [name, sliceOf(storage)])),
    layouts: Object.fromEntries(
      memory.flatMap(([name, { storage: _, ...layout }]) =>
        "rowStride" in layout ? [[name, layout] as const] : [],
      ),
    ),
  };
}

/** Its kernel calls, on the storages of its slices. */
function kernelCallsOf(
  { direction, shape, operands, layouts }: AttentionCall,
  resolve: (slice: BufferSlice) => Storage,
  op: string,
): readonly KernelCall[] {
  const memory = Object.entries(operands).map(([name, slice]) => {
    const storage = resolve(slice);
    const layout = layouts[name];
    return [name, layout ? { ...layout, storage } : storage] as const;
  });
  // The names are those of the original problem.
  const problem = { ...shape, ...Object.fromEntries(memory) } as unknown;
  return direction === "forward"
    ? attentionCalls(problem as ForwardProblem, op)
    : attentionBackwardCalls(problem as BackwardProblem, op);
}

/** True if it writes the operand of this name. All others are read. */
export function isWritten({ direction }: AttentionCall, name: string): boolean {
  return scores[direction].includes(name) || results[direction].includes(name);
}

/** Everything that it writes except the scores. */
export function resultsOf({ direction, operands }: AttentionCall): readonly BufferSlice[] {
  return results[direction].flatMap((name) => operands[name] ?? []);
}

/** The layout of a result: [batch, heads, rows, width]. */
export interface ResultLayout {
  readonly slice: BufferSlice;
  readonly dtype: Dtype;
  readonly sizes: readonly number[];
  /** In elements. The last one is 1. */
  readonly strides: readonly number[];
}

/** The layouts of the results, by the names that the problem gives them. */
export function resultLayouts({
  direction,
  shape,
  operands,
  layouts,
}: AttentionCall): Readonly<Record<string, ResultLayout>> {
  const { batch, heads, keyHeads = heads, rows, columns, width, valueWidth } = shape;
  const lastSizes: Readonly<Record<string, readonly [number, number]>> = {
    out: [rows, valueWidth],
    queryGradient: [rows, width],
    keyGradient: [columns, width],
    valueGradient: [columns, valueWidth],
  };
  const found = results[direction].flatMap((name) => {
    const [slice, layout] = [operands[name], layouts[name]];
    if (!slice || !layout) return [];
    const { batchStride, headStride, rowStride } = layout;
    const isOfKeys = name === "keyGradient" || name === "valueGradient";
    const sizes = [batch, isOfKeys ? keyHeads : heads, ...(lastSizes[name] ?? [])];
    const strides = [batchStride, headStride, rowStride, 1];
    return [[name, { slice, dtype: shape.resultDtype ?? shape.dtype, sizes, strides }] as const];
  });
  return Object.fromEntries(found);
}

/** The same work with a result in another layout. */
export function moveResult(
  call: AttentionCall,
  name: string,
  { slice, strides }: ResultLayout,
): AttentionCall {
  const [batchStride = 0, headStride = 0, rowStride = 0] = strides;
  return {
    ...call,
    operands: { ...call.operands, [name]: slice },
    layouts: { ...call.layouts, [name]: { ...call.layouts[name], batchStride, headStride, rowStride } },
  };
}

/** The same work on other slices. With a dtype, only the results move, and they are stored in that dtype. */
export function mapAttentionSlices(
  call: AttentionCall,
  to: (slice: BufferSlice) => BufferSlice,
  resultDtype?: AttentionShape["resultDtype"],
): AttentionCall {
  const isMoved = (name: string): boolean => !resultDtype || results[call.direction].includes(name);
  const moved = Object.entries(call.operands).map(([name, slice]) => [
    name,
    isMoved(name) ? to(slice) : slice,
  ]);
  return {
    ...call,
    shape: resultDtype ? { ...call.shape, resultDtype } : call.shape,
    operands: Object.fromEntries(moved),
  };
}

const inputs: readonly string[] = ["query", "key", "value", "outGradient", "out"];

/** The same work with some operands read as half floats; undefined if one of them cannot be. */
export function readAsHalves(
  call: AttentionCall,
  dtype: "f16" | "bf16",
  isHalves: (slice: BufferSlice) => boolean,
): AttentionCall | undefined {
  const { operands, layouts, shape } = call;
  const names = Object.keys(operands).filter((name) => operands[name] && isHalves(operands[name]));
  const read = Object.values(layouts).map((layout) => layout.dtype ?? shape.dtype);
  if (shape.dtype !== "f32" || read.some((other) => other !== "f32" && other !== dtype)) return undefined;
  if (!names.every((name) => inputs.includes(name) && layouts[name])) return undefined;
  const changed = Object.entries(layouts).map(
    ([name, layout]) => [name, names.includes(name) ? { ...layout, dtype } : layout] as const,
  );
  return { ...call, layouts: Object.fromEntries(changed) };
}

function describeAttention({
  direction,
  shape: { dtype, resultDtype = dtype },
  layouts,
}: AttentionCall): string {
  const name = direction === "forward" ? `attention.${dtype}` : `attention.backward.${dtype}`;
  const half = Object.values(layouts).find((layout) => layout.dtype)?.dtype;
  const read = half ? `${name} of ${half}` : name;
  return resultDtype === dtype ? read : `${read} → ${resultDtype}`;
}
