/** A GEMM, as `gemm` of the kernels takes it, over slices. */

import { type GemmInputDtype, type GemmProblem, gemmCalls, lowerCalls } from "../../../kernels/index.js";
import { accessOf } from "../access.js";
import type { BufferSlice } from "../buffer.js";
import type { Emission, KeyParts, Kind, SliceMap } from "./kind.js";

/** A matrix operand with a slice instead of its storage. */
type Sliced<T> = Omit<T, "storage"> & { readonly slice: BufferSlice };

export interface GemmCall {
  readonly kind: "gemm";
  readonly problem: Omit<GemmProblem<GemmInputDtype>, "a" | "b" | "c" | "bias" | "scratch"> & {
    readonly a: Sliced<GemmProblem["a"]>;
    readonly b: Sliced<GemmProblem["b"]>;
    readonly c: Sliced<GemmProblem["c"]>;
    readonly bias?: BufferSlice;
    readonly scratch?: BufferSlice;
  };
}

type Problem = GemmCall["problem"];

export const gemm: Kind<GemmCall> = {
  accesses: ({ problem }) => gemmAccesses(problem),
  mapSlices: ({ problem }, to) => ({ kind: "gemm", problem: mapGemmSlices(problem, to) }),
  key: ({ problem }, parts) => gemmKey(problem, parts),
  name: ({ problem }) => gemmName(problem),
  shape: ({ problem }) => gemmShape(problem),
  prefetchable: ({ problem }) => [problem.b.slice],
  emit({ problem }, { backend, op, ...emission }) {
    return lowerCalls(backend, gemmCalls(resolveGemm(problem, emission), op));
  },
};

type Resolution = Pick<Emission, "resolve" | "prefetches">;

/** The GEMM on the storages of its slices. */
export function resolveGemm(
  problem: Problem,
  { resolve, prefetches }: Resolution,
): GemmProblem<GemmInputDtype> {
  const { c, ...rest } = problem;
  return {
    ...resolveInputs(rest, { resolve, prefetches }),
    c: resolveMatrix(c, { resolve }),
  };
}

/** Everything but C. */
export function resolveInputs(
  { a, b, bias, scratch, ...rest }: Omit<Problem, "c">,
  { resolve, prefetches }: Resolution,
) {
  return {
    ...rest,
    ...{ a: resolveMatrix(a, { resolve }), b: resolveMatrix(b, { resolve }) },
    ...(bias && { bias: resolve(bias) }),
    ...(scratch && { scratch: resolve(scratch) }),
    prefetchesB: prefetches?.includes(b.slice) === true,
  };
}

export function resolveMatrix<M extends { readonly slice: BufferSlice }>(
  { slice, ...layout }: M,
  { resolve }: Pick<Emission, "resolve">,
) {
  return { ...layout, storage: resolve(slice) };
}

export function gemmAccesses({ a, b, c, bias, scratch, beta = 0 }: Problem) {
  return [
    ...[a.slice, b.slice, ...(bias ? [bias] : [])].map((slice) => accessOf(slice, "in")),
    ...(scratch ? [accessOf(scratch, "out")] : []),
    accessOf(c.slice, beta === 0 ? "out" : "inout"),
  ];
}

export function mapGemmSlices({ a, b, c, bias, scratch, ...rest }: Problem, to: SliceMap): Problem {
  return {
    ...rest,
    ...{ a: { ...a, slice: to(a.slice) }, b: { ...b, slice: to(b.slice) }, c: { ...c, slice: to(c.slice) } },
    ...(bias && { bias: to(bias) }),
    ...(scratch && { scratch: to(scratch) }),
  };
}

export function gemmKey(
  { a, b, c, bias, scratch, ...rest }: Problem,
  { read, written, literal }: KeyParts,
): string {
  const slices = [read(a.slice), read(b.slice), written(c.slice), bias ? read(bias) : "", scratch?.size];
  const layouts = [a, b, c].map(({ slice: _, ...layout }) => layout);
  return `${slices.join(" ")} ${literal([rest, layouts])}`;
}

/** As BLAS writes it: N for an operand as it lies, T for a transposed one. */
export function gemmName({ dtype, resultDtype = dtype, a, b, bias, activation }: Problem): string {
  const letters = [a, b].map(({ isTransposed }) => (isTransposed ? "T" : "N")).join("");
  const dtypes = resultDtype === dtype ? dtype : `${dtype} → ${resultDtype}`;
  return [`gemm ${letters} ${dtypes}`, ...(bias ? ["bias"] : []), ...(activation ? [activation] : [])].join(
    " + ",
  );
}

export function gemmShape({ m, n, k, batch = 1 }: Problem): string {
  return [m, n, k, ...(batch === 1 ? [] : [batch])].join("×");
}
