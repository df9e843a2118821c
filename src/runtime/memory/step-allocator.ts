/**
 * The allocator of one arena: one address range, into which physical memory is committed in chunks as the arena grows.
 * Growing never moves a tensor, and there is no overflow path. Everything allocated in a step dies at its end, except
 * pinned storages; freed neighbours are reused.
 *
 * A rejected call has changed nothing.
 */

import type { Driver, Stream } from "../../driver/index.js";
import { HoldfastError } from "../../errors/index.js";
import type { Address, Bytes, Span } from "../../units/index.js";
import type { CaptureStateMachine } from "../capture/capture-state.js";
import type { Recorder } from "../observe/recorder.js";
import type { ArenaFigure, SharedStatus } from "../observe/shared-status.js";
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
import { alignment, ownerOf, type Storage, viewSpan } from "./storage.js";
import { TlsfAllocator } from "./tlsf-allocator.js";
import { VirtualRange } from "./virtual-range.js";

/** All ones is NaN in every float format, and -1 as an index. */
export const poisonByte = 0xff;

export interface StepAllocatorOptions {
  readonly driver: Driver;
  /** The stream that fills freed memory with poison, after the work that used it. */
  readonly stream: Stream;
  readonly budget: Budget;
  readonly sharedStatus: SharedStatus;
  readonly recorder: Recorder;
  readonly captureState: CaptureStateMachine;
  readonly capacity: Bytes;
  /** Memory is committed in multiples of this. Default: a little more than is requested. */
  readonly chunk?: Bytes | undefined;
  /** Existing memory to use instead of a reserved range. */
  readonly memory?: ArenaMemory;
  readonly poison: boolean;
  /** Called when a request does not fit. */
  readonly onMemoryPressure: (oom: OutOfMemory) => void;
}

/** The address range of an arena, and how memory is committed to it. */
export type ArenaMemory = Pick<VirtualRange, "range" | "committed" | "grow" | "release">;

export class StepAllocator {
  readonly #options: StepAllocatorOptions;
  readonly #memory: ArenaMemory;
  readonly #space: TlsfAllocator;
  readonly #figures: ArenaFigures;
  readonly #blocks: (Block | undefined)[] = [];
  /** Slots allocated in the open step, in order. A slot freed and reused in the step appears twice. */
  #stepSlots: number[] = [];
  /** Views created in the open step of older storages: they end with the step, their owners do not. */
  #stepViews: Storage[] = [];
  #openStep = 0;
  #isClosed = false;

  constructor(options: StepAllocatorOptions) {
    this.#options = options;
    this.#figures = new ArenaFigures(options.sharedStatus);
    this.#memory = options.memory ?? new VirtualRange(options);
    this.#space = new TlsfAllocator(Math.floor(options.capacity / alignment));
    this.#figures.set(cell.capacity, this.#space.size * alignment);
    this.#figures.set(cell.committed, this.#memory.committed);
  }

  get generation(): number {
    return this.#figures.get(cell.generation);
  }

  get figures(): Readonly<Record<ArenaFigure, number>> {
    return this.#options.sharedStatus.readArena();
  }

  /** Allocates memory for the op `label`. */
  allocate(size: number, label: string): StepStorage {
    this.requireOpen();
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
    const source = isMiss ? cell.misses : end <= topBefore ? cell.reuses : cell.hits;
    this.#figures.countAllocation(source, size, extent.size, this.#space.top * alignment);
    recorder.record("allocate", label, extent.address, size);
    return storage;
  }

  /** Frees a storage before its step ends. */
  free(storage: Storage): void {
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
    const block = this.#find(storage, "view");
    const span = viewSpan(storage, offset, size);
    if (!span) throw rejection.badView(storage, offset, size);
    const { generation } = this;
    const view = { ...block.storage, span, generation, label, owner: block.storage, step: this.#openStep };
    block.views ??= new Set();
    block.views.add(view);
    if (this.#openStep > 0 && block.storage.step !== this.#openStep) this.#stepViews.push(view);
    this.#options.recorder.record("view", label, span.address, size);
    return view;
  }

  /** Ends a view; its owner stays alive. */
  dropView(view: Storage): void {
    const block = this.#find(view, "drop");
    if (!view.owner) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `Storage "${view.label}" is not a view and cannot be dropped. Free it instead.`,
      );
    }
    if (block.pins?.has(view)) throw rejection.pinnedFreed(view, block.pins.listHolders(view));
    block.views?.delete(view);
  }

  /**
   * Keeps a storage alive across steps and resets until it is unpinned as often. Pinning a view also keeps its owner.
   */
  pin(storage: Storage, by: string): void {
    const block = this.#find(storage, "pin");
    block.pins ??= new Pins();
    if (block.pins.count === 0) this.#figures.add(cell.pinned, block.extent.size);
    block.pins.add(storage, by);
    this.#figures.add(cell.pins, 1);
    this.#options.recorder.record("pin", storage.label, storage.span.address, storage.span.size);
  }

  /** Removes one pin. A storage or view whose step has ended dies with its last pin. */
  unpin(storage: Storage): void {
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
    return this.#lookUp(storage) !== undefined;
  }

  isPinned(storage: Storage): boolean {
    return (this.#lookUp(storage)?.pins?.count ?? 0) > 0;
  }

  /** Rejects a use of a dead storage. */
  requireLive(storage: Storage, use: string): void {
    this.#find(storage, use);
  }

  get hasOpenStep(): boolean {
    return this.#openStep > 0;
  }

  /** Opens a step; see `endStep`. */
  beginStep(step: number): void {
    this.requireOpen();
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
    this.endViews(views);
    this.#expire(
      allocated.filter((block) => block?.storage.step === step),
      "resetsByStep",
      // Without the step number: events carry their step, and each new text would stay in the label table.
      "step",
    );
  }

  /** Ends views that are not pinned; ignores dead ones. */
  endViews(views: readonly Storage[]): void {
    for (const view of views) {
      const block = this.#lookUp(view);
      if (block) endView(block, view);
    }
  }

  /** Ends everything that is not pinned, allocated in a step or not. */
  reset(): void {
    this.requireOpen();
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
    this.#options.onMemoryPressure(oom);
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

  /** Returns the live block of a storage, or throws an error that says how it died. */
  #find(storage: Storage, use: string): Block {
    this.requireOpen();
    const block = this.#lookUp(storage);
    if (block) return block;
    const { home, step } = storage as StepStorage;
    const isInSubArena = home instanceof StepAllocator && home.#options.memory !== undefined;
    if (isInSubArena && home.#isClosed) throw rejection.deadInSubArena(storage, use);
    const { serial, slot } = ownerOf(storage) as StepStorage;
    const isCopyOfLiveStorage = !storage.owner && this.#blocks[slot]?.storage.serial === serial;
    if (home !== this || isCopyOfLiveStorage) throw rejection.notOwner(storage, use);
    throw rejection.dead(storage, use, step, this.generation);
  }

  /** Rejects a call after `close`. */
  requireOpen(): void {
    if (this.#isClosed) throw new HoldfastError("CLOSED", "The arena is closed; open a new runtime.");
  }
}

/** True if a memory request was rejected; other device failures are rethrown unchanged. */
function isOutOfMemory(error: unknown): error is HoldfastError {
  return error instanceof HoldfastError && (error.code === "OUT_OF_BUDGET" || error.code === "OUT_OF_MEMORY");
}
