/** A GEMM, as `gemm` of the kernels takes it, over slices. */

import type { GemmInputDtype, GemmProblem } from "../../../kernels/index.js";
import { accessOf } from "../access.js";
import type { BufferSlice } from "../buffer.js";
import type { KeyParts, Kind, SliceMap } from "./kind.js";

/** A matrix operand with a slice in the place of its storage. */
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
};

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
