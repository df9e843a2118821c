/** The worker of `openInspectorInThread`: opens the server and posts its address. */

import { parentPort, workerData } from "node:worker_threads";
import { HoldfastError } from "../errors/index.js";
import type { ThreadMessage } from "./inspector-in-thread.js";
import { type InspectorOptions, openInspector } from "./server.js";

const post = (message: ThreadMessage): void => parentPort?.postMessage(message);

try {
  const { url } = await openInspector(workerData as InspectorOptions);
  post({ url });
} catch (error) {
  if (!(error instanceof HoldfastError)) throw error;
  post({ code: error.code, message: error.message });
}
