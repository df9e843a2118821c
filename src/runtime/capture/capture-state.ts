/**
 * The life cycle of a capture, in one place: what is going on, and what is therefore rejected by name before the driver
 * is asked. Only `capture.ts` moves it.
 *
 *   idle ──enter──▶ preparing ──during──▶ observing | running | recording ──▶ preparing ──leave──▶ idle
 *
 * `leave` is legal from everywhere and harmless when repeated, so an exception at any point ends in `idle`.
 */

import { HoldfastError } from "../../errors/index.js";
import { formatBytes } from "../../units/index.js";

/**
 * A pass of the captured function:
 * - observing: it shows what it touches; lazy resources are made, no work is sent.
 * - running: it runs directly, for the result that a replay must equal.
 * - recording: its work becomes the graph.
 */
export type CapturePass = "observing" | "running" | "recording";

/** Between the passes, and while the graph is checked, a capture is `preparing`: the function is not at work. */
export type CaptureState = "idle" | "preparing" | CapturePass;

export class CaptureStateMachine {
  #state: CaptureState = "idle";
  #name = "";

  get state(): CaptureState {
    return this.#state;
  }

  /** Is the captured function at work, in whichever pass? */
  get isInside(): boolean {
    return this.#state !== "idle" && this.#state !== "preparing";
  }

  enter(name: string): void {
    if (this.#state !== "idle") {
      throw new HoldfastError(
        "CAPTURE_ORDER",
        `Capture "${name}" was begun inside capture "${this.#name}" (${this.#state}). End that one first.`,
      );
    }
    this.#state = "preparing";
    this.#name = name;
  }

  /** Runs one pass of the captured function. */
  during<T>(pass: CapturePass, body: () => T): T {
    if (this.#state !== "preparing") {
      throw new HoldfastError("CAPTURE_ORDER", `A capture can't go from ${this.#state} to ${pass}.`);
    }
    this.#state = pass;
    try {
      return body();
    } finally {
      // Unless the capture was left meanwhile: then it is over, and stays so.
      if (this.#state === pass) this.#state = "preparing";
    }
  }

  /** Ends the capture; tells whether there was one. */
  leave(): boolean {
    const wasOpen = this.#state !== "idle";
    this.#state = "idle";
    this.#name = "";
    return wasOpen;
  }

  /** Rejects what the function may do only the first time, as a lazy resource: allocations, placements, loads. */
  reject(what: string, label: string, size?: number): void {
    if (this.#state === "running" || this.#state === "recording") throw this.#rejection(what, label, size);
  }

  /** Rejects what the function may do in no pass: looking at values, synchronising, freeing, resetting, replaying. */
  rejectInside(what: string, label: string, size?: number): void {
    if (this.isInside) throw this.#rejection(what, label, size);
  }

  #rejection(what: string, label: string, size?: number): HoldfastError {
    const much = size === undefined ? "" : ` of ${formatBytes(size)}`;
    return new HoldfastError(
      "CAPTURE_REJECTED",
      `${what}${much} by ${label} inside capture "${this.#name}". A captured function may only launch kernels, fill and copy on ` +
        "the device; the driver was not asked. Do this before the capture, or read values after a replay.",
      { numbers: { what, label, capture: this.#name } },
    );
  }
}
