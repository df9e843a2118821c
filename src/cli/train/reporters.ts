/** Progress output: one updated line on a terminal, plain lines elsewhere, JSON for programs, or nothing. */

import type { JobEvent, JobListener } from "../../crossasset/index.js";
import { type Clock, formatBytes, formatDuration } from "../../units/index.js";

export interface ReporterOptions {
  readonly write: (text: string) => void;
  readonly clock: Clock;
  /** Columns of the terminal. */
  readonly columns: number;
}

export type ReporterName = "live" | "plain" | "json" | "quiet";

/** Prints the events of a job. */
export interface Reporter {
  readonly listen: JobListener;
  /** Clears the updated line, before other output. */
  end(): void;
}

/** The min. interval between two printed steps, in milliseconds. */
const intervalMs = { live: 100, plain: 10_000, json: 1000 } as const;

export function makeReporter(name: ReporterName, options: ReporterOptions): Reporter {
  const { write, clock, columns } = options;
  if (name === "quiet") return { listen: () => undefined, end: () => undefined };
  if (name === "json") {
    const isDue = makeThrottle(clock, intervalMs.json);
    const listen = (event: JobEvent): void => {
      if (event.kind !== "step" || isDue(event)) write(`${JSON.stringify(event)}\n`);
    };
    return { listen, end: () => undefined };
  }
  const isLive = name === "live";
  // A plain line waits for the first loss; an updated line adds it later.
  const hasAll = ({ loss, batch, batches }: Extract<JobEvent, { kind: "step" }>): boolean =>
    isLive || loss !== undefined || batch === batches;
  const isDue = makeThrottle(clock, intervalMs[name]);
  let hasLine = false;
  const clear = (): void => {
    if (hasLine) write("\r\u001b[K");
    hasLine = false;
  };
  const listen = (event: JobEvent): void => {
    if (event.kind === "step") {
      if (!hasAll(event) || !isDue(event)) return;
      const text = stepText(event);
      if (!isLive) write(`${text}\n`);
      else {
        write(`\r${truncate(text, columns - 1)}\u001b[K`);
        hasLine = true;
      }
      return;
    }
    const text = eventText(event);
    if (event.kind === "phase" && isLive) {
      write(`\r${truncate(`${event.phase} …`, columns - 1)}\u001b[K`);
      hasLine = true;
    }
    if (text === undefined) return;
    clear();
    write(`${text}\n`);
  };
  return { listen, end: clear };
}

/** Returns a function that says whether to print a step. The last step of an epoch is always printed. */
function makeThrottle(
  clock: Clock,
  minMs: number,
): (event: { readonly batch: number; readonly batches: number }) => boolean {
  let lastMs = Number.NEGATIVE_INFINITY;
  return ({ batch, batches }) => {
    const nowMs = clock.nowMs();
    if (nowMs - lastMs < minMs && batch < batches) return false;
    lastMs = nowMs;
    return true;
  };
}

function stepText(event: Extract<JobEvent, { kind: "step" }>): string {
  const { fold, folds, epoch, epochs, batch, batches, loss, samplesPerSecond, usedBytes, secondsLeft } =
    event;
  return [
    `fold ${fold + 1}/${folds}`,
    `epoch ${epoch + 1}/${epochs}`,
    `${bar(batch / batches)} ${batch}/${batches}`,
    `loss ${loss === undefined ? "…" : loss.toFixed(4)}`,
    throughputText(samplesPerSecond),
    formatBytes(usedBytes),
    `${formatDuration(1000 * secondsLeft)} left`,
  ].join("  ");
}

/** "…" until it is measured. */
function throughputText(samplesPerSecond: number | undefined): string {
  const figure = samplesPerSecond === undefined ? "…" : Math.round(samplesPerSecond).toLocaleString("en");
  return `${figure} samples/s`;
}

const barWidth = 16;

function bar(share: number): string {
  const full = Math.round(share * barWidth);
  return "━".repeat(full) + "─".repeat(barWidth - full);
}

/** Undefined for events that only the JSON output shows. */
function eventText(event: Exclude<JobEvent, { kind: "step" }>): string | undefined {
  switch (event.kind) {
    case "device":
      return `device   ${event.name}, budget ${formatBytes(event.budgetBytes)}`;
    case "data": {
      const { source, bars, samples, isCached, seconds } = event;
      const features = isCached ? "features from the cache" : `features in ${formatDuration(1000 * seconds)}`;
      return `data     ${bars.toLocaleString("en")} bars from ${source}, ${samples.toLocaleString("en")} samples, ${features}`;
    }
    case "fold":
      return `fold ${event.fold + 1}/${event.folds}  ${event.trainSamples.toLocaleString("en")} training samples, ${event.testSamples.toLocaleString("en")} test samples`;
    case "epoch": {
      const { fold, folds, epoch, epochs, record } = event;
      const { accuracy, loss: testLoss } = record.figures;
      const test =
        accuracy === undefined ? "" : `  test ${(testLoss ?? 0).toFixed(4)}, accuracy ${percent(accuracy)}`;
      const skipped =
        record.skipped > 0
          ? `  ${record.skipped} ${record.skipped === 1 ? "step" : "steps"} skipped: not finite`
          : "";
      return (
        `fold ${fold + 1}/${folds}  epoch ${epoch + 1}/${epochs}  loss ${record.loss.toFixed(4)}${test}  ` +
        `${throughputText(record.samplesPerSecond)}  ${formatDuration(1000 * record.seconds)}${skipped}`
      );
    }
    case "resumed":
      return `resumed at step ${event.step.toLocaleString("en")} from ${event.file}`;
    case "phase":
    case "checkpoint":
    case "fold end":
    case "end":
      return undefined;
  }
}

export function percent(share: number): string {
  return `${(100 * share).toFixed(1)} %`;
}

function truncate(text: string, columns: number): string {
  return text.length <= columns ? text : text.slice(0, Math.max(0, columns));
}
