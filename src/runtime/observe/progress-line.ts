/**
 * Displays of long work: phase, stage and elapsed time. A terminal has one line, rewritten in place and erased at the
 * end. A log has a line every few seconds. The heartbeat draws them on the working thread, where no timer could fire.
 */

import { type Clock, formatDuration, listenToBeats, type WorkStage } from "../../units/index.js";

/** A display of long work. */
export interface Progress {
  /** Starts work, possibly inside other work. */
  begin(title: string): void;
  /** Ends the innermost work. */
  end(): void;
}

/** The current work: its titles, and the stage that its latest heartbeats reported. */
class CurrentWork {
  readonly #clock: Clock;
  /** Outermost first. */
  readonly #titles: string[] = [];
  #stage: WorkStage | undefined;
  #begunMs = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get isIdle(): boolean {
    return this.#titles.length === 0;
  }

  /** Calls `onBeat` at each heartbeat of the outermost work. */
  begin(title: string, onBeat: () => void): void {
    if (this.isIdle) {
      this.#begunMs = this.#clock.nowMs();
      listenToBeats((stage) => {
        if (stage) this.#stage = stage;
        onBeat();
      });
    }
    this.#titles.push(title);
    this.#stage = undefined;
  }

  /** Returns true at the end of the outermost work. */
  end(): boolean {
    this.#titles.pop();
    this.#stage = undefined;
    if (this.isIdle) listenToBeats(undefined);
    return this.isIdle;
  }

  get elapsedMs(): number {
    return this.#clock.nowMs() - this.#begunMs;
  }

  /** True if the number of completed items is known. */
  get isCounted(): boolean {
    return this.#stage?.done !== undefined;
  }

  /** `compile (train): kernels 31/44, 2.5s` */
  get text(): string {
    const { name, done, of } = this.#stage ?? {};
    const count = done === undefined ? "" : ` ${done}${of === undefined ? "" : `/${of}`}`;
    const texts = [this.#titles.at(-1), ...(name === undefined ? [] : [name + count])];
    return `${texts.join(": ")}, ${formatDuration(this.elapsedMs)}`;
  }
}

export interface ProgressLineOptions {
  readonly write: (text: string) => void;
  readonly clock: Clock;
  /** Columns of the terminal. */
  readonly columns: () => number;
}

const showAfterMs = 2000;
const redrawMs = 100;
const eraseLine = "\r\u001b[K";

/** The line of a terminal. It appears after two seconds. */
export class ProgressLine implements Progress {
  readonly #options: ProgressLineOptions;
  readonly #work: CurrentWork;
  #drawnMs = Number.NEGATIVE_INFINITY;
  #isShown = false;

  constructor(options: ProgressLineOptions) {
    this.#options = options;
    this.#work = new CurrentWork(options.clock);
  }

  begin(title: string): void {
    this.#work.begin(title, () => this.#draw());
  }

  /** The line disappears with the outermost work. */
  end(): void {
    if (this.#work.end()) this.clear();
  }

  /** Erases the line, so that something else can be printed. */
  clear(): void {
    if (this.#isShown) this.#options.write(eraseLine);
    this.#isShown = false;
  }

  #draw(): void {
    const { clock, columns, write } = this.#options;
    const nowMs = clock.nowMs();
    if (this.#work.elapsedMs < showAfterMs || nowMs - this.#drawnMs < redrawMs) return;
    this.#drawnMs = nowMs;
    this.#isShown = true;
    const text = `holdfast: ${this.#work.text}`.slice(0, Math.max(0, columns() - 1));
    write(`\r${text}\u001b[K`);
  }
}

export interface ProgressLogOptions {
  readonly log: (line: string) => void;
  readonly clock: Clock;
}

const logEveryMs = 2000;

/** Lines of a log, for stages that count their items. */
export class ProgressLog implements Progress {
  readonly #options: ProgressLogOptions;
  readonly #work: CurrentWork;
  #loggedMs = 0;

  constructor(options: ProgressLogOptions) {
    this.#options = options;
    this.#work = new CurrentWork(options.clock);
  }

  begin(title: string): void {
    if (this.#work.isIdle) this.#loggedMs = this.#options.clock.nowMs();
    this.#work.begin(title, () => this.#logCount());
  }

  end(): void {
    this.#work.end();
  }

  #logCount(): void {
    const nowMs = this.#options.clock.nowMs();
    if (!this.#work.isCounted || nowMs - this.#loggedMs < logEveryMs) return;
    this.#loggedMs = nowMs;
    this.#options.log(this.#work.text);
  }
}
