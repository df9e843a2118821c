/**
 * Attention as a call of a program: an attention problem with slices in the place of storages, so that a pass can see what it
 * reads and stores, and change that.
 */

import {
  type AttentionBackwardProblem,
  type AttentionInput,
  type AttentionMask,
  type AttentionOperand,
  type AttentionProblem,
  type AttentionShape,
  attentionBackwardCalls,
  attentionCalls,
  type KernelCall,
} from "../../kernels/index.js";
import type { Storage } from "../../runtime/index.js";
import type { BufferSlice } from "./program.js";

type Problem = AttentionProblem | AttentionBackwardProblem;
type Operand = Storage | AttentionOperand | AttentionMask;

export interface AttentionCall {
  readonly kind: "attention";
  readonly direction: "forward" | "backward";
  /** The sizes, the dtypes and the numbers. */
  readonly shape: AttentionShape & Pick<Problem, "scale" | "isCausal">;
  /** What it works on, by the names that the problem has for it. */
  readonly operands: Readonly<Record<string, BufferSlice>>;
  /** How that lies, where it is not contiguous: strides in elements, and the dtype of inputs that are half floats. */
  readonly layouts: Readonly<Record<string, Omit<AttentionInput, "storage">>>;
}

/** What is stored in the result's dtype; the scores, which are written besides, are in the one that is computed in. */
const results: Readonly<Record<AttentionCall["direction"], readonly string[]>> = {
  forward: ["out"],
  backward: ["queryGradient", "keyGradient", "valueGradient"],
};
const scores = { forward: "probabilities", backward: "scoreGradient" } as const;

/** The call of an attention problem, over the slices that its storages are. */
export function attentionCall(
  direction: AttentionCall["direction"],
  problem: Problem,
  sliceOf: (storage: Storage) => BufferSlice,
): AttentionCall {
  const given = Object.entries<Operand | AttentionShape[keyof AttentionShape] | boolean>({ ...problem });
  const numbers = given.filter(([, value]) => typeof value !== "object");
  const memory = given.flatMap(([name, value]) =>
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

/** The kernel calls of it, on the storages that its slices resolve to. */
export function attentionOn(
  { direction, shape, operands, layouts }: AttentionCall,
  resolve: (slice: BufferSlice) => Storage,
  op: string,
): readonly KernelCall[] {
  const memory = Object.entries(operands).map(([name, slice]) => {
    const storage = resolve(slice);
    const layout = layouts[name];
    return [name, layout ? { ...layout, storage } : storage] as const;
  });
  // The names are those of the problem that it was made of.
  const problem = { ...shape, ...Object.fromEntries(memory) } as unknown;
  return direction === "forward"
    ? attentionCalls(problem as AttentionProblem, op)
    : attentionBackwardCalls(problem as AttentionBackwardProblem, op);
}

/** Does it write the operand of this name? All others are read. */
export function isWritten({ direction }: AttentionCall, name: string): boolean {
  return name === scores[direction] || results[direction].includes(name);
}

/** What it stores in the result's dtype: all that it writes but the scores. */
export function resultsOf({ direction, operands }: AttentionCall): readonly BufferSlice[] {
  return results[direction].flatMap((name) => operands[name] ?? []);
}

/** The same work on other parts; with a dtype, on other parts for its results alone, which it then stores in that. */
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

const inputs: readonly string[] = ["query", "key", "value", "outGradient"];

/** The same with some of its operands read as half floats, where they are inputs that can be. */
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

/** As its kernel is called, for people. */
export function describeAttention({
  direction,
  shape: { dtype, resultDtype = dtype },
  layouts,
}: AttentionCall): string {
  const name = direction === "forward" ? `attention.${dtype}` : `attention.backward.${dtype}`;
  const half = Object.values(layouts).find((layout) => layout.dtype)?.dtype;
  const read = half ? `${name} of ${half}` : name;
  return resultDtype === dtype ? read : `${read} → ${resultDtype}`;
}
