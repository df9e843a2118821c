/** Writes what a rank does in its steps: a line for some steps in a row, so that a run of weeks fills no disk. */

import type { RankTraffic } from "../../records/index.js";
import { JsonLog } from "../files/json-log.js";

export interface RankLogOptions {
  /** The step of the checkpoint. Lines of later steps are removed: the resumed run writes them again. */
  readonly from: number;
  /** By how many milliseconds the clock of this rank is ahead of rank 0's. */
  readonly clockMs: number;
  /** All that the rank has exchanged so far; undefined if the host does not see it. */
  readonly traffic: () => RankTraffic | undefined;
  /** Milliseconds since 1970; default: the system's clock. */
  readonly now?: () => number;
}

/** The shortest interval between two lines, in milliseconds. Later there is one per this part of the run's duration. */
const minIntervalMs = 250;
const linesPerRun = 4000;

interface Position {
  readonly step: number;
  readonly ms: number;
  readonly traffic: RankTraffic | undefined;
}

export class RankLog {
  readonly #log: JsonLog;
  readonly #options: RankLogOptions;
  readonly #now: () => number;
  readonly #startMs: number;
  /** The last step of the line before, and the last step so far. */
  #written: Position | undefined;
  #last: Position | undefined;

  constructor(path: string, options: RankLogOptions) {
    this.#options = options;
    this.#now = options.now ?? Date.now;
    this.#startMs = this.#now();
    this.#log = new JsonLog(path);
    this.#log.dropAfter(options.from);
  }

  /** Notes a step that was sent to the device. The first one is not in a line: it includes compilation. */
  noteSent(step: number): void {
    const ms = this.#now();
    this.#last = { step, ms, traffic: this.#options.traffic() };
    this.#written ??= this.#last;
    const dueMs = Math.max(minIntervalMs, (ms - this.#startMs) / linesPerRun);
    if (ms - this.#written.ms >= dueMs) this.#write();
  }

  #write(): void {
    const [from, to] = [this.#written, this.#last];
    if (!from || !to || to.step <= from.step) return;
    this.#written = to;
    this.#log.append({
      ...{ time: Math.round(to.ms - this.#options.clockMs), step: to.step, steps: to.step - from.step },
      ms: to.ms - from.ms,
      ...(from.traffic && to.traffic && { traffic: difference(to.traffic, from.traffic) }),
    });
  }

  /** Also writes the steps since the last line. */
  close(): void {
    try {
      this.#write();
    } finally {
      this.#log.close();
    }
  }
}

function difference(to: RankTraffic, from: RankTraffic): RankTraffic {
  return {
    collectives: to.collectives - from.collectives,
    sentBytes: to.sentBytes - from.sentBytes,
    // Microseconds are enough.
    ms: Math.round(1000 * (to.ms - from.ms)) / 1000,
  };
}
