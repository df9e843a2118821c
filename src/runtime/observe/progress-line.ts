/**
 * The line that shows long work on a terminal: its phase, its stage and how long it takes. It is rewritten in place,
 * appears only after two seconds and is erased at the end. Everything is drawn from the heartbeat, on the thread that
 * works: no timer could fire while it does.
 */

import { type Clock, formatDuration, listenToBeats, type WorkStage } from "../../units/index.js";

export interface ProgressLineOptions {
  readonly write: (text: string) => void;
  readonly clock: Clock;
  /** Columns of the terminal. */
  readonly columns: () => number;
}

const showAfterMs = 2000;
const redrawMs = 100;
const eraseLine = "\r\u001b[K";

export class ProgressLine {
  readonly #options: ProgressLineOptions;
  /** The titles of the work that is under way, outermost first. */
  readonly #titles: string[] = [];
  #stage: WorkStage | undefined;
  #begunMs = 0;
  #drawnMs = Number.NEGATIVE_INFINITY;
  #isShown = false;

  constructor(options: ProgressLineOptions) {
    this.#options = options;
  }

  /** Work begins; it may be inside other work. */
  begin(title: string): void {
    if (this.#titles.length === 0) {
      this.#begunMs = this.#options.clock.nowMs();
      listenToBeats((stage) => this.#beat(stage));
    }
    this.#titles.push(title);
    this.#stage = undefined;
  }

  /** The innermost work ends, and with the outermost the line goes. */
  end(): void {
    this.#titles.pop();
    this.#stage = undefined;
    if (this.#titles.length > 0) return;
    listenToBeats(undefined);
    this.clear();
  }

  /** Takes the line away, so that something else can be printed. */
  clear(): void {
    if (this.#isShown) this.#options.write(eraseLine);
    this.#isShown = false;
  }

  #beat(stage: WorkStage | undefined): void {
    if (stage) this.#stage = stage;
    const nowMs = this.#options.clock.nowMs();
    if (nowMs - this.#begunMs < showAfterMs || nowMs - this.#drawnMs < redrawMs) return;
    this.#drawnMs = nowMs;
    this.#isShown = true;
    const text = this.#text(nowMs).slice(0, Math.max(0, this.#options.columns() - 1));
    this.#options.write(`\r${text}\u001b[K`);
  }

  #text(nowMs: number): string {
    const { name, done, of } = this.#stage ?? {};
    const count = done === undefined ? "" : ` ${done}${of === undefined ? "" : `/${of}`}`;
    const parts = [this.#titles.at(-1), ...(name === undefined ? [] : [name + count])];
    return `holdfast: ${parts.join(": ")}, ${formatDuration(nowMs - this.#begunMs)}`;
  }
}
