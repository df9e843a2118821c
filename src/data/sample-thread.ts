/** The thread that loads samples for an `AsyncDataLoader`. It makes the data set from its module. */

import { parentPort, workerData } from "node:worker_threads";
import type { LoadReply, LoadRequest } from "./sample-workers.js";
import { type DatasetOrigin, importDataset } from "./worker-source.js";

const port = parentPort;
const dataset = importDataset(workerData as DatasetOrigin);
// The first load reports the failure.
dataset.catch(() => undefined);

port?.on("message", async ({ id, indices, context }: LoadRequest) => {
  try {
    const source = await dataset;
    const samples = await Promise.all(indices.map((index) => source.get(index, context)));
    port.postMessage({ id, samples } satisfies LoadReply);
  } catch (error) {
    const problem = error instanceof Error ? error.message : String(error);
    const isUncloneable = error instanceof Error && error.name === "DataCloneError";
    const message = isUncloneable
      ? `${problem} Samples must be numbers, strings, typed arrays, and arrays and plain objects of these.`
      : problem;
    port.postMessage({ id, message } satisfies LoadReply);
  }
});
