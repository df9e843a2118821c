/**
 * NCCL, as the thread for the other ranks uses it. While a rank is awaited, the main thread is in a driver call that does not return. So this
 * thread asks whether the collectives have failed, and aborts them if a rank is lost: the driver call then returns.
 */

import { loadKoffi } from "../../driver/index.js";
import { ncclResult } from "./bindings.js";

/** A communicator of the main thread. */
export interface OpenCommunicator {
  /** The file of the library, which the process has loaded. */
  readonly library: string;
  readonly handle: number;
}

export class CommunicatorWatch {
  readonly #handle: number;
  readonly #state = new Int32Array(1);
  readonly #ask: (handle: number, state: Int32Array) => number;
  readonly #explain: (result: number) => string;
  readonly #abort: { async(handle: number, done: () => void): void };

  constructor({ library, handle }: OpenCommunicator) {
    const nccl = loadKoffi().load(library);
    this.#handle = handle;
    this.#ask = nccl.func("int ncclCommGetAsyncError(uint64_t communicator, _Out_ int *state)");
    this.#explain = nccl.func("const char *ncclGetErrorString(int result)");
    this.#abort = nccl.func("int ncclCommAbort(uint64_t communicator)");
  }

  /** Why its collectives have failed; undefined if they have not. */
  failure(): string | undefined {
    const failed = this.#ask(this.#handle, this.#state);
    const state = failed === ncclResult.Success ? (this.#state[0] ?? 0) : failed;
    if (state === ncclResult.Success || state === ncclResult.InProgress) return undefined;
    return `${this.#explain(state)} (${state})`;
  }

  /** Calls `done` when NCCL has ended. It may never: it waits for CUDA. */
  abort(done: () => void): void {
    this.#abort.async(this.#handle, done);
  }
}
