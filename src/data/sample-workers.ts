/** Worker threads that load samples. They start with the first load, and end with `close()` or with the process. */

import type { Worker } from "node:worker_threads";
import { HoldfastError } from "../errors/index.js";
import { startThread, threadAdvice } from "../units/index.js";
import type { SampleContext } from "./sample-context.js";
import type { DatasetOrigin } from "./worker-source.js";

export interface LoadRequest {
  readonly id: number;
  readonly indices: readonly number[];
  readonly context: SampleContext;
}

export type LoadReply =
  | { readonly id: number; readonly samples: readonly unknown[] }
  | { readonly id: number; readonly message: string };

interface Pending {
  readonly resolve: (samples: readonly unknown[]) => void;
  readonly reject: (error: Error) => void;
}

interface Loader {
  readonly worker: Worker;
  readonly pending: Map<number, Pending>;
}

export class SampleWorkers {
  readonly #origin: DatasetOrigin;
  readonly #count: number;
  #loaders: Loader[] = [];
  #nextId = 0;
  #isClosed = false;

  constructor(origin: DatasetOrigin, count: number) {
    this.#origin = origin;
    this.#count = count;
  }

  /** Loads samples on the thread with the fewest loads. */
  load(indices: readonly number[], context: SampleContext): Promise<readonly unknown[]> {
    if (this.#isClosed) throw new HoldfastError("CLOSED", "The loader was closed. Create another one.");
    const loader = this.#select();
    const id = this.#nextId++;
    return new Promise((resolve, reject) => {
      loader.pending.set(id, { resolve, reject });
      // A thread with work keeps the process alive.
      loader.worker.ref();
      loader.worker.postMessage({ id, indices, context } satisfies LoadRequest);
    });
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    const loaders = this.#loaders;
    this.#loaders = [];
    await Promise.all(loaders.map(({ worker }) => worker.terminate()));
  }

  #select(): Loader {
    if (this.#loaders.length < this.#count) return this.#start();
    const [first, ...others] = this.#loaders as [Loader, ...Loader[]];
    return others.reduce((best, one) => (one.pending.size < best.pending.size ? one : best), first);
  }

  #start(): Loader {
    const worker = startThread(new URL("./sample-thread.js", import.meta.url), this.#origin);
    if (worker instanceof Error) {
      throw new HoldfastError(
        "UNSUPPORTED",
        `A thread of the loader could not start: ${worker.message}. ${threadAdvice}, or lower numWorkers.`,
        { cause: worker },
      );
    }
    const loader: Loader = { worker, pending: new Map() };
    this.#loaders.push(loader);
    worker.on("message", (reply: LoadReply) => {
      const load = loader.pending.get(reply.id);
      loader.pending.delete(reply.id);
      // A reply may come while the thread ends; terminate() keeps the process alive until it has.
      if (loader.pending.size === 0 && !this.#isClosed) worker.unref();
      if ("samples" in reply) load?.resolve(reply.samples);
      else load?.reject(failure(reply.message));
    });
    const end = (message: string): void => {
      this.#loaders = this.#loaders.filter((one) => one !== loader);
      for (const { reject } of loader.pending.values()) reject(failure(message));
      loader.pending.clear();
    };
    worker.on("error", (error) => end(String(error)));
    worker.on("exit", () => end("the thread has ended"));
    return loader;
  }
}

function failure(message: string): HoldfastError {
  return new HoldfastError(
    "BAD_ARGUMENT",
    `A worker thread of the loader could not load its samples: ${message}`,
  );
}
