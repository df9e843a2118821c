/**
 * P4: a captured graph was slower than running directly, and was kept. A compiled step tries both, and keeps
 * the faster.
 */

import assert from "node:assert/strict";
import type { DeviceOptions } from "holdfast";
import { type Driver, strict } from "holdfast/internals";
import { interceptCalls } from "../../src/driver/index.js";
import { latestPlanOf } from "../../src/tensor/index.js";
import { keepBatch, nativeGemms, prepareTraining } from "../support/compiled-training.js";
import { withDevice } from "../support/devices.js";
import { regressionRow } from "../support/regressions.js";
import { withMethods } from "../support/replaced-methods.js";
import { sameNamedBytes } from "../support/same-bytes.js";

/** The duration of a driver call, on a fake clock. */
interface Pace {
  readonly graphMs: number;
  readonly commandMs: number;
}

class PacedClock {
  #nowMs = 0;
  readonly #pace: Pace;

  constructor(pace: Pace) {
    this.#pace = pace;
  }

  readonly now = (): number => this.#nowMs;

  readonly wrap = (driver: Driver): Driver =>
    interceptCalls(strict(driver), (call, _, proceed) => {
      if (call === "launchGraph") this.#nowMs += this.#pace.graphMs;
      if (call === "launch" || call === "fill" || call === "copyOnDevice")
        this.#nowMs += this.#pace.commandMs;
      return proceed();
    });
}

/**
 * More than enough to try every candidate: as a graph, with side streams of two kinds, each also without PDL,
 * and directly.
 */
const calls = 32;

/** Runs some steps with these durations; returns the final mode of the step, and its state. */
function train(capture: DeviceOptions["capture"], pace: Pace) {
  const clock = new PacedClock(pace);
  return withDevice(
    { capture: capture ?? "auto", poison: true },
    (device) =>
      withMethods(performance, { now: clock.now }, () => {
        const { step, read } = prepareTraining(device, "flat");
        const batch = keepBatch(device, 1);
        const compiled = device.compile(step, nativeGemms);
        for (let call = 0; call < calls; call++) compiled(...batch);
        return { mode: latestPlanOf(compiled)?.replayable.mode, state: read() };
      }),
    clock.wrap,
  );
}

regressionRow<DeviceOptions["capture"]>({
  row: "P4",
  rule: "a compiled step's graph is kept only if it is faster than running directly, and the numbers are the same",
  sound: "auto",
  faults: { "a graph is kept whatever its time": "on", "a graph is never tried": "off" },
  check(capture) {
    const slowGraph = train(capture, { graphMs: 100, commandMs: 1 });
    assert.equal(slowGraph.mode, "direct");
    const quickGraph = train(capture, { graphMs: 1, commandMs: 1 });
    assert.equal(quickGraph.mode, "graph");
    sameNamedBytes(slowGraph.state, quickGraph.state, "run directly and as a graph");
  },
});
