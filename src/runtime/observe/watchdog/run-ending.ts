/**
 * Ends the watched run, once: orders its thread to leave with the exit code, and kills the process if it is still
 * there a second later. A second order changes nothing.
 */

export interface WatchedRun {
  orderToLeave(): void;
  kill(): void;
  isAlive(): boolean;
  /** Even SIGKILL has not ended it: a thread of it is held inside the kernel. */
  giveUp(): void;
}

const killAfterMs = 1000;
const giveUpAfterMs = 2000;

export class RunEnding {
  readonly #run: WatchedRun;
  readonly #after: (delayMs: number, action: () => void) => void;
  #state: "running" | "ordered" | "killed" = "running";

  constructor(run: WatchedRun, after: (delayMs: number, action: () => void) => void) {
    this.#run = run;
    this.#after = after;
  }

  begin(way: "exit" | "kill"): void {
    if (this.#state !== "running") return;
    if (way === "kill") {
      this.#kill();
      return;
    }
    this.#state = "ordered";
    this.#run.orderToLeave();
    this.#after(killAfterMs, () => this.#kill());
  }

  #kill(): void {
    if (!this.#run.isAlive()) return;
    this.#state = "killed";
    this.#run.kill();
    this.#after(giveUpAfterMs, () => {
      if (this.#run.isAlive()) this.#run.giveUp();
    });
  }
}
