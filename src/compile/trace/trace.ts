/**
 * Traces a step: runs its function once on fake memory, and records every kernel call. The eager engine runs unchanged, backward and
 * the optimizer included, so the trace has exactly the calls of an eager step.
 */

import { HoldfastError } from "../../errors/index.js";
import type { KernelCall } from "../../kernels/index.js";
import { type DeviceArray, formatShape, type LoweredOp, OpTrace } from "../../ops/index.js";
import type { StepPhase } from "../../records/index.js";
import {
  alignment,
  type IndexCheck,
  type LoadedCommand,
  type Runtime,
  type Storage,
  type UploadItem,
} from "../../runtime/index.js";
import { alignUp, beat } from "../../units/index.js";
import type { TracedCheck } from "../passes/index-checks.js";
import type { Guard } from "../passes/skip-nonfinite.js";
import { Buffers } from "../program/buffers.js";
import { attentionCall } from "../program/kinds/attention.js";
import { mapVector } from "../program/kinds/chunked-reduce.js";
import { convolutionCall } from "../program/kinds/convolution.js";
import { scatterCall } from "../program/kinds/scatter.js";
import type { Buffer, BufferSlice, Call, Work } from "../program/program.js";
import { Signatures } from "../program/signature.js";
import { type Discard, deadAfter } from "./dead-on-exit.js";
import { userLine } from "./user-line.js";
import { kernelWork, loopWork } from "./work.js";

/** A call of an op of the table, for reports. */
export interface TracedOp {
  readonly name: string;
  readonly operands: readonly string[];
  readonly outputs: readonly string[];
  /** Its calls in the trace: from index `from` up to but not including `to`. */
  readonly from: number;
  readonly to: number;
}

/** Bytes that the step computed on the host; every replay uses the same ones. */
export interface Constant {
  readonly buffer: Buffer;
  readonly bytes: Uint8Array;
}

export interface Trace<T> {
  readonly result: T;
  readonly calls: readonly Call[];
  readonly ops: readonly TracedOp[];
  readonly constants: readonly Constant[];
  /** Numbers that must be finite for the step to update memory. */
  readonly guards: readonly Guard[];
  /** The index checks. */
  readonly checks: readonly TracedCheck[];
  /** Persistent memory whose contents are dead after the step. */
  readonly deadOnExit: readonly BufferSlice[];
  /** The dtype and shape of each buffer that holds one array, by buffer id. */
  readonly types: ReadonlyMap<number, string>;
  /** What the ranks of a run must have in common: nothing, their collectives, or all work. */
  readonly inCommon: "nothing" | "collectives" | "work";
  /** The ranges of calls that depend on the rank. */
  readonly rankParts: readonly CallRange[];
  /** True if all guards of the function still hold, besides shapes. */
  readonly holds: () => boolean;
}

/** Calls of a trace: from index `from` up to but not including `to`. */
export interface CallRange {
  readonly from: number;
  readonly to: number;
}

export function traceStep<T>(runtime: Runtime, body: () => T): Trace<T> {
  const tracer = new Tracer(runtime);
  const result = runTraced(runtime, tracer, body);
  const { calls, ops, constants, traceGuards, guards, checks, discards, types, inCommon, rankParts } = tracer;
  const deadOnExit = deadAfter(calls, discards);
  const holds = (): boolean => traceGuards.every((guardHolds) => guardHolds());
  const traced = { result, calls, ops, constants, guards, checks, types };
  return { ...traced, deadOnExit, inCommon, rankParts, holds };
}

/** The work of an earlier trace, for an audit. */
export interface ExpectedWork {
  /** The signatures of its calls, and of the conditions for its update. */
  readonly calls: readonly string[];
  readonly guards: readonly string[];
  readonly ops: readonly string[];
  readonly constants: readonly Uint8Array[];
}

export function expectedWork({ calls, guards, constants }: Trace<unknown>): ExpectedWork {
  const signatures = new Signatures();
  return {
    calls: calls.map((call) => signatures.of(call)),
    guards: guards.map((guard) => guardSignature(guard, signatures)),
    ops: calls.map(({ op }) => op),
    constants: constants.map(({ bytes }) => bytes),
  };
}

/** Traces a step again, and rejects the first call that differs from the earlier trace, with the user's line. */
export function auditStep(runtime: Runtime, expected: ExpectedWork, body: () => void): void {
  const tracer = new Tracer(runtime, expected);
  runTraced(runtime, tracer, body);
  tracer.finishAudit(expected);
}

function runTraced<T>(runtime: Runtime, tracer: Tracer, body: () => T): T {
  return runtime.traceWith(tracer, body);
}

function guardSignature({ from, until, number }: Guard, signatures: Signatures): string {
  return `from ${from} until ${until} by ${signatures.ofSlice(number)}`;
}

const defaultAdvice =
  "Return the tensor from the step and read it outside. Set rates and upload data before the call. Use tensors for " +
  "computations that depend on data.";

class Tracer extends OpTrace {
  readonly buffers: Buffers;
  readonly calls: Call[] = [];
  readonly ops: TracedOp[] = [];
  readonly constants: Constant[] = [];
  readonly traceGuards: (() => boolean)[] = [];
  readonly guards: Guard[] = [];
  /** What no guard protects. */
  readonly #spared: BufferSlice[] = [];
  readonly checks: TracedCheck[] = [];
  readonly types = new Map<number, string>();
  readonly discards: Discard[] = [];
  inCommon: Trace<unknown>["inCommon"] = "nothing";
  readonly rankParts: CallRange[] = [];
  readonly #runtime: Runtime;
  /** The op whose calls are being recorded. */
  #op: string | undefined;
  #phase: StepPhase = "forward";
  #isRecomputing = false;

  readonly #expected: ExpectedWork | undefined;
  readonly #signatures = new Signatures();

  constructor(runtime: Runtime, expected?: ExpectedWork) {
    super();
    this.#runtime = runtime;
    this.#expected = expected;
    this.buffers = new Buffers(runtime);
  }

  /**
   * Checks for differences that show only at the end of an audit: missing calls, and other conditions for the update.
   */
  finishAudit({ ops, guards: expected }: ExpectedWork): void {
    const { calls, guards } = this;
    if (calls.length < ops.length) throw stepChanged(undefined, ops[calls.length], undefined);
    const actual = guards.map((guard) => guardSignature(guard, this.#signatures));
    if (String(actual) !== String(expected))
      throw changed("its calls of clipGradNorm, or the calls after them, differ from the first trace", {});
  }

  recordOp({ name, operands, outputs, calls }: LoweredOp): void {
    const from = this.calls.length;
    this.#op = name;
    try {
      for (const call of calls) this.recordCall(call);
    } finally {
      this.#op = undefined;
    }
    for (const output of outputs) this.#noteType(output);
    this.ops.push({
      name,
      operands: operands.map(describe),
      outputs: outputs.map(describe),
      ...{ from, to: this.calls.length },
    });
  }

  enterStepPhase(phase: StepPhase): () => void {
    const outer = this.#phase;
    this.#phase = phase;
    return () => {
      this.#phase = outer;
    };
  }

  override noteRanks(isEven: boolean): void {
    this.inCommon = isEven && this.inCommon !== "collectives" ? "work" : "collectives";
  }

  override enterRankPart(): () => void {
    const from = this.calls.length;
    return () => void this.rankParts.push({ from, to: this.calls.length });
  }

  enterRecomputation(): () => void {
    this.#isRecomputing = true;
    return () => {
      this.#isRecomputing = false;
    };
  }

  recordCall(call: KernelCall): void {
    switch (call.kind) {
      case "row":
      case "column":
        this.#add(call.kernel.name, kernelWork(call, this.#sliceOf));
        return;
      case "gemm":
        this.#add(call.op, kernelWork(call, this.#sliceOf));
        return;
      case "attention":
      case "attention-backward": {
        const direction = call.kind === "attention" ? "forward" : "backward";
        const work = attentionCall(direction, call.problem, this.#sliceOf);
        this.#add(call.op, work);
        return;
      }
      case "convolution":
        this.#add(call.op, convolutionCall(call.problem, this.#sliceOf));
        return;
      case "scatter":
        this.#add(call.op, scatterCall(call.problem, this.#sliceOf));
        return;
      case "chunked-reduce": {
        const { kernel, vectors, results, scalars = [] } = call;
        this.#add(kernel.name, {
          ...{ kind: "chunked-reduce", kernel, scalars, results: this.buffers.sliceOf(results) },
          vectors: vectors.map((vector) => mapVector(vector, this.#sliceOf)),
        });
        return;
      }
      case "loop":
        this.#add(call.op, loopWork(call, this.#sliceOf));
        return;
      default:
        for (const command of this.#runtime.load([call])) this.record(command);
    }
  }

  /** Records a fill, a copy, or a kernel of which only the accesses are known. */
  record(command: LoadedCommand): void {
    const { buffers } = this;
    switch (command.kind) {
      case "launch": {
        const { op, kernel, blocks, arguments: values, stream } = command.request;
        if (stream) this.reject("a launch on another stream", op);
        const slices = values.map((value) => (typeof value === "number" ? value : buffers.sliceOf(value)));
        this.#add(op, { kind: "launch", kernel, blocks, arguments: slices });
        return;
      }
      case "fill":
        this.#add("fill", { kind: "fill", target: buffers.sliceOf(command.target), byte: command.byte });
        return;
      case "copy": {
        const [target, source] = [buffers.sliceOf(command.target), buffers.sliceOf(command.source)];
        this.#add("copy", { kind: "copy", target, source });
        return;
      }
    }
  }

  /** Data that the host uploads to step memory is constant: it is kept, and copied to its target by every replay. */
  upload(items: Iterable<UploadItem>): void {
    for (const { source, target } of items) {
      if (!this.#runtime.arena.isTraced(target)) this.reject("upload data", target.label);
      const bytes = new Uint8Array(source.buffer, source.byteOffset, source.byteLength).slice();
      const traced = this.#expected?.constants[this.constants.length];
      if (traced && !isSameBytes(traced, bytes)) throw changedNumbers(target.label, userLine());
      const buffer = this.buffers.make(bytes.length, target.label);
      this.constants.push({ buffer, bytes });
      const whole: BufferSlice = { buffer, offset: 0, size: bytes.length };
      this.#add("constant", { kind: "copy", target: this.buffers.sliceOf(target), source: whole });
    }
  }

  writeOnlyIfFinite(number: Storage | undefined): void {
    const position = this.calls.length;
    if (number) this.#guard(number);
    else for (const guard of [...this.guards, ...this.checks]) guard.until = Math.min(guard.until, position);
  }

  writeWhileFinite(number: Storage, body: () => void): void {
    const guard = this.#guard(number);
    body();
    guard.until = Math.min(guard.until, this.calls.length);
  }

  spareWrites(storage: Storage): void {
    this.#spared.push(this.buffers.sliceOf(storage));
  }

  #guard(number: Storage): Guard {
    const from = this.calls.length;
    const guard = { from, until: Infinity, number: this.buffers.sliceOf(number), spared: this.#spared };
    this.guards.push(guard);
    return guard;
  }

  checkIndices(found: Storage, check: IndexCheck): void {
    const line = userLine();
    const range = { from: this.calls.length, until: Infinity };
    this.checks.push({ ...check, ...range, found: this.buffers.sliceOf(found), ...(line && { line }) });
  }

  discard(storage: Storage): void {
    if (this.#runtime.arena.isTraced(storage)) return;
    const { buffer, offset, size } = this.buffers.sliceOf(storage);
    // The padding after it belongs to no tensor, and multi-tensor kernels write it too.
    const padded = storage.owner ? size : Math.min(alignUp(size, alignment), buffer.bytes - offset);
    this.discards.push({ slice: { buffer, offset, size: padded }, position: this.calls.length });
  }

  addGuard(holds: () => boolean): void {
    this.traceGuards.push(holds);
  }

  reject(what: string, label: string, advice = defaultAdvice): never {
    const line = userLine();
    const inside = this.#op === undefined || this.#op === label ? "" : `, inside ${this.#op}`;
    throw new HoldfastError(
      "NOT_TRACEABLE",
      `A compiled step can't do this: ${what} ("${label}"${inside}${line ? ` at ${line}` : ""}). It is traced once, without ` +
        `values, and then replayed. ${advice}`,
      { numbers: { what, label, ...(line && { line }) } },
    );
  }

  readonly #sliceOf = (storage: Storage): BufferSlice => this.buffers.sliceOf(storage);

  #add(name: string, work: Work): void {
    const call: Call = {
      ...{ op: this.#op ?? name, work, phase: this.#phase },
      ...(this.#isRecomputing && { isRematerialized: true }),
    };
    const position = this.calls.length;
    const expected = this.#expected;
    if (expected && this.#signatures.of(call) !== expected.calls[position])
      throw stepChanged(call.op, expected.ops[position], userLine());
    this.calls.push(call);
    beat("trace", this.calls.length);
  }

  #noteType(array: DeviceArray): void {
    if (!array.storage || !this.#runtime.arena.isTraced(array.storage)) return;
    const { buffer, size } = this.buffers.sliceOf(array.storage);
    if (size === buffer.bytes) this.types.set(buffer.id, describe(array));
  }
}

function describe(operand: DeviceArray | number): string {
  return typeof operand === "number" ? String(operand) : `${operand.dtype} ${formatShape(operand.shape)}`;
}

function isSameBytes(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, index) => byte === b[index]);
}

/** The error for a step whose work differs from its trace: the op now, the op in the trace, and the user's line. */
function stepChanged(
  actual: string | undefined,
  traced: string | undefined,
  line: string | undefined,
): HoldfastError {
  const now = actual === undefined ? "it ends" : `it calls ${actual}`;
  const before =
    traced === undefined ? "had ended" : traced === actual ? `had another ${traced}` : `had ${traced}`;
  const numbers = { ...(actual && { found: actual }), ...(traced && { traced }), ...(line && { line }) };
  return changed(`${now}${line ? ` at ${line}` : ""}, where the first trace ${before}`, numbers);
}

/** The error for a step that creates a tensor from other host data than in its trace. */
function changedNumbers(label: string, line: string | undefined): HoldfastError {
  return changed(
    `${line ? `at ${line} ` : ""}it creates tensor "${label}" from other numbers than the first trace did`,
    { found: label, traced: "constant", ...(line && { line }) },
  );
}

function changed(how: string, numbers: Readonly<Record<string, string>>): HoldfastError {
  return new HoldfastError(
    "STEP_CHANGED",
    `The compiled step was traced again to check it, and no longer does the same work: ${how}. Its JavaScript runs when it is ` +
      "traced and not at every call, so counters, flags and other JavaScript values are constants in it. Pass values that change at every call " +
      "as tensors. If a value has a few cases, make it a public field of a module that to() has moved to the device, and set it outside the " +
      "step. Or compile a step for each case. If a counter decides when gradients are applied, compile two functions, or use " +
      "Trainer's option accumulate.",
    { numbers },
  );
}
