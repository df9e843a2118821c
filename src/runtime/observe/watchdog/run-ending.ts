/**
 * Ends the watched run once: tells its thread to exit with the exit code, and kills the process if it still exists a
 * second later. A second order changes nothing.
 */

export interface WatchedRun {
  orderToLeave(): void;
  kill(): void;
  isAlive(): boolean;
  /** SIGKILL had no effect: a thread is blocked in the kernel. */
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

  begin(method: "exit" | "kill"): void {
    if (this.#state !== "running") return;
    if (method === "kill") {
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
