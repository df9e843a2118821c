/**
 * The interface to hardware. All other layers use a `Driver`. CUDA and the CPU implement it; `strict` and `faulty` wrap
 * either.
 *
 * Rules for every driver:
 * - Calls return at once. Work on a stream runs in order; only a synchronize guarantees that it has completed.
 * - Arguments are copied during the call: the caller may change its arrays and records afterwards.
 * - Between `beginCapture` and `endCapture` work is recorded and does not run.
 * - A call that throws has changed nothing. One exception: the failure of issued work is thrown by the next
 *   `synchronize`, `synchronizeEvent`, `isReached` or `destroyStream`. Work queued after the failed work does not run.
 */

import type { Bytes, Span } from "../units/index.js";

/** The properties of a device. */
export interface DeviceInfo {
  readonly kind: "cpu" | "cuda";
  readonly name: string;
  readonly index: number;
  /** Location of device memory: on a discrete card, in one pool shared with the host, or in this process. */
  readonly memory: "discrete" | "unified" | "host";
  /** Bytes of address space that can be reserved in total. */
  readonly addressSpace: Bytes;
  /** `commit` works in multiples of this. */
  readonly granularity: Bytes;
  /** False if a reservation can only be committed whole. */
  readonly canCommitInParts: boolean;
  /** CPU threads or GPU multiprocessors. */
  readonly parallelism: number;
  /** Which GPU it is, on this machine and on any other: "GPU-1b2c…", as `nvidia-smi -L` shows it. */
  readonly uuid?: string;
  /** Compute capability of a CUDA device: "9.0". */
  readonly computeCapability?: string;
  /** Shared memory of a block, static and dynamic, on a CUDA device. Default: that of its compute capability. */
  readonly sharedBytesPerBlock?: number;
  /**
   * True if the device supports programmatic dependent launch: a launch may start during the tail of its predecessor.
   */
  readonly supportsPdl?: boolean;
}

/** Memory as the driver reports it. On a unified machine the runtime corrects `free` by the host's figure. */
export interface MemoryInfo {
  readonly total: Bytes;
  readonly free: Bytes;
}

/** A queue of work on a device. */
export interface Stream {
  readonly type: "stream";
  readonly id: number;
}

export interface Event {
  readonly type: "event";
  readonly id: number;
}

/**
 * Page-locked host memory. Its bytes are accessed only through `Driver.hostBytes`, so that an illegal access can be
 * rejected.
 */
export interface HostMemory {
  readonly type: "host";
  readonly id: number;
  readonly size: Bytes;
}

export interface HostSpan {
  readonly memory: HostMemory;
  readonly offset: Bytes;
  readonly size: Bytes;
}

/**
 * How a kernel uses an argument. Memory is read, fully written, partially written, or read and written; scalars are
 * passed by value.
 */
export type Parameter = "in" | "out" | "partial-out" | "inout" | "i32" | "u32" | "f32" | "f64";

export type MemoryParameter = Extract<Parameter, "in" | "out" | "partial-out" | "inout">;

export function isMemory(parameter: Parameter): parameter is MemoryParameter {
  return parameter === "in" || parameter === "out" || parameter === "partial-out" || parameter === "inout";
}

/**
 * A memory parameter that the kernel takes as a tensor map. It describes a matrix, or a batch at a fixed stride; TMA
 * copies tiles of it to shared memory. A launch passes a span as for any other parameter, and the driver encodes the
 * map. Elements outside the matrix read as 0.
 */
export interface TensorMap {
  /** Index of the kernel's parameter. */
  readonly parameter: number;
  /** tf32: f32 in memory, which TMA rounds to TF32 (nearest even) while it copies. Infinities and NaN stay as they are. */
  readonly dtype: "bf16" | "f16" | "f32" | "tf32";
  /** Indices of the i32 parameters with the number of columns and rows of a matrix, and the row stride in elements. */
  readonly columns: number;
  readonly rows: number;
  readonly rowStride: number;
  /**
   * Indices of the i32 parameters with the number of matrices and the matrix stride in elements. With stride 0 the map
   * has one matrix.
   */
  readonly matrices: number;
  readonly matrixStride: number;
  /** The tile of one copy, in elements: up to 128 bytes of up to 256 rows. */
  readonly box: { readonly columns: number; readonly rows: number };
}

/**
 * CUDA C++ of one kernel. It takes the kernel's parameters in order, memory as pointers or tensor maps, and includes no
 * headers.
 */
export interface CudaCode {
  /** Contains `extern "C" __global__ void entry(…)`; everything else in it has internal linkage. */
  readonly code: string;
  readonly entry: string;
  /** Threads per block. Blocks and the grid (`Launch.blocks`) are one-dimensional. */
  readonly threads: number;
  /** The compute capability whose architecture-specific instructions (sm_90a) it uses. Default: any. */
  readonly requiredCapability?: string;
  /** Dynamic shared memory, for kernels that need more than the 48 KiB of static shared memory. */
  readonly sharedBytes?: number;
  /** The memory parameters passed as tensor maps: `const __grid_constant__`, 128 bytes aligned to 64. */
  readonly maps?: readonly TensorMap[];
  /**
   * True if the kernel executes griddepcontrol.wait before it reads anything that its predecessor writes, and before it
   * writes. Its launches may then use programmatic dependent launch.
   */
  readonly hasGridDependencyWait?: boolean;
  /** Memory parameters that it reads before the wait. The preceding launch must not write them if it uses programmatic dependent launch. */
  readonly early?: readonly number[];
}

/** Layout of a GEMM operand: row-major. Strides are in elements. */
export interface GemmMatrix {
  readonly rowStride: number;
  /** Use the transpose of the stored matrix. */
  readonly isTransposed: boolean;
  /** Stride between the matrices of a batch; 0 shares one matrix. */
  readonly batchStride: number;
  /** A power of two, up to 256, that divides the operand's address in every launch. */
  readonly alignment: number;
}

/** Alignment in bytes of a bias, and of each bias of a batch. Libraries load that much at once. */
export const biasAlignment = 16;

/** The precision f32 operands may be rounded to on load. Accumulation is always f32. */
export type GemmPrecision = "f32" | "tf32" | "bf16";

/**
 * A GEMM of a library: `C[m, n] = activation(alpha · op(A)[m, k] · op(B)[k, n] + beta · C + bias[n])`, once or batched.
 * The kernel's parameters are A, B, C and, if present, the bias.
 */
export interface LibraryGemm {
  /** The dtype of A and B. */
  readonly dtype: "f32" | "f64" | "f16" | "bf16";
  /**
   * The dtype of C and the bias: that of the operands, or f32 for half-precision operands whose f32 accumulators are
   * stored.
   */
  readonly resultDtype: "f32" | "f64" | "f16" | "bf16";
  readonly precision: GemmPrecision;
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly batch: number;
  readonly a: GemmMatrix;
  readonly b: GemmMatrix;
  readonly c: GemmMatrix;
  readonly alpha: number;
  readonly beta: number;
  /** A bias is aligned to `biasAlignment` bytes. */
  readonly hasBias: boolean;
  /** Stride between the biases of a batch, in elements; 0 shares one bias. */
  readonly biasBatchStride: number;
  /** `gelu` is the tanh approximation. */
  readonly activation: "none" | "relu" | "gelu";
  /** Index of the library's algorithm, in its order of preference. Default: 0. */
  readonly algorithm?: number;
}

/** A kernel in JavaScript: device memory, the first block, the end block, and the arguments. */
export type HostFunction = (memory: ArrayBufferLike, ...args: number[]) => void;

/** A kernel's code for each driver. A driver loads the kind that it can run and ignores the others. */
export interface KernelSource {
  readonly name: string;
  readonly parameters: readonly Parameter[];
  /**
   * A WebAssembly module that imports the device memory as `env.memory` (shared) and exports the kernel under its name:
   * (firstBlock: i32, endBlock: i32, …arguments). Memory arguments are i32 addresses.
   */
  readonly wasm?: Uint8Array<ArrayBuffer>;
  /**
   * A function of this process that replaces the kernel when device memory is host memory. It takes the arguments of
   * the WebAssembly function, with native addresses, and runs all blocks on the calling thread.
   */
  readonly native?: (...args: number[]) => void;
  /**
   * The same in JavaScript: its first argument is device memory, and memory arguments are byte offsets in it. For kernels with many
   * branches, such as matrix decompositions, which run once for each matrix.
   */
  readonly host?: HostFunction;
  readonly cuda?: CudaCode;
  readonly gemm?: LibraryGemm;
  /**
   * A function of this process that issues the kernel's work to a CUDA stream, by a library that launches its own kernels. It takes the
   * stream's handle and the addresses of the arguments. In a capture its work is recorded.
   */
  readonly enqueue?: (stream: number, ...args: number[]) => void;
}

/** A loaded kernel. */
export interface Kernel {
  readonly type: "kernel";
  readonly id: number;
  readonly name: string;
  /** The source's parameters, plus a final "out" if a library GEMM needs a workspace. */
  readonly parameters: readonly Parameter[];
  /** Required workspace size, aligned to 256 bytes. Undefined or 0: no workspace. */
  readonly workspaceBytes?: number;
  /** For a library GEMM: the number of algorithms. */
  readonly algorithmCount?: number;
  /** Memory parameters that it reads before the grid dependency wait. */
  readonly early?: readonly number[];
}

/** A memory parameter takes a span, so that the accessed bytes are known; a scalar parameter takes a number. */
export type Argument = Span | number;

/** The arguments of a kernel launch. */
export interface Launch {
  readonly kernel: Kernel;
  /** Number of independent blocks; any of them may run concurrently. */
  readonly blocks: number;
  readonly arguments: readonly Argument[];
  /**
   * Use programmatic dependent launch: if the device supports it and the kernel waits for its predecessor, the launch
   * may start early.
   */
  readonly isPdl?: boolean;
}

/**
 * Nodes of a recorded graph by kind. A launch whose work a library does (`gemm`, `enqueue`) counts as one kernel, whatever nodes it has.
 * The runtime rejects memory and host nodes.
 */
export interface NodeCount {
  readonly kernel: number;
  readonly copy: number;
  readonly fill: number;
  readonly memory: number;
  readonly host: number;
}

export interface Graph {
  readonly type: "graph";
  readonly id: number;
  readonly nodes: NodeCount;
}

export interface StreamOptions {
  /** High priority: its work runs before that of other streams when the device cannot run all. Default: false. */
  readonly isHighPriority?: boolean;
}

/** CUDA also has "global", which fails on calls of other threads, and "relaxed", which disables the checks. */
export type CaptureMode = "thread-local";

/** The interface to a device. All access to hardware goes through it. */
export interface Driver {
  describe(): DeviceInfo;
  memory(): MemoryInfo;

  /** Reserves an address range without memory; at least `size`, rounded up to the granularity. */
  reserve(size: Bytes): Span;
  /** Commits memory to a range of a reservation, in multiples of `DeviceInfo.granularity`. The bytes are undefined. */
  commit(range: Span): void;
  /** Releases a whole reservation, memory and address range: the span that `reserve` returned. */
  release(reservation: Span): void;
  /**
   * Reports which spans are live. `strict` checks every access against it; CUDA forwards it to a memory checking tool.
   */
  annotate?(range: Span, state: "live" | "dead"): void;

  allocateHost(size: Bytes): HostMemory;
  /** A view of pinned bytes, valid until the next call that uses this memory. */
  hostBytes(range: HostSpan): Uint8Array;
  freeHost(memory: HostMemory): void;

  createStream(options?: StreamOptions): Stream;
  destroyStream(stream: Stream): void;
  createEvent(): Event;
  destroyEvent(event: Event): void;
  /** Records the current end of a stream's work in the event. */
  recordEvent(event: Event, stream: Stream): void;
  /** Delays a stream's later work until the event completes. */
  waitEvent(stream: Stream, event: Event): void;
  /**
   * True if the event has completed. Never blocks. The CPU driver makes no progress here, so do not poll it in a loop.
   */
  isReached(event: Event): boolean;
  synchronizeEvent(event: Event): void;
  synchronize(stream: Stream): void;

  copyToDevice(stream: Stream, target: Span, source: HostSpan): void;
  copyToHost(stream: Stream, target: HostSpan, source: Span): void;
  copyOnDevice(stream: Stream, target: Span, source: Span): void;
  fill(stream: Stream, target: Span, byte: number): void;
  /**
   * Compiles kernels, several at once, so that `loadKernel` need not. Reports progress by heartbeats. Sources without
   * code to compile are ignored.
   */
  compileKernels?(sources: readonly KernelSource[]): void;
  loadKernel(source: KernelSource): Kernel;
  unloadKernel(kernel: Kernel): void;
  launch(stream: Stream, launch: Launch): void;

  /**
   * Returns the note stored for this device under a key, by this process or an earlier one. Measurements stay the same
   * the next time, and so do the bits that depend on them.
   */
  recall?(key: string): string | undefined;
  remember?(key: string, note: string): void;

  beginCapture(stream: Stream, mode: CaptureMode): void;
  endCapture(stream: Stream): Graph;
  /** Makes a recorded graph launchable. */
  instantiate(graph: Graph): void;
  launchGraph(stream: Stream, graph: Graph): void;
  destroyGraph(graph: Graph): void;

  close(): void;
}

/** The name of a driver call. */
export type DriverCall = keyof Driver;

/**
 * Every call of the interface, for wrappers, fault scripts and stall reports. The compiler checks that it is complete.
 */
export const driverCalls = Object.keys({
  describe: true,
  memory: true,
  reserve: true,
  commit: true,
  release: true,
  annotate: true,
  allocateHost: true,
  hostBytes: true,
  freeHost: true,
  createStream: true,
  destroyStream: true,
  createEvent: true,
  destroyEvent: true,
  recordEvent: true,
  waitEvent: true,
  isReached: true,
  synchronizeEvent: true,
  synchronize: true,
  copyToDevice: true,
  copyToHost: true,
  copyOnDevice: true,
  fill: true,
  compileKernels: true,
  loadKernel: true,
  unloadKernel: true,
  launch: true,
  recall: true,
  remember: true,
  beginCapture: true,
  endCapture: true,
  instantiate: true,
  launchGraph: true,
  destroyGraph: true,
  close: true,
} satisfies Record<DriverCall, true>) as readonly DriverCall[];
