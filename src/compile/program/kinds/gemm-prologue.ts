/**
 * One launch of a row kernel and of the GEMMs of one row whose A it computes: in generation, a norm and the projections after it. A has no
 * memory. The first CTA stores the row kernel's other outputs.
 */

import type { Access } from "../access.js";
import { isSameSlice } from "../buffer.js";
import { type GemmCall, gemmAccesses, gemmKey, gemmShape, mapGemmSlices, resolveGemm } from "./gemm.js";
import { groupedName } from "./grouped-gemm.js";
import type { Kind } from "./kind.js";
import { type RowCall, row } from "./row.js";

export interface GemmPrologueCall {
  readonly kind: "gemm-prologue";
  readonly rows: RowCall;
  /** The operand of the row kernel that is A of all GEMMs. */
  readonly activations: number;
  readonly problems: readonly GemmCall["problem"][];
  /** One of `prologueCandidates`; default: 0. */
  readonly algorithm?: number;
}

export const gemmPrologue: Kind<GemmPrologueCall> = {
  accesses({ rows, activations, problems }) {
    const computed = rows.operands[activations];
    const inMemory = ({ slice }: Access): boolean => !computed || !isSameSlice(slice, computed);
    return [...row.accesses(rows), ...problems.flatMap(gemmAccesses)]
      .filter(inMemory)
      .sort((a, b) => Number(a.writes) - Number(b.writes));
  },
  mapSlices: ({ rows, problems, ...work }, to) => ({
    ...work,
    rows: { ...rows, operands: rows.operands.map(to) },
    problems: problems.map((problem) => mapGemmSlices(problem, to)),
  }),
  key: ({ rows, activations, problems, algorithm = 0 }, parts) => {
    const gemms = problems.map((problem) => gemmKey(problem, parts));
    return [row.key(rows, parts), activations, ...gemms, algorithm].join(" | ");
  },
  name: ({ rows, problems }) => `${rows.kernel.name} + ${groupedName(problems)}`,
  shape: ({ problems }) => problems.map(gemmShape).join(", "),
  prefetchable: ({ problems }) => problems.map(({ b }) => b.slice),
  emit({ rows, activations, problems, algorithm }, { backend, op, ...emission }) {
    const { kernel, iteration, operands, scalars } = rows;
    const storages = operands.map((slice, index) =>
      index === activations ? undefined : emission.resolve(slice),
    );
    // A has no memory. Another operand stands for it where the GEMM is validated: B has at least as many bytes as a row of A.
    const resolved = problems.map((problem) =>
      resolveGemm({ ...problem, a: { ...problem.a, slice: problem.b.slice } }, emission),
    );
    const output = activations - kernel.inputs.length;
    const prologue = { kernel, iteration, operands: storages, scalars, output };
    return backend.lowerGemmPrologue(resolved, prologue, op, algorithm);
  },
};
