/** Describes a GEMM call for the kernels' selection functions, before there is a memory plan. */

import type { Addend, GemmDesc } from "../../kernels/index.js";
import { span } from "../../units/index.js";
import type { SlicedAddend } from "../program/kinds/gemm-sum.js";
import type { BufferSlice, GemmCall } from "../program/program.js";

type Problem = GemmCall["problem"];

/**
 * Describes a GEMM call. Step memory has no address yet, so its operands get an address with the alignment that every
 * plan guarantees.
 */
export function describeGemm({ a, b, c, bias, scratch: _, ...rest }: Problem): GemmDesc {
  return { ...rest, a: matrixOf(a), b: matrixOf(b), c: matrixOf(c), ...(bias && { bias: storageOf(bias) }) };
}

/** Describes an addend of a sum of products. */
export function describeAddend({ a, b, k }: SlicedAddend): Addend<GemmDesc["a"]> {
  return { k, a: matrixOf(a), b: matrixOf(b) };
}

const storageOf = (slice: BufferSlice) => ({ span: span(addressOf(slice), slice.size) });
const matrixOf = ({ slice, ...layout }: Problem["a"]) => ({ ...layout, storage: storageOf(slice) });

export function addressOf({ buffer, offset }: BufferSlice): number {
  return (buffer.storage?.span.address ?? 0) + offset;
}
