/**
 * A failed call of CUDA as a message for people: CUDA's name and number for it, the call with its arguments by name, and
 * what to do next. Some failures make every later call fail too; the messages of those name the first one.
 */

import { type ErrorCode, HoldfastError } from "../../errors/index.js";
import { formatAddress } from "../../units/index.js";
import { type ForeignParameter, splitParameter } from "./bindings.js";
import { cublasStatus, cudaStatus } from "./constants.js";

export type CudaLibrary = "cuda" | "nvrtc" | "cublasLt" | "nvtx";

export type ForeignValue = number | string;

export interface FailedCall {
  readonly library: CudaLibrary;
  readonly call: string;
  readonly parameters: readonly ForeignParameter[];
  readonly values: readonly ForeignValue[];
  readonly status: number;
  /** "CUDA_ERROR_OUT_OF_MEMORY", or "" where the library has no name for the number. */
  readonly name: string;
  /** What the library itself says about it. */
  readonly text: string;
}

/** After one of these the context is lost: every later call answers with a failure. */
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

/** Remembers what failed first, and makes the errors. One for each opened CUDA. */
export class Failures {
  #fatal: FailedCall | undefined;
  #inCapture: FailedCall | undefined;

  /** Every status that is not a success comes here, also one that the caller asked to see. */
  note(library: CudaLibrary, status: number, describe: () => FailedCall): void {
    // "Not ready" is an answer, and asked for thousands of times.
    if (library === "nvrtc" || (library === "cuda" && status === cudaStatus.ERROR_NOT_READY)) return;
    if (library === "cuda" && fatal.has(status)) this.#fatal ??= describe();
    this.#inCapture ??= describe();
  }

  /** A capture begins or has ended: what failed before has no part in the next one. */
  forgetCapture(): void {
    this.#inCapture = undefined;
  }

  /** The error for a failure, after it was noted. */
  errorOf(failed: FailedCall): HoldfastError {
    const first = this.#firstBefore(failed);
    const sentences = [`${describeCall(failed)} failed: ${describeStatus(failed)}.`];
    if (first) sentences.push(`${describeCall(first)} failed first: ${describeStatus(first)}.`);
    sentences.push(wayOut(first ?? failed));
    const numbers = {
      call: failed.call,
      status: failed.status,
      name: failed.name,
      ...(first && { firstCall: first.call, firstStatus: first.status }),
    };
    return new HoldfastError(codeOf(failed), sentences.join(" "), { numbers });
  }

  #firstBefore(failed: FailedCall): FailedCall | undefined {
    if (failed.library === "nvrtc") return undefined;
    const isInvalidated =
      failed.library === "cuda" && failed.status === cudaStatus.ERROR_STREAM_CAPTURE_INVALIDATED;
    const first = this.#fatal ?? (isInvalidated ? this.#inCapture : undefined);
    return first?.values === failed.values ? undefined : first;
  }
}

/** `cuMemMap(range 0x7f0000000000, size 2097152, offset 0, …)` */
export function describeCall({ call, parameters, values }: FailedCall): string {
  const parts = parameters.map((parameter, index) => {
    const { type, name } = splitParameter(parameter);
    return `${name} ${describeValue(type, values[index])}`;
  });
  return `${call}(${parts.join(", ")})`;
}

const longestText = 40;

function describeValue(type: string, value: ForeignValue | undefined): string {
  if (type === "address" && typeof value === "number") return formatAddress(value);
  if (typeof value !== "string") return String(value);
  return JSON.stringify(value.length > longestText ? `${value.slice(0, longestText)}…` : value);
}

function describeStatus({ library, name, status, text }: FailedCall): string {
  const label = name === "" ? `${library} status ${status}` : `${name} (${status})`;
  return text === "" || text === name ? label : `${label}, ${text.replace(/\.$/, "")}`;
}

function codeOf({ library, status }: FailedCall): ErrorCode {
  if (library === "nvrtc") return "KERNEL_FAILED";
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

/** There is a libcuda, and no device behind it that could be used. */
const noDevice: ReadonlyMap<number, string> = new Map([
  [
    cudaStatus.ERROR_STUB_LIBRARY,
    "The libcuda that was found is the toolkit's stub, which only links; install the NVIDIA driver, and take the stubs folder out of LD_LIBRARY_PATH.",
  ],
  [
    cudaStatus.ERROR_NO_DEVICE,
    "This process sees no NVIDIA GPU: `nvidia-smi` lists those of the machine, CUDA_VISIBLE_DEVICES may hide them, and a container needs them passed in.",
  ],
  [
    cudaStatus.ERROR_SYSTEM_NOT_READY,
    "The GPUs are not up yet: look at `nvidia-smi` and at the service nvidia-fabricmanager.",
  ],
  [
    cudaStatus.ERROR_SYSTEM_DRIVER_MISMATCH,
    "libcuda and the driver in the kernel are of different versions, as after an update: restart the machine.",
  ],
  [
    cudaStatus.ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE,
    "The libcuda that was found is a compatibility package that this GPU can't use: take its folder out of LD_LIBRARY_PATH.",
  ],
]);

function wayOut({ library, status }: FailedCall): string {
  if (library === "nvrtc") return "The compiler's log says more.";
  if (library === "cublasLt") {
    if (status === cublasStatus.NOT_SUPPORTED)
      return "cuBLASLt has no algorithm for this product on this device.";
    return "CUBLASLT_LOG_LEVEL=5 in the environment makes cuBLASLt say more.";
  }
  const missing = noDevice.get(status);
  if (missing) return missing;
  if (status === cudaStatus.ERROR_OUT_OF_MEMORY) {
    return "Something else uses the device's memory: `nvidia-smi` shows who. Lower HOLDFAST_MEMORY or free the device.";
  }
  if (status === cudaStatus.ERROR_ILLEGAL_ADDRESS || status === cudaStatus.ERROR_MISALIGNED_ADDRESS) {
    return "A kernel that was launched before this call touched memory that is not its own, and the context is lost. Run it under the strict driver to find the address; this process must be started anew.";
  }
  if (status === cudaStatus.ERROR_LAUNCH_TIMEOUT) {
    return "A kernel ran longer than the system allows on a GPU that also drives a screen; the context is lost, and this process must be started anew.";
  }
  if (fatal.has(status)) return "The context is lost: this process must be started anew.";
  if (
    status >= cudaStatus.ERROR_STREAM_CAPTURE_UNSUPPORTED &&
    status <= cudaStatus.ERROR_STREAM_CAPTURE_WRONG_THREAD
  ) {
    return "The capture is spoilt; do before it what CUDA forbids inside, then capture anew.";
  }
  if (status === cudaStatus.ERROR_DEINITIALIZED)
    return "CUDA is shutting down: close the runtime before the process ends.";
  if (status === cudaStatus.ERROR_NO_BINARY_FOR_GPU || status === cudaStatus.ERROR_INVALID_IMAGE) {
    return "The machine code is for another GPU, or damaged.";
  }
  return "Look at the arguments; `nvidia-smi` shows whether the device works at all.";
}
