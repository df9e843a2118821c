/**
 * The lowering of one op in progress. It collects the kernel calls that the op's entry emits, and owns their scratch memory and
 * views. Nothing runs here: the creator submits the calls and then closes the lowering.
 */

import { HoldfastError } from "../errors/index.js";
import { type Dtype, dtypes } from "../ir/index.js";
import {
  attentionBackwardCalls,
  attentionCalls,
  type Backend,
  type BackwardProblem,
  backendOf,
  CallTrace,
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
  type LoopOperand,
  type LoopView,
  type RowLaunch,
  rowCalls,
  type Scan,
  type ScatterAdd,
  scanCalls,
  scatterAddCalls,
  submit,
} from "../kernels/index.js";
import type { LaunchCommand, Runtime, Settings, Storage } from "../runtime/index.js";
import { contiguousStrides, type DeviceArray } from "./device-array.js";
import type { CheckContext, Loop, Lowering } from "./op.js";
import { type Shape, sizeOf } from "./shape.js";

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
  /** The scratch memory of a loop, while its body emits calls. */
  #reused: ReusedScratch | undefined;

  constructor(runtime: Runtime, op: string) {
    this.#runtime = runtime;
    this.op = op;
    this.backend = backendOf(runtime);
    this.precision = runtime.settings.precision;
  }

  scratch(bytes: number): Storage {
    return this.#reused?.next(bytes) ?? this.#allocate(bytes);
  }

  scratchArray(shape: Shape, dtype: Dtype): DeviceArray {
    const bytes = sizeOf(shape) * dtypes[dtype].bytes;
    const storage = bytes > 0 ? this.scratch(bytes) : undefined;
    return { shape, strides: contiguousStrides(shape), dtype, storage };
  }

  #allocate(bytes: number): Storage {
    const storage = this.#runtime.arena.allocate(bytes, `${this.op} scratch`);
    this.memory.push({ kind: "scratch", storage });
    return storage;
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

  loop(loop: Loop): void {
    const reused = new ReusedScratch((bytes) => this.#allocate(bytes));
    this.#reused = reused;
    try {
      if (this.#runtime.traceSink instanceof CallTrace) this.#traceLoop(loop, reused);
      else this.#unrollLoop(loop, reused);
    } finally {
      this.#reused = undefined;
    }
  }

  #unrollLoop({ count, operands, body }: Loop, reused: ReusedScratch): void {
    for (let iteration = 0; iteration < count; iteration++) {
      reused.begin();
      body((name, offset, size) => {
        const { storage, stride } = operandOf(operands, name);
        return this.#viewOf(storage, offset + iteration * stride, size);
      });
    }
  }

  /** Emits one call with the calls of the first iteration. */
  #traceLoop({ count, operands, body }: Loop, reused: ReusedScratch): void {
    const names = Object.keys(operands);
    const views = new Map<Storage, LoopView>();
    const outer = this.calls.splice(0);
    reused.begin();
    body((name, offset, size) => {
      const { storage } = operandOf(operands, name);
      // Each is a view of its own, because its storage identifies the operand.
      const view = this.view(storage, offset, size);
      views.set(view, { operand: names.indexOf(name), offset });
      return view;
    });
    const calls = this.calls.splice(0);
    const scratch = reused.storages.map((storage, index): LoopOperand => {
      views.set(storage, { operand: names.length + index, offset: 0 });
      return { storage, access: "out", stride: 0 };
    });
    this.calls.push(...outer, {
      ...{ kind: "loop", op: this.op, count, views, body: calls },
      operands: [...Object.values(operands), ...scratch],
    });
  }

  #viewOf(base: Storage, offset: number, size: number): Storage {
    return offset === 0 && size === base.span.size ? base : this.view(base, offset, size);
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

/** The scratch memory of a loop: each iteration requests the same sizes, and gets the memory of the first one. */
class ReusedScratch {
  readonly storages: Storage[] = [];
  readonly #allocate: (bytes: number) => Storage;
  #next = 0;

  constructor(allocate: (bytes: number) => Storage) {
    this.#allocate = allocate;
  }

  /** Begins an iteration. */
  begin(): void {
    this.#next = 0;
  }

  next(bytes: number): Storage {
    const storage = this.storages[this.#next] ?? this.#allocate(bytes);
    this.storages[this.#next++] = storage;
    return storage;
  }
}

function operandOf(operands: Loop["operands"], name: string): LoopOperand {
  const operand = operands[name];
  if (operand) return operand;
  throw new HoldfastError("BAD_ARGUMENT", `The loop has no operand "${name}".`);
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
