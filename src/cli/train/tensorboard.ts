/** Writes a run's curves for TensorBoard during training, with the tags of a finished run's export. */

import { basename, join, resolve } from "node:path";
import { type AddPoint, addMetrics, EventFileWriter } from "../../inspect/index.js";
import type { JsonRecord } from "../../records/index.js";
import type { EpochRecord } from "../../train/index.js";

/** The points of an event: figures of a step, or a line of the run's metrics. */
export type CurvePoint =
  | {
      readonly kind: "step";
      readonly step: number;
      readonly loss: number | undefined;
      readonly samplesPerSecond: number | undefined;
    }
  | { readonly kind: "metrics"; readonly step: number; readonly lr?: number; readonly metrics: JsonRecord };

/** The point of an epoch, with figures of the job. */
export function epochPoint(step: number, record: EpochRecord, ofJob: JsonRecord): CurvePoint {
  const { epoch, loss, lr, samplesPerSecond, seconds, skipped } = record;
  return {
    kind: "metrics",
    ...{ step, lr },
    metrics: { ...ofJob, epoch, loss, lr, samplesPerSecond, seconds, skipped },
  };
}

export interface TensorBoardCurves {
  add(point: CurvePoint | undefined): void;
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
  return {
    add(point) {
      if (point?.kind === "step") {
        if (now() - writtenMs < intervalMs) return;
        writtenMs = now();
        add("train/loss", point.step, point.loss, writtenMs);
        add("train/samples_per_second", point.step, point.samplesPerSecond, writtenMs);
      } else if (point) {
        if (point.lr !== undefined) add("train/lr", point.step, point.lr, now());
        addMetrics(add, point.metrics, now());
        writer.flush();
      }
    },
    close: () => writer.close(),
  };
}
