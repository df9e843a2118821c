/** Writes a job's curves for TensorBoard during training, with the tags of a finished run's export. */

import { basename, join, resolve } from "node:path";
import type { JobEvent, JobListener } from "../../crossasset/index.js";
import { type AddPoint, addMetrics, EventFileWriter } from "../../inspect/index.js";

export interface TensorBoardCurves {
  readonly listen: JobListener;
  close(): void;
}

/** The min. interval between two written steps, in milliseconds: TensorBoard reads every few seconds. */
const intervalMs = 250;

/** Writes to a sub-folder with the run's name, so that TensorBoard shows several runs together. */
export function writeCurves(folder: string, run: string, now: () => number = Date.now): TensorBoardCurves {
  const writer = new EventFileWriter(join(folder, basename(resolve(run))), { startMs: now() });
  let writtenMs = Number.NEGATIVE_INFINITY;
  const add: AddPoint = (tag, step, value, timeMs) => {
    if (value !== undefined && Number.isFinite(value)) writer.scalar(tag, step, value, timeMs);
  };
  const listen = (event: JobEvent): void => {
    if (event.kind === "step") {
      if (now() - writtenMs < intervalMs) return;
      writtenMs = now();
      add("train/loss", event.step, event.loss, writtenMs);
      add("train/samples_per_second", event.step, event.samplesPerSecond, writtenMs);
    } else if (event.kind === "epoch") {
      const { fold, step, record } = event;
      const { epoch, loss, lr, samplesPerSecond, seconds, skipped } = record;
      add("train/lr", step, lr, now());
      addMetrics(add, { fold, epoch, loss, lr, samplesPerSecond, seconds, skipped }, now());
      writer.flush();
    } else if (event.kind === "fold end") {
      const { fold, test } = event.result;
      addMetrics(add, { fold, test }, now());
      writer.flush();
    }
  };
  return { listen, close: () => writer.close() };
}
