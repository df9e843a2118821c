/**
 * The terminal line that shows long work: phase, stage and elapsed time. It appears after two seconds, is rewritten in
 * place and erased at the end. The heartbeat draws it on the working thread, where no timer could fire.
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
  /** The titles of the current work, outermost first. */
  readonly #titles: string[] = [];
  #stage: WorkStage | undefined;
  #begunMs = 0;
  #drawnMs = Number.NEGATIVE_INFINITY;
  #isShown = false;

  constructor(options: ProgressLineOptions) {
    this.#options = options;
  }

  /** Starts work, possibly inside other work. */
  begin(title: string): void {
    if (this.#titles.length === 0) {
      this.#begunMs = this.#options.clock.nowMs();
      listenToBeats((stage) => this.#beat(stage));
    }
    this.#titles.push(title);
    this.#stage = undefined;
  }

  /** Ends the innermost work; the line disappears with the outermost. */
  end(): void {
    this.#titles.pop();
    this.#stage = undefined;
    if (this.#titles.length > 0) return;
    listenToBeats(undefined);
    this.clear();
  }

  /** Erases the line, so that something else can be printed. */
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
    const texts = [this.#titles.at(-1), ...(name === undefined ? [] : [name + count])];
    return `holdfast: ${texts.join(": ")}, ${formatDuration(nowMs - this.#begunMs)}`;
  }
}
