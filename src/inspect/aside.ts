/**
 * The inspector beside a training that goes on in this process. A step keeps its thread busy from end to end, so the server has a
 * thread of its own, and neither waits for the other.
 */

import { Worker } from "node:worker_threads";
import { HoldfastError } from "../errors/index.js";
import { threadAdvice } from "../units/index.js";
import type { Inspector, InspectorOptions } from "./server.js";

/** What the thread tells once: where it listens, or why it can't. */
export type AsideMessage =
  | { readonly url: string }
  | { readonly code: HoldfastError["code"]; readonly message: string };

/** As `openInspector`, from a thread of its own. It does not keep the process from ending. */
export async function openInspectorAside(options: InspectorOptions): Promise<Inspector> {
  const worker = startThread(options);
  const told = await new Promise<AsideMessage>((resolve, reject) => {
    worker.once("message", resolve);
    worker.once("error", (error) => reject(threadFailed(error)));
  });
  // What goes wrong with a look at a run is no reason to end it.
  worker.removeAllListeners("error").on("error", () => undefined);
  worker.unref();
  const close = async (): Promise<void> => void (await worker.terminate());
  if ("url" in told) return { url: told.url, close };
  await close();
  throw new HoldfastError(told.code, told.message);
}

function startThread(workerData: InspectorOptions): Worker {
  try {
    return new Worker(new URL("./aside-thread.js", import.meta.url), { workerData });
  } catch (error) {
    throw threadFailed(error);
  }
}

function threadFailed(cause: unknown): HoldfastError {
  const why = cause instanceof Error ? cause.message : String(cause);
  return new HoldfastError(
    "UNSUPPORTED",
    `The inspector's thread can't run (${why}). ${threadAdvice}, and more memory; ` +
      "or look at the run with `holdfast inspect` from another process.",
    { cause },
  );
}
