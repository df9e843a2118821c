/**
 * The signature of a native kernel for a group of GEMMs, and its launch arguments. A parameter of a GEMM has the GEMM's number after its
 * name: `a0`, `m0`, …, `a1`, `m1`, …
 */

import type { Parameter } from "../../driver/index.js";
import type { Storage } from "../../runtime/index.js";
import { type MemberLocal, numberedLocal, selectMember } from "../codegen/cuda/combo/select-member.js";
import type { AccessToC, EpilogueTarget, GemmDesc } from "./desc.js";

type Size = "m" | "n" | "k" | "batch" | `${"a" | "b" | "c"}${"Stride" | "Batch"}`;

/** The parameters of each GEMM, besides A and B. */
export interface GroupSignature {
  readonly storesC: boolean;
  readonly hasBias: boolean;
  /** In elements: `aStride` is A's row stride, `aBatch` its batch stride. */
  readonly sizes: readonly Size[];
  /** Sizes that only the tensor maps need. */
  readonly tensorMapSizes?: readonly Size[];
  readonly scalars?: readonly ("alpha" | "beta")[];
}

/**
 * The kernel's parameters in order: those of the first GEMM, then those of the second, … From the second GEMM on, `first` is the index of
 * its first CTA.
 */
export function groupParameters(
  { storesC, hasBias, sizes, tensorMapSizes = [], scalars = [] }: GroupSignature,
  accesses: readonly AccessToC[],
): Readonly<Record<string, Parameter>> {
  const parameters: Record<string, Parameter> = {};
  for (const [gemm, access] of accesses.entries()) {
    Object.assign(parameters, { [`a${gemm}`]: "in", [`b${gemm}`]: "in" });
    if (storesC) parameters[`c${gemm}`] = access;
    if (hasBias) parameters[`bias${gemm}`] = "in";
    for (const size of [...sizes, ...tensorMapSizes]) parameters[`${size}${gemm}`] = "i32";
    if (hasBias) parameters[`biasBatch${gemm}`] = "i32";
    for (const scalar of scalars) parameters[`${scalar}${gemm}`] = "f32";
    if (gemm > 0) parameters[`first${gemm}`] = "u32";
  }
  return parameters;
}

/** The values of all parameters by name, and the number of CTAs. A kernel that does not store C, or has no bias, does not take these. */
export function groupArguments(
  problems: readonly EpilogueTarget[],
  ctasOf: (problem: Pick<GemmDesc, "m" | "n" | "batch">) => number,
): { readonly values: Record<string, Storage | number>; readonly ctas: number } {
  const values: Record<string, Storage | number> = {};
  let ctas = 0;
  for (const [gemm, problem] of problems.entries()) {
    const { m, n, k, batch = 1, a, b, c, alpha = 1, beta = 0, bias, biasBatchStride = 0 } = problem;
    const ofGemm = {
      ...{ a: a.storage, b: b.storage, ...(c && { c: c.storage }), ...(bias && { bias }) },
      ...{ m, n, k, batch, aStride: a.rowStride, bStride: b.rowStride, cStride: c?.rowStride ?? n },
      ...{ aBatch: a.batchStride ?? 0, bBatch: b.batchStride ?? 0, cBatch: c?.batchStride ?? 0 },
      ...{ biasBatch: biasBatchStride, alpha, beta, first: ctas },
    };
    for (const [name, value] of Object.entries(ofGemm)) values[`${name}${gemm}`] = value;
    ctas += ctasOf(problem);
  }
  return { values, ctas };
}

/** C++: declares `locals` with the values of the GEMM that this CTA works for, and `cta`, its index among the GEMM's CTAs. */
export function selectGemm(gemms: number, locals: readonly MemberLocal[]): readonly string[] {
  return selectMember({
    end: gemms,
    locals,
    index: "cta",
    bySelects: true,
    endOf: (gemm) => `first${gemm + 1}`,
  });
}

/** Locals of one type, each selected from the parameters of its name. */
export function gemmLocals(type: string, ...names: readonly string[]): readonly MemberLocal[] {
  return names.map((name) => numberedLocal(type, name));
}
