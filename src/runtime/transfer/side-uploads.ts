/**
 * Uploads beside the runtime's stream: inside `run` they go to a stream of their own, so that they overlap with the work that is issued after
 * them. An upload waits for the work issued before it, which may still use its memory. Work inside `run` waits for the uploads before it;
 * work after it does not, until `arrive`.
 */

import type { Driver, Stream } from "../../driver/index.js";

export interface SideUploadsOptions {
  readonly driver: Driver;
  /** The runtime's stream. */
  readonly stream: Stream;
  readonly orderStreams: (earlier: Stream, later: Stream) => void;
  /** False: `run` does nothing special. */
  readonly isOn: boolean;
}

export class SideUploads {
  readonly #options: SideUploadsOptions;
  #stream: Stream | undefined;
  #isRunning = false;
  /** True if the runtime's stream does not wait yet for an upload. */
  #isUnordered = false;

  constructor(options: SideUploadsOptions) {
    this.#options = options;
  }

  /** Runs a function whose uploads go to the side stream. */
  run<T>(body: () => T): T {
    if (this.#isRunning || !this.#options.isOn) return body();
    this.#isRunning = true;
    try {
      return body();
    } finally {
      this.#isRunning = false;
    }
  }

  /** The stream of an upload that is about to be issued. */
  streamForUpload(): Stream {
    const { driver, stream, orderStreams } = this.#options;
    if (!this.#isRunning) return stream;
    this.#stream ??= driver.createStream();
    orderStreams(stream, this.#stream);
    this.#isUnordered = true;
    return this.#stream;
  }

  /** Called before work on the runtime's stream. */
  beforeWork(): void {
    if (this.#isRunning) this.arrive();
  }

  /** Makes later work wait for all uploads so far. */
  arrive(): void {
    const { stream, orderStreams } = this.#options;
    if (!this.#isUnordered || !this.#stream) return;
    orderStreams(this.#stream, stream);
    this.#isUnordered = false;
  }

  close(): void {
    if (!this.#stream) return;
    const { driver } = this.#options;
    driver.synchronize(this.#stream);
    driver.destroyStream(this.#stream);
    this.#stream = undefined;
  }
}
