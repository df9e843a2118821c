/** The interface of a backend: how the kernels of one kind of device are lowered to commands. */

import type { ColumnKernel, Dtype } from "../ir/index.js";
import type { Command, LowerDigests } from "../runtime/index.js";
import type { Bytes } from "../units/index.js";
import type { CachedAttentionProblem, CachedShape } from "./attention/cached-problem.js";
import type { AttentionShape, BackwardProblem, ForwardProblem } from "./attention/problem.js";
import type { Capabilities } from "./capabilities.js";
import type { PartialColumns } from "./codegen/cuda/combo/column-group.js";
import type { ColumnGroupOptions } from "./codegen/cuda/lower.js";
import type { RowMapProblem } from "./compact-rows/problem.js";
import type { ChannelsLastOperands, ConvolutionProblem, ConvolutionShape } from "./convolution/problem.js";
import type { Addend, EpilogueTarget, GemmDesc, GemmInputDtype, GemmProblem } from "./gemm/desc.js";
import type { Prologue } from "./gemm/skinny/index.js";
import type { EpilogueOn } from "./gemm/sm90/index.js";
import type { ColumnLaunch, KernelCall, RowLaunch } from "./kernel-call.js";
import type { PlainCopy } from "./multi-tensor/copy.js";
import type { ChunkedReduceLaunch } from "./multi-tensor/reduce-problem.js";
import type { Scan, ScatterAdd, ScatterGroup, ScatterShape } from "./scan-scatter/problem.js";

export type Commands = readonly Command[];

export interface Backend {
  readonly capabilities: Capabilities;

  lowerRow(launch: RowLaunch): Commands;
  lowerColumn(launch: ColumnLaunch): Commands;
  lowerGemm(problem: GemmProblem<GemmInputDtype>, op: string): Commands;
  lowerAttention(problem: ForwardProblem, op: string): Commands;
  lowerAttentionBackward(problem: BackwardProblem, op: string): Commands;
  /** True if attention of this shape keeps its probabilities for the backward pass, false if it keeps statistics of its rows. */
  keepsProbabilities(shape: AttentionShape): boolean;
  /** True if one kernel rotates a new position, writes it to a cache, and attends to the cache. */
  attendsCached(shape: Pick<CachedShape, "width"> & { readonly dtype: Dtype }): boolean;
  /** Rejected unless `attendsCached` allows it. */
  lowerCachedAttention(problem: CachedAttentionProblem, op: string): Commands;
  cachedScratchBytes(shape: CachedShape): number;
  /** A backend that does not have `gathersConvolutions` rejects them. */
  lowerConvolution(problem: ConvolutionProblem, op: string): Commands;

  /** Launches of several independent kernels, which fusion creates. A backend without this capability rejects them. */
  lowerRowCombo(launches: readonly RowLaunch[], op: string): Commands;
  lowerColumnGroup(launches: readonly ColumnLaunch[], options: ColumnGroupOptions): Commands;
  lowerPartials(columns: PartialColumns, op: string): Commands;
  /** `algorithm`: one of `groupedCandidates`; default: 0. */
  lowerGroupedGemm(
    problems: readonly GemmProblem<GemmInputDtype>[],
    op: string,
    algorithm?: number,
  ): Commands;
  lowerGemmEpilogue(problem: EpilogueTarget, epilogue: EpilogueOn, op: string): Commands;
  /** `algorithm`: one of `prologueCandidates`; default: 0. Rejected if there are none. */
  lowerGemmPrologue(
    problems: readonly GemmProblem<GemmInputDtype>[],
    prologue: Prologue,
    op: string,
    algorithm?: number,
  ): Commands;
  /** Rejected unless `sumCandidates` allows it. */
  lowerGemmSum(problem: GemmProblem<GemmInputDtype>, addends: readonly Addend[], op: string): Commands;
  lowerScatterGroup(group: ScatterGroup, op: string): Commands;

  /** Kernels that each backend implements itself. */
  lowerScan(scan: Scan, op: string): Command;
  lowerScatterAdd(scatter: ScatterAdd, op: string): Commands;
  /** A backend that does not have `hasCompactRows` rejects it. */
  lowerRowMap(problem: RowMapProblem, op: string): Commands;
  lowerCopies(copies: readonly PlainCopy[], op?: string): Commands;
  /** Row kernels on a backend whose kernels are not combined, so that a trace can fuse them. */
  lowerChunkedReduce(launch: ChunkedReduceLaunch): readonly KernelCall[];

  /** Undefined on a device whose memory the host reads as fast as the device. */
  readonly lowerDigests: LowerDigests | undefined;

  canComboRows(launches: readonly Omit<RowLaunch, "operands">[]): boolean;
  canGroupColumns(kernels: readonly ColumnKernel[]): boolean;
  canGroupScatters(scatters: readonly ScatterShape[]): boolean;
  gemmScratchBytes(problem: GemmDesc): Bytes;
  /** The sizes of the buffers of `ScatterAdd.scratch`, or of `ScatterGroup.scratch`. */
  scatterScratchBytes(scatters: readonly ScatterShape[]): readonly number[];
  convolutionScratchBytes(shape: ConvolutionShape): Bytes;
  /** The number of its algorithms, the one with the shortest estimated time first. */
  convolutionCandidates(shape: ConvolutionShape): number;
  /** True if the kernels for depthwise convolutions compute it, with the images in either layout. */
  isDepthwiseConvolution(shape: ConvolutionShape): boolean;
  /** How a convolution of images is computed channels-last; undefined if it is computed channels-first. */
  channelsLastConvolution(shape: ConvolutionShape): ChannelsLastOperands | undefined;
  /** True if a native kernel computes this GEMM without autotuning. */
  hasNativeGemm(problem: GemmDesc): boolean;
  gemmCandidates(problem: GemmDesc): readonly number[];
}
