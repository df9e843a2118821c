/**
 * Backends: how a kind of device runs kernel calls. One is chosen when a runtime is first lowered for. All functions are
 * pure but for one question: a library is asked how much workspace a GEMM needs.
 */

import type { ColumnKernel } from "../ir/index.js";
import type { Runtime } from "../runtime/index.js";
import type { Backend, Commands } from "./backend-interface.js";
import { CudaBackend } from "./backends/cuda.js";
import { WasmBackend } from "./backends/wasm.js";
import type { Capabilities } from "./capabilities.js";
import type { KernelCall, RowLaunch } from "./kernel-call.js";

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
