/** A GEMM plus other products, in one launch: C is written once, and not read. */

import type { Addend } from "../../../kernels/index.js";
import { type Access, accessOf } from "../access.js";
import type { BufferSlice } from "../buffer.js";
import {
  type GemmCall,
  gemmAccesses,
  gemmKey,
  gemmName,
  mapGemmSlices,
  resolveGemm,
  resolveMatrix,
} from "./gemm.js";
import type { Kind } from "./kind.js";

/** A product that is added to that of the GEMM. */
export type SlicedAddend = Addend<GemmCall["problem"]["a"]>;

export interface GemmSumCall {
  readonly kind: "gemm-sum";
  /** The GEMM without scratch memory. Its algorithm is one of `sumCandidates`. */
  readonly problem: GemmCall["problem"];
  readonly addends: readonly SlicedAddend[];
}

export const gemmSum: Kind<GemmSumCall> = {
  accesses({ problem, addends }): readonly Access[] {
    const ofAddends = addends.flatMap(({ a, b }) => [accessOf(a.slice, "in"), accessOf(b.slice, "in")]);
    return [...ofAddends, ...gemmAccesses(problem)];
  },
  mapSlices({ problem, addends }, to) {
    const moved = <M extends { readonly slice: BufferSlice }>(matrix: M): M => ({
      ...matrix,
      slice: to(matrix.slice),
    });
    return {
      kind: "gemm-sum",
      problem: mapGemmSlices(problem, to),
      addends: addends.map(({ a, b, k }) => ({ k, a: moved(a), b: moved(b) })),
    };
  },
  key({ problem, addends }, parts) {
    const keys = addends.map(({ a, b, k }) => {
      const layouts = [a, b].map(({ slice: _, ...layout }) => layout);
      return `${parts.read(a.slice)} ${parts.read(b.slice)} ${parts.literal([k, layouts])}`;
    });
    return [gemmKey(problem, parts), ...keys].join(" | ");
  },
  name: ({ problem, addends }) =>
    `${gemmName(problem)} + ${addends.length} ${addends.length === 1 ? "product" : "products"}`,
  shape: ({ problem: { m, n, k }, addends }) =>
    `${m}×${n}×(${[k, ...addends.map((one) => one.k)].join("+")})`,
  prefetchable: ({ problem, addends }) => [problem.b.slice, ...addends.map(({ b }) => b.slice)],
  emit({ problem, addends }, { backend, op, ...emission }) {
    const { prefetches } = emission;
    const resolved = resolveGemm(problem, emission);
    const isPrefetched = addends.every(({ b }) => prefetches?.includes(b.slice));
    return backend.lowerGemmSum(
      { ...resolved, prefetchesB: resolved.prefetchesB === true && isPrefetched },
      addends.map(({ a, b, k }) => ({ k, a: resolveMatrix(a, emission), b: resolveMatrix(b, emission) })),
      op,
    );
  },
};
