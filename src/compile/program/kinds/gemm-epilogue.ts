/** A GEMM with elementwise work on its result: the operands are the epilogue's, with C among them as the GEMM's result. */

import type { Epilogue } from "../../../kernels/index.js";
import { type Access, accessOf } from "../access.js";
import type { BufferSlice } from "../buffer.js";
import {
  type GemmCall,
  gemmAccesses,
  gemmName,
  gemmShape,
  mapGemmSlices,
  resolveInputs,
  resolveMatrix,
} from "./gemm.js";
import type { Kind } from "./kind.js";

export interface GemmEpilogueCall {
  readonly kind: "gemm-epilogue";
  readonly problem: GemmCall["problem"];
  readonly epilogue: Epilogue;
  readonly operands: readonly BufferSlice[];
  readonly scalars: readonly number[];
}

export const gemmEpilogue: Kind<GemmEpilogueCall> = {
  /** C is written only if it is stored, and never read: the epilogue has it, and forwarded outputs, in registers. */
  accesses({ problem, epilogue, operands }) {
    const { kernel, gemmInput, storesC, forwarded = [] } = epilogue;
    const ofGemm = gemmAccesses(problem).filter(({ writes }) => !writes || storesC);
    const ofEpilogue = operands.flatMap((slice, index): Access | [] =>
      index === gemmInput || forwarded[index] !== undefined
        ? []
        : accessOf(slice, index < kernel.inputs.length ? "in" : "out"),
    );
    return [...ofGemm, ...ofEpilogue].sort((a, b) => Number(a.writes) - Number(b.writes));
  },
  mapSlices: (work, to) => ({
    ...work,
    problem: mapGemmSlices(work.problem, to),
    operands: work.operands.map(to),
  }),
  // Passes build them from calls that already differ.
  key: (work, { identity }) => identity(work),
  name: ({ problem, epilogue }) => `${gemmName(problem)} + ${epilogue.kernel.name}`,
  shape: ({ problem }) => gemmShape(problem),
  prefetchable: ({ problem }) => [problem.b.slice],
  emit({ problem: { c, ...inputs }, epilogue, operands, scalars }, emission) {
    const resolved = {
      ...resolveInputs(inputs, emission),
      ...(epilogue.storesC && { c: resolveMatrix(c, emission) }),
    };
    // A C that is not stored has no memory to resolve.
    const storages = operands.map((slice, index) =>
      index === epilogue.gemmInput ? undefined : emission.resolve(slice),
    );
    const { backend, op } = emission;
    return backend.lowerGemmEpilogue(resolved, { ...epilogue, operands: storages, scalars }, op);
  },
};
