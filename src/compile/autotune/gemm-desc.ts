/** Describes a GEMM call for the kernels' selection functions, before there is a memory plan. */

import type { Addend, GemmDesc, Prologue } from "../../kernels/index.js";
import type { Storage } from "../../runtime/index.js";
import { span } from "../../units/index.js";
import type { SlicedAddend } from "../program/kinds/gemm-sum.js";
import type { Buffer, BufferSlice, GemmCall, GemmPrologueCall } from "../program/program.js";

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

/** Describes GEMMs and the row kernel that computes their A. */
export function describePrologue({ rows, activations, problems }: GemmPrologueCall): {
  readonly problems: readonly GemmDesc[];
  readonly prologue: Prologue;
} {
  const { kernel, iteration, operands, scalars } = rows;
  // Step memory has no address yet: each buffer gets one, so that only operands that share memory overlap.
  const addresses = new Map<Buffer, number>();
  const storages = operands.map((slice, index): Storage | undefined => {
    if (index === activations) return undefined;
    const { buffer, offset, size } = slice;
    const base = addresses.get(buffer) ?? buffer.storage?.span.address ?? (addresses.size + 1) * farApart;
    addresses.set(buffer, base);
    return {
      ...{ kind: "step", span: span(base + offset, size), label: buffer.label },
      ...{ generation: 0, home: buffer, owner: undefined },
    };
  });
  return {
    problems: problems.map((problem) => describeGemm(problem)),
    prologue: { kernel, iteration, operands: storages, scalars, output: activations - kernel.inputs.length },
  };
}

/** More than any buffer has. */
const farApart = 2 ** 42;

const storageOf = (slice: BufferSlice) => ({ span: span(addressOf(slice), slice.size) });
const matrixOf = ({ slice, ...layout }: Problem["a"]) => ({ ...layout, storage: storageOf(slice) });

export function addressOf({ buffer, offset }: BufferSlice): number {
  return (buffer.storage?.span.address ?? 0) + offset;
}
