/**
 * Memory that a rank's main thread shares with its thread for the other ranks: what it waits in, and what the thread has heard. Neither
 * waits for the other: the main thread may be inside a library.
 */

import type { Failure } from "./messages.js";

const words = {
  ...{ sequence: 0, isWaiting: 1, nameBytes: 2, peerProgress: 3 },
  ...{ failureBytes: 4, failureKind: 5, isFailureSeen: 6, inbox: 7, communicator: 8 },
} as const;
const wordBytes = 64;
const nameBytes = 256;
const failureBytes = 8192;
/** What becomes of the communicator of GPUs: one of the two threads ends it. */
const communicators = { none: 0, open: 1, taken: 2, aborted: 3 } as const;
const failures: readonly Failure[] = ["lost", "differ"];

export class SharedState {
  readonly memory: SharedArrayBuffer;
  readonly #words: Int32Array;
  readonly #name: Uint8Array;
  readonly #failure: Uint8Array;

  constructor(memory = new SharedArrayBuffer(wordBytes + nameBytes + failureBytes)) {
    this.memory = memory;
    this.#words = new Int32Array(memory, 0, wordBytes / 4);
    this.#name = new Uint8Array(memory, wordBytes, nameBytes);
    this.#failure = new Uint8Array(memory, wordBytes + nameBytes, failureBytes);
  }

  beginWait(name: string): void {
    Atomics.store(this.#words, words.nameBytes, write(this.#name, name));
    Atomics.add(this.#words, words.sequence, 1);
    Atomics.store(this.#words, words.isWaiting, 1);
  }

  endWait(): void {
    Atomics.store(this.#words, words.isWaiting, 0);
  }

  /** The collective in which the main thread waits. */
  get waitsIn(): string | undefined {
    if (Atomics.load(this.#words, words.isWaiting) === 0) return undefined;
    return read(this.#name, Atomics.load(this.#words, words.nameBytes));
  }

  /** The number of waits begun. */
  get sequence(): number {
    return Atomics.load(this.#words, words.sequence);
  }

  /** Rises when a rank on which this one may wait has done something. */
  get peerProgress(): number {
    return Atomics.load(this.#words, words.peerProgress);
  }

  set peerProgress(value: number) {
    Atomics.store(this.#words, words.peerProgress, value | 0);
  }

  /** Why the ranks can't go on; undefined while they can. The first report stays. */
  get failure(): { readonly what: Failure; readonly text: string } | undefined {
    const length = Atomics.load(this.#words, words.failureBytes);
    if (length === 0) return undefined;
    const what = failures[Atomics.load(this.#words, words.failureKind)] ?? "lost";
    return { what, text: read(this.#failure, length) };
  }

  reportFailure(what: Failure, text: string): void {
    if (Atomics.load(this.#words, words.failureBytes) > 0) return;
    Atomics.store(this.#words, words.failureKind, failures.indexOf(what));
    Atomics.store(this.#words, words.failureBytes, write(this.#failure, text));
    this.notify();
  }

  /** True once the main thread has thrown the error. */
  get isFailureSeen(): boolean {
    return Atomics.load(this.#words, words.isFailureSeen) === 1;
  }

  markFailureSeen(): void {
    Atomics.store(this.#words, words.isFailureSeen, 1);
  }

  openCommunicator(): void {
    Atomics.store(this.#words, words.communicator, communicators.open);
  }

  /** True for the thread that may end the communicator of GPUs: the first that asks. */
  takeCommunicator(): boolean {
    const { open, taken } = communicators;
    return Atomics.compareExchange(this.#words, words.communicator, open, taken) === open;
  }

  noteAborted(): void {
    Atomics.store(this.#words, words.communicator, communicators.aborted);
  }

  /** True while a thread is ending the communicator. */
  get isAborting(): boolean {
    return Atomics.load(this.#words, words.communicator) === communicators.taken;
  }

  /** Wakes the main thread: there is a message for it. */
  notify(): void {
    Atomics.add(this.#words, words.inbox, 1);
    Atomics.notify(this.#words, words.inbox);
  }

  /** The number of notifications so far. */
  get notifications(): number {
    return Atomics.load(this.#words, words.inbox);
  }

  /** Sleeps until there are more notifications than `seen`, or the time has passed. */
  sleep(seen: number, timeoutMs: number): void {
    Atomics.wait(this.#words, words.inbox, seen, timeoutMs);
  }
}

function write(target: Uint8Array, text: string): number {
  // A decoder does not take shared memory, so both ends copy.
  const encoded = new TextEncoder().encode(text).subarray(0, target.length);
  target.set(encoded);
  return encoded.length;
}

function read(source: Uint8Array, length: number): string {
  return new TextDecoder().decode(source.slice(0, length));
}
