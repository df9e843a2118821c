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
   * Captures a function's work. `capture.ts` says what the function may do. The contents of `scratch` need not be kept.
   */
  capture(name: string, body: () => void, scratch?: ScratchMemory): Replayable {
    const { settings, phases, warn } = this.#options;
    if (settings.capture === "off") return runDirectly(body, captureIsOff);
    try {
      const capture = (): CapturedGraph => captureGraph(this.#options, name, body, scratch);
      return this.#add(phases.run("capture", capture, { label: name }));
    } catch (error) {
      if (settings.capture === "on" || !isCaptureRejection(error)) throw error;
      if (!this.#hasWarned) {
        this.#hasWarned = true;
        warn(`a capture was rejected, and its work runs directly: ${error.message}`);
      }
      return runDirectly(body, error.message);
    }
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
      nodes: graph.graph.nodes,
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
