/**
 * The state machine of a capture. It decides which calls are rejected, by name, before the driver is called. Only
 * `capture.ts` changes its state.
 *
 * idle ──enter──▶ preparing ──during──▶ observing | running | recording ──▶ preparing ──leave──▶ idle
 *
 * `leave` is legal in every state and idempotent, so an exception at any point ends in `idle`.
 */

import { HoldfastError } from "../../errors/index.js";
import { formatBytes } from "../../units/index.js";

/**
 * A pass of the captured function:
 * - observing: collects its access set; lazy resources are created, no work is submitted.
 * - running: runs it directly, for the result that a replay must equal.
 * - recording: its work becomes the graph.
 */
export type CapturePass = "observing" | "running" | "recording";

/** Between passes, and while the graph is checked, a capture is `preparing`: the function is not running. */
export type CaptureState = "idle" | "preparing" | CapturePass;

export class CaptureStateMachine {
  #state: CaptureState = "idle";
  #name = "";

  get state(): CaptureState {
    return this.#state;
  }

  /** True while the captured function runs, in any pass. */
  get isInside(): boolean {
    return this.#state !== "idle" && this.#state !== "preparing";
  }

  enter(name: string): void {
    if (this.#state !== "idle") {
      throw new HoldfastError(
        "CAPTURE_ORDER",
        `Cannot start capture "${name}" inside capture "${this.#name}" (${this.#state}). End that one first.`,
      );
    }
    this.#state = "preparing";
    this.#name = name;
  }

  /** Runs one pass of the captured function. */
  during<T>(pass: CapturePass, body: () => T): T {
    if (this.#state !== "preparing") {
      throw new HoldfastError(
        "CAPTURE_ORDER",
        `A capture cannot go from ${this.#state} to ${pass}. Call enter() before a pass, and end each pass before the next.`,
      );
    }
    this.#state = pass;
    try {
      return body();
    } finally {
      // If the capture was left during the pass, it stays ended.
      if (this.#state === pass) this.#state = "preparing";
    }
  }

  /** Ends the capture. Returns true if one was open. */
  leave(): boolean {
    const wasOpen = this.#state !== "idle";
    this.#state = "idle";
    this.#name = "";
    return wasOpen;
  }

  /**
   * Rejects actions that are legal only in the first pass, for lazy resources: allocations, placements, kernel loads.
   */
  reject(what: string, label: string, size?: number): void {
    if (this.#state === "running" || this.#state === "recording") throw this.#rejection(what, label, size);
  }

  /** Rejects actions that are never legal in the function: read values, synchronize, free, reset, replay. */
  rejectInside(what: string, label: string, size?: number): void {
    if (this.isInside) throw this.#rejection(what, label, size);
  }

  #rejection(what: string, label: string, size?: number): HoldfastError {
    const amount = size === undefined ? "" : ` of ${formatBytes(size)}`;
    return new HoldfastError(
      "CAPTURE_REJECTED",
      `${capitalized(what)}${amount} by ${label} is not allowed inside capture "${this.#name}". A captured function may only launch ` +
        "kernels, and fill and copy on the device. The driver was not called. Do this before the capture, or after a replay.",
      { numbers: { what, label, capture: this.#name } },
    );
  }
}

function capitalized(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
