/**
 * Scaled dot product attention: `attend` and `attendBackward` issue one launch each, whatever the sizes; only on CUDA the
 * gradients of long sequences take two.
 */

import type { KernelSource } from "../../driver/index.js";
import { type Dtype, dtypes } from "../../ir/index.js";
import type { Runtime, Storage } from "../../runtime/index.js";
import { callListenerOf } from "../call-listener.js";
import { argumentsInOrder } from "../codegen/wasm/wasm-function.js";
import { elementOf, type GemmDtype } from "../gemm/cpu/element.js";
import { attendBackwardOnCuda, attendOnCuda } from "./cuda/index.js";
import {
  type AttentionBackwardProblem,
  type AttentionOperand,
  type AttentionProblem,
  type AttentionShape,
  rejectRounding,
  resultDtypeOf,
  SoundnessCheck,
} from "./problem.js";
import { backwardKernel, backwardParameters } from "./wasm/backward.js";
import { forwardKernel, forwardParameters, stripRows } from "./wasm/forward.js";

/**
 * `out = softmax(scale · query · keyᵀ + mask) · value`, for every batch and head; the probabilities stay for
 * `attendBackward`. Any number of threads gives the same bits.
 *
 * A row that the mask hides altogether becomes NaN, in its probabilities and in `out`: there are no weights that sum
 * to 1 over nothing, and zeros would hide the slip. What a causal mask hides has probability 0, and should be finite.
 *
 * ```js
 * const strides = { batchStride: rows * heads * width, headStride: width, rowStride: heads * width }; // [B, S, H, D]
 * const shape = { dtype: "f32", batch, heads, rows, columns: rows, width, valueWidth: width };
 * attend(runtime, {
 *   ...shape,
 *   query: { storage: q, ...strides },
 *   key: { storage: k, ...strides },
 *   value: { storage: v, ...strides },
 *   out: { storage: y, ...strides },
 *   probabilities: runtime.arena.allocate(batch * heads * rows * rows * 4, "probabilities"),
 *   scale: 1 / Math.sqrt(width),
 * });
 * ```
 */
export function attend(runtime: Runtime, problem: AttentionProblem, op = "attention"): void {
  const { dtype, batch, heads, rows, columns, width, valueWidth, scale, isCausal = false } = problem;
  const { query, key, value, mask, out, probabilities } = problem;
  const check = new SoundnessCheck("attend", problem);
  check.requireInput("query", query, rows, width);
  check.requireInput("key", key, columns, width);
  check.requireInput("value", value, columns, valueWidth);
  if (mask) check.requireMask(mask);
  check.requireOutput("out", out, rows, valueWidth);
  check.requireScores("probabilities", probabilities);
  if (batch * heads === 0) return;

  const listener = callListenerOf(runtime);
  if (listener) {
    listener.attention(problem, op);
    return;
  }
  const element = elementOf(dtype);
  const pairs = batch * heads;
  const access = accessTo(problem, [
    [out.storage, rows * valueWidth, resultDtypeOf(problem)],
    [probabilities, rows * columns, dtype],
  ]);
  if (runtime.device.kind === "cuda") {
    attendOnCuda(runtime, problem, access, op);
    return;
  }
  rejectRounding("attend", problem);
  const rowStrips = Math.ceil(rows / stripRows);
  runtime.launch({
    op,
    kernel: runtime.kernel(kernelOf("forward", dtype, access)),
    blocks: pairs * rowStrips,
    arguments: argumentsInOrder(forwardParameters(element, access), {
      query: query.storage,
      key: key.storage,
      value: value.storage,
      mask: (mask ?? query).storage,
      out: out.storage,
      probabilities,
      heads,
      rows,
      columns,
      width,
      valueWidth,
      rowStrips,
      ...stridesOf(problem, "query", query, rows),
      ...stridesOf(problem, "key", key, columns),
      ...stridesOf(problem, "value", value, columns),
      ...stridesOf(problem, "mask", mask ?? query, rows),
      ...stridesOf(problem, "out", out, rows),
      maskColumnBytes: columns > 1 ? (mask?.columnStride ?? 0) * element.bytes : 0,
      scale,
      isCausal: isCausal ? 1 : 0,
      hasMask: mask ? 1 : 0,
    }),
  });
}

/**
 * What the query, the key and the value gain, given what arrives at `out`. Nothing is read of what the gradients' memory
 * holds. Where an input was shared by a stride of 0, its gradient comes for each use, and the caller adds them up.
 */
export function attendBackward(
  runtime: Runtime,
  problem: AttentionBackwardProblem,
  op = "attention backward",
): void {
  const { dtype, batch, heads, rows, columns, width, valueWidth, scale, isCausal = false } = problem;
  const { query, key, value, probabilities, outGradient, scoreGradient } = problem;
  const { queryGradient, keyGradient, valueGradient } = problem;
  const check = new SoundnessCheck("attendBackward", problem);
  check.requireInput("query", query, rows, width);
  check.requireInput("key", key, columns, width);
  check.requireInput("value", value, columns, valueWidth);
  check.requireInput("outGradient", outGradient, rows, valueWidth);
  check.requireScores("probabilities", probabilities);
  check.requireOutput("queryGradient", queryGradient, rows, width);
  check.requireOutput("keyGradient", keyGradient, columns, width);
  check.requireOutput("valueGradient", valueGradient, columns, valueWidth);
  check.requireScores("scoreGradient", scoreGradient);
  if (batch * heads === 0) return;

  const listener = callListenerOf(runtime);
  if (listener) {
    listener.attentionBackward(problem, op);
    return;
  }
  const stored = resultDtypeOf(problem);
  const access = accessTo(problem, [
    [queryGradient.storage, rows * width, stored],
    [keyGradient.storage, columns * width, stored],
    [valueGradient.storage, columns * valueWidth, stored],
    [scoreGradient, rows * columns, dtype],
  ]);
  if (runtime.device.kind === "cuda") {
    attendBackwardOnCuda(runtime, problem, access, op);
    return;
  }
  rejectRounding("attendBackward", problem);
  runtime.launch({
    op,
    kernel: runtime.kernel(kernelOf("backward", dtype, access)),
    blocks: batch * heads,
    arguments: argumentsInOrder(backwardParameters(elementOf(dtype), access), {
      query: query.storage,
      key: key.storage,
      value: value.storage,
      probabilities,
      outGradient: outGradient.storage,
      queryGradient: queryGradient.storage,
      keyGradient: keyGradient.storage,
      valueGradient: valueGradient.storage,
      scoreGradient,
      heads,
      rows,
      columns,
      width,
      valueWidth,
      ...stridesOf(problem, "query", query, rows),
      ...stridesOf(problem, "key", key, columns),
      ...stridesOf(problem, "value", value, columns),
      ...stridesOf(problem, "outGradient", outGradient, rows),
      ...stridesOf(problem, "queryGradient", queryGradient, rows),
      ...stridesOf(problem, "keyGradient", keyGradient, columns),
      ...stridesOf(problem, "valueGradient", valueGradient, columns),
      scale,
      isCausal: isCausal ? 1 : 0,
    }),
  });
}

type Access = "out" | "partial-out";

/** `out` promises that every byte of the storages is written, so that nothing of what they held is left. */
function accessTo(
  { batch, heads }: AttentionShape,
  outputs: readonly (readonly [storage: Storage, elementsOfPair: number, dtype: Dtype])[],
): Access {
  const isAllWritten = outputs.every(
    ([{ span }, elements, dtype]) => span.size === batch * heads * elements * dtypes[dtype].bytes,
  );
  return isAllWritten ? "out" : "partial-out";
}

/** An operand's strides as arguments. Where a dimension has one place, its stride is not used and may be anything. */
function stridesOf<Name extends string>(
  { dtype, batch, heads }: AttentionShape,
  name: Name,
  { batchStride, headStride, rowStride }: AttentionOperand,
  rows: number,
) {
  const { bytes } = elementOf(dtype);
  const step = (size: number, stride: number): number => (size > 1 ? stride * bytes : 0);
  return {
    [`${name}BatchBytes`]: step(batch, batchStride),
    [`${name}HeadBytes`]: step(heads, headStride),
    [`${name}RowBytes`]: step(rows, rowStride),
  } as Record<`${Name}BatchBytes` | `${Name}HeadBytes` | `${Name}RowBytes`, number>;
}

/** Made when first needed and kept: a runtime knows a kernel by its source's identity. */
const made = new Map<string, KernelSource>();

function kernelOf(direction: "forward" | "backward", dtype: GemmDtype, access: Access): KernelSource {
  const key = `${direction} ${dtype} ${access}`;
  const known = made.get(key);
  if (known) return known;
  const source = (direction === "forward" ? forwardKernel : backwardKernel)(elementOf(dtype), access);
  made.set(key, source);
  return source;
}
