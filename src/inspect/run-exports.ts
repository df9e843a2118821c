/** The exports of a run: a name, and a function that makes the bytes. */

import { readRun } from "../train/index.js";
import { metricsCsv, stepsCsv } from "./csv.js";
import { exportMemorySnapshot, exportTrace } from "./exports/index.js";
import type { Body } from "./responses.js";
import type { RunView } from "./run-view.js";

export interface RunExport {
  /** The last path segment. A group captures a plan's index. */
  readonly name: RegExp;
  /** Undefined if the run has no such data. */
  readonly make: (run: RunView, index: number) => Body | undefined;
}

export const runExports: readonly RunExport[] = [
  {
    name: /^steps\.csv$/,
    make: (run) => {
      run.steps.refresh();
      return { type: "text/csv; charset=utf-8", content: stepsCsv(run.steps.series()) };
    },
  },
  {
    name: /^metrics\.csv$/,
    make: ({ path }) => ({ type: "text/csv; charset=utf-8", content: metricsCsv(readRun(path).metrics) }),
  },
  {
    name: /^trace\.json$/,
    make: ({ path }) => {
      const { type, bytes } = exportTrace(path);
      return { type, content: bytes };
    },
  },
  {
    name: /^memory-(\d{1,6})\.pickle$/,
    make: (run, index) => {
      if (!run.inspection().plans[index]) return undefined;
      const { type, bytes } = exportMemorySnapshot(run.path, index);
      return { type, content: bytes };
    },
  },
];
