/**
 * A mailbox: copies a few bytes of device memory to the host, after the work issued so far, without blocking either
 * side. One transfer at a time; the host polls for its arrival.
 */

import type { Driver, Event, HostMemory, Stream } from "../../driver/index.js";
import { HoldfastError } from "../../errors/index.js";
import { bytes } from "../../units/index.js";
import type { Budget, Charge } from "../memory/budget.js";
import type { Storage } from "../memory/storage.js";
import type { TransferCount } from "./transfer.js";

export interface MailboxOptions {
  readonly driver: Driver;
  readonly stream: Stream;
  readonly budget: Budget;
  readonly requireLive: (storage: Storage, use: string) => void;
  /** Counts read-backs. */
  readonly down: TransferCount;
}

export class Mailbox {
  readonly #options: MailboxOptions;
  readonly #charge: Charge;
  readonly #memory: HostMemory;
  readonly #event: Event;
  #sent = 0;
  #isClosed = false;

  constructor(options: MailboxOptions, size: number, name: string) {
    const { driver, budget } = options;
    this.#options = options;
    this.#charge = budget.charge("staging", bytes(size), name);
    this.#memory = driver.allocateHost(bytes(size));
    this.#event = driver.createEvent();
  }

  /** True if a transfer has been posted and not yet taken. */
  get isBusy(): boolean {
    return this.#sent > 0;
  }

  /** Starts the transfer of a storage's bytes. */
  post(storage: Storage): void {
    const { driver, stream, requireLive, down } = this.#options;
    requireLive(storage, "read-back");
    const { size } = storage.span;
    if (this.isBusy || size > this.#memory.size) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        this.isBusy
          ? `The mailbox still holds an earlier transfer and cannot take "${storage.label}". Call take() first.`
          : `The mailbox has ${this.#memory.size} bytes and cannot take the ${size} bytes of "${storage.label}". Create a larger one.`,
      );
    }
    driver.copyToHost(stream, { memory: this.#memory, offset: bytes(0), size }, storage.span);
    driver.recordEvent(this.#event, stream);
    this.#sent = size;
    down.copies += 1;
    down.bytes += size;
    down.tensors += 1;
  }

  /** Returns the posted bytes if they have arrived; with `wait`, after they have. */
  take(wait = false): Uint8Array<ArrayBuffer> | undefined {
    const { driver } = this.#options;
    if (!this.isBusy) return undefined;
    if (wait) driver.synchronizeEvent(this.#event);
    else if (!driver.isReached(this.#event)) return undefined;
    const size = bytes(this.#sent);
    this.#sent = 0;
    return Uint8Array.from(driver.hostBytes({ memory: this.#memory, offset: bytes(0), size }));
  }

  /** Frees its memory. Idempotent. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    const { driver, budget } = this.#options;
    driver.synchronizeEvent(this.#event);
    driver.destroyEvent(this.#event);
    driver.freeHost(this.#memory);
    budget.release(this.#charge);
  }
}
