/**
 * The captures of a runtime. Each is a verified graph, or the function itself if capture is off or the capture was
 * rejected.
 */

import type { NodeCount } from "../../driver/index.js";
import { type ErrorCode, HoldfastError } from "../../errors/index.js";
import type { Phases } from "../observe/phases.js";
import type { Settings } from "../settings.js";
import { type CapturedGraph, type CaptureOptions, captureGraph } from "./capture.js";
import type { ScratchMemory } from "./checksum.js";

/** Work that can run again: as a verified graph, or directly if capture is off or was rejected. */
export interface Replayable {
  readonly mode: "graph" | "direct";
  /** The launches of a replay: one for a graph, more if collectives run between several. Undefined for work that runs directly. */
  readonly launches?: number | undefined;
  /** The graph's nodes by kind. Undefined for work that runs directly. */
  readonly nodes?: NodeCount | undefined;
  /** Why it runs directly. Undefined for a graph. */
  readonly reason?: string | undefined;
  replay(): void;
  close(): void;
}

export interface CapturesOptions extends CaptureOptions {
  readonly settings: Pick<Settings, "capture">;
  readonly phases: Phases;
  readonly warn: (text: string) => void;
  readonly beforeReplay: () => void;
}

export class Captures {
  readonly #options: CapturesOptions;
  readonly #open = new Set<Replayable>();
  #hasWarned = false;

  constructor(options: CapturesOptions) {
    this.#options = options;
  }

  /**
   * Captures a function's work. `capture.ts` says what the function may do. The contents of `scratch` need not be kept. `inOrder`: the same work
   * on the runtime's stream alone, if it has collectives. If they can't be captured, they run between graphs.
   */
  capture(name: string, body: () => void, scratch?: ScratchMemory, inOrder?: () => void): Replayable {
    const { settings, phases } = this.#options;
    if (settings.capture === "off") return runDirectly(body, captureIsOff);
    const capture = (of: () => void, isSplit: boolean): Replayable =>
      this.#add(
        phases.run("capture", () => captureGraph(this.#options, name, of, scratch, isSplit), { label: name }),
      );
    try {
      return capture(body, false);
    } catch (error) {
      if (!isCaptureRejection(error)) throw error;
      if (inOrder) {
        try {
          const split = capture(inOrder, true);
          this.#warn(`a capture was rejected, so collectives run between graphs: ${error.message}`);
          return split;
        } catch (again) {
          if (!isCaptureRejection(again)) throw again;
        }
      }
      if (settings.capture === "on") throw error;
      this.#warn(`a capture was rejected, and its work runs directly: ${error.message}`);
      return runDirectly(body, error.message);
    }
  }

  /** Only once: later captures are rejected for the same reason. */
  #warn(text: string): void {
    if (!this.#hasWarned) this.#options.warn(text);
    this.#hasWarned = true;
  }

  /** Captures a function's work to time it. The work does not run before the first replay. */
  captureForTiming(name: string, body: () => void): Replayable {
    if (this.#options.settings.capture === "off") return runDirectly(body, captureIsOff);
    return this.#add(captureGraph(this.#options, name, body, "timing"));
  }

  /** The close actions of the open graphs. */
  closing(): (() => void)[] {
    return [...this.#open].map((replayable) => () => replayable.close());
  }

  #add(graph: CapturedGraph): Replayable {
    const replayable: Replayable = {
      mode: "graph",
      nodes: graph.nodes,
      launches: graph.launches,
      replay: () => {
        this.#options.beforeReplay();
        graph.replay();
      },
      close: () => {
        graph.close();
        this.#open.delete(replayable);
      },
    };
    this.#open.add(replayable);
    return replayable;
  }
}

const captureIsOff = "HOLDFAST_CAPTURE is off";

function runDirectly(body: () => void, reason: string): Replayable {
  return { mode: "direct", reason, replay: body, close: () => undefined };
}

/** Errors that the captured function causes. A nested capture and a failing device have other codes. */
const rejections: ReadonlySet<ErrorCode> = new Set(["CAPTURE_REJECTED", "CAPTURE_NODES", "CAPTURE_MISMATCH"]);

function isCaptureRejection(error: unknown): error is HoldfastError {
  return error instanceof HoldfastError && rejections.has(error.code);
}
