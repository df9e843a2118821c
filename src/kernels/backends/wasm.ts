/** The CPU backend: kernels printed as WebAssembly, large GEMMs by a BLAS if one is configured. A launch runs one kernel. */

import { HoldfastError } from "../../errors/index.js";
import type { ColumnKernel } from "../../ir/index.js";
import type { Command } from "../../runtime/index.js";
import { type Bytes, bytes } from "../../units/index.js";
import type { CachedAttentionProblem } from "../attention/cached-problem.js";
import {
  accessTo,
  type BackwardProblem,
  backwardAccessTo,
  type ForwardProblem,
  requireProbabilities,
} from "../attention/problem.js";
import { lowerAttentionBackwardOnWasm, lowerAttentionOnWasm } from "../attention/wasm/lower.js";
import type { Backend, Commands } from "../backend-interface.js";
import { wasmCapabilities } from "../capabilities.js";
import type { PartialColumns } from "../codegen/cuda/combo/column-group.js";
import { type ColumnGroupOptions, cannotCombine, cannotGroup, hasRuns } from "../codegen/cuda/lower.js";
import { lowerColumnOnWasm, lowerRowOnWasm } from "../codegen/wasm/lower.js";
import type { RowMapProblem } from "../compact-rows/problem.js";
import { rejected as rejectedConvolution } from "../convolution/problem.js";
import { cpuScratchBytes, lowerGemmOnCpu, requireFloat } from "../gemm/cpu/lower.js";
import {
  type EpilogueTarget,
  type GemmDesc,
  type GemmInputDtype,
  type GemmProblem,
  rejected,
  requireValid,
} from "../gemm/desc.js";
import { type ColumnLaunch, hasRows, type KernelCall, type RowLaunch } from "../kernel-call.js";
import type { PlainCopy } from "../multi-tensor/copy.js";
import { lowerChunkedReduceOnWasm } from "../multi-tensor/reduce.js";
import type { ChunkedReduceLaunch } from "../multi-tensor/reduce-problem.js";
import type { Scan, ScatterAdd, ScatterGroup } from "../scan-scatter/problem.js";
import { lowerScanOnWasm } from "../scan-scatter/scan.js";
import { lowerScatterAddOnWasm } from "../scan-scatter/scatter-add.js";
import type { Target } from "../target.js";

type Problem = GemmProblem<GemmInputDtype>;

export class WasmBackend implements Backend {
  readonly capabilities = wasmCapabilities;
  readonly lowerDigests = undefined;
  readonly #target: Target;

  constructor(target: Target) {
    this.#target = target;
  }

  lowerRow(launch: RowLaunch): Commands {
    return [lowerRowOnWasm(launch)];
  }

  lowerColumn(launch: ColumnLaunch): Commands {
    if (launch.runs) throw hasRuns(launch.kernel);
    return [lowerColumnOnWasm(launch)];
  }

  lowerGemm(problem: Problem, op: string): Commands {
    return lowerGemmOnCpu(this.#target, problem, op);
  }

  lowerAttention(problem: ForwardProblem, op: string): Commands {
    return [lowerAttentionOnWasm(requireProbabilities(problem), accessTo(problem), op)];
  }

  lowerAttentionBackward(problem: BackwardProblem, op: string): Commands {
    return [lowerAttentionBackwardOnWasm(requireProbabilities(problem), backwardAccessTo(problem), op)];
  }

  /** Computing them again would take longer than reading them. */
  keepsProbabilities(): boolean {
    return true;
  }

  attendsCached(): boolean {
    return false;
  }

  lowerCachedAttention(_: CachedAttentionProblem, op: string): Commands {
    throw new HoldfastError(
      "UNSUPPORTED",
      `${op}: the CPU attends to a cache with other ops. Call attendsCached first.`,
    );
  }

  cachedScratchBytes(): number {
    return 0;
  }

  lowerConvolution(): Commands {
    throw rejectedConvolution("the CPU has no kernel for it. Use a matrix product of patches.");
  }

  lowerRowCombo(launches: readonly RowLaunch[]): Commands {
    const full = launches.filter(hasRows);
    if (full.length === 0) return [];
    throw cannotCombine(full.length);
  }

  lowerColumnGroup(launches: readonly ColumnLaunch[], { earlier }: ColumnGroupOptions): Commands {
    const full = launches.filter(({ columns }) => columns > 0);
    const kernels = [...full, ...(earlier?.members ?? [])].map(({ kernel }) => kernel);
    if (kernels.length === 0) return [];
    throw cannotGroup(kernels);
  }

  lowerPartials({ members }: PartialColumns): Commands {
    if (members.length === 0) return [];
    throw cannotGroup(members.map(({ kernel }) => kernel));
  }

  lowerGroupedGemm(problems: readonly Problem[]): Commands {
    for (const problem of problems) requireValid(problem);
    throw rejected("these GEMMs cannot run in one launch. Call canGroupGemms first.");
  }

  lowerGemmEpilogue(problem: EpilogueTarget): Commands {
    requireValid(problem);
    throw rejected("this epilogue cannot be fused. Call canFuseEpilogue first.");
  }

  lowerGemmPrologue(problems: readonly Problem[]): Commands {
    for (const problem of problems) requireValid(problem);
    throw rejected("this prologue cannot run in the launch. Call prologueCandidates first.");
  }

  lowerGemmSum(problem: Problem): Commands {
    requireValid(problem);
    throw rejected("these products cannot be added in one launch. Call sumCandidates first.");
  }

  lowerScan(scan: Scan, op: string): Command {
    return lowerScanOnWasm(scan, op);
  }

  lowerScatterAdd(scatter: ScatterAdd, op: string): Commands {
    return lowerScatterAddOnWasm(scatter, op);
  }

  lowerScatterGroup({ members }: ScatterGroup, op: string): Commands {
    throw new HoldfastError(
      "UNSUPPORTED",
      `${op}: ${members.length} scatters cannot run in one launch. Call canGroupScatters first.`,
      { numbers: { scatters: members.length } },
    );
  }

  lowerRowMap(_: RowMapProblem, op: string): Commands {
    throw new HoldfastError(
      "UNSUPPORTED",
      `${op}: the CPU cannot scatter to compact rows. Scatter to the whole table.`,
    );
  }

  lowerCopies(copies: readonly PlainCopy[]): Commands {
    return copies.map(({ source, target }) => ({ kind: "copy", source, target }));
  }

  lowerChunkedReduce(launch: ChunkedReduceLaunch): readonly KernelCall[] {
    return lowerChunkedReduceOnWasm(launch);
  }

  canComboRows(): boolean {
    return false;
  }

  canGroupColumns(_kernels: readonly ColumnKernel[]): boolean {
    return false;
  }

  canGroupScatters(): boolean {
    return false;
  }

  scatterScratchBytes(): readonly number[] {
    return [];
  }

  gemmScratchBytes(problem: GemmDesc): Bytes {
    requireFloat(problem);
    return cpuScratchBytes(this.#target, problem);
  }

  convolutionCandidates(): number {
    return 1;
  }

  isDepthwiseConvolution(): boolean {
    return false;
  }

  channelsLastConvolution(): undefined {
    return undefined;
  }

  convolutionScratchBytes(): Bytes {
    return bytes(0);
  }

  /** Only GPUs have native GEMMs and a library to select from. */
  hasNativeGemm(): boolean {
    return false;
  }

  /** A shape has one algorithm. */
  gemmCandidates(): readonly number[] {
    return [0];
  }
}
