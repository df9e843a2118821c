/** A grouped GEMM: independent GEMMs in one launch. */

import {
  type GemmCall,
  gemmAccesses,
  gemmKey,
  gemmName,
  gemmShape,
  mapGemmSlices,
  resolveGemm,
} from "./gemm.js";
import type { Kind } from "./kind.js";

export interface GroupedGemmCall {
  readonly kind: "grouped-gemm";
  readonly problems: readonly GemmCall["problem"][];
  /** One of `groupedCandidates`; default: 0. */
  readonly algorithm?: number;
}

export const groupedGemm: Kind<GroupedGemmCall> = {
  accesses: ({ problems }) => problems.flatMap(gemmAccesses),
  members: ({ problems }) => problems.map(gemmAccesses),
  mapSlices: ({ problems, ...work }, to) => ({
    ...work,
    problems: problems.map((problem) => mapGemmSlices(problem, to)),
  }),
  key: ({ problems, algorithm = 0 }, parts) =>
    `${problems.map((problem) => gemmKey(problem, parts)).join(" | ")} ${algorithm}`,
  name: ({ problems }) => groupedName(problems),
  shape: ({ problems }) => problems.map(gemmShape).join(", "),
  // The operands of weight gradients are both written shortly before.
  prefetchable: ({ problems }) => problems.flatMap(({ a, b }) => (a.isTransposed ? [] : [b.slice])),
  emit({ problems, algorithm }, { backend, op, ...emission }) {
    const resolved = problems.map((problem) => resolveGemm(problem, emission));
    return backend.lowerGroupedGemm(resolved, op, algorithm);
  },
};

/** The name of one GEMM, or of several alike. */
export function groupedName(problems: GroupedGemmCall["problems"]): string {
  const [first] = problems;
  if (!first) return "";
  return problems.length === 1 ? gemmName(first) : `${problems.length} × ${gemmName(first)}`;
}
