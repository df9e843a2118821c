/** exports: a run in the formats of Perfetto, PyTorch's memory viewer and TensorBoard. */

import { basename, resolve } from "node:path";
import { HoldfastError } from "../../errors/index.js";
import { readInspection } from "../../train/index.js";
import { memorySnapshot } from "./memory-snapshot.js";
import { traceRun } from "./trace.js";

export { type EventFileOptions, EventFileWriter } from "./event-file.js";
export { memorySnapshot } from "./memory-snapshot.js";
export {
  type AddPoint,
  addMetrics,
  type TensorBoardExport,
  writeTensorBoard as exportTensorBoard,
} from "./tensorboard.js";
export { type TraceFile, type TraceLimits, traceRun } from "./trace.js";

/** A file for download. */
export interface ExportedFile {
  readonly name: string;
  /** Its media type. */
  readonly type: string;
  readonly bytes: Uint8Array;
}

/** A run as a trace for https://ui.perfetto.dev and chrome://tracing. */
export function exportTrace(runPath: string): ExportedFile {
  return {
    ...{ name: `${nameOf(runPath)}-trace.json`, type: "application/json" },
    bytes: Buffer.from(JSON.stringify(traceRun(runPath))),
  };
}

/** A plan's memory for https://docs.pytorch.org/memory_viz; plans count from 0, in the order of the run's folder. */
export function exportMemorySnapshot(runPath: string, planIndex: number): ExportedFile {
  const { plans } = readInspection(runPath);
  const plan = plans[planIndex];
  if (!plan) {
    const range = plans.length === 0 ? "it has none" : `its plans are 0 to ${plans.length - 1}`;
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `The run ${nameOf(runPath)} has no plan ${planIndex}: ${range}.`,
      {
        numbers: { planIndex, plans: plans.length },
      },
    );
  }
  return {
    ...{ name: `${nameOf(runPath)}-memory-${planIndex}.pickle`, type: "application/octet-stream" },
    bytes: memorySnapshot(plan),
  };
}

function nameOf(runPath: string): string {
  return basename(resolve(runPath));
}
