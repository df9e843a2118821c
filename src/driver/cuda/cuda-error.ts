/**
 * Explains a failed CUDA call: CUDA's name and number of the failure, the call with its named arguments, and what to do
 * next. Some failures make every later call fail; messages of those name the first failure.
 */

import { type ErrorCode, HoldfastError } from "../../errors/index.js";
import { formatAddress } from "../../units/index.js";
import { type ForeignParameter, splitParameter } from "./bindings.js";
import { cublasStatus, cudaStatus } from "./constants.js";

export type CudaLibrary = "cuda" | "nvrtc" | "cublasLt" | "nvtx" | "nccl";

export type ForeignValue = number | string;

export interface FailedCall {
  readonly library: CudaLibrary;
  readonly call: string;
  readonly parameters: readonly ForeignParameter[];
  readonly values: readonly ForeignValue[];
  readonly status: number;
  /** "CUDA_ERROR_OUT_OF_MEMORY", or "" if the library has no name for the number. */
  readonly name: string;
  /** The library's description. */
  readonly text: string;
}

/** After one of these the context is lost: every later call fails. */
const fatal: ReadonlySet<number> = new Set([
  cudaStatus.ERROR_ECC_UNCORRECTABLE,
  cudaStatus.ERROR_NVLINK_UNCORRECTABLE,
  cudaStatus.ERROR_ILLEGAL_ADDRESS,
  cudaStatus.ERROR_LAUNCH_TIMEOUT,
  cudaStatus.ERROR_CONTEXT_IS_DESTROYED,
  cudaStatus.ERROR_ASSERT,
  cudaStatus.ERROR_HARDWARE_STACK_ERROR,
  cudaStatus.ERROR_ILLEGAL_INSTRUCTION,
  cudaStatus.ERROR_MISALIGNED_ADDRESS,
  cudaStatus.ERROR_INVALID_ADDRESS_SPACE,
  cudaStatus.ERROR_INVALID_PC,
  cudaStatus.ERROR_LAUNCH_FAILED,
  cudaStatus.ERROR_UNKNOWN,
]);

/** Remembers the first failure and builds the errors. One per opened CUDA. */
export class FailureLog {
  #fatal: FailedCall | undefined;
  #inCapture: FailedCall | undefined;

  /** Called for every failure status, including those that the caller asked to see. */
  note(library: CudaLibrary, status: number, describe: () => FailedCall): void {
    // "Not ready" is an answer, polled thousands of times.
    if (library === "nvrtc" || library === "nccl") return;
    if (library === "cuda" && status === cudaStatus.ERROR_NOT_READY) return;
    if (library === "cuda" && fatal.has(status)) this.#fatal ??= describe();
    this.#inCapture ??= describe();
  }

  /** Called when a capture begins or ends: earlier failures do not affect the next one. */
  forgetCapture(): void {
    this.#inCapture = undefined;
  }

  /** Builds the error for a noted failure. */
  toError(failed: FailedCall): HoldfastError {
    const first = this.#firstBefore(failed);
    const sentences = [`${describeCall(failed)} failed: ${describeStatus(failed)}.`];
    if (first) sentences.push(`${describeCall(first)} failed first: ${describeStatus(first)}.`);
    sentences.push(advise(first ?? failed));
    const numbers = {
      call: failed.call,
      status: failed.status,
      name: failed.name,
      ...(first && { firstCall: first.call, firstStatus: first.status }),
    };
    return new HoldfastError(errorCode(failed), sentences.join(" "), { numbers });
  }

  #firstBefore(failed: FailedCall): FailedCall | undefined {
    if (failed.library === "nvrtc" || failed.library === "nccl") return undefined;
    const isInvalidated =
      failed.library === "cuda" && failed.status === cudaStatus.ERROR_STREAM_CAPTURE_INVALIDATED;
    const first = this.#fatal ?? (isInvalidated ? this.#inCapture : undefined);
    return first?.values === failed.values ? undefined : first;
  }
}

/** `cuMemMap(range 0x7f0000000000, size 2097152, offset 0, …)` */
export function describeCall({ call, parameters, values }: FailedCall): string {
  const args = parameters.map((parameter, index) => {
    const { type, name } = splitParameter(parameter);
    return `${name} ${describeValue(type, values[index])}`;
  });
  return `${call}(${args.join(", ")})`;
}

const maxTextLength = 40;

function describeValue(type: string, value: ForeignValue | undefined): string {
  if (type === "address" && typeof value === "number") return formatAddress(value);
  if (typeof value !== "string") return String(value);
  return JSON.stringify(value.length > maxTextLength ? `${value.slice(0, maxTextLength)}…` : value);
}

function describeStatus({ library, name, status, text }: FailedCall): string {
  const label = name === "" ? `${library} status ${status}` : `${name} (${status})`;
  return text === "" || text === name ? label : `${label}, ${text.replace(/\.$/, "")}`;
}

function errorCode({ library, status }: FailedCall): ErrorCode {
  if (library === "nvrtc") return "KERNEL_FAILED";
  if (library === "nccl") return "DRIVER_FAILED";
  if (library === "cublasLt") {
    return status === cublasStatus.ALLOC_FAILED ? "OUT_OF_MEMORY" : "DRIVER_FAILED";
  }
  if (status === cudaStatus.ERROR_OUT_OF_MEMORY) return "OUT_OF_MEMORY";
  if (
    status >= cudaStatus.ERROR_STREAM_CAPTURE_UNSUPPORTED &&
    status <= cudaStatus.ERROR_STREAM_CAPTURE_WRONG_THREAD
  )
    return "CAPTURE_REJECTED";
  return noDevice.has(status) ? "NO_CUDA" : "DRIVER_FAILED";
}

/** libcuda is present, but no usable device. */
const noDevice: ReadonlyMap<number, string> = new Map([
  [
    cudaStatus.ERROR_STUB_LIBRARY,
    "The loaded libcuda is the toolkit's stub, which is only for linking. Install the NVIDIA driver, and remove the stubs folder from LD_LIBRARY_PATH.",
  ],
  [
    cudaStatus.ERROR_NO_DEVICE,
    "This process sees no NVIDIA GPU. `nvidia-smi` lists the machine's GPUs; CUDA_VISIBLE_DEVICES may hide them, and a container needs access to them.",
  ],
  [
    cudaStatus.ERROR_SYSTEM_NOT_READY,
    "The GPUs are not initialized yet. Check `nvidia-smi` and the service nvidia-fabricmanager.",
  ],
  [
    cudaStatus.ERROR_SYSTEM_DRIVER_MISMATCH,
    "libcuda and the kernel driver have different versions, as after an update. Restart the machine.",
  ],
  [
    cudaStatus.ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE,
    "The loaded libcuda is a compatibility package that this GPU cannot use. Remove its folder from LD_LIBRARY_PATH.",
  ],
]);

function advise({ library, status }: FailedCall): string {
  if (library === "nvrtc") return "See the compiler's log for details.";
  if (library === "cublasLt") {
    if (status === cublasStatus.NOT_SUPPORTED)
      return "cuBLASLt has no algorithm for this GEMM on this device. Use another dtype or layout.";
    return "Set CUBLASLT_LOG_LEVEL=5 in the environment to see cuBLASLt's log.";
  }
  if (library === "nccl") {
    return "Set NCCL_DEBUG=WARN in the environment to see NCCL's own message. If another rank has ended, its output has the cause.";
  }
  const missing = noDevice.get(status);
  if (missing) return missing;
  if (status === cudaStatus.ERROR_OUT_OF_MEMORY) {
    return "Another process uses the device's memory; `nvidia-smi` lists it. Lower HOLDFAST_MEMORY or free the device.";
  }
  if (status === cudaStatus.ERROR_ILLEGAL_ADDRESS || status === cudaStatus.ERROR_MISALIGNED_ADDRESS) {
    return "A kernel launched before this call accessed an invalid address, and the context is lost. Restart this process; run under the strict driver to find the access.";
  }
  if (status === cudaStatus.ERROR_LAUNCH_TIMEOUT) {
    return "A kernel ran longer than the system allows on a GPU that also drives a screen, and the context is lost. Restart this process.";
  }
  if (fatal.has(status)) return "The context is lost. Restart this process.";
  if (
    status >= cudaStatus.ERROR_STREAM_CAPTURE_UNSUPPORTED &&
    status <= cudaStatus.ERROR_STREAM_CAPTURE_WRONG_THREAD
  ) {
    return "The capture is now invalid. Move the calls that CUDA forbids to before beginCapture, then capture again.";
  }
  if (status === cudaStatus.ERROR_DEINITIALIZED)
    return "CUDA is shutting down. Close the runtime before the process ends.";
  if (status === cudaStatus.ERROR_NO_BINARY_FOR_GPU || status === cudaStatus.ERROR_INVALID_IMAGE) {
    return "The machine code is for another GPU, or damaged. Empty the folder of HOLDFAST_CACHE, so that it is compiled again.";
  }
  return "Check the arguments; `nvidia-smi` shows whether the device works.";
}
