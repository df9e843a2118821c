/**
 * A run as Prometheus reads it: its status as a page in the text exposition format, version 0.0.4. What is not known yet has
 * no line.
 */

import { statSync } from "node:fs";
import { join } from "node:path";
import { errorCode } from "../data/index.js";
import { CheckpointStore } from "./checkpoints.js";
import { readRunRecord, readStatus } from "./read-run.js";
import { type RunRecord, type RunStatus, runFiles } from "./run-records.js";

export const metricsPageType = "text/plain; version=0.0.4; charset=utf-8";

interface MeasuredRun {
  readonly run: RunRecord | undefined;
  readonly status: RunStatus;
  /** When the latest checkpoint was written, in milliseconds since 1970. */
  readonly checkpointMs: number | undefined;
}

interface Metric {
  readonly name: string;
  readonly type: "gauge" | "counter";
  readonly help: string;
  readonly value: (run: MeasuredRun) => number | undefined;
  readonly labels?: (run: MeasuredRun) => Readonly<Record<string, string>>;
}

/** Counters begin with the process, and so do Prometheus's; a run that goes on from a checkpoint takes steps back, so they are none. */
const metrics: readonly Metric[] = [
  {
    ...{ name: "holdfast_run_info", type: "gauge", value: () => 1 },
    help: "What the run is, and how it is: running, finished, stopped or failed, and in which phase.",
    labels: ({ run, status }) => ({
      ...{ state: status.state, phase: status.phase ?? "" },
      ...{ device: run?.device ?? "", holdfast: run?.holdfast ?? "", node: run?.node ?? "" },
    }),
  },
  {
    ...{ name: "holdfast_step", type: "gauge", help: "Steps that were made." },
    value: ({ status }) => status.step,
  },
  {
    ...{ name: "holdfast_steps_planned", type: "gauge", help: "Steps in all." },
    value: ({ status }) => status.of,
  },
  {
    ...{ name: "holdfast_epoch", type: "gauge", help: "The present epoch of the fold, counted from 0." },
    value: ({ status }) => status.epoch,
  },
  {
    ...{ name: "holdfast_fold", type: "gauge", help: "The present fold, counted from 0." },
    value: ({ status }) => status.fold,
  },
  {
    ...{ name: "holdfast_loss", type: "gauge", help: "The loss that came to the host last." },
    value: ({ status }) => status.figures?.loss,
  },
  {
    ...{
      name: "holdfast_samples_total",
      type: "counter",
      help: "Samples trained on since the process began.",
    },
    value: ({ status }) => status.figures?.samples,
  },
  {
    ...{ name: "holdfast_samples_per_second", type: "gauge", help: "Samples a second while it trains." },
    value: ({ status }) => status.figures?.samplesPerSecond,
  },
  {
    ...{ name: "holdfast_skipped_steps_total", type: "counter" },
    help: "Steps of the run that were skipped because a gradient was not finite; counted when an epoch ends.",
    value: ({ status }) => status.figures?.skipped,
  },
  {
    ...{ name: "holdfast_memory_committed_bytes", type: "gauge", help: "Memory taken out of the budget." },
    value: ({ status }) => status.figures?.usedBytes,
  },
  {
    ...{ name: "holdfast_memory_budget_bytes", type: "gauge", help: "The memory budget on the device." },
    value: ({ status }) => status.figures?.budgetBytes,
  },
  {
    ...{
      name: "holdfast_heartbeat_timestamp_seconds",
      type: "gauge",
      help: "When the run last said something.",
    },
    value: ({ status }) => Date.parse(status.updated) / 1000,
  },
  {
    ...{ name: "holdfast_progress_timestamp_seconds", type: "gauge" },
    help: "When the step or the phase was last another one.",
    value: ({ status }) => Date.parse(status.progressed) / 1000,
  },
  {
    ...{ name: "holdfast_checkpoint_timestamp_seconds", type: "gauge" },
    help: "When the latest checkpoint was written.",
    value: ({ checkpointMs }) => checkpointMs && checkpointMs / 1000,
  },
];

/** The page of the run in a folder; undefined where none was begun there, an error where its status is damaged. */
export function readMetricsPage(path: string): string | undefined {
  const status = readStatus(path);
  if (!status) return undefined;
  return metricsPage({ run: readRunRecord(path), status, checkpointMs: latestCheckpointMs(path) });
}

function metricsPage(run: MeasuredRun): string {
  return metrics
    .flatMap(({ name, type, help, value, labels }) => {
      const found = value(run);
      if (found === undefined) return [];
      const sample = `${name}${labelsText(labels?.(run) ?? {})} ${numberText(found)}`;
      return [`# HELP ${name} ${help}\n# TYPE ${name} ${type}\n${sample}\n`];
    })
    .join("");
}

function labelsText(labels: Readonly<Record<string, string>>): string {
  const pairs = Object.entries(labels).map(([name, text]) => {
    const escaped = text.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
    return `${name}="${escaped}"`;
  });
  return pairs.length === 0 ? "" : `{${pairs.join(",")}}`;
}

function numberText(value: number): string {
  if (value === Number.POSITIVE_INFINITY) return "+Inf";
  return value === Number.NEGATIVE_INFINITY ? "-Inf" : String(value);
}

function latestCheckpointMs(path: string): number | undefined {
  const latest = new CheckpointStore(join(path, runFiles.checkpoints)).list().at(-1);
  if (!latest) return undefined;
  try {
    return statSync(latest.path).mtimeMs;
  } catch (error) {
    // It may have given way to a later one since it was listed.
    if (errorCode(error) === "ENOENT") return undefined;
    throw error;
  }
}
