/**
 * The runtime: one device, opened. It is what the layers above hold: steps, persistent and step memory, uploads, work,
 * captures, diagnostics.
 */

import { writeSync } from "node:fs";
import type {
  Blas,
  DeviceInfo,
  Kernel,
  KernelSource,
  NodeCount,
  Stream,
  StreamOptions,
} from "../driver/index.js";
import { type ErrorCode, HoldfastError } from "../errors/index.js";
import { beat, systemClock } from "../units/index.js";
import { type CapturedGraph, captureGraph } from "./capture/capture.js";
import type { ScratchMemory } from "./capture/checksum.js";
import type { Command, LoadedCommand } from "./capture/command.js";
import type { IndexCheck, TraceSink } from "./capture/trace-sink.js";
import type { LaunchRequest, StreamEvent } from "./capture/work.js";
import type { Arena } from "./memory/arena.js";
import type { Budget } from "./memory/budget.js";
import type { OutOfMemory } from "./memory/diagnose-oom.js";
import type { PersistentMemory } from "./memory/persistent.js";
import type { Storage } from "./memory/storage.js";
import { type Diagnostics, diagnose, diagnosticsText } from "./observe/diagnostics.js";
import type { Phases } from "./observe/phases.js";
import { ProgressLine } from "./observe/progress-line.js";
import type { Recorder } from "./observe/recorder.js";
import { type Components, type OpenOptions, openComponents } from "./open.js";
import { runAll } from "./run-all.js";
import type { Settings } from "./settings.js";
import { sourceKey } from "./source-key.js";
import { Mailbox } from "./transfer/mailbox.js";
import type { TransferCount, UploadItem } from "./transfer/transfer.js";

/** Options of `openRuntime`. */
export interface RuntimeOptions extends OpenOptions {
  /**
   * Where diagnostics and phase lines go. Default: stderr, where a terminal also shows long work as it goes.
   */
  readonly print?: (text: string) => void;
}

/** Something that runs the same work again: as a verified graph, or directly where capture is off or rejected. */
export interface Replayable {
  readonly mode: "graph" | "direct";
  /** What the graph holds; nothing is known of work that runs directly. */
  readonly nodes?: NodeCount | undefined;
  /** Why it runs directly, where it does. */
  readonly reason?: string | undefined;
  replay(): void;
  close(): void;
}

/**
 * Opens the runtime on a device: the CPU, unless a driver is given.
 *
 * @example
 * ```ts
 * import { openRuntime } from "holdfast/internals";
 * const runtime = openRuntime({ memory: "512MiB", print: () => {} });
 * runtime.step(() => {
 *   const x = runtime.arena.allocate(8, "input");
 *   runtime.upload([{ source: new Float32Array([1, 2]), target: x }]);
 *   console.log(new Float32Array(runtime.read(x).buffer)); // → Float32Array(2) [ 1, 2 ]
 * });
 * console.log(runtime.diagnostics().arena.live); // → 0
 * runtime.close();
 * ```
 */
export function openRuntime(options: RuntimeOptions = {}): Runtime {
  return new Runtime(options);
}

/**
 * An open device as the layers below tensors see it: memory, uploads, launches, captures. `openRuntime` opens one.
 *
 * @example
 * ```ts
 * import { openRuntime } from "holdfast/internals";
 * const runtime = openRuntime({ memory: "64MiB", print: () => {} });
 * const sizes = ["first", "second"].map((name) => ({ name, size: 8 }));
 * const [first, second] = runtime.persistent.place("weights", "pair", sizes).storages;
 * if (first && second) {
 *   runtime.upload([{ source: Float32Array.of(2, 3), target: first }]);
 *   runtime.copy(second, first);
 *   console.log(new Float32Array(runtime.read(second).buffer)); // → Float32Array(2) [ 2, 3 ]
 * }
 * runtime.close();
 * ```
 */
export class Runtime {
  readonly settings: Settings;
  readonly device: DeviceInfo;
  /** The CPU's library for large GEMMs, where HOLDFAST_BLAS names one. */
  readonly blas: Blas | undefined;
  readonly stream: Stream;
  readonly recorder: Recorder;
  readonly phases: Phases;
  readonly budget: Budget;
  readonly arena: Arena;
  readonly persistent: PersistentMemory;
  readonly #components: Components;
  readonly #print: (text: string) => void;
  /** By the content of their sources. */
  readonly #kernels = new Map<string, Kernel>();
  readonly #graphs = new Set<Replayable>();
  readonly #readBackListeners = new Set<() => void>();
  #isNotifyingReadBack = false;
  readonly #sideStreams: Readonly<Record<"high" | "normal", Stream[]>> = { high: [], normal: [] };
  #traceSink: TraceSink | undefined;
  #steps = 0;
  #hasReportedPressure = false;
  #hasWarnedOfRejection = false;
  #isOpen = false;

  constructor({ print: given, ...options }: RuntimeOptions) {
    const progress = given ? undefined : progressOnTerminal();
    const print =
      given ??
      ((text: string): void => {
        progress?.clear();
        writeSync(2, text);
      });
    this.#print = print;
    const log = (line: string): void => print(`${line}\n`);
    const onPressure = (shortage?: OutOfMemory): void => this.#reportPressure(shortage);
    this.#components = openComponents(options, { log, onPressure, progress });
    const { settings, device, blas, stream, recorder, phases, budget, arena, persistent } = this.#components;
    this.settings = settings;
    this.device = device;
    this.blas = blas;
    this.stream = stream;
    this.recorder = recorder;
    this.phases = phases;
    this.budget = budget;
    this.arena = arena;
    this.persistent = persistent;
    this.#isOpen = true;
    if (settings.log === "phases") print(diagnosticsText(this.diagnostics(), "at the start"));
  }

  /**
   * Runs one step. Everything made inside dies at its end, all at once, unless pinned: that is what resets the arena.
   * The function must be synchronous.
   */
  step<T>(body: (step: number) => T): T {
    this.#requireOpen();
    const { arena, captureState, phases } = this.#components;
    captureState.rejectInside("a step", "step()");
    this.#traceSink?.reject("open a step", "step()");
    const number = this.#steps + 1;
    arena.beginStep(number);
    this.#steps = number;
    const run = (): T => {
      try {
        return requireSync(body(number), number);
      } finally {
        arena.endStep();
      }
    };
    return phases.run("step", run, { number });
  }

  /** Copies host arrays to the device; each as long as its storage. */
  upload(items: Iterable<UploadItem>): TransferCount {
    this.#requireOpen();
    if (this.#traceSink) {
      this.#traceSink.upload(items);
      return { copies: 0, bytes: 0, tensors: 0 };
    }
    return this.phases.run("upload", () => this.#components.transfer.upload(items));
  }

  /** A storage's bytes, after all work issued so far. */
  read(storage: Storage): Uint8Array<ArrayBuffer> {
    this.#requireOpen();
    this.#traceSink?.reject("read the values of a tensor", storage.label);
    const bytes = this.phases.run("read-back", () => this.#components.transfer.read(storage));
    this.#notifyReadBack();
    return bytes;
  }

  /** A listener's own reads do not call the listeners again. */
  #notifyReadBack(): void {
    if (this.#isNotifyingReadBack) return;
    this.#isNotifyingReadBack = true;
    try {
      for (const listener of this.#readBackListeners) listener();
    } finally {
      this.#isNotifyingReadBack = false;
    }
  }

  /** Calls a function after each read-back, once the device has finished all issued work. Returns a function that removes it. */
  onReadBack(listener: () => void): () => void {
    this.#readBackListeners.add(listener);
    return () => void this.#readBackListeners.delete(listener);
  }

  /** Brings a few bytes to the host without a wait. */
  createMailbox(size: number, name: string): Mailbox {
    this.#requireOpen();
    const { driver, budget, captureState, transfer, closing, requireLive } = this.#components;
    captureState.reject("creation of a mailbox", name, size);
    const mailbox = new Mailbox(
      { driver, stream: this.stream, budget, requireLive, down: transfer.down },
      size,
      name,
    );
    closing.push(() => mailbox.close());
    return mailbox;
  }

  /** Loads the kernels of commands, so that submitting those compiles nothing, also inside a capture. */
  load(commands: readonly Command[]): readonly LoadedCommand[] {
    return commands.map((command) => {
      if (command.kind !== "launch") return command;
      const { kind, source, ...rest } = command;
      return { kind, request: { ...rest, kernel: this.kernel(source) } };
    });
  }

  /** Issues loaded commands in their order; an open trace records them instead. */
  submit(commands: readonly LoadedCommand[]): void {
    for (const command of commands) {
      if (command.kind === "launch") this.launch(command.request);
      else if (command.kind === "fill") this.fill(command.target, command.byte);
      else this.copy(command.target, command.source);
    }
  }

  /** Issues a kernel: a storage for each of its memory parameters, a number for each scalar. */
  launch(request: LaunchRequest): void {
    this.#requireOpen();
    if (this.#traceSink) this.#record({ kind: "launch", request });
    else this.#components.work.launch(request);
  }

  /** Sets every byte of a storage. */
  fill(target: Storage, byte: number): void {
    this.#requireOpen();
    if (this.#traceSink) this.#record({ kind: "fill", target, byte });
    else this.#components.work.fill(target, byte);
  }

  /** Copies a storage's bytes to another of its size, on the device. */
  copy(target: Storage, source: Storage): void {
    this.#requireOpen();
    if (this.#traceSink) this.#record({ kind: "copy", target, source });
    else this.#components.work.copy(target, source);
  }

  #record(command: LoadedCommand): void {
    beat();
    this.#traceSink?.record(command);
  }

  /** The note about the device under a key, of this process or an earlier one, where its driver keeps notes. */
  recall(key: string): string | undefined {
    return this.#components.driver.recall?.(key);
  }

  /** Notes something about the device for later, and for later processes, where its driver keeps notes. */
  remember(key: string, note: string): void {
    this.#components.driver.remember?.(key, note);
  }

  /** Prints a warning, whatever HOLDFAST_LOG says; `print` of the options receives it. */
  warn(text: string): void {
    this.#print(`holdfast: ${text}\n`);
  }

  /** Loads a kernel; sources of the same content share one. */
  kernel(source: KernelSource): Kernel {
    this.#requireOpen();
    const key = sourceKey(source);
    const known = this.#kernels.get(key);
    if (known) return known;
    this.#components.captureState.reject("load of a kernel", source.name);
    const { driver, closing } = this.#components;
    const kernel = driver.loadKernel(source);
    this.#kernels.set(key, kernel);
    closing.push(() => driver.unloadKernel(kernel));
    return kernel;
  }

  /** A storage over a part of another's bytes; it keeps its owner. */
  view(storage: Storage, offset: number, size: number, label?: string): Storage {
    this.#requireOpen();
    const home = storage.kind === "step" ? this.arena : this.persistent;
    return home.view(storage, offset, size, label);
  }

  /** A second stream. Its work runs in any order against the others' unless `orderStreams` says otherwise. */
  createStream(options: StreamOptions = {}): Stream {
    this.#requireOpen();
    const { driver, closing, captureState } = this.#components;
    captureState.reject("creation of a stream", "createStream()");
    const stream = driver.createStream(options);
    closing.push(() => driver.destroyStream(stream));
    return stream;
  }

  /** Everything issued to `later` from now on waits for everything issued to `earlier` so far. */
  orderStreams(earlier: Stream, later: Stream): void {
    this.#requireOpen();
    this.#components.work.orderStreams(earlier, later);
  }

  /**
   * Side streams for work that runs concurrently with the runtime's own; the same ones each time, created at the first call.
   * `isFirst`: with the priority of the runtime's own stream, to which the others yield.
   */
  sideStreams(count: number, { isHighPriority = false }: StreamOptions = {}): readonly Stream[] {
    const streams = this.#sideStreams[isHighPriority ? "high" : "normal"];
    while (streams.length < count) streams.push(this.createStream({ isHighPriority }));
    return streams.slice(0, count);
  }

  /** Records everything that a stream was issued so far, for others to wait for. The caller destroys the event. */
  recordEvent(stream: Stream): StreamEvent {
    this.#requireOpen();
    return this.#components.work.recordEvent(stream);
  }

  /** Everything issued to `later` from now on waits for the event. */
  waitEvent(event: StreamEvent, later: Stream): void {
    this.#requireOpen();
    this.#components.work.waitEvent(event, later);
  }

  /** Streams that wait for the event go on waiting. */
  destroyEvent(event: StreamEvent): void {
    this.#components.work.destroyEvent(event);
  }

  /** Waits until everything issued on the runtime's stream is done. */
  synchronize(): void {
    this.#requireOpen();
    this.#components.captureState.rejectInside("synchronise", "synchronize()");
    this.#traceSink?.reject("wait for the device", "synchronize()");
    this.#components.driver.synchronize(this.stream);
  }

  /**
   * Captures a function's work, so that one launch replays it; `capture.ts` says what the function may do. The contents of
   * `scratch` need not be kept.
   */
  capture(name: string, body: () => void, scratch?: ScratchMemory): Replayable {
    this.#requireOpen();
    this.#traceSink?.reject("capture", name);
    if (this.settings.capture === "off") return direct(body, captureIsOff);
    try {
      const capture = (): CapturedGraph => captureGraph(this.#components, name, body, scratch);
      return this.#keep(this.phases.run("capture", capture, { label: name }));
    } catch (error) {
      if (this.settings.capture === "on" || !isCaptureRejection(error)) throw error;
      if (!this.#hasWarnedOfRejection) {
        this.#hasWarnedOfRejection = true;
        this.warn(`a capture was rejected, and its work runs directly: ${error.message}`);
      }
      return direct(body, error.message);
    }
  }

  /**
   * Captures a function's work to time it. The function may write only memory whose contents are dead: unlike in a capture,
   * the results are neither compared nor restored.
   */
  captureForTiming(name: string, body: () => void): Replayable {
    this.#requireOpen();
    this.#traceSink?.reject("time a capture", name);
    if (this.settings.capture === "off") return direct(body, captureIsOff);
    return this.#keep(captureGraph(this.#components, name, body, "rehearsal"));
  }

  #keep(graph: CapturedGraph): Replayable {
    const close = (): void => {
      graph.close();
      this.#graphs.delete(captured);
    };
    const { nodes } = graph.graph;
    const captured: Replayable = { mode: "graph", nodes, replay: () => graph.replay(), close };
    this.#graphs.add(captured);
    return captured;
  }

  /** Is a function being captured or traced? Then nothing may be read back, not even to check it. */
  get isCapturing(): boolean {
    return this.#components.captureState.isInside || this.#traceSink !== undefined;
  }

  /** The number that the next step will have. */
  get nextStep(): number {
    return this.#steps + 1;
  }

  /** Is a function being traced? Its work is recorded then, and not submitted. */
  get isTracing(): boolean {
    return this.#traceSink !== undefined;
  }

  /** Receives the work of the function that is being traced; undefined where none is. */
  get traceSink(): TraceSink | undefined {
    return this.#traceSink;
  }

  /**
   * Traces a function: it runs without the device, on fake step memory, and its work goes to the sink. Persistent memory is
   * real, and so is what `outsideTrace` runs. Tracing cannot be nested.
   */
  traceWith<T>(traceSink: TraceSink, body: () => T): T {
    this.#requireOpen();
    this.#components.captureState.rejectInside("tracing", "traceWith()");
    if (this.#traceSink) throw new HoldfastError("BAD_ARGUMENT", "Tracing cannot be nested.");
    return this.arena.traceWith(this.nextStep, () => {
      this.#traceSink = traceSink;
      try {
        return body();
      } finally {
        this.#traceSink = undefined;
      }
    });
  }

  /** Rejects something that a traced function can't do, with the way out; does nothing outside a trace. */
  reject(what: string, label: string, advice?: string): void {
    this.#traceSink?.reject(what, label, advice);
  }

  /** Registers a guard of the open trace: a predicate that must still hold for the traced step to be replayed. */
  addGuard(isValid: () => boolean): void {
    this.#traceSink?.addGuard(isValid);
  }

  /** From here on a traced step changes persistent memory only if a number (f64) is finite; without a number, always. */
  writeOnlyIfFinite(value: Storage | undefined): void {
    this.#traceSink?.writeOnlyIfFinite(value);
  }

  /** From here on a traced step changes persistent memory only if `found` (f64) is Infinity: no index is bad. */
  checkIndices(found: Storage, check: IndexCheck): void {
    this.#traceSink?.checkIndices(found, check);
  }

  /** Lets a traced step leave anything in this storage: its contents are dead until they are written again. */
  discard(storage: Storage): void {
    this.#traceSink?.discard(storage);
  }

  /** Runs a function on the device while a trace is open: for what happens once, and not in every step. */
  outsideTrace<T>(body: () => T): T {
    const traceSink = this.#traceSink;
    this.#traceSink = undefined;
    try {
      return this.arena.withoutSubArena(body);
    } finally {
      this.#traceSink = traceSink;
    }
  }

  /** The state of memory, as a record that JSON can carry. */
  diagnostics(): Diagnostics {
    return this.#diagnose();
  }

  /** The state of memory, as people read it. */
  diagnosticsText(): string {
    return diagnosticsText(this.diagnostics(), "on demand");
  }

  /** Ends everything, in the reverse order of its making. Harmless when repeated. */
  close(): void {
    if (!this.#isOpen) return;
    const { driver, captureState, phases, closing } = this.#components;
    captureState.rejectInside("close", "close()");
    this.#isOpen = false;
    const graphs = [...this.#graphs].map((one) => () => one.close());
    const finish = (): void => driver.synchronize(this.stream);
    phases.run("close", () => runAll([finish, ...graphs, ...closing.reverse()]));
  }

  #diagnose(shortage?: OutOfMemory): Diagnostics {
    const { device, budget, arena, transfer } = this.#components;
    const { up, down } = transfer;
    return diagnose({ device, step: this.#steps, budget, arena, up, down, oom: shortage });
  }

  #reportPressure(shortage?: OutOfMemory): void {
    // While the runtime is being opened there is nothing to show yet; the rejection itself then says it all.
    if (this.#hasReportedPressure || !this.#isOpen) return;
    this.#hasReportedPressure = true;
    this.#print(diagnosticsText(this.#diagnose(shortage), "at first pressure"));
  }

  #requireOpen(): void {
    if (!this.#isOpen) throw new HoldfastError("CLOSED", "The runtime is closed; open a new one.");
  }
}

function progressOnTerminal(): ProgressLine | undefined {
  const { stderr } = process;
  if (!stderr.isTTY) return undefined;
  return new ProgressLine({
    write: (text) => void writeSync(2, text),
    clock: systemClock,
    columns: () => stderr.columns || 80,
  });
}

const captureIsOff = "HOLDFAST_CAPTURE is off";

function direct(body: () => void, reason: string): Replayable {
  return { mode: "direct", reason, replay: body, close: () => undefined };
}

function requireSync<T>(result: T, step: number): T {
  if (!(result instanceof Promise)) return result;
  result.catch(() => undefined);
  throw new HoldfastError(
    "STEP_ASYNC",
    `Step ${step} was given an async function: its memory dies when the step ends, and the function would go on. ` +
      "Await before or after the step.",
  );
}

/** What a capture says of its function; a capture inside a capture, or a failing device, is another matter. */
const rejections: ReadonlySet<ErrorCode> = new Set(["CAPTURE_REJECTED", "CAPTURE_NODES", "CAPTURE_MISMATCH"]);

function isCaptureRejection(error: unknown): error is HoldfastError {
  return error instanceof HoldfastError && rejections.has(error.code);
}
