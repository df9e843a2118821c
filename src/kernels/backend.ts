/**
 * Selects the backend of a runtime, at its first lowering, and lowers kernel calls with it. Lowering is pure, except that cuBLASLt is asked
 * for the workspace of a GEMM.
 */

import { HoldfastError } from "../errors/index.js";
import type { ColumnKernel } from "../ir/index.js";
import type { Runtime } from "../runtime/index.js";
import type { Backend, Commands } from "./backend-interface.js";
import { CudaBackend } from "./backends/cuda.js";
import { WasmBackend } from "./backends/wasm.js";
import type { Capabilities } from "./capabilities.js";
import type { KernelCall, RowLaunch } from "./kernel-call.js";

const backends = new WeakMap<Runtime, Backend>();

export function backendOf(runtime: Runtime): Backend {
  const cached = backends.get(runtime);
  if (cached) return cached;
  const backend = runtime.device.kind === "cuda" ? new CudaBackend(runtime) : new WasmBackend(runtime);
  backends.set(runtime, backend);
  return backend;
}

/** Lets the captures of a runtime compare memory on its device, where that is faster than to read it back. */
export function compareOnDevice(runtime: Runtime): void {
  const { lowerDigests } = backendOf(runtime);
  if (lowerDigests) runtime.digestMemoryWith(lowerDigests);
}

/** The capabilities of a runtime's device. */
export function capabilitiesOf(runtime: Runtime): Capabilities {
  return backendOf(runtime).capabilities;
}

/** True if one launch can run these row kernels. This pays off for kernels that take little longer than a launch. */
export function canComboRows(runtime: Runtime, launches: readonly Omit<RowLaunch, "operands">[]): boolean {
  return backendOf(runtime).canComboRows(launches);
}

/** True if one launch can run these column kernels. This pays off for kernels that leave most of the device idle. */
export function canGroupColumns(runtime: Runtime, kernels: readonly ColumnKernel[]): boolean {
  return backendOf(runtime).canGroupColumns(kernels);
}

/** Lowers kernel calls to commands. Commands among them stay as they are. */
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
    case "convolution":
      return backend.lowerConvolution(call.problem, call.op);
    case "scatter":
      return backend.lowerScatterAdd(call.problem, call.op);
    case "chunked-reduce":
      return lowerCalls(backend, backend.lowerChunkedReduce(call));
    case "loop":
      throw loopOutsideTrace(call.op);
    default:
      return [call];
  }
}

/** Eager lowerings emit the calls of each iteration. */
function loopOutsideTrace(op: string): HoldfastError {
  return new HoldfastError(
    "BAD_STATE",
    `${op}: a loop is a call of a trace, and was submitted to a device. Emit its iterations.`,
    {
      numbers: { op },
    },
  );
}
