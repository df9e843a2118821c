/**
 * Runs the inspector in a worker thread, next to a training in this process. A step blocks the main thread, so the server needs its
 * own.
 */

import { Worker } from "node:worker_threads";
import { HoldfastError } from "../errors/index.js";
import { threadAdvice } from "../units/index.js";
import type { Inspector, InspectorOptions } from "./server.js";

/** The thread's only message: its address, or an error. */
export type ThreadMessage =
  | { readonly url: string }
  | { readonly code: HoldfastError["code"]; readonly message: string };

/** Like `openInspector`, in a worker thread. It does not keep the process alive. */
export async function openInspectorInThread(options: InspectorOptions): Promise<Inspector> {
  const worker = startThread(options);
  const message = await new Promise<ThreadMessage>((resolve, reject) => {
    worker.once("message", resolve);
    worker.once("error", (error) => reject(threadFailed(error)));
  });
  // An error of the inspector must not end the run.
  worker.removeAllListeners("error").on("error", () => undefined);
  worker.unref();
  const close = async (): Promise<void> => void (await worker.terminate());
  if ("url" in message) return { url: message.url, close };
  await close();
  throw new HoldfastError(message.code, message.message);
}

function startThread(workerData: InspectorOptions): Worker {
  try {
    return new Worker(new URL("./inspector-thread.js", import.meta.url), { workerData });
  } catch (error) {
    throw threadFailed(error);
  }
}

function threadFailed(cause: unknown): HoldfastError {
  const why = cause instanceof Error ? cause.message : String(cause);
  return new HoldfastError(
    "UNSUPPORTED",
    `The inspector's thread can't run (${why}). ${threadAdvice}, and more memory; ` +
      "or run `holdfast inspect` in another process.",
    { cause },
  );
}
