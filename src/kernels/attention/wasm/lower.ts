/** Lowers attention to launches of WebAssembly functions: one forward, one backward. */

import type { KernelSource } from "../../../driver/index.js";
import type { LaunchCommand } from "../../../runtime/index.js";
import { elementOf, type GemmDtype } from "../../gemm/cpu/element.js";
import { argumentsInOrder } from "../../launch-arguments.js";
import { cachedSource } from "../../source-cache.js";
import {
  type Access,
  type AttentionBackwardProblem,
  type AttentionOperand,
  type AttentionProblem,
  type AttentionShape,
  rejectRounding,
} from "../problem.js";
import { backwardKernel, backwardParameters } from "./backward.js";
import { forwardKernel, forwardParameters, stripRows } from "./forward.js";

export function lowerAttentionOnWasm(problem: AttentionProblem, access: Access, op: string): LaunchCommand {
  rejectRounding("attend", problem);
  const { dtype, batch, heads, rows, columns, width, valueWidth, scale, isCausal = false } = problem;
  const { query, key, value, mask, out, probabilities } = problem;
  const element = elementOf(dtype);
  const rowStrips = Math.ceil(rows / stripRows);
  return {
    ...{ kind: "launch", op },
    source: kernelOf("forward", dtype, access),
    blocks: batch * heads * rowStrips,
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
  };
}

export function lowerAttentionBackwardOnWasm(
  problem: AttentionBackwardProblem,
  access: Access,
  op: string,
): LaunchCommand {
  rejectRounding("attendBackward", problem);
  const { dtype, batch, heads, rows, columns, width, valueWidth, scale, isCausal = false } = problem;
  const { query, key, value, probabilities, outGradient, scoreGradient } = problem;
  const { queryGradient, keyGradient, valueGradient } = problem;
  return {
    ...{ kind: "launch", op },
    source: kernelOf("backward", dtype, access),
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
  };
}

/** The stride arguments of an operand. The stride of a dimension of size 1 is arbitrary: it becomes 0. */
function stridesOf<Name extends string>(
  { dtype, batch, heads }: AttentionShape,
  name: Name,
  { batchStride, headStride, rowStride }: AttentionOperand,
  rows: number,
) {
  const { bytes } = elementOf(dtype);
  const strideBytes = (size: number, stride: number): number => (size > 1 ? stride * bytes : 0);
  return {
    [`${name}BatchBytes`]: strideBytes(batch, batchStride),
    [`${name}HeadBytes`]: strideBytes(heads, headStride),
    [`${name}RowBytes`]: strideBytes(rows, rowStride),
  } as Record<`${Name}BatchBytes` | `${Name}HeadBytes` | `${Name}RowBytes`, number>;
}

function kernelOf(direction: "forward" | "backward", dtype: GemmDtype, access: Access): KernelSource {
  const print = direction === "forward" ? forwardKernel : backwardKernel;
  return cachedSource(`wasm attention ${direction} ${dtype} ${access}`, () =>
    print(elementOf(dtype), access),
  );
}
