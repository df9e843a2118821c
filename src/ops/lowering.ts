/**
 * The lowering of one op in progress. It collects the kernel calls that the op's entry emits, and owns their scratch memory and
 * views. Nothing runs here: the creator submits the calls and then closes the lowering.
 */

import type { Dtype } from "../ir/index.js";
import {
  attentionBackwardCalls,
  attentionCalls,
  type Backend,
  type BackwardProblem,
  backendOf,
  type ChunkedReduceLaunch,
  type ColumnLaunch,
  type ConvolutionProblem,
  chunkedReduceCalls,
  columnCalls,
  convolutionCalls,
  type ForwardProblem,
  type GemmInputDtype,
  type GemmProblem,
  gemmCalls,
  type KernelCall,
  type RowLaunch,
  rowCalls,
  type Scan,
  type ScatterAdd,
  scanCalls,
  scatterAddCalls,
  submit,
} from "../kernels/index.js";
import type { LaunchCommand, Runtime, Settings, Storage } from "../runtime/index.js";
import { allocateArray, type DeviceArray } from "./device-array.js";
import type { CheckContext, Lowering } from "./op.js";
import type { Shape } from "./shape.js";

/** Scratch memory or a view of a lowering, in the order of the requests. */
export type LoweringMemory =
  | { readonly kind: "scratch"; readonly storage: Storage }
  | { readonly kind: "view"; readonly storage: Storage; readonly base: Storage; readonly offset: number };

export class OpLowering implements Lowering {
  readonly op: string;
  readonly backend: Backend;
  readonly precision: Settings["precision"];
  readonly calls: KernelCall[] = [];
  readonly memory: LoweringMemory[] = [];
  readonly #runtime: Runtime;

  constructor(runtime: Runtime, op: string) {
    this.#runtime = runtime;
    this.op = op;
    this.backend = backendOf(runtime);
    this.precision = runtime.settings.precision;
  }

  scratch(bytes: number): Storage {
    const storage = this.#runtime.arena.allocate(bytes, `${this.op} scratch`);
    this.memory.push({ kind: "scratch", storage });
    return storage;
  }

  scratchArray(shape: Shape, dtype: Dtype): DeviceArray {
    const array = allocateArray(this.#runtime, shape, dtype, `${this.op} scratch`);
    if (array.storage) this.memory.push({ kind: "scratch", storage: array.storage });
    return array;
  }

  view(base: Storage, offset: number, size: number): Storage {
    const storage = this.#runtime.view(base, offset, size, this.op);
    this.memory.push({ kind: "view", storage, base, offset });
    return storage;
  }

  emit(calls: readonly KernelCall[]): void {
    this.calls.push(...calls);
  }

  row(launch: RowLaunch): void {
    this.emit(rowCalls(launch));
  }

  column(launch: ColumnLaunch): void {
    this.emit(columnCalls(launch));
  }

  gemm(problem: GemmProblem<GemmInputDtype>): void {
    this.emit(gemmCalls(problem, this.op));
  }

  attention(problem: ForwardProblem): void {
    this.emit(attentionCalls(problem, this.op));
  }

  attentionBackward(problem: BackwardProblem): void {
    this.emit(attentionBackwardCalls(problem, this.op));
  }

  convolution(problem: ConvolutionProblem): void {
    this.emit(convolutionCalls(problem, this.op));
  }

  scan(scan: Scan): void {
    this.emit(scanCalls(this.backend, scan, this.op));
  }

  scatterAdd(scatter: ScatterAdd): void {
    const scratch = this.backend.scatterScratchBytes([scatter]).map((bytes) => this.scratch(bytes));
    this.emit(scatterAddCalls({ ...scatter, scratch }, this.op));
  }

  chunkedReduce(launch: Omit<ChunkedReduceLaunch, "view">): void {
    const view = (storage: Storage, offset: number, size: number): Storage =>
      this.view(storage, offset, size);
    this.emit(chunkedReduceCalls(this.backend, { ...launch, view }));
  }

  launch(command: Omit<LaunchCommand, "kind">): void {
    this.emit([{ kind: "launch", ...command }]);
  }

  fill(target: Storage, byte: number): void {
    this.emit([{ kind: "fill", target, byte }]);
  }

  copy(target: Storage, source: Storage): void {
    this.emit([{ kind: "copy", target, source }]);
  }

  /** Frees scratch memory and views. Work that is submitted later on the stream may reuse the memory. */
  close(): void {
    const { arena } = this.#runtime;
    for (const { kind, storage } of this.memory)
      if (kind === "view" && storage.kind === "step") arena.dropView(storage);
    for (const { kind, storage } of this.memory) if (kind === "scratch") arena.free(storage);
  }
}

/** A check in progress: it can run emitted calls and read their results. */
export class OpCheck extends OpLowering implements CheckContext {
  readonly runtime: Runtime;

  constructor(runtime: Runtime, op: string) {
    super(runtime, op);
    this.runtime = runtime;
  }

  submit(): void {
    submit(this.runtime, this.calls.splice(0));
  }

  read(storage: Storage): Uint8Array<ArrayBuffer> {
    this.submit();
    return this.runtime.read(storage);
  }
}
