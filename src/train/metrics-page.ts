/**
 * A run's status for Prometheus, in the text exposition format, version 0.0.4. Unknown values have no line.
 */

import { statSync } from "node:fs";
import { join } from "node:path";
import { errorCode } from "../data/index.js";
import type { RunRecord, RunStatus } from "../records/index.js";
import { CheckpointStore } from "./checkpoints.js";
import { readRunRecord, readStatus } from "./read-run.js";
import { runFiles } from "./run-files.js";

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

/** Counters start with the process, as Prometheus expects. Steps are a gauge, because a resumed run sets them back. */
const metrics: readonly Metric[] = [
  {
    ...{ name: "holdfast_run_info", type: "gauge", value: () => 1 },
    help: "The run's state (running, finished, stopped, diverged or failed), phase, device and versions, as labels.",
    labels: ({ run, status }) => ({
      ...{ state: status.state, phase: status.phase ?? "" },
      ...{ device: run?.device ?? "", holdfast: run?.holdfast ?? "", node: run?.node ?? "" },
    }),
  },
  {
    ...{ name: "holdfast_step", type: "gauge", help: "Completed steps." },
    value: ({ status }) => status.step,
  },
  {
    ...{ name: "holdfast_steps_planned", type: "gauge", help: "Steps in total." },
    value: ({ status }) => status.of,
  },
  {
    ...{ name: "holdfast_epoch", type: "gauge", help: "The current epoch of the fold, counted from 0." },
    value: ({ status }) => status.epoch,
  },
  {
    ...{ name: "holdfast_fold", type: "gauge", help: "The current fold, counted from 0." },
    value: ({ status }) => status.fold,
  },
  {
    ...{ name: "holdfast_loss", type: "gauge", help: "The latest loss that the host has read." },
    value: ({ status }) => status.figures?.loss,
  },
  {
    ...{
      name: "holdfast_samples_total",
      type: "counter",
      help: "Samples trained on since the process started.",
    },
    value: ({ status }) => status.figures?.samples,
  },
  {
    ...{ name: "holdfast_samples_per_second", type: "gauge", help: "Samples per second during training." },
    value: ({ status }) => status.figures?.samplesPerSecond,
  },
  {
    ...{
      name: "holdfast_tokens_per_second",
      type: "gauge",
      help: "Tokens of texts per second during training.",
    },
    value: ({ status }) => status.figures?.tokensPerSecond,
  },
  {
    ...{ name: "holdfast_perplexity", type: "gauge", help: "The perplexity of the latest evaluation." },
    value: ({ status }) => status.figures?.perplexity,
  },
  {
    ...{ name: "holdfast_skipped_steps_total", type: "counter" },
    help: "Steps that were skipped because a gradient was not finite; updated after each epoch.",
    value: ({ status }) => status.figures?.skipped,
  },
  {
    ...{ name: "holdfast_memory_committed_bytes", type: "gauge", help: "Memory charged to the budget." },
    value: ({ status }) => status.figures?.usedBytes,
  },
  {
    ...{ name: "holdfast_memory_budget_bytes", type: "gauge", help: "The device's memory budget." },
    value: ({ status }) => status.figures?.budgetBytes,
  },
  {
    ...{
      name: "holdfast_heartbeat_timestamp_seconds",
      type: "gauge",
      help: "Time of the last heartbeat.",
    },
    value: ({ status }) => Date.parse(status.updated) / 1000,
  },
  {
    ...{ name: "holdfast_progress_timestamp_seconds", type: "gauge" },
    help: "Time of the last change of step or phase.",
    value: ({ status }) => Date.parse(status.progressed) / 1000,
  },
  {
    ...{ name: "holdfast_checkpoint_timestamp_seconds", type: "gauge" },
    help: "Time of the latest checkpoint.",
    value: ({ checkpointMs }) => checkpointMs && checkpointMs / 1000,
  },
];

/** The page of the run in a folder; undefined without a run. Throws if the status is damaged. */
export function readMetricsPage(path: string): string | undefined {
  const status = readStatus(path);
  if (!status) return undefined;
  return metricsPage({ run: readRunRecord(path), status, checkpointMs: latestCheckpointMs(path) });
}

function metricsPage(run: MeasuredRun): string {
  return metrics
    .flatMap(({ name, type, help, value, labels }) => {
      const current = value(run);
      if (current === undefined) return [];
      const sample = `${name}${labelsText(labels?.(run) ?? {})} ${numberText(current)}`;
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
    // A later checkpoint may have replaced it since it was listed.
    if (errorCode(error) === "ENOENT") return undefined;
    throw error;
  }
}
