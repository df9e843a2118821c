/** The CUDA backend: kernels printed as CUDA C++, GEMMs by native kernels or by cuBLASLt. */

import { type ColumnKernel, type Dtype, dtypes } from "../../ir/index.js";
import type { Command } from "../../runtime/index.js";
import type { Bytes } from "../../units/index.js";
import type { CachedAttentionProblem, CachedShape } from "../attention/cached-problem.js";
import {
  cachedScratchBytes,
  canAttendCached,
  keepsProbabilities,
  lowerAttentionBackwardOnCuda,
  lowerAttentionOnCuda,
  lowerCachedAttention,
} from "../attention/cuda/index.js";
import {
  type AttentionShape,
  accessTo,
  type BackwardProblem,
  backwardAccessTo,
  type ForwardProblem,
} from "../attention/problem.js";
import type { Backend, Commands } from "../backend-interface.js";
import { cudaCapabilities } from "../capabilities.js";
import { fitColumnArguments, type PartialColumns } from "../codegen/cuda/combo/column-group.js";
import { canGroupRows } from "../codegen/cuda/combo/row-group.js";
import {
  type ColumnGroupOptions,
  lowerColumnGroup,
  lowerColumnOnCuda,
  lowerPartials,
  lowerRowCombo,
  lowerRowOnCuda,
  usesFastMath,
} from "../codegen/cuda/lower.js";
import { lowerRowMapOnCuda } from "../compact-rows/cuda-row-map.js";
import type { RowMapProblem } from "../compact-rows/problem.js";
import {
  channelsLastConvolution,
  convolutionScratchBytes,
  countConvolutionCandidates,
  isDepthwiseConvolution,
  lowerConvolutionOnCuda,
} from "../convolution/cuda/index.js";
import type { ChannelsLastOperands, ConvolutionProblem, ConvolutionShape } from "../convolution/problem.js";
import {
  cudaCandidates,
  cudaScratchBytes,
  hasNativeGemm,
  lowerGemmEpilogue,
  lowerGemmOnCuda,
  lowerGemmPrologue,
  lowerGemmSum,
  lowerGroupedGemm,
} from "../gemm/cuda.js";
import type { Addend, EpilogueTarget, GemmDesc, GemmInputDtype, GemmProblem } from "../gemm/desc.js";
import type { Prologue } from "../gemm/skinny/index.js";
import type { EpilogueOn } from "../gemm/sm90/index.js";
import type { ColumnLaunch, KernelCall, RowLaunch } from "../kernel-call.js";
import { lowerCopies, type PlainCopy } from "../multi-tensor/copy.js";
import { lowerDigestsOnCuda } from "../multi-tensor/digest.js";
import { lowerChunkedReduceOnCuda } from "../multi-tensor/reduce.js";
import type { ChunkedReduceLaunch } from "../multi-tensor/reduce-problem.js";
import { lowerScanOnCuda } from "../scan-scatter/cuda-scan.js";
import {
  canGroupScatters,
  cudaScatterScratchBytes,
  lowerScatterAddOnCuda,
  lowerScatterGroup,
} from "../scan-scatter/cuda-scatter.js";
import type { Scan, ScatterAdd, ScatterGroup, ScatterShape } from "../scan-scatter/problem.js";
import type { Target } from "../target.js";

type Problem = GemmProblem<GemmInputDtype>;

export class CudaBackend implements Backend {
  readonly capabilities = cudaCapabilities;
  readonly lowerDigests = lowerDigestsOnCuda;
  readonly #target: Target;

  constructor(target: Target) {
    this.#target = target;
  }

  lowerRow(launch: RowLaunch): Commands {
    return [lowerRowOnCuda(launch, this.#target)];
  }

  lowerColumn(launch: ColumnLaunch): Commands {
    return [lowerColumnOnCuda(this.#withMath(launch), this.#target.device.parallelism)];
  }

  /** Column kernels have the functions of row kernels. */
  #withMath<L extends Pick<ColumnLaunch, "usesFastMath">>(launch: L): L {
    return usesFastMath(this.#target) ? { ...launch, usesFastMath: true } : launch;
  }

  #partialsWithMath(partials: PartialColumns): PartialColumns {
    return { ...partials, members: partials.members.map((member) => this.#withMath(member)) };
  }

  lowerGemm(problem: Problem, op: string): Commands {
    return lowerGemmOnCuda(this.#target, problem, op);
  }

  lowerAttention(problem: ForwardProblem, op: string): Commands {
    return lowerAttentionOnCuda(this.#target, problem, accessTo(problem), op);
  }

  lowerAttentionBackward(problem: BackwardProblem, op: string): Commands {
    return lowerAttentionBackwardOnCuda(this.#target, problem, backwardAccessTo(problem), op);
  }

  keepsProbabilities(shape: AttentionShape): boolean {
    return keepsProbabilities(this.#target, shape);
  }

  attendsCached({ dtype, width }: { readonly dtype: Dtype; readonly width: number }): boolean {
    return (dtype === "f32" || dtype === "bf16" || dtype === "f16") && canAttendCached(dtype, width);
  }

  lowerCachedAttention(problem: CachedAttentionProblem, op: string): Commands {
    const { dtype, batch, heads, width, out } = problem;
    const isWhole = out.span.size === batch * heads * width * dtypes[dtype].bytes;
    return lowerCachedAttention(problem, op, isWhole ? "out" : "partial-out");
  }

  cachedScratchBytes(shape: CachedShape): number {
    return cachedScratchBytes(shape);
  }

  lowerConvolution(problem: ConvolutionProblem, op: string): Commands {
    return lowerConvolutionOnCuda(this.#target, problem, op);
  }

  lowerRowCombo(launches: readonly RowLaunch[], op: string): Commands {
    return lowerRowCombo(launches, op, this.#target);
  }

  lowerColumnGroup(launches: readonly ColumnLaunch[], options: ColumnGroupOptions): Commands {
    const { earlier, ...others } = options;
    return lowerColumnGroup(
      launches.map((launch) => this.#withMath(launch)),
      { ...others, ...(earlier && { earlier: this.#partialsWithMath(earlier) }) },
    );
  }

  lowerPartials(columns: PartialColumns, op: string): Commands {
    return lowerPartials(this.#partialsWithMath(columns), op);
  }

  lowerGroupedGemm(problems: readonly Problem[], op: string, algorithm?: number): Commands {
    return [lowerGroupedGemm(this.#target, problems, op, algorithm)];
  }

  lowerGemmPrologue(
    problems: readonly Problem[],
    prologue: Prologue,
    op: string,
    algorithm?: number,
  ): Commands {
    return [lowerGemmPrologue(this.#target, problems, prologue, op, algorithm)];
  }

  lowerGemmSum(problem: Problem, addends: readonly Addend[], op: string): Commands {
    return [lowerGemmSum(this.#target, problem, addends, op)];
  }

  lowerGemmEpilogue(problem: EpilogueTarget, epilogue: EpilogueOn, op: string): Commands {
    return [lowerGemmEpilogue(this.#target, problem, epilogue, op)];
  }

  lowerScan(scan: Scan, op: string): Command {
    return lowerScanOnCuda(scan, op);
  }

  lowerScatterAdd(scatter: ScatterAdd, op: string): Commands {
    return lowerScatterAddOnCuda(this.#target.device, scatter, op);
  }

  lowerScatterGroup(group: ScatterGroup, op: string): Commands {
    return lowerScatterGroup(this.#target.device, group, op);
  }

  lowerRowMap(problem: RowMapProblem, op: string): Commands {
    return lowerRowMapOnCuda(problem, op);
  }

  lowerCopies(copies: readonly PlainCopy[], op = "copy"): Commands {
    return lowerCopies(copies, op);
  }

  lowerChunkedReduce(launch: ChunkedReduceLaunch): readonly KernelCall[] {
    return lowerChunkedReduceOnCuda(launch);
  }

  canComboRows(launches: readonly Omit<RowLaunch, "operands">[]): boolean {
    return canGroupRows(launches);
  }

  canGroupColumns(kernels: readonly ColumnKernel[]): boolean {
    return fitColumnArguments(kernels);
  }

  canGroupScatters(scatters: readonly ScatterShape[]): boolean {
    return canGroupScatters(scatters);
  }

  gemmScratchBytes(problem: GemmDesc): Bytes {
    return cudaScratchBytes(this.#target, problem);
  }

  scatterScratchBytes(scatters: readonly ScatterShape[]): readonly number[] {
    return cudaScatterScratchBytes(this.#target.device, scatters);
  }

  convolutionScratchBytes(shape: ConvolutionShape): Bytes {
    return convolutionScratchBytes(this.#target, shape);
  }

  convolutionCandidates(shape: ConvolutionShape): number {
    return countConvolutionCandidates(this.#target, shape);
  }

  isDepthwiseConvolution(shape: ConvolutionShape): boolean {
    return isDepthwiseConvolution(shape);
  }

  channelsLastConvolution(shape: ConvolutionShape): ChannelsLastOperands | undefined {
    return channelsLastConvolution(this.#target, shape);
  }

  hasNativeGemm(problem: GemmDesc): boolean {
    return hasNativeGemm(this.#target, problem);
  }

  gemmCandidates(problem: GemmDesc): readonly number[] {
    return cudaCandidates(this.#target, problem);
  }
}
