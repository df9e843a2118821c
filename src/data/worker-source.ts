/** Where worker threads get a data set from: a module that makes it again on each thread. */

import { HoldfastError } from "../errors/index.js";
import type { Dataset } from "./map-dataset.js";

/** The module that makes a data set on each worker thread. */
export interface WorkerSource {
  /** For example `new URL("./images.js", import.meta.url)`. */
  readonly module: URL;
  /** The export that returns the data set: an object with `length` and `get`. Default: "default". */
  readonly exportName?: string;
  /** The argument of that function; plain data. */
  readonly argument?: unknown;
}

/** A source as a message to a thread. */
export interface DatasetOrigin {
  readonly module: string;
  readonly exportName: string;
  readonly argument: unknown;
}

export function originOf(source: WorkerSource | undefined): DatasetOrigin {
  if (source) {
    const { module, exportName = "default", argument } = source;
    if (!(module instanceof URL)) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `AsyncDataLoader: workerSource.module is ${String(module)}. Pass a URL: new URL("./samples.js", import.meta.url).`,
      );
    }
    return { module: module.href, exportName, argument };
  }
  throw new HoldfastError(
    "BAD_ARGUMENT",
    "AsyncDataLoader: worker threads can't get a data set that is an object of this thread. Pass workerSource, the module that makes it, or leave out numWorkers.",
  );
}

/** Makes the data set on a thread. */
export async function importDataset({
  module,
  exportName,
  argument,
}: DatasetOrigin): Promise<Pick<Dataset<unknown>, "get">> {
  const exports = (await import(module)) as Readonly<Record<string, unknown>>;
  const make = exports[exportName];
  const made: unknown = typeof make === "function" ? await make(argument) : undefined;
  const dataset = (made ?? {}) as Partial<Dataset<unknown>>;
  if (typeof dataset.get === "function") return dataset as Dataset<unknown>;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `The export "${exportName}" of ${module.slice(0, 200)} makes no data set. Export a function that returns one: an object with length and get(index).`,
  );
}
