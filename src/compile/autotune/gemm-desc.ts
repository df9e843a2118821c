/** Describes a GEMM call for the kernels' selection functions, before there is a memory plan. */

import type { GemmDesc } from "../../kernels/index.js";
import { span } from "../../units/index.js";
import type { BufferSlice, GemmCall } from "../program/program.js";

type Problem = GemmCall["problem"];

/**
 * Describes a GEMM call. Step memory has no address yet, so its operands get an address with the alignment that every
 * plan guarantees.
 */
export function describeGemm({ a, b, c, bias, scratch: _, ...rest }: Problem): GemmDesc {
  const storageOf = (slice: BufferSlice) => ({ span: span(addressOf(slice), slice.size) });
  const matrixOf = ({ slice, ...layout }: Problem["a"]) => ({ ...layout, storage: storageOf(slice) });
  return { ...rest, a: matrixOf(a), b: matrixOf(b), c: matrixOf(c), ...(bias && { bias: storageOf(bias) }) };
}

export function addressOf({ buffer, offset }: BufferSlice): number {
  return (buffer.storage?.span.address ?? 0) + offset;
}
