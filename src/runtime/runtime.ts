/** The runtime: one open device, with steps, memory, uploads, work, captures and diagnostics. */

import type {
  Blas,
  DeviceInfo,
  Kernel,
  KernelSource,
  RejectedBlas,
  Stream,
  StreamOptions,
} from "../driver/index.js";
import { HoldfastError } from "../errors/index.js";
import { beat, runAll } from "../units/index.js";
import { Captures, type Replayable } from "./capture/captures.js";
import type { ScratchMemory } from "./capture/checksum.js";
import type { Command, LoadedCommand } from "./capture/command.js";
import type { LowerDigests } from "./capture/device-copies.js";
import type { TraceSink } from "./capture/trace-sink.js";
import type { LaunchRequest, StreamEvent } from "./capture/work.js";
import { KernelCache } from "./kernel-cache.js";
import type { Arena } from "./memory/arena.js";
import type { Budget } from "./memory/budget.js";
import type { OutOfMemory } from "./memory/diagnose-oom.js";
import type { PersistentMemory } from "./memory/persistent.js";
import type { Storage } from "./memory/storage.js";
import { type Diagnostics, diagnose, diagnosticsText } from "./observe/diagnostics.js";
import { openOutput } from "./observe/output.js";
import type { Phases } from "./observe/phases.js";
import type { Recorder } from "./observe/recorder.js";
import { type Components, type OpenOptions, openComponents } from "./open.js";
import type { Settings } from "./settings.js";
import { SharedChoices } from "./shared-choices.js";
import { Mailbox } from "./transfer/mailbox.js";
import type { TransferCount, UploadItem } from "./transfer/transfer.js";

/** Options of `openRuntime`. */
export interface RuntimeOptions extends OpenOptions {
  /** Receives diagnostics and phase lines. Default: stderr; a terminal also shows the progress of long work. */
  readonly print?: (text: string) => void;
}

/**
 * Opens the runtime of a device. Default: the CPU.
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
 * An open device: memory, uploads, launches, captures. Tensors are built on it. `openRuntime` opens one.
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
  /** The CPU's library for large GEMMs. Undefined if HOLDFAST_BLAS is off or its search found none, and on a GPU. */
  readonly blas: Blas | undefined;
  /** Installed libraries that the search of HOLDFAST_BLAS=auto did not take. */
  readonly rejectedBlas: readonly RejectedBlas[];
  readonly stream: Stream;
  readonly recorder: Recorder;
  readonly phases: Phases;
  readonly budget: Budget;
  readonly arena: Arena;
  readonly persistent: PersistentMemory;
  /** What it chooses alike with the runtimes of other ranks. */
  readonly choices: SharedChoices;
  readonly #components: Components;
  readonly #print: (text: string) => void;
  readonly #kernels: KernelCache;
  readonly #captures: Captures;
  readonly #readBackListeners = new Set<() => void>();
  #isNotifyingReadBack = false;
  readonly #sideStreams: Readonly<Record<"high" | "normal", Stream[]>> = { high: [], normal: [] };
  #traceSink: TraceSink | undefined;
  #lowerDigests: LowerDigests | undefined;
  #steps = 0;
  #hasReportedPressure = false;
  #isOpen = false;

  constructor({ print: requestedPrint, ...options }: RuntimeOptions) {
    const { print, progress } = openOutput(requestedPrint);
    this.#print = print;
    const log = (line: string): void => print(`${line}\n`);
    const onMemoryPressure = (oom?: OutOfMemory): void => this.#reportPressure(oom);
    const components = openComponents(options, { log, onMemoryPressure, progress });
    this.#components = components;
    this.#kernels = new KernelCache(components);
    this.#captures = new Captures({
      ...components,
      beforeReplay: () => components.sideUploads.beforeWork(),
      warn: (text) => this.warn(text),
      isCollective: (kernel) => this.isCollective(kernel),
      issue: (commands) => this.submit(this.load(commands)),
      lowerDigests: () => this.#lowerDigests,
    });
    const { settings, device, blas, rejectedBlas, stream, recorder, phases, budget, arena, persistent } =
      components;
    this.settings = settings;
    this.device = device;
    this.blas = blas;
    this.rejectedBlas = rejectedBlas;
    this.stream = stream;
    this.recorder = recorder;
    this.phases = phases;
    this.budget = budget;
    this.arena = arena;
    this.persistent = persistent;
    this.choices = new SharedChoices({
      recall: (key) => components.driver.recall?.(key),
      remember: (key, note) => components.driver.remember?.(key, note),
    });
    this.#isOpen = true;
    for (const { library, why, isWrong } of rejectedBlas)
      if (isWrong)
        this.warn(`Holdfast does not use the BLAS library ${library}, because it ${why}. Reinstall it.`);
    if (settings.log === "phases") print(diagnosticsText(this.diagnostics(), "at the start"));
  }

  /** True inside a step, and inside a trace of one. */
  get hasOpenStep(): boolean {
    return this.isTracing || this.#components.arena.hasOpenStep;
  }

  /**
   * Runs one step. Everything allocated inside dies at its end unless it is pinned. The function must be synchronous.
   */
  step<T>(body: (step: number) => T): T {
    this.#requireOpen();
    const { arena, captureState, phases } = this.#components;
    captureState.rejectInside("opening of a step", "step()");
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

  /** Copies host arrays to the device. Each must have the size of its storage. */
  upload(items: Iterable<UploadItem>): TransferCount {
    this.#requireOpen();
    if (this.#traceSink) {
      this.#traceSink.upload(items);
      return { copies: 0, bytes: 0, tensors: 0 };
    }
    return this.phases.run("upload", () => this.#components.transfer.upload(items));
  }

  /**
   * Runs a function whose uploads go to a side stream: work issued after it does not wait for them until `awaitUploads`, and must not use
   * their memory before. An upload still waits for the work issued before it.
   */
  uploadBeside<T>(body: () => T): T {
    this.#requireOpen();
    this.#traceSink?.reject("upload beside a step", "uploadBeside()");
    return this.#components.sideUploads.run(body);
  }

  /** Makes later work wait for all uploads so far. */
  awaitUploads(): void {
    this.#requireOpen();
    this.#components.captureState.rejectInside("wait for uploads", "awaitUploads()");
    this.#components.sideUploads.arrive();
  }

  /** Returns a storage's bytes, after all work issued so far. */
  read(storage: Storage): Uint8Array<ArrayBuffer> {
    this.#requireOpen();
    this.#traceSink?.reject("read the values of a tensor", storage.label);
    this.#components.sideUploads.beforeWork();
    const bytes = this.phases.run("read-back", () => this.#components.transfer.read(storage));
    this.#notifyReadBack();
    return bytes;
  }

  /** Reads by a listener do not call the listeners again. */
  #notifyReadBack(): void {
    if (this.#isNotifyingReadBack) return;
    this.#isNotifyingReadBack = true;
    try {
      for (const listener of this.#readBackListeners) listener();
    } finally {
      this.#isNotifyingReadBack = false;
    }
  }

  /**
   * Calls a function after each read-back, when the device has completed all issued work. Returns a function that
   * removes it.
   */
  onReadBack(listener: () => void): () => void {
    this.#readBackListeners.add(listener);
    return () => void this.#readBackListeners.delete(listener);
  }

  /**
   * Calls a function after each driver call that waits for the device. If the wait has ended for another reason than that the work is
   * done, the function throws.
   */
  onWaited(listener: () => void): void {
    this.#components.waitListeners.add(listener);
  }

  /** Calls a function when the runtime closes, after its graphs have been destroyed. */
  onClose(action: () => void): void {
    this.#requireOpen();
    this.#components.closing.push(action);
  }

  /** Creates a mailbox, which copies a few bytes to the host without blocking. */
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

  /** Loads the kernels of commands, so that submitting them compiles nothing, even inside a capture. */
  load(commands: readonly Command[]): readonly LoadedCommand[] {
    return commands.map((command) => {
      if (command.kind !== "launch") return command;
      const { kind, source, ...rest } = command;
      return { kind, request: { ...rest, kernel: this.kernel(source) } };
    });
  }

  /** Issues loaded commands in order. An open trace records them instead. */
  submit(commands: readonly LoadedCommand[]): void {
    for (const command of commands) {
      if (command.kind === "launch") this.launch(command.request);
      else if (command.kind === "fill") this.fill(command.target, command.byte);
      else this.copy(command.target, command.source);
    }
  }

  /** Launches a kernel. Pass a storage for each memory parameter and a number for each scalar. */
  launch(request: LaunchRequest): void {
    this.#requireOpen();
    if (this.#traceSink) this.#record({ kind: "launch", request });
    else {
      this.#components.sideUploads.beforeWork();
      this.#components.work.launch(request);
    }
  }

  /** Sets every byte of a storage. */
  fill(target: Storage, byte: number): void {
    this.#requireOpen();
    if (this.#traceSink) this.#record({ kind: "fill", target, byte });
    else {
      this.#components.sideUploads.beforeWork();
      this.#components.work.fill(target, byte);
    }
  }

  /** Copies a storage's bytes to another storage of the same size, on the device. */
  copy(target: Storage, source: Storage): void {
    this.#requireOpen();
    if (this.#traceSink) this.#record({ kind: "copy", target, source });
    else {
      this.#components.sideUploads.beforeWork();
      this.#components.work.copy(target, source);
    }
  }

  #record(command: LoadedCommand): void {
    beat();
    this.#traceSink?.record(command);
  }

  /** Returns the note stored for this device under a key, by this process or an earlier one; while choices are shared, rank 0's. */
  recall(key: string): string | undefined {
    return this.choices.recall(key);
  }

  /** Stores a note for this device, also for later processes. Does nothing if the driver has no notes. */
  remember(key: string, note: string): void {
    this.choices.remember(key, note);
  }

  /** Prints a warning, independently of HOLDFAST_LOG. */
  warn(text: string): void {
    this.#print(`holdfast: ${text}\n`);
  }

  /** Loads kernels that will be needed. Those that are not compiled yet are compiled several at once. */
  loadKernels(sources: readonly KernelSource[]): void {
    this.#requireOpen();
    this.#kernels.loadAll(sources);
  }

  /** Loads a kernel. Sources with the same content share one. */
  kernel(source: KernelSource): Kernel {
    this.#requireOpen();
    return this.#kernels.load(source);
  }

  /** True for a kernel whose work a library issues: a collective of GPUs. */
  isCollective(kernel: Kernel): boolean {
    return this.#kernels.isCollective(kernel);
  }

  /** Returns a view of some of a storage's bytes. It keeps its owner alive. */
  view(storage: Storage, offset: number, size: number, label?: string): Storage {
    this.#requireOpen();
    const home = storage.kind === "step" ? this.arena : this.persistent;
    return home.view(storage, offset, size, label);
  }

  /** Creates a stream. Its work is not ordered with other streams' work, except by `orderStreams` and events. */
  createStream(options: StreamOptions = {}): Stream {
    this.#requireOpen();
    const { driver, closing, captureState } = this.#components;
    captureState.reject("creation of a stream", "createStream()");
    const stream = driver.createStream(options);
    closing.push(() => driver.destroyStream(stream));
    return stream;
  }

  /** Makes later work of `later` wait for all work issued to `earlier` so far. */
  orderStreams(earlier: Stream, later: Stream): void {
    this.#requireOpen();
    this.#components.work.orderStreams(earlier, later);
  }

  /**
   * Returns side streams, for work that runs concurrently with the runtime's stream. The first call creates them; later
   * calls return the same ones. `isHighPriority`: with the priority of the runtime's stream.
   */
  sideStreams(count: number, { isHighPriority = false }: StreamOptions = {}): readonly Stream[] {
    const streams = this.#sideStreams[isHighPriority ? "high" : "normal"];
    while (streams.length < count) streams.push(this.createStream({ isHighPriority }));
    return streams.slice(0, count);
  }

  /** Records an event after all work issued to a stream so far. The caller destroys it. */
  recordEvent(stream: Stream): StreamEvent {
    this.#requireOpen();
    return this.#components.work.recordEvent(stream);
  }

  /** Makes later work of `later` wait for the event. */
  waitEvent(event: StreamEvent, later: Stream): void {
    this.#requireOpen();
    this.#components.work.waitEvent(event, later);
  }

  /** Destroys an event. Streams that already wait for it still do. */
  destroyEvent(event: StreamEvent): void {
    this.#components.work.destroyEvent(event);
  }

  /** Waits until all work issued to the runtime's stream has completed. */
  synchronize(): void {
    this.#requireOpen();
    this.#components.captureState.rejectInside("synchronization", "synchronize()");
    this.#traceSink?.reject("wait for the device", "synchronize()");
    this.#components.sideUploads.beforeWork();
    this.#components.driver.synchronize(this.stream);
  }

  /**
   * Captures a function's work, so that one launch replays it. `capture.ts` says what the function may do. The contents
   * of `scratch` need not be kept. `inOrder`: see `Captures`.
   */
  capture(name: string, body: () => void, scratch?: ScratchMemory, inOrder?: () => void): Replayable {
    this.#requireOpen();
    this.#traceSink?.reject("capture", name);
    this.#components.sideUploads.beforeWork();
    return this.#captures.capture(name, body, scratch, inOrder);
  }

  /**
   * Captures a function's work to time it. Its kernels have run before. Unlike in `capture`, the work does not run before the
   * first replay, and its results are neither compared nor restored.
   */
  captureForTiming(name: string, body: () => void): Replayable {
    this.#requireOpen();
    this.#traceSink?.reject("time a capture", name);
    this.#components.sideUploads.beforeWork();
    return this.#captures.captureForTiming(name, body);
  }

  /** Lets captures compare memory by digests that the device computes. By default they read the memory back. */
  digestMemoryWith(lower: LowerDigests): void {
    this.#lowerDigests = lower;
  }

  /** The memory with what the runtime does at the moment, for a watcher in another thread (`SharedStatus`). */
  get sharedStatus(): SharedArrayBuffer {
    return this.#components.sharedStatus.memory;
  }

  /** True if a function is being captured or traced. Nothing may be read back then. */
  get isCapturing(): boolean {
    return this.#components.captureState.isInside || this.#traceSink !== undefined;
  }

  /** The number of the next step. */
  get nextStep(): number {
    return this.#steps + 1;
  }

  /** True if a function is being traced: its work is recorded and not submitted. */
  get isTracing(): boolean {
    return this.#traceSink !== undefined;
  }

  /** Receives the work of the traced function. Undefined if no trace is open. */
  get traceSink(): TraceSink | undefined {
    return this.#traceSink;
  }

  /**
   * Traces a function: it runs without the device, on fake step memory, and its work goes to the sink. Persistent
   * memory is real, and so is the work inside `outsideTrace`. Traces do not nest.
   */
  traceWith<T>(traceSink: TraceSink, body: () => T): T {
    this.#requireOpen();
    this.#components.captureState.rejectInside("tracing", "traceWith()");
    if (this.#traceSink)
      throw new HoldfastError(
        "BAD_ARGUMENT",
        "A trace cannot be opened inside another trace. End the outer one first.",
      );
    return this.arena.traceWith(this.nextStep, () => {
      this.#traceSink = traceSink;
      try {
        return body();
      } finally {
        this.#traceSink = undefined;
      }
    });
  }

  /** Runs a function on the device while a trace is open, for work that happens once and not in every step. */
  outsideTrace<T>(body: () => T): T {
    const traceSink = this.#traceSink;
    this.#traceSink = undefined;
    try {
      return this.arena.withoutSubArena(body);
    } finally {
      this.#traceSink = traceSink;
    }
  }

  /** Returns the state of memory as plain data. */
  diagnostics(): Diagnostics {
    return this.#diagnose();
  }

  /** Returns the state of memory as text. */
  diagnosticsText(): string {
    return diagnosticsText(this.diagnostics(), "on demand");
  }

  /** Closes everything, in the reverse order of opening. Idempotent. */
  close(): void {
    if (!this.#isOpen) return;
    const { driver, captureState, phases, closing, waitListeners } = this.#components;
    captureState.rejectInside("closing of the runtime", "close()");
    this.#isOpen = false;
    waitListeners.clear();
    const finish = (): void => driver.synchronize(this.stream);
    phases.run("close", () => runAll([finish, ...this.#captures.closing(), ...closing.reverse()]));
  }

  #diagnose(oom?: OutOfMemory): Diagnostics {
    const { device, budget, arena, transfer } = this.#components;
    const { up, down } = transfer;
    return diagnose({ device, step: this.#steps, budget, arena, up, down, oom });
  }

  /** Prints the diagnostics once. While the runtime opens there is nothing to show: the error alone says it. */
  #reportPressure(oom?: OutOfMemory): void {
    if (this.#hasReportedPressure || !this.#isOpen) return;
    this.#hasReportedPressure = true;
    this.#print(diagnosticsText(this.#diagnose(oom), "under pressure"));
  }

  #requireOpen(): void {
    if (!this.#isOpen) throw new HoldfastError("CLOSED", "The runtime is closed; open a new one.");
  }
}

function requireSync<T>(result: T, step: number): T {
  if (!(result instanceof Promise)) return result;
  result.catch(() => undefined);
  throw new HoldfastError(
    "STEP_ASYNC",
    `The function of step ${step} is async: the step's memory would die while the function still runs. ` +
      "Await before or after the step.",
  );
}
