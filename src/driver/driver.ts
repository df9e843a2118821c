/**
 * The one door to hardware. Everything above speaks to a `Driver`; CUDA and the CPU are two of them, and the
 * wrappers `strict` and `faulty` are two more around either.
 *
 * The rules every driver keeps:
 * - Calls return at once; work on a stream runs in order, and is finished for sure only after a synchronise.
 * - Arguments are copied during the call: the caller may change its arrays and records right after.
 * - Between `beginCapture` and `endCapture` work is recorded and does not run.
 * - A call that throws has changed nothing. One exception: work that fails after it was issued is told by the next
 *   `synchronize`, `synchronizeEvent`, `isReached` or `destroyStream` that comes behind it, and what was queued behind
 *   it does not run.
 */

import type { Bytes, Span } from "../units/index.js";

export interface DeviceInfo {
  readonly kind: "cpu" | "cuda";
  readonly name: string;
  readonly index: number;
  /** Where device memory lives: on its own card, shared with the host by one pool, or in this process. */
  readonly memory: "discrete" | "unified" | "host";
  /** How many bytes of address range can be reserved in all. */
  readonly addressSpace: Bytes;
  /** `commit` works in multiples of this. */
  readonly granularity: Bytes;
  /** False where a reservation can only be committed whole. */
  readonly canCommitInParts: boolean;
  /** CPU threads or GPU multiprocessors. */
  readonly parallelism: number;
  /** What a CUDA device can do, as its maker counts it: "9.0". */
  readonly computeCapability?: string;
  /** Can a launch begin while the one before it on its stream ends? */
  readonly supportsPdl?: boolean;
}

/** What the driver itself says of memory; on a unified machine the runtime corrects `free` by the host's figure. */
export interface MemoryInfo {
  readonly total: Bytes;
  readonly free: Bytes;
}

export interface Stream {
  readonly type: "stream";
  readonly id: number;
}

export interface Event {
  readonly type: "event";
  readonly id: number;
}

/** Page-locked host memory. Its bytes are reached through `Driver.hostBytes` only, so that a look can be rejected. */
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
 * How a kernel takes one argument. Memory says whether it is read, written whole, written in part, or both read and
 * written; scalars go by value.
 */
export type Parameter = "in" | "out" | "partial-out" | "inout" | "i32" | "u32" | "f32" | "f64";

export type MemoryParameter = Extract<Parameter, "in" | "out" | "partial-out" | "inout">;

export function isMemory(parameter: Parameter): parameter is MemoryParameter {
  return parameter === "in" || parameter === "out" || parameter === "partial-out" || parameter === "inout";
}

/**
 * A memory parameter that the kernel takes not as a pointer but as the map of a matrix, or of several at equal steps, out of
 * which it has boxes copied to shared memory: Hopper's way to bring tiles. A launch gives a span for it as for any other, and
 * the driver makes the map. What a box has outside its matrix is 0.
 */
export interface TensorMap {
  /** Which of the kernel's parameters it is. */
  readonly parameter: number;
  readonly dtype: "bf16" | "f16" | "f32";
  /** Which parameters (i32) say how many columns and rows a matrix has, and how many elements lie between the beginnings of two rows. */
  readonly columns: number;
  readonly rows: number;
  readonly rowStride: number;
  /** Which parameters (i32) say how many matrices there are, and how many elements lie between two; with a step of 0 the map has one. */
  readonly matrices: number;
  readonly matrixStride: number;
  /** What one copy brings, in elements: up to 128 bytes of up to 256 rows. */
  readonly box: { readonly columns: number; readonly rows: number };
}

/**
 * CUDA C++ for one kernel. It takes the kernel's parameters in their order, memory as pointers or maps, and includes nothing.
 */
export interface CudaCode {
  /** Holds `extern "C" __global__ void entry(…)`; everything else in it has internal linkage. */
  readonly code: string;
  readonly entry: string;
  /** Threads of a block, in one dimension; `Launch.blocks` is the grid, in one dimension too. */
  readonly threads: number;
  /**
   * The compute capability whose instructions it uses, also those that later ones don't have; any that Holdfast runs on unless
   * given.
   */
  readonly onlyFor?: string;
  /** Shared memory that comes with the launch: for kernels that need more than the 48 KiB which their code may declare. */
  readonly sharedBytes?: number;
  /** The memory parameters that it takes as maps: `const __grid_constant__`, 128 bytes that begin on 64. */
  readonly maps?: readonly TensorMap[];
  /**
   * Does it wait by itself for the launch before it on its stream, before it looks at anything that this one writes, and before it
   * writes anything? Then launches of it may begin early.
   */
  readonly waits?: boolean;
}

/** How a matrix of a `Product` lies: row by row. Strides count elements. */
export interface GemmMatrix {
  readonly rowStride: number;
  /** The product takes the transpose of what is stored. */
  readonly isTransposed: boolean;
  /** From one product of the batch to the next; 0 shares the matrix between them. */
  readonly batchStride: number;
  /** A power of two, up to 256, that divides the address of every launch's operand. */
  readonly alignment: number;
}

/** A bias, and each of a batch, begins on so many bytes: libraries load that much at once, and can't be told otherwise. */
export const biasAlignment = 16;

/** What f32 operands of a product may be rounded to on their way into it; sums are f32 always. */
export type GemmPrecision = "f32" | "tf32" | "bf16";

/**
 * `C[m, n] = activation(alpha · op(A)[m, k] · op(B)[k, n] + beta · C + bias[n])`, once or for a batch: for the library
 * of a device that has one. The kernel's parameters are A, B, C and, where there is one, the bias.
 */
export interface Product {
  /** Of A and B. */
  readonly dtype: "f32" | "f64" | "f16" | "bf16";
  /** Of C and the bias: the operands', or f32 for half floats whose sums are kept as they come. */
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
  /** It begins on `biasAlignment` bytes. */
  readonly hasBias: boolean;
  /** From one product's bias to the next one's, in elements; 0 shares it. */
  readonly biasBatchStride: number;
  /** `gelu` is the one with tanh. */
  readonly activation: "none" | "relu" | "gelu";
  /** Which of its algorithms the library takes, counted in the order of its own preference; 0 unless given. */
  readonly choice?: number;
}

/** A kernel in the forms that drivers load; a driver takes its own and ignores the rest. */
export interface KernelSource {
  readonly name: string;
  readonly parameters: readonly Parameter[];
  /**
   * A WebAssembly module that imports the device memory as `env.memory` (shared) and exports the kernel under its
   * name: (firstBlock: i32, endBlock: i32, …arguments), memory arguments being i32 addresses.
   */
  readonly wasm?: Uint8Array<ArrayBuffer>;
  /**
   * A function of this process in the kernel's place, where device memory is this process's own. It takes what the
   * WebAssembly function takes, memory arguments being native addresses, and runs all blocks on the calling thread.
   */
  readonly native?: (...args: number[]) => void;
  readonly cuda?: CudaCode;
  readonly product?: Product;
}

export interface Kernel {
  readonly type: "kernel";
  readonly id: number;
  readonly name: string;
  /** The source's, and for a library's product that needs a workspace one more, "out", behind them. */
  readonly parameters: readonly Parameter[];
  /** How large that workspace has to be, which begins on 256 bytes; none where this is missing or 0. */
  readonly workspaceBytes?: number;
  /** For a library's product: how many algorithms there are to choose from. */
  readonly choices?: number;
}

/** A memory parameter takes a span, so that what a launch touches is known; a scalar takes a number. */
export type Argument = Span | number;

export interface Launch {
  readonly kernel: Kernel;
  /** How many independent blocks of work there are; any of them may run at the same time as any other. */
  readonly blocks: number;
  readonly arguments: readonly Argument[];
  /** Where the device `supportsPdl`: may it begin while the launch before it on its stream ends, if its kernel waits by itself? */
  readonly isPdl?: boolean;
}

/**
 * What a recorded graph holds, by kind; a product counts as one kernel, however many its library makes of it. Memory and
 * host nodes are what the runtime rejects.
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
  /** Does its work begin before what other streams are given, where a device has not room for all? No unless given. */
  readonly isFirst?: boolean;
}

/** CUDA also has "global" and "relaxed"; the first dies of other threads' calls, the second switches the checks off. */
export type CaptureMode = "thread-local";

export interface Driver {
  describe(): DeviceInfo;
  memory(): MemoryInfo;

  /** Takes an address range with no memory behind it; at least `size`, rounded up to the granularity. */
  reserve(size: Bytes): Span;
  /** Puts memory behind a part of a reservation; multiples of `DeviceInfo.granularity`. Its bytes are undefined. */
  commit(part: Span): void;
  /** Gives a whole reservation back, memory and range: the very span that `reserve` returned. */
  release(reservation: Span): void;
  /** Hears which spans are in use. Machines have no ear for it; `strict` holds everybody to it. */
  annotate?(range: Span, state: "live" | "dead"): void;

  allocateHost(size: Bytes): HostMemory;
  /** The host's way to pinned bytes. The array is good until the next call that touches this memory. */
  hostBytes(range: HostSpan): Uint8Array;
  freeHost(memory: HostMemory): void;

  createStream(options?: StreamOptions): Stream;
  destroyStream(stream: Stream): void;
  createEvent(): Event;
  destroyEvent(event: Event): void;
  /** Marks the present end of a stream's work. */
  recordEvent(event: Event, stream: Stream): void;
  /** Holds back a stream's later work until the event's mark is reached. */
  waitEvent(stream: Stream, event: Event): void;
  /** Has the event's mark been reached? Never waits, and need not make progress: don't wait by asking. */
  isReached(event: Event): boolean;
  synchronizeEvent(event: Event): void;
  synchronize(stream: Stream): void;

  copyToDevice(stream: Stream, target: Span, source: HostSpan): void;
  copyToHost(stream: Stream, target: HostSpan, source: Span): void;
  copyOnDevice(stream: Stream, target: Span, source: Span): void;
  fill(stream: Stream, target: Span, byte: number): void;
  loadKernel(source: KernelSource): Kernel;
  unloadKernel(kernel: Kernel): void;
  launch(stream: Stream, launch: Launch): void;

  /**
   * What was noted about this device under a key, by this process or an earlier one, where the driver keeps notes: what was
   * found out by measuring is the same the next time, and so are the bits that follow from it.
   */
  recall?(key: string): string | undefined;
  remember?(key: string, note: string): void;

  beginCapture(stream: Stream, mode: CaptureMode): void;
  endCapture(stream: Stream): Graph;
  /** Makes a recorded graph ready to launch. */
  instantiate(graph: Graph): void;
  launchGraph(stream: Stream, graph: Graph): void;
  destroyGraph(graph: Graph): void;

  close(): void;
}

export type DriverCall = keyof Driver;

/** Every call of the interface, for wrappers, fault scripts and stall reports; the compiler holds it complete. */
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
