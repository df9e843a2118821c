/**
 * A stream on the CPU: an in-order queue that runs only when its results are needed. Work that no event orders
 * therefore stays unordered, and a missing wait shows up as a wrong result.
 *
 * Events take no queue entry: a recorded event is the number of commands issued before it.
 */

import type { Command, Executor } from "./commands.js";

/** A position in a stream's work. */
export interface StreamPosition {
  readonly stream: CommandQueue;
  /** Number of the stream's commands before this position. */
  readonly position: number;
}

type Entry =
  | Command
  | { readonly kind: "graph"; readonly commands: readonly Command[] }
  | { readonly kind: "wait"; readonly target: StreamPosition };

/** A failed command. Everything queued from `position` on was dropped, because it would have read lost results. */
interface Failure {
  readonly error: unknown;
  readonly position: number;
}

/**
 * A queue of this length runs at once, so that a caller who never synchronizes does not fill memory with commands.
 * Running early is always legal: the only promise is that issued work has run after a synchronize.
 */
const maxQueueLength = 4096;

export class CommandQueue {
  readonly id: number;
  readonly #executor: Executor;
  readonly #entries: Entry[] = [];
  /** Index in `#entries` of the next entry to run. */
  #head = 0;
  #completed = 0;
  #failure: Failure | undefined;

  constructor(id: number, executor: Executor) {
    this.id = id;
    this.#executor = executor;
  }

  push(command: Command): void {
    this.#enqueue(command);
  }

  pushGraph(commands: readonly Command[]): void {
    this.#enqueue({ kind: "graph", commands });
  }

  pushWait(target: StreamPosition): void {
    if (target.stream !== this) this.#enqueue({ kind: "wait", target });
  }

  /** The current end of the queue. */
  currentPosition(): StreamPosition {
    return { stream: this, position: this.#issued };
  }

  /** True if everything before the position has run. Throws if it failed. Runs nothing. */
  isReached(position: number): boolean {
    if (this.#failure && this.#failure.position < position) throw this.#failure.error;
    return this.#completed >= position;
  }

  /** Runs the queue up to a position. Keeps a failure for `throwFailure` and drops the commands after it. */
  drain(position = this.#issued): void {
    while (this.#completed < position) {
      const entry = this.#entries[this.#head];
      if (!entry) return;
      try {
        this.#runEntry(entry);
      } catch (error) {
        this.#failure ??= { error, position: this.#completed };
        this.#completed = this.#issued;
        this.#forgetEntries();
        return;
      }
      this.#head++;
      this.#completed++;
    }
    if (this.#head === this.#entries.length) this.#forgetEntries();
  }

  /** Throws the failure that happened before the position, once. The stream is usable afterwards. */
  throwFailure(position = this.#issued): void {
    const failure = this.#failure;
    if (!failure || failure.position >= position) return;
    this.#failure = undefined;
    throw failure.error;
  }

  get #issued(): number {
    return this.#completed + this.#entries.length - this.#head;
  }

  #enqueue(entry: Entry): void {
    this.#entries.push(entry);
    if (this.#entries.length >= maxQueueLength) this.drain();
  }

  #runEntry(entry: Entry): void {
    switch (entry.kind) {
      case "graph":
        for (const command of entry.commands) this.#executor.run(command);
        break;
      case "wait":
        // Only up to the event: later work of the other stream stays queued.
        entry.target.stream.drain(entry.target.position);
        entry.target.stream.isReached(entry.target.position);
        break;
      default:
        this.#executor.run(entry);
    }
  }

  #forgetEntries(): void {
    this.#entries.length = 0;
    this.#head = 0;
  }
}
