/**
 * Staging: a ring of page-locked host buffers for all uploads and read-backs. Copies use only this memory, never memory
 * that may move, be garbage-collected or be a mapped file.
 */

import type { Driver, Event, HostMemory, HostSpan, Stream } from "../../driver/index.js";
import { HoldfastError } from "../../errors/index.js";
import { type Bytes, bytes, formatBytes, runAll } from "../../units/index.js";
import type { Budget } from "../memory/budget.js";

/** Four slots: the host writes one while up to three are in flight. */
const slotCount = 4;
const minSlotBytes = 4096;

export interface StagingSlot {
  readonly memory: HostMemory;
  /** Recorded after the last copy that used the slot. */
  readonly event: Event;
}

export class StagingRing {
  readonly slotSize: Bytes;
  readonly #driver: Driver;
  readonly #slots: StagingSlot[] = [];
  /** Close actions, in the order of opening. */
  readonly #closing: (() => void)[] = [];
  #next = 0;

  constructor(driver: Driver, budget: Budget, size: Bytes) {
    this.slotSize = bytes(Math.floor(size / slotCount / minSlotBytes) * minSlotBytes);
    if (this.slotSize === 0) {
      throw new HoldfastError(
        "BAD_SETTING",
        `A staging ring of ${formatBytes(size)} is too small; set HOLDFAST_STAGING to ${formatBytes(slotCount * minSlotBytes)} or more.`,
      );
    }
    this.#driver = driver;
    const charge = budget.charge("staging", bytes(slotCount * this.slotSize), "staging ring");
    this.#closing.push(() => budget.release(charge));
    try {
      for (let slot = 0; slot < slotCount; slot++) {
        const memory = driver.allocateHost(this.slotSize);
        this.#closing.push(() => driver.freeHost(memory));
        const event = driver.createEvent();
        this.#closing.push(
          () => driver.destroyEvent(event),
          () => driver.synchronizeEvent(event),
        );
        this.#slots.push({ memory, event });
      }
    } catch (error) {
      this.close();
      throw error;
    }
  }

  /** Returns the next slot, after its last copy has completed. */
  take(): StagingSlot {
    const slot = this.#slots[this.#next];
    if (!slot) throw new HoldfastError("CLOSED", "The staging ring is closed; open a new runtime.");
    this.#driver.synchronizeEvent(slot.event);
    this.#next = (this.#next + 1) % slotCount;
    return slot;
  }

  /** Records that a copy with this slot was issued on the stream. */
  issued(slot: StagingSlot, stream: Stream): void {
    this.#driver.recordEvent(slot.event, stream);
  }

  /** The host's view of a slot's first bytes; legal only before its copy is issued or after it has completed. */
  view(slot: StagingSlot, size: number): Uint8Array {
    return this.#driver.hostBytes(slotSpan(slot, size));
  }

  close(): void {
    this.#slots.length = 0;
    runAll(this.#closing.splice(0).reverse());
  }
}

export function slotSpan(slot: StagingSlot, size: number): HostSpan {
  return { memory: slot.memory, offset: bytes(0), size: bytes(size) };
}
