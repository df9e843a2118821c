/**
 * A stream on the CPU: an in-order queue that runs when somebody must see its results. Until then nothing runs, so
 * work that no event orders really does stay unordered, and a missing wait shows as a wrong result.
 *
 * Events need no place in the queue: a mark is the number of commands that were issued before it.
 */

import type { Command, Executor } from "./commands.js";

/** A point in a stream's work. */
export interface Mark {
  readonly stream: CommandQueue;
  /** How many of the stream's commands lie before it. */
  readonly position: number;
}

type Entry =
  | Command
  | { readonly kind: "graph"; readonly commands: readonly Command[] }
  | { readonly kind: "wait"; readonly mark: Mark };

/** Work that failed: everything queued from `position` on was dropped, for it would have read lost results. */
interface Failure {
  readonly error: unknown;
  readonly position: number;
}

/**
 * A queue this long is run at once, so that a caller who never synchronises doesn't fill the memory with records. It
 * is legal at any moment: the only promise about issued work is that it has run after a synchronise.
 */
const longestQueue = 4096;

export class CommandQueue {
  readonly id: number;
  readonly #executor: Executor;
  readonly #entries: Entry[] = [];
  /** The place in `#entries` of the next one to run. */
  #head = 0;
  #done = 0;
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

  pushWait(mark: Mark): void {
    if (mark.stream !== this) this.#enqueue({ kind: "wait", mark });
  }

  /** The present end of the queue. */
  mark(): Mark {
    return { stream: this, position: this.#issued };
  }

  /** Has everything before the position run? Throws if it failed instead. Runs nothing. */
  isReached(position: number): boolean {
    if (this.#failure && this.#failure.position < position) throw this.#failure.error;
    return this.#done >= position;
  }

  /** Runs the queue up to a position. What fails is kept for `throwFailure`, with everything behind it dropped. */
  drain(position = this.#issued): void {
    while (this.#done < position) {
      const entry = this.#entries[this.#head];
      if (!entry) return;
      try {
        this.#runEntry(entry);
      } catch (error) {
        this.#failure ??= { error, position: this.#done };
        this.#done = this.#issued;
        this.#forgetEntries();
        return;
      }
      this.#head++;
      this.#done++;
    }
    if (this.#head === this.#entries.length) this.#forgetEntries();
  }

  /** Throws the failure that happened before the position, once: the stream is usable afterwards. */
  throwFailure(position = this.#issued): void {
    const failure = this.#failure;
    if (!failure || failure.position >= position) return;
    this.#failure = undefined;
    throw failure.error;
  }

  get #issued(): number {
    return this.#done + this.#entries.length - this.#head;
  }

  #enqueue(entry: Entry): void {
    this.#entries.push(entry);
    if (this.#entries.length >= longestQueue) this.drain();
  }

  #runEntry(entry: Entry): void {
    switch (entry.kind) {
      case "graph":
        for (const command of entry.commands) this.#executor.run(command);
        break;
      case "wait":
        // Up to the mark and no further: what the other stream was given later is not ours to hurry.
        entry.mark.stream.drain(entry.mark.position);
        entry.mark.stream.isReached(entry.mark.position);
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
