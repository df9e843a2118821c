/** Progress output: one updated line on a terminal, plain lines elsewhere, JSON for programs, or nothing. */

import type { StepFigures } from "../../train/index.js";
import { type Clock, formatBytes, formatDuration } from "../../units/index.js";

export interface ReporterOptions {
  readonly write: (text: string) => void;
  readonly clock: Clock;
  /** Columns of the terminal. */
  readonly columns: number;
}

export type ReporterName = "live" | "plain" | "json" | "quiet";

/** What an event shows: a step's line, the current work, or a line that stays. Undefined for events that only the JSON output shows. */
export type EventText =
  | {
      readonly kind: "step";
      readonly figures: Pick<StepFigures, "loss" | "batch" | "batches">;
      readonly text: string;
    }
  | { readonly kind: "phase"; readonly text: string }
  | { readonly kind: "line"; readonly text: string }
  | undefined;

/** Prints the events of a job. */
export interface Reporter<Event> {
  readonly listen: (event: Event) => void;
  /** Clears the updated line, before other output. */
  end(): void;
}

/** The min. interval between two printed steps, in milliseconds. */
const intervalMs = { live: 100, plain: 10_000, json: 1000 } as const;

export function makeReporter<Event>(
  name: ReporterName,
  options: ReporterOptions,
  describe: (event: Event) => EventText,
): Reporter<Event> {
  const { write, clock, columns } = options;
  if (name === "quiet") return { listen: () => undefined, end: () => undefined };
  if (name === "json") {
    const isDue = makeThrottle(clock, intervalMs.json);
    const listen = (event: Event): void => {
      const text = describe(event);
      if (text?.kind !== "step" || isDue(text.figures)) write(`${JSON.stringify(event)}\n`);
    };
    return { listen, end: () => undefined };
  }
  const isLive = name === "live";
  // A plain line waits for the first loss; an updated line adds it later.
  const hasAll = ({ loss, batch, batches }: Pick<StepFigures, "loss" | "batch" | "batches">): boolean =>
    isLive || loss !== undefined || batch === batches;
  const isDue = makeThrottle(clock, intervalMs[name]);
  let hasLine = false;
  const clear = (): void => {
    if (hasLine) write("\r\u001b[K");
    hasLine = false;
  };
  const update = (text: string): void => {
    write(`\r${truncate(text, columns - 1)}\u001b[K`);
    hasLine = true;
  };
  const listen = (event: Event): void => {
    const text = describe(event);
    if (text?.kind === "step") {
      if (!hasAll(text.figures) || !isDue(text.figures)) return;
      if (isLive) update(text.text);
      else write(`${text.text}\n`);
    } else if (text?.kind === "phase") {
      if (isLive) update(`${text.text} …`);
    } else if (text) {
      clear();
      write(`${text.text}\n`);
    }
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

/** The bar and the figures of a step's line, after its position. `speed` is the throughput as text. */
export function stepLine(
  position: readonly string[],
  figures: StepFigures & { readonly usedBytes: number },
  speed: string,
): string {
  const { batch, batches, loss, usedBytes, secondsLeft } = figures;
  return [
    ...position,
    `${bar(batch / batches)} ${batch}/${batches}`,
    `loss ${loss === undefined ? "…" : loss.toFixed(4)}`,
    speed,
    formatBytes(usedBytes),
    `${formatDuration(1000 * secondsLeft)} left`,
  ].join("  ");
}

/** A rate per second; "…" until it is measured. */
export function throughputText(rate: number | undefined, unit: string): string {
  return `${rate === undefined ? "…" : Math.round(rate).toLocaleString("en")} ${unit}/s`;
}

/** The steps of an epoch that were skipped, as the end of its line. */
export function skippedText(skipped: number): string {
  if (skipped === 0) return "";
  return `  ${skipped} ${skipped === 1 ? "step" : "steps"} skipped: not finite`;
}

const barWidth = 16;

function bar(share: number): string {
  const full = Math.round(share * barWidth);
  return "━".repeat(full) + "─".repeat(barWidth - full);
}

export function percent(share: number): string {
  return `${(100 * share).toFixed(1)} %`;
}

function truncate(text: string, columns: number): string {
  return text.length <= columns ? text : text.slice(0, Math.max(0, columns));
}
