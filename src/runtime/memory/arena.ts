/**
 * The arena: step memory as the layers above use it. Calls go to the arena's allocator, or to the sub-arena that is
 * active. A sub-arena places allocations in one storage, or in fake memory during a trace.
 */

import { HoldfastError } from "../../errors/index.js";
import { type Address, alignUp, type Bytes, type Span } from "../../units/index.js";
import { CaptureStateMachine } from "../capture/capture-state.js";
import { type ArenaFigure, SharedStatus } from "../observe/shared-status.js";
import type { Holder, StepStorage } from "./arena-blocks.js";
import type { OomDiagnosis, OutOfMemory } from "./diagnose-oom.js";
import { type ArenaMemory, StepAllocator, type StepAllocatorOptions } from "./step-allocator.js";
import { alignment, type Storage } from "./storage.js";

export type ArenaOptions = Omit<StepAllocatorOptions, "memory">;

/** An active sub-arena. */
interface SubArena {
  /** The storage that contains it. Undefined for fake memory, used while tracing. */
  readonly storage: Storage | undefined;
  readonly allocator: StepAllocator;
  /** Views of real memory created while tracing: they end with the trace. */
  readonly views?: Storage[];
}

/** Fake memory is above every address that a device pointer can have. */
const fakeAddress = 2 ** 48;
/** The maximum that the arena can count in its units. */
const fakeBytes = 2 ** 38;

/** Step memory: allocate, free, view, pin. Steps and resets end everything that is not pinned. */
export class Arena {
  readonly #options: ArenaOptions;
  readonly #allocator: StepAllocator;
  #subArena: SubArena | undefined;

  constructor(options: ArenaOptions) {
    this.#options = options;
    this.#allocator = new StepAllocator(options);
  }

  get generation(): number {
    return this.#allocator.generation;
  }

  get figures(): Readonly<Record<ArenaFigure, number>> {
    return this.#allocator.figures;
  }

  /**
   * Runs a function whose allocations all come from one storage. No memory is requested, and the same allocations get
   * the same addresses every time. Its allocations die at its end. A captured step uses this: the graph owns the
   * storage.
   */
  withSubArena<T>(storage: Storage, body: () => T): T {
    this.#allocator.requireLive(storage, "sub-arena");
    this.#requireNoSubArena(storage.label);
    const address = alignUp(storage.span.address, alignment);
    const size = Math.max(0, storage.span.size - (address - storage.span.address)) as Bytes;
    const allocator = this.#openOver({ address: address as number as Address, size }, storage.label);
    this.pin(storage, "its sub-arena");
    this.#subArena = { storage, allocator };
    try {
      return body();
    } finally {
      this.#subArena = undefined;
      allocator.close();
      this.unpin(storage);
    }
  }

  /**
   * Runs a function whose allocations are all fake: no memory is requested, and no work on it may be submitted. A
   * step's memory needs are thus known before its memory exists.
   */
  traceWith<T>(step: number, body: () => T): T {
    this.#allocator.requireOpen();
    this.#requireNoSubArena("fake memory");
    const range = { address: fakeAddress as Address, size: fakeBytes as Bytes };
    const allocator = this.#openOver(range, "fake memory");
    allocator.beginStep(step);
    const views: Storage[] = [];
    this.#subArena = { storage: undefined, allocator, views };
    try {
      return body();
    } finally {
      this.#subArena = undefined;
      allocator.close();
      this.#allocator.endViews(views);
    }
  }

  /** Runs a function on real memory while a sub-arena or a trace is active. */
  withoutSubArena<T>(body: () => T): T {
    const subArena = this.#subArena;
    this.#subArena = undefined;
    try {
      return body();
    } finally {
      this.#subArena = subArena;
    }
  }

  /** True if the storage is in fake memory. */
  isTraced({ home }: Storage): boolean {
    return this.#subArena !== undefined && !this.#subArena.storage && home === this.#subArena.allocator;
  }

  /** Returns the storage that keeps the bytes alive: the storage itself, or the one that contains its sub-arena. */
  arenaOwnerOf(storage: Storage): Storage {
    const subArena = this.#subArena;
    return subArena?.storage && storage.home === subArena.allocator ? subArena.storage : storage;
  }

  /** Allocates memory for the op `label`. */
  allocate(size: number, label: string): StepStorage {
    return (this.#subArena?.allocator ?? this.#allocator).allocate(size, label);
  }

  /** Frees a storage before its step ends. */
  free(storage: Storage): void {
    this.#allocatorOf(storage).free(storage);
  }

  /** Returns a view of some of a storage's bytes. A view of a view is a view of the owner. */
  view(storage: Storage, offset: number, size: number, label?: string): StepStorage {
    const allocator = this.#allocatorOf(storage);
    const view = allocator.view(storage, offset, size, label);
    if (allocator === this.#allocator) this.#subArena?.views?.push(view);
    return view;
  }

  /** Ends a view; its owner stays alive. */
  dropView(view: Storage): void {
    this.#allocatorOf(view).dropView(view);
  }

  /**
   * Keeps a storage alive across steps and resets until it is unpinned as often. Pinning a view also keeps its owner.
   */
  pin(storage: Storage, by: string): void {
    this.#allocatorOf(storage).pin(storage, by);
  }

  /** Removes one pin. A storage or view whose step has ended dies with its last pin. */
  unpin(storage: Storage): void {
    this.#allocatorOf(storage).unpin(storage);
  }

  isLive(storage: Storage): boolean {
    return this.#allocatorOf(storage).isLive(storage);
  }

  isPinned(storage: Storage): boolean {
    return this.#allocatorOf(storage).isPinned(storage);
  }

  /** Rejects a use of a dead storage. */
  requireLive(storage: Storage, use: string): void {
    this.#allocatorOf(storage).requireLive(storage, use);
  }

  get hasOpenStep(): boolean {
    return this.#allocator.hasOpenStep;
  }

  /** Opens a step; see `endStep`. */
  beginStep(step: number): void {
    this.#allocator.beginStep(step);
  }

  /** Ends everything allocated in the open step that is not pinned. Does nothing if no step is open. */
  endStep(): void {
    this.#allocator.endStep();
  }

  /** Ends everything that is not pinned, allocated in a step or not. */
  reset(): void {
    this.#allocator.reset();
  }

  /** Live bytes by allocating op, largest first. */
  holders(count?: number): Holder[] {
    return this.#allocator.holders(count);
  }

  /** Explains why a request does not fit, or would not. */
  diagnoseOom(oom: OutOfMemory): OomDiagnosis {
    return this.#allocator.diagnoseOom(oom);
  }

  close(): void {
    this.#allocator.close();
  }

  /** The allocator of a storage: that of the sub-arena, or the arena's. */
  #allocatorOf({ home }: Storage): StepAllocator {
    const allocator = this.#subArena?.allocator;
    return allocator && home === allocator ? allocator : this.#allocator;
  }

  /** Opens an allocator over memory that is already committed. It requests nothing from the driver. */
  #openOver(range: Span, name: string): StepAllocator {
    const { annotate: _, ...driver } = this.#options.driver;
    const { size } = range;
    const memory: ArenaMemory = {
      range,
      committed: size,
      grow(_end, label): never {
        throw new HoldfastError("OUT_OF_MEMORY", `The sub-arena "${name}" cannot grow for ${label}.`);
      },
      release: () => undefined,
    };
    return new StepAllocator({
      ...this.#options,
      driver,
      memory,
      sharedStatus: new SharedStatus(),
      captureState: new CaptureStateMachine(),
      capacity: size,
      poison: false,
    });
  }

  #requireNoSubArena(label: string): void {
    if (!this.#subArena) return;
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `Cannot open a sub-arena in "${label}": another sub-arena is active. End that one first.`,
    );
  }
}
