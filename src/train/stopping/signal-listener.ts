/**
 * Receives signals on a separate thread. Node runs signal handlers on the main thread only, between two turns of its event loop,
 * so a busy main thread misses them. libuv notifies every loop that has a signal handle. Node exports libuv's C functions for
 * addons: this module makes a second loop, which the calling thread polls.
 */

import { constants } from "node:os";
import { loadNative } from "../../units/index.js";

export type StopSignal = "SIGINT" | "SIGTERM" | "SIGHUP";

export interface SignalListener {
  /** The signals since the last call, in order. */
  poll(): readonly StopSignal[];
  /** Ends the process at once. In a worker, `process.exit` would only end the worker. */
  exitProcess(code: number): void;
  /** Stops listening. */
  close(): void;
}

/** libuv's UV_SIGNAL handle type and UV_RUN_NOWAIT mode. */
const signalHandleType = 16;
const runNoWait = 2;

export function listenForSignals(names: readonly StopSignal[]): Promise<SignalListener> {
  return loadNative(() => startListening(names));
}

async function startListening(names: readonly StopSignal[]): Promise<SignalListener> {
  const { default: koffi } = await import("koffi");
  const library = koffi.load(null);
  // C memory, because libuv keeps its address as long as the loop lives, and the garbage collector must not free it.
  const allocate = library.func("void *calloc(size_t count, size_t size)");
  const initLoop = library.func("int uv_loop_init(void *loop)");
  const initSignal = library.func("int uv_signal_init(void *loop, void *handle)");
  const start = library.func("int uv_signal_start(void *handle, void *callback, int signal)");
  const closeHandle = library.func("void uv_close(void *handle, void *closed)");
  const run = library.func("int uv_run(void *loop, int mode)");
  const closeLoop = library.func("int uv_loop_close(void *loop)");

  let received: StopSignal[] = [];
  const callback = koffi.register(
    (_handle: unknown, number: number) => {
      const name = names.find((candidate) => constants.signals[candidate] === number);
      if (name) received.push(name);
    },
    koffi.pointer(koffi.proto("void (void *handle, int signal)")),
  );
  const loop = allocate(1, library.func("size_t uv_loop_size()")());
  requireDone("uv_loop_init", initLoop(loop));
  const handleBytes = library.func("size_t uv_handle_size(int type)")(signalHandleType);
  const handles = names.map((name) => {
    const handle = allocate(1, handleBytes);
    requireDone("uv_signal_init", initSignal(loop, handle));
    requireDone("uv_signal_start", start(handle, callback, constants.signals[name]));
    return handle;
  });
  return {
    poll() {
      run(loop, runNoWait);
      const polled = received;
      received = [];
      return polled;
    },
    exitProcess: library.func("void _exit(int code)"),
    close() {
      for (const handle of handles) closeHandle(handle, null);
      run(loop, runNoWait);
      closeLoop(loop);
      koffi.unregister(callback);
    },
  };
}

function requireDone(call: string, status: number): void {
  if (status !== 0) throw new Error(`${call} returned ${status}`);
}
