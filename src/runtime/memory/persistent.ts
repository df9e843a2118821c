/**
 * Persistent memory: weights, gradients, moments, scalars, the data set. Placed once, contiguous by region, at an
 * address that is constant for life. An in-place op writes there; nothing ever moves a persistent tensor.
 */

import type { Driver } from "../../driver/index.js";
import { HoldfastError } from "../../errors/index.js";
import { type Address, alignUp, type Bytes, type Span } from "../../units/index.js";
import type { CaptureStateMachine } from "../capture/capture-state.js";
import type { Recorder } from "../observe/recorder.js";
import type { BudgetLabel } from "../observe/shared-status.js";
import { runAll } from "../run-all.js";
import { alignment } from "./arena.js";
import type { Pin } from "./arena-blocks.js";
import { badView } from "./arena-errors.js";
import type { Budget, Charge } from "./budget.js";
import { ownerOf, partOf, type Storage } from "./storage.js";

export interface PersistentStorage extends Storage {
  readonly kind: "persistent";
  readonly home: Region;
  /** Its place in the region. */
  readonly index: number;
}

/** One placement: tensors of a kind, side by side, each on 256 bytes. */
export interface Region {
  readonly label: BudgetLabel;
  readonly name: string;
  readonly span: Span;
  /** In the order in which they were asked for. */
  readonly storages: readonly PersistentStorage[];
  /** All of it, padding included: for work that passes over every tensor at once. */
  readonly whole: PersistentStorage;
}

export interface Placement {
  readonly name: string;
  readonly size: number;
}

interface Held {
  readonly charge: Charge;
  readonly reservation: Span;
  /** Who needs the region to stay. */
  readonly pins: Pin[];
}

export interface PersistentOptions {
  readonly driver: Driver;
  readonly budget: Budget;
  readonly recorder: Recorder;
  readonly gate: CaptureStateMachine;
}

/** The place of a region's whole among its storages. */
const wholeIndex = -1;

export class PersistentMemory {
  readonly #options: PersistentOptions;
  readonly #regions = new Map<Region, Held>();

  constructor(options: PersistentOptions) {
    this.#options = options;
  }

  get regions(): readonly Region[] {
    return [...this.#regions.keys()];
  }

  /** Places tensors in one new region, or rejects and leaves nothing behind. */
  place(label: BudgetLabel, name: string, tensors: readonly Placement[]): Region {
    const { driver, budget, recorder, gate } = this.#options;
    const size = totalOf(name, tensors);
    gate.reject("placement", name, size);
    const whole = alignUp(size, driver.describe().granularity);
    const charge = budget.charge(label, whole, name);
    let reservation: Span | undefined;
    try {
      reservation = driver.reserve(whole);
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
      get whole() {
        return all;
      },
    };
    const all: PersistentStorage = {
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
      const own: Span = { address, size: tensor.size as Bytes };
      storages.push({
        kind: "persistent",
        span: own,
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

  /** Gives a whole region back. Its storages are dead from here on. */
  release(region: Region): void {
    const held = this.#regions.get(region);
    if (!held) {
      throw new HoldfastError(
        "DOUBLE_FREE",
        `Region "${region.name}" was released before, or another runtime placed it. Release a region once.`,
      );
    }
    this.#options.gate.rejectInside("release of a region", region.name);
    if (held.pins.length > 0) {
      const holders = [...new Set(held.pins.map(({ by }) => by))].join(", ");
      throw new HoldfastError(
        "PINNED",
        `Region "${region.name}" is pinned by ${holders} and can't be released. Close that first.`,
        { numbers: { pins: held.pins.length } },
      );
    }
    this.#giveBack(region, held);
  }

  /** Keeps a storage's region from being released until unpinned as often. */
  pin(storage: Storage, by: string): void {
    this.requireLive(storage, "pin");
    this.#pinsOf(storage).push({ storage, by });
  }

  /** Takes one pin back. */
  unpin(storage: Storage): void {
    this.requireLive(storage, "unpin");
    const pins = this.#pinsOf(storage);
    const index = pins.findLastIndex((pin) => pin.storage === storage);
    if (index < 0) {
      throw new HoldfastError(
        "NOT_PINNED",
        `Persistent storage "${storage.label}" has no pin to take back. Unpin as often as you pinned.`,
      );
    }
    pins.splice(index, 1);
  }

  view(storage: Storage, offset: number, size: number, label = storage.label): PersistentStorage {
    this.requireLive(storage, "view");
    const span = partOf(storage, offset, size);
    if (!span) throw badView(storage, offset, size);
    const owner = ownerOf(storage) as PersistentStorage;
    return { ...owner, span, label, owner };
  }

  /** Another handle to the same bytes. The storage itself, and every view of it, is dead from here on. */
  renew(storage: Storage): PersistentStorage {
    this.requireLive(storage, "renewal");
    const own = ownerOf(storage) as PersistentStorage;
    const renewed: PersistentStorage = { ...own, generation: own.generation + 1 };
    (own.home.storages as PersistentStorage[])[own.index] = renewed;
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
      `${use} of persistent storage "${storage.label}": ` +
        (isPlaced
          ? "it is a changed copy of the one that was placed. Use the very storage that place() returned."
          : "its region was released, or another runtime placed it."),
    );
  }

  /** Releases everything, pinned or not; for the runtime's close. */
  close(): void {
    runAll(
      [...this.#regions].map(
        ([region, held]) =>
          () =>
            this.#giveBack(region, held),
      ),
    );
  }

  #giveBack(region: Region, held: Held): void {
    const { driver, budget, recorder } = this.#options;
    driver.annotate?.(region.span, "dead");
    driver.release(held.reservation);
    budget.release(held.charge);
    this.#regions.delete(region);
    recorder.record("free", region.name, region.span.address, region.span.size);
  }

  #pinsOf(storage: Storage): Pin[] {
    return this.#regions.get((storage as PersistentStorage).home)?.pins ?? [];
  }
}

function totalOf(name: string, tensors: readonly Placement[]): Bytes {
  let total = 0;
  for (const tensor of tensors) {
    if (!Number.isSafeInteger(tensor.size) || tensor.size <= 0) {
      throw new HoldfastError(
        "BAD_SIZE",
        `Tensor "${tensor.name}" of region "${name}" has ${tensor.size} bytes. A placed tensor needs at least one.`,
        { numbers: { size: tensor.size } },
      );
    }
    total += alignUp(tensor.size, alignment);
  }
  if (total > 0) return total as Bytes;
  throw new HoldfastError("BAD_ARGUMENT", `Region "${name}" has no tensors. Place at least one.`);
}
