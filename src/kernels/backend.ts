/**
 * Backends: how a kind of device runs kernel calls. One is chosen when a runtime is first lowered for. All functions are
 * pure but for one question: a library is asked how much workspace a GEMM needs.
 */

import type { ColumnKernel } from "../ir/index.js";
import type { Command, Runtime } from "../runtime/index.js";
import type { Bytes } from "../units/index.js";
import type { AttentionBackwardProblem, AttentionProblem } from "./attention/problem.js";
import { CudaBackend } from "./backends/cuda.js";
import { WasmBackend } from "./backends/wasm.js";
import type { Capabilities } from "./capabilities.js";
import type { PartialColumns } from "./codegen/cuda/combo/column-group.js";
import type { ColumnGroupOptions } from "./codegen/cuda/lower.js";
import type { EpilogueTarget, GemmDesc, GemmInputDtype, GemmProblem } from "./gemm/desc.js";
import type { EpilogueOn } from "./gemm/sm90/index.js";
import type { ColumnLaunch, KernelCall, RowLaunch } from "./kernel-call.js";
import type { PlainCopy } from "./multi-tensor/copy.js";
import type { ChunkedReduceLaunch } from "./multi-tensor/reduce.js";
import type { Scan } from "./scan-scatter/scan.js";
import type { ScatterAdd } from "./scan-scatter/scatter-add.js";

export type Commands = readonly Command[];

export interface Backend {
  readonly capabilities: Capabilities;

  lowerRow(launch: RowLaunch): Commands;
  lowerColumn(launch: ColumnLaunch): Commands;
  lowerGemm(problem: GemmProblem<GemmInputDtype>, op: string): Commands;
  lowerAttention(problem: AttentionProblem, op: string): Commands;
  lowerAttentionBackward(problem: AttentionBackwardProblem, op: string): Commands;

  /** One launch for several independent kernels: what fusion makes. A backend that can't says so. */
  lowerRowCombo(launches: readonly RowLaunch[], op: string): Commands;
  lowerColumnGroup(launches: readonly ColumnLaunch[], options: ColumnGroupOptions): Commands;
  lowerPartials(begun: PartialColumns, op: string): Commands;
  lowerGroupedGemm(problems: readonly GemmProblem<GemmInputDtype>[], op: string): Commands;
  lowerGemmEpilogue(problem: EpilogueTarget, epilogue: EpilogueOn, op: string): Commands;

  /** Kernels of one backend alone: a trace knows only what they touch. */
  lowerScan(scan: Scan, op: string): Command;
  lowerScatterAdd(scatter: ScatterAdd, op: string): Command;
  lowerCopies(copies: readonly PlainCopy[], op?: string): Commands;
  lowerChunkedReduce(launch: ChunkedReduceLaunch): readonly KernelCall[];

  canComboRows(launches: readonly Omit<RowLaunch, "operands">[]): boolean;
  canGroupColumns(kernels: readonly ColumnKernel[]): boolean;
  gemmScratchBytes(problem: GemmDesc): Bytes;
  /** Is a native kernel used for this GEMM on its own, without a measurement? */
  hasNativeGemm(problem: GemmDesc): boolean;
  gemmCandidates(problem: GemmDesc): readonly number[];
}

const backends = new WeakMap<Runtime, Backend>();

export function backendOf(runtime: Runtime): Backend {
  const known = backends.get(runtime);
  if (known) return known;
  const backend = runtime.device.kind === "cuda" ? new CudaBackend(runtime) : new WasmBackend(runtime);
  backends.set(runtime, backend);
  return backend;
}

/** What the device of a runtime can do. */
export function capabilitiesOf(runtime: Runtime): Capabilities {
  return backendOf(runtime).capabilities;
}

/** Can one launch run these row kernels? It pays where one of them is little more than a launch. */
export function canComboRows(runtime: Runtime, launches: readonly Omit<RowLaunch, "operands">[]): boolean {
  return backendOf(runtime).canComboRows(launches);
}

/** Can one launch run these column kernels? It pays where one of them leaves most of the device idle. */
export function canGroupColumns(runtime: Runtime, kernels: readonly ColumnKernel[]): boolean {
  return backendOf(runtime).canGroupColumns(kernels);
}

export function lowerCalls(backend: Backend, calls: readonly KernelCall[]): Commands {
  return calls.flatMap((call) => lowerCall(backend, call));
}

function lowerCall(backend: Backend, call: KernelCall): Commands {
  switch (call.kind) {
    case "row":
      return backend.lowerRow(call);
    case "column":
      return backend.lowerColumn(call);
    case "gemm":
      return backend.lowerGemm(call.problem, call.op);
    case "attention":
      return backend.lowerAttention(call.problem, call.op);
    case "attention-backward":
      return backend.lowerAttentionBackward(call.problem, call.op);
    default:
      return [call];
  }
}
