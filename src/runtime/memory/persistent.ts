/**
 * Persistent memory: weights, gradients, moments, scalars, the data set. Each region is placed once, contiguously, at a
 * constant address. In-place ops write there; a persistent tensor never moves.
 */

import type { Driver } from "../../driver/index.js";
import { HoldfastError } from "../../errors/index.js";
import { type Address, alignUp, type Bytes, runAll, type Span } from "../../units/index.js";
import type { CaptureStateMachine } from "../capture/capture-state.js";
import type { Recorder } from "../observe/recorder.js";
import type { BudgetLabel } from "../observe/shared-status.js";
import type { Pin } from "./arena-blocks.js";
import { badView } from "./arena-errors.js";
import type { Budget, Charge } from "./budget.js";
import { alignment, ownerOf, type Storage, viewSpan } from "./storage.js";

export interface PersistentStorage extends Storage {
  readonly kind: "persistent";
  readonly home: Region;
  /** Its index in the region. */
  readonly index: number;
}

/** A region: tensors of one kind, adjacent, each aligned to 256 bytes. */
export interface Region {
  readonly label: BudgetLabel;
  readonly name: string;
  readonly span: Span;
  /** In request order. */
  readonly storages: readonly PersistentStorage[];
  /** All bytes, including padding, for work that covers every tensor at once. */
  readonly whole: PersistentStorage;
  /**
   * Counts the work that may have written to the region: launches, fills, copies, uploads and replays. Equal counts at two moments mean
   * that no byte has changed in between. Only `countWrite` changes it.
   */
  readonly writes: number;
}

/** Notes that work which may write to a storage is about to be issued. All such work calls it, so it takes nanoseconds. */
export function countWrite({ kind, home }: Storage): void {
  if (kind === "persistent") (home as { writes: number }).writes += 1;
}

/** A storage to place in a region: its name and its size. */
export interface Placement {
  readonly name: string;
  readonly size: number;
}

interface RegionState {
  readonly charge: Charge;
  readonly reservation: Span;
  /** Holders that need the region. */
  readonly pins: Pin[];
}

export interface PersistentOptions {
  readonly driver: Driver;
  readonly budget: Budget;
  readonly recorder: Recorder;
  readonly captureState: CaptureStateMachine;
}

/** Index of the storage that covers the whole region. */
const wholeIndex = -1;

export class PersistentMemory {
  readonly #options: PersistentOptions;
  readonly #regions = new Map<Region, RegionState>();

  constructor(options: PersistentOptions) {
    this.#options = options;
  }

  get regions(): readonly Region[] {
    return [...this.#regions.keys()];
  }

  /** The bytes that a region of these tensors is charged. */
  chargeFor(name: string, tensors: readonly Placement[]): Bytes {
    return alignUp(paddedSize(name, tensors), this.#options.driver.describe().granularity);
  }

  /** Places tensors in a new region, or throws and changes nothing. */
  place(label: BudgetLabel, name: string, tensors: readonly Placement[]): Region {
    const { driver, budget, recorder, captureState } = this.#options;
    const size = paddedSize(name, tensors);
    captureState.reject("placement", name, size);
    const roundedSize = this.chargeFor(name, tensors);
    const charge = budget.charge(label, roundedSize, name);
    let reservation: Span | undefined;
    try {
      reservation = driver.reserve(roundedSize);
      driver.commit(reservation);
    } catch (error) {
      if (reservation) driver.release(reservation);
      budget.release(charge);
      throw error;
    }
    const storages: PersistentStorage[] = [];
    const span: Span = { address: reservation.address, size };
    const region: Region = {
      label,
      name,
      span,
      storages,
      writes: 0,
      get whole() {
        return whole;
      },
    };
    const whole: PersistentStorage = {
      kind: "persistent",
      span,
      generation: 0,
      label: name,
      home: region,
      index: wholeIndex,
      owner: undefined,
    };
    let offset = 0;
    for (const tensor of tensors) {
      const address = (span.address + offset) as Address;
      const tensorSpan: Span = { address, size: tensor.size as Bytes };
      storages.push({
        kind: "persistent",
        span: tensorSpan,
        generation: 0,
        label: tensor.name,
        home: region,
        index: storages.length,
        owner: undefined,
      });
      offset += alignUp(tensor.size, alignment);
    }
    driver.annotate?.(span, "live");
    this.#regions.set(region, { charge, reservation, pins: [] });
    recorder.record("allocate", name, span.address, size);
    return region;
  }

  /** Releases a whole region. Its storages are dead afterwards. */
  release(region: Region): void {
    const state = this.#regions.get(region);
    if (!state) {
      throw new HoldfastError(
        "DOUBLE_FREE",
        `Region "${region.name}" was already released, or belongs to another runtime. Release a region once.`,
      );
    }
    this.#options.captureState.rejectInside("release of a region", region.name);
    if (state.pins.length > 0) {
      const holders = [...new Set(state.pins.map(({ by }) => by))].join(", ");
      throw new HoldfastError(
        "PINNED",
        `Region "${region.name}" is pinned by ${holders} and cannot be released. Close the holder first, such as a compiled step: step.close().`,
        { numbers: { pins: state.pins.length } },
      );
    }
    this.#releaseRegion(region, state);
  }

  /** Keeps a storage's region until it is unpinned as often. */
  pin(storage: Storage, by: string): void {
    this.requireLive(storage, "pin");
    this.#listPins(storage).push({ storage, by });
  }

  /** Removes one pin. */
  unpin(storage: Storage): void {
    this.requireLive(storage, "unpin");
    const pins = this.#listPins(storage);
    const index = pins.findLastIndex((pin) => pin.storage === storage);
    if (index < 0) {
      throw new HoldfastError(
        "NOT_PINNED",
        `Persistent storage "${storage.label}" is not pinned. Call unpin once per pin.`,
      );
    }
    pins.splice(index, 1);
  }

  view(storage: Storage, offset: number, size: number, label = storage.label): PersistentStorage {
    this.requireLive(storage, "view");
    const span = viewSpan(storage, offset, size);
    if (!span) throw badView(storage, offset, size);
    const owner = ownerOf(storage) as PersistentStorage;
    return { ...owner, span, label, owner };
  }

  /** Returns a new handle to the same bytes. The old storage and all its views are dead afterwards. */
  renew(storage: Storage): PersistentStorage {
    this.requireLive(storage, "renewal");
    const owner = ownerOf(storage) as PersistentStorage;
    const renewed: PersistentStorage = { ...owner, generation: owner.generation + 1 };
    (owner.home.storages as PersistentStorage[])[owner.index] = renewed;
    return renewed;
  }

  isLive(storage: Storage): boolean {
    const owner = ownerOf(storage) as PersistentStorage;
    const { home, index } = owner;
    return this.#regions.has(home) && (index === wholeIndex ? home.whole : home.storages[index]) === owner;
  }

  requireLive(storage: Storage, use: string): void {
    if (this.isLive(storage)) return;
    const isPlaced = this.#regions.has((storage as PersistentStorage).home);
    throw new HoldfastError(
      isPlaced ? "NOT_OWNER" : "DEAD_STORAGE",
      `${use}: persistent storage "${storage.label}" ` +
        (isPlaced
          ? "is a modified copy. Use the storage object that place() returned."
          : "is dead: its region was released, or belongs to another runtime. Keep the region until its last use."),
    );
  }

  /** Releases everything, pinned or not, when the runtime closes. */
  close(): void {
    runAll(
      [...this.#regions].map(
        ([region, state]) =>
          () =>
            this.#releaseRegion(region, state),
      ),
    );
  }

  #releaseRegion(region: Region, state: RegionState): void {
    const { driver, budget, recorder } = this.#options;
    driver.annotate?.(region.span, "dead");
    driver.release(state.reservation);
    budget.release(state.charge);
    this.#regions.delete(region);
    recorder.record("free", region.name, region.span.address, region.span.size);
  }

  #listPins(storage: Storage): Pin[] {
    return this.#regions.get((storage as PersistentStorage).home)?.pins ?? [];
  }
}

function paddedSize(name: string, tensors: readonly Placement[]): Bytes {
  let total = 0;
  for (const tensor of tensors) {
    if (!Number.isSafeInteger(tensor.size) || tensor.size <= 0) {
      throw new HoldfastError(
        "BAD_SIZE",
        `Tensor "${tensor.name}" of region "${name}" has ${tensor.size} bytes. A tensor needs at least one.`,
        { numbers: { size: tensor.size } },
      );
    }
    total += alignUp(tensor.size, alignment);
  }
  if (total > 0) return total as Bytes;
  throw new HoldfastError("BAD_ARGUMENT", `Region "${name}" has no tensors. Pass at least one.`);
}
