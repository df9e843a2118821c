/** GEMMs by cuBLASLt, with bias and activation as its epilogue. */

import type { GemmMatrix, KernelSource, LibraryGemm, Parameter } from "../../../driver/index.js";
import type { LaunchCommand } from "../../../runtime/index.js";
import { literalKey } from "../../../units/index.js";
import { cachedSource } from "../../source-cache.js";
import type { Target } from "../../target.js";
import type { GemmDesc, GemmInputDtype, GemmProblem, MatrixLayout } from "../desc.js";
import { accessToC, rejected, requireBiasAsResult } from "../desc.js";

/** No cuBLASLt kernel uses a larger alignment. */
const maxAlignment = 128;

export function lowerCublasLt(
  target: Target,
  problem: GemmProblem<GemmInputDtype>,
  op: string,
): LaunchCommand {
  requireBiasAsResult(problem);
  const { a, b, c, bias, scratch } = problem;
  const source = sourceOf(target, problem);
  const { workspaceBytes = 0 } = target.kernel(source);
  const operands = [a.storage, b.storage, c.storage, ...(bias ? [bias] : [])];
  if (workspaceBytes > 0) {
    if (!scratch || scratch.span.size < workspaceBytes) {
      const available = scratch ? `"${scratch.label}" has ${scratch.span.size}` : "none was passed";
      throw rejected(
        `cuBLASLt needs ${workspaceBytes} bytes of scratch memory, and ${available}. Call gemmScratchBytes for the size.`,
      );
    }
    operands.push(scratch);
  }
  return { kind: "launch", op, source, blocks: 1, arguments: operands };
}

/** The workspace that cuBLASLt needs for a GEMM with its algorithm. */
export function libraryWorkspaceBytes(target: Target, problem: GemmDesc): number {
  return target.kernel(sourceOf(target, problem)).workspaceBytes ?? 0;
}

/** The number of algorithms that cuBLASLt proposes for a GEMM. */
export function libraryAlgorithms(target: Target, problem: GemmDesc): number {
  return target.kernel(sourceOf(target, { ...problem, algorithm: 0 })).algorithmCount ?? 1;
}

/** Equal for GEMMs that cuBLASLt treats alike, so that a measurement of one is valid for all. */
export function cublasLtKey(target: Pick<Target, "settings">, problem: GemmDesc): string {
  return keyOf(gemmOf(target, { ...problem, algorithm: 0 }));
}

/**
 * True if the activation is part of cuBLASLt's epilogue. Its GELU has an error of 1e-5 and its ReLU maps NaN to 0, which is
 * acceptable only for GEMMs of reduced precision. After an IEEE f32 GEMM the activation is a separate kernel.
 */
export function libraryActivates(
  { settings }: Pick<Target, "settings">,
  { dtype }: Pick<GemmDesc, "dtype">,
): boolean {
  return dtype === "f16" || dtype === "bf16" || (dtype === "f32" && settings.precision !== "f32");
}

function sourceOf(target: Pick<Target, "settings">, problem: GemmDesc): KernelSource {
  const { dtype, bias } = problem;
  const gemm = gemmOf(target, problem);
  const access = accessToC(problem);
  const parameters: Parameter[] = ["in", "in", access, ...(bias ? (["in"] as const) : [])];
  const key = `cublaslt ${access} ${keyOf(gemm)}`;
  return cachedSource(key, () => ({ name: `gemm_${dtype}`, parameters, gemm }));
}

function gemmOf(target: Pick<Target, "settings">, problem: GemmDesc): LibraryGemm {
  const {
    dtype,
    m,
    n,
    k,
    batch = 1,
    a,
    b,
    c,
    alpha = 1,
    beta = 0,
    bias,
    biasBatchStride = 0,
    activation = "none",
    algorithm = 0,
  } = problem;
  const { resultDtype = dtype } = problem;
  return {
    dtype,
    resultDtype,
    precision: target.settings.precision,
    m,
    n,
    k,
    batch,
    a: matrixOf(a, batch),
    b: matrixOf(b, batch),
    c: matrixOf(c, batch),
    alpha,
    beta,
    hasBias: bias !== undefined,
    biasBatchStride: bias !== undefined && batch > 1 ? biasBatchStride : 0,
    activation: libraryActivates(target, problem) ? activation : "none",
    algorithm,
  };
}

/** A single matrix has no batch stride, so that it shares its kernel and its measurement with equal ones. */
function matrixOf(
  { rowStride, isTransposed = false, batchStride = 0, storage }: MatrixLayout & GemmDesc["a"],
  batch: number,
): GemmMatrix {
  const alignment = alignmentOf(storage.span.address);
  return { rowStride, isTransposed, batchStride: batch > 1 ? batchStride : 0, alignment };
}

/** The largest power of two that divides an address. */
function alignmentOf(address: number): number {
  let alignment = maxAlignment;
  while (address % alignment !== 0) alignment /= 2;
  return alignment;
}

function keyOf({ a, b, c, ...rest }: LibraryGemm): string {
  const matrix = ({ rowStride, isTransposed, batchStride, alignment }: GemmMatrix): string =>
    `${rowStride} ${isTransposed ? "T" : "N"} ${batchStride} ${alignment}`;
  const facts = Object.values(rest).map((value) => (typeof value === "number" ? literalKey(value) : value));
  return `${facts.join(" ")} | ${matrix(a)} | ${matrix(b)} | ${matrix(c)}`;
}
