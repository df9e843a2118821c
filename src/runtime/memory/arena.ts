/**
 * The arena: step memory. One reserved address range, into which physical memory is committed in chunks as the arena
 * grows. Growing never moves a tensor, and there is no overflow path. Everything allocated in a step dies at its end,
 * except what is pinned; unpinned neighbours are reused.
 *
 * A rejected call has changed nothing.
 */

import type { Driver, Stream } from "../../driver/index.js";
import { HoldfastError } from "../../errors/index.js";
import { type Address, alignUp, type Bytes, type Span } from "../../units/index.js";
import { CaptureStateMachine } from "../capture/capture-state.js";
import type { Recorder } from "../observe/recorder.js";
import { type ArenaFigure, SharedStatus } from "../observe/shared-status.js";
import {
  type Block,
  endView,
  type Holder,
  keepPinned,
  listHolders,
  Pins,
  type StepStorage,
  sumByReason,
} from "./arena-blocks.js";
import * as rejection from "./arena-errors.js";
import { ArenaFigures, cell } from "./arena-figures.js";
import type { Budget } from "./budget.js";
import { diagnoseOom, type OomDiagnosis, type OutOfMemory } from "./diagnose-oom.js";
import { ownerOf, type Storage, viewSpan } from "./storage.js";
import { TlsfAllocator } from "./tlsf-allocator.js";
import { VirtualRange } from "./virtual-range.js";

/** Alignment and size granularity of every storage, for vectorized loads. */
export const alignment = 256;

/** All ones is NaN in every float format, and -1 as an index. */
export const poisonByte = 0xff;

export interface ArenaOptions {
  readonly driver: Driver;
  /** Poison is filled on this stream, after the work that used the memory. */
  readonly stream: Stream;
  readonly budget: Budget;
  readonly sharedStatus: SharedStatus;
  readonly recorder: Recorder;
  readonly captureState: CaptureStateMachine;
  readonly capacity: Bytes;
  /** Bytes committed at a time. */
  readonly chunk: Bytes;
  /** Existing memory to use instead of a reserved range. */
  readonly memory?: ArenaMemory;
  readonly poison: boolean;
  /** Called when a request does not fit. */
  readonly onPressure: (oom: OutOfMemory) => void;
}

/** The address range of an arena, and how memory is committed to it. */
export type ArenaMemory = Pick<VirtualRange, "range" | "committed" | "grow" | "release">;

/** A sub-arena: allocations come from one storage, for a function that needs the same addresses every time. */
interface SubArena {
  /** Undefined for fake memory, used while tracing. */
  readonly storage: Storage | undefined;
  readonly arena: Arena;
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
  readonly #memory: ArenaMemory;
  readonly #space: TlsfAllocator;
  readonly #figures: ArenaFigures;
  readonly #blocks: (Block | undefined)[] = [];
  /** Slots allocated in the open step, in order. A slot freed and reused in the step appears twice. */
  #stepSlots: number[] = [];
  /** Views created in the open step of older storages: they end with the step, their owners do not. */
  #stepViews: Storage[] = [];
  #openStep = 0;
  #subArena: SubArena | undefined;
  #isClosed = false;

  constructor(options: ArenaOptions) {
    this.#options = options;
    this.#figures = new ArenaFigures(options.sharedStatus);
    this.#memory = options.memory ?? new VirtualRange(options);
    this.#space = new TlsfAllocator(Math.floor(options.capacity / alignment));
    this.#figures.set(cell.capacity, this.#space.size * alignment);
    this.#figures.set(cell.committed, this.#memory.committed);
  }

  get #isInSubArena(): boolean {
    return this.#options.memory !== undefined;
  }

  get generation(): number {
    return this.#figures.get(cell.generation);
  }

  get figures(): Readonly<Record<ArenaFigure, number>> {
    return this.#options.sharedStatus.readArena();
  }

  /**
   * Runs a function whose allocations all come from one storage. No memory is requested, and the same allocations get
   * the same addresses every time. Its allocations die at its end. A captured step uses this: the graph owns the
   * storage.
   */
  withSubArena<T>(storage: Storage, body: () => T): T {
    this.#find(storage, "enclosing");
    this.#requireNoSubArena(storage.label);
    const address = alignUp(storage.span.address, alignment);
    const size = Math.max(0, storage.span.size - (address - storage.span.address)) as Bytes;
    const arena = this.#openOver({ address: address as number as Address, size }, storage.label);
    this.pin(storage, "its sub-arena");
    this.#subArena = { storage, arena };
    try {
      return body();
    } finally {
      this.#subArena = undefined;
      arena.close();
      this.unpin(storage);
    }
  }

  /**
   * Runs a function whose allocations are all fake: no memory is requested, and no work on it may be submitted. A
   * step's memory needs are thus known before its memory exists.
   */
  traceWith<T>(step: number, body: () => T): T {
    this.#requireOpen();
    this.#requireNoSubArena("fake memory");
    const range = { address: fakeAddress as Address, size: fakeBytes as Bytes };
    const arena = this.#openOver(range, "fake memory");
    arena.beginStep(step);
    const views: Storage[] = [];
    this.#subArena = { storage: undefined, arena, views };
    try {
      return body();
    } finally {
      this.#subArena = undefined;
      arena.close();
      for (const view of views) {
        const block = this.#lookUp(view);
        if (block) endView(block, view);
      }
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
    return this.#subArena !== undefined && !this.#subArena.storage && home === this.#subArena.arena;
  }

  /** Returns the storage that keeps the bytes alive: the storage itself, or the one that contains its sub-arena. */
  arenaOwnerOf(storage: Storage): Storage {
    const subArena = this.#subArena;
    return subArena?.storage && storage.home === subArena.arena ? subArena.storage : storage;
  }

  /** Allocates memory for the op `label`. */
  allocate(size: number, label: string): StepStorage {
    if (this.#subArena) return this.#subArena.arena.allocate(size, label);
    this.#requireOpen();
    if (!Number.isSafeInteger(size) || size <= 0) throw rejection.badSize(size, label);
    const { driver, captureState, recorder } = this.#options;
    captureState.reject("allocation", label, size);
    const topBefore = this.#space.top;
    const units = Math.ceil(size / alignment);
    const slot = units > this.#space.size ? -1 : this.#space.allocate(units);
    if (slot < 0) throw this.#outOfMemory(size, label);
    const extent = this.#extent(slot);
    const end = this.#space.slotOffset(slot) + units;
    const isMiss = end * alignment > this.#memory.committed;
    if (isMiss) this.#growFor(slot, size, label);
    const span: Span = { address: extent.address, size: size as Bytes };
    driver.annotate?.(span, "live");
    const storage: StepStorage = {
      kind: "step",
      span,
      generation: this.generation,
      label,
      owner: undefined,
      step: this.#openStep,
      home: this,
      serial: this.#figures.get(cell.allocations),
      slot,
    };
    this.#blocks[slot] = { storage, extent, views: undefined, pins: undefined, isExpired: false };
    if (this.#openStep > 0) this.#stepSlots.push(slot);
    this.#count(size, extent.size, isMiss ? cell.misses : end <= topBefore ? cell.reuses : cell.hits);
    recorder.record("allocate", label, extent.address, size);
    return storage;
  }

  /** Frees a storage before its step ends. */
  free(storage: Storage): void {
    const inner = this.#innerOf(storage);
    if (inner) {
      inner.free(storage);
      return;
    }
    const block = this.#find(storage, "free");
    this.#options.captureState.rejectInside("free", storage.label);
    if (storage.owner) throw rejection.viewFreed(storage);
    if (block.pins?.count) throw rejection.pinnedFreed(storage, block.pins.listHolders());
    if (block.views && block.views.size > 0) throw rejection.viewedFreed(storage, block.views.size);
    this.#options.recorder.record("free", storage.label, storage.span.address, storage.span.size);
    this.#end(block);
  }

  /** Returns a view of some of a storage's bytes. A view of a view is a view of the owner. */
  view(storage: Storage, offset: number, size: number, label = storage.label): StepStorage {
    const inner = this.#innerOf(storage);
    if (inner) return inner.view(storage, offset, size, label);
    const block = this.#find(storage, "view");
    const span = viewSpan(storage, offset, size);
    if (!span) throw rejection.badView(storage, offset, size);
    const { generation } = this;
    const view = { ...block.storage, span, generation, label, owner: block.storage, step: this.#openStep };
    block.views ??= new Set();
    block.views.add(view);
    if (this.#openStep > 0 && block.storage.step !== this.#openStep) this.#stepViews.push(view);
    this.#subArena?.views?.push(view);
    this.#options.recorder.record("view", label, span.address, size);
    return view;
  }

  /** Ends a view; its owner stays alive. */
  dropView(view: Storage): void {
    const inner = this.#innerOf(view);
    if (inner) {
      inner.dropView(view);
      return;
    }
    const block = this.#find(view, "drop");
    if (!view.owner) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `${rejection.describe(view)} is not a view and cannot be dropped. Free it instead.`,
      );
    }
    if (block.pins?.has(view)) throw rejection.pinnedFreed(view, block.pins.listHolders(view));
    block.views?.delete(view);
  }

  /**
   * Keeps a storage alive across steps and resets until it is unpinned as often. Pinning a view also keeps its owner.
   */
  pin(storage: Storage, by: string): void {
    const inner = this.#innerOf(storage);
    if (inner) {
      inner.pin(storage, by);
      return;
    }
    const block = this.#find(storage, "pin");
    block.pins ??= new Pins();
    if (block.pins.count === 0) this.#figures.add(cell.pinned, block.extent.size);
    block.pins.add(storage, by);
    this.#figures.add(cell.pins, 1);
    this.#options.recorder.record("pin", storage.label, storage.span.address, storage.span.size);
  }

  /** Removes one pin. A storage or view whose step has ended dies with its last pin. */
  unpin(storage: Storage): void {
    const inner = this.#innerOf(storage);
    if (inner) {
      inner.unpin(storage);
      return;
    }
    const block = this.#find(storage, "unpin");
    const { pins } = block;
    if (!pins?.has(storage)) throw rejection.notPinned(storage);
    const isLast = pins.count === 1;
    if (isLast && block.isExpired)
      this.#options.captureState.rejectInside("unpin of the last pin", storage.label);
    pins.remove(storage);
    this.#figures.add(cell.pins, -1);
    this.#options.recorder.record("unpin", storage.label, storage.span.address, storage.span.size);
    if (isLast) this.#figures.add(cell.pinned, -block.extent.size);
    if (isLast && block.isExpired) this.#end(block);
    else if (storage.owner && this.#isOver(storage as StepStorage)) endView(block, storage);
  }

  isLive(storage: Storage): boolean {
    return (this.#innerOf(storage) ?? this).#lookUp(storage) !== undefined;
  }

  isPinned(storage: Storage): boolean {
    return ((this.#innerOf(storage) ?? this).#lookUp(storage)?.pins?.count ?? 0) > 0;
  }

  /** Rejects a use of a dead storage. */
  requireLive(storage: Storage, use: string): void {
    (this.#innerOf(storage) ?? this).#find(storage, use);
  }

  /** Opens a step; see `endStep`. */
  beginStep(step: number): void {
    this.#requireOpen();
    if (this.#openStep > 0) throw rejection.nestedStep(step, this.#openStep);
    this.#openStep = step;
    this.#figures.set(cell.allocationsThisStep, 0);
    this.#figures.set(cell.bytesThisStep, 0);
  }

  /** Ends everything allocated in the open step that is not pinned. Does nothing if no step is open. */
  endStep(): void {
    const step = this.#openStep;
    if (step === 0) return;
    const allocated = this.#stepSlots.map((slot) => this.#blocks[slot]);
    const views = this.#stepViews;
    this.#stepSlots = [];
    this.#stepViews = [];
    this.#openStep = 0;
    for (const view of views) {
      const block = this.#lookUp(view);
      if (block) endView(block, view);
    }
    this.#expire(
      allocated.filter((block) => block?.storage.step === step),
      "resetsByStep",
      // Without the step number: events carry their step, and each new text would stay in the label table.
      "step",
    );
  }

  /** Ends everything that is not pinned, allocated in a step or not. */
  reset(): void {
    this.#requireOpen();
    this.#options.captureState.rejectInside("reset", "arena");
    if (this.#openStep > 0) throw rejection.resetDuringStep(this.#openStep);
    this.#expire([...this.#liveBlocks()], "resetsByCall", "reset()");
  }

  /** Live bytes by allocating op, largest first. */
  holders(count = 10): Holder[] {
    return listHolders(this.#liveBlocks(), count);
  }

  /** Explains why a request does not fit, or would not. */
  diagnoseOom(oom: OutOfMemory): OomDiagnosis {
    const { capacity, resetsByStep, resetsByCall } = this.figures;
    const { left: budgetLeft, limit } = this.#options.budget;
    const sums = sumByReason(this.#liveBlocks(), this.#openStep);
    return diagnoseOom({
      ...oom,
      ...sums,
      capacity,
      limit,
      budgetLeft,
      resets: resetsByStep + resetsByCall,
    });
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    for (const { storage } of this.#liveBlocks()) this.#options.driver.annotate?.(storage.span, "dead");
    this.#blocks.length = 0;
    this.#memory.release();
    this.#figures.clear();
  }

  #innerOf(storage: Storage): Arena | undefined {
    const subArena = this.#subArena;
    return subArena && storage.home === subArena.arena ? subArena.arena : undefined;
  }

  /** Opens an arena over memory that is already committed. It requests nothing from the driver. */
  #openOver(range: Span, name: string): Arena {
    const { annotate: _, ...driver } = this.#options.driver;
    const { size } = range;
    const memory: ArenaMemory = {
      range,
      committed: size,
      grow(_end, label): never {
        throw new HoldfastError("OUT_OF_MEMORY", `"${name}" cannot grow for ${label}.`);
      },
      release: () => undefined,
    };
    const sharedStatus = new SharedStatus();
    const captureState = new CaptureStateMachine();
    return new Arena({
      ...this.#options,
      driver,
      memory,
      sharedStatus,
      captureState,
      capacity: size,
      poison: false,
    });
  }

  #requireNoSubArena(label: string): void {
    if (!this.#subArena) return;
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `Cannot open a sub-arena in "${label}": another sub-arena is active.`,
    );
  }

  #isOver({ step }: StepStorage): boolean {
    return step > 0 && step !== this.#openStep;
  }

  *#liveBlocks(): Generator<Block> {
    for (const block of this.#blocks) if (block) yield block;
  }

  /** A reset: ends these blocks, even if the device fails at one, and starts a new generation. */
  #expire(
    blocks: readonly (Block | undefined)[],
    cause: "resetsByStep" | "resetsByCall",
    label: string,
  ): void {
    const failures: unknown[] = [];
    for (const block of blocks) {
      if (!block || this.#blocks[block.storage.slot] !== block) continue;
      if (block.pins?.count) keepPinned(block);
      else {
        try {
          this.#end(block);
        } catch (failure) {
          failures.push(failure);
        }
      }
    }
    this.#figures.add(cell.generation, 1);
    this.#figures.add(cell[cause], 1);
    this.#options.recorder.record("reset", label);
    if (failures.length > 0) throw failures[0];
  }

  #end(block: Block): void {
    const { driver, stream, poison } = this.#options;
    const { storage, extent } = block;
    try {
      if (poison) driver.fill(stream, extent, poisonByte);
    } finally {
      driver.annotate?.(storage.span, "dead");
      this.#blocks[storage.slot] = undefined;
      this.#space.free(storage.slot);
      this.#figures.add(cell.live, -extent.size);
      this.#figures.set(cell.offset, this.#space.top * alignment);
    }
  }

  /** Commits memory up to a new block, or frees the block and throws the reason. */
  #growFor(slot: number, size: number, label: string): void {
    const { driver, stream, poison, recorder } = this.#options;
    try {
      const end = (this.#space.slotOffset(slot) + this.#space.slotSize(slot)) * alignment;
      const committed = this.#memory.grow(end, label);
      this.#figures.set(cell.committed, this.#memory.committed);
      recorder.record("commit", label, committed.address, committed.size);
      if (!poison) return;
      driver.annotate?.(committed, "live");
      try {
        driver.fill(stream, committed, poisonByte);
      } finally {
        driver.annotate?.(committed, "dead");
      }
    } catch (error) {
      this.#space.free(slot);
      throw isOutOfMemory(error) ? this.#outOfMemory(size, label, error) : error;
    }
  }

  #outOfMemory(size: number, label: string, cause?: HoldfastError): HoldfastError {
    this.#options.recorder.record("reject", label, 0, size);
    const oom: OutOfMemory = { requested: size, obstacle: cause ? "memory" : "arena" };
    this.#options.onPressure(oom);
    const diagnosis = this.diagnoseOom(oom);
    const { figures } = this;
    return rejection.outOfMemory({
      size,
      label,
      diagnosis,
      figures,
      holders: this.holders(5),
      ...(cause && { cause }),
    });
  }

  #count(size: number, extent: number, how: number): void {
    const figures = this.#figures;
    figures.add(how, 1);
    figures.add(cell.allocationsThisStep, 1);
    figures.add(cell.bytesThisStep, size);
    figures.add(cell.allocations, 1);
    figures.add(cell.bytes, size);
    figures.add(cell.live, extent);
    const offset = this.#space.top * alignment;
    figures.set(cell.offset, offset);
    if (offset > figures.get(cell.highWater)) figures.set(cell.highWater, offset);
  }

  #extent(slot: number): Span {
    const { range } = this.#memory;
    return {
      address: (range.address + this.#space.slotOffset(slot) * alignment) as Address,
      size: (this.#space.slotSize(slot) * alignment) as Bytes,
    };
  }

  #lookUp(storage: Storage): Block | undefined {
    const owner = ownerOf(storage) as StepStorage;
    const block = this.#blocks[owner.slot];
    if (block?.storage !== owner) return undefined;
    return storage.owner === undefined || block.views?.has(storage) ? block : undefined;
  }

  /** Returns the live block of a storage, or throws what happened to it. */
  #find(storage: Storage, use: string): Block {
    this.#requireOpen();
    const block = this.#lookUp(storage);
    if (block) return block;
    const { home, step } = storage as StepStorage;
    if (home instanceof Arena && home.#isInSubArena && home.#isClosed)
      throw rejection.deadInSubArena(storage, use);
    const { serial, slot } = ownerOf(storage) as StepStorage;
    const isCopyOfLiveStorage = !storage.owner && this.#blocks[slot]?.storage.serial === serial;
    if (home !== this || isCopyOfLiveStorage) throw rejection.notOwner(storage, use);
    throw rejection.dead(storage, use, step, this.generation);
  }

  #requireOpen(): void {
    if (this.#isClosed) throw new HoldfastError("CLOSED", "The arena is closed; open a new runtime.");
  }
}

/** True if a memory request was rejected; other device failures are rethrown unchanged. */
function isOutOfMemory(error: unknown): error is HoldfastError {
  return error instanceof HoldfastError && (error.code === "OUT_OF_BUDGET" || error.code === "OUT_OF_MEMORY");
}
