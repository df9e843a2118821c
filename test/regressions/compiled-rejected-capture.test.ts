/**
 * C12 for compiled steps: a rejected capture changes nothing. If captures are required, that is an error, and
 * the next call tries again. Otherwise the verified plan runs without a graph, with one warning.
 */

import assert from "node:assert/strict";
import type { Device, ErrorCode } from "holdfast";
import { type Driver, faulty, strict } from "holdfast/internals";
import { type Replayable, Runtime } from "../../src/runtime/index.js";
import { latestPlanOf } from "../../src/tensor/index.js";
import {
  type Batch,
  keepBatch,
  nativeGemms,
  prepareTraining,
  type Training,
} from "../support/compiled-training.js";
import { withDevice } from "../support/devices.js";
import { addingNodes, corruptingFirstReplay, losingUploads } from "../support/injected-captures.js";
import { regressionRow } from "../support/regressions.js";
import { rejectionOf } from "../support/rejections.js";
import { withMethods } from "../support/replaced-methods.js";
import { sameNamedBytes } from "../support/same-bytes.js";

type Wrap = (driver: Driver) => Driver;

const failing =
  (sentence: string): Wrap =>
  (driver) =>
    faulty(strict(driver), [sentence]);

interface Prepared extends Training {
  readonly batch: Batch;
}

/** After one eager step, so that resources that are created once exist: gradients, kernels. */
function prepare(device: Device): Prepared {
  const batch = keepBatch(device, 1);
  const training = prepareTraining(device, "flat");
  device.step(() => void training.step(...batch));
  return { ...training, batch };
}

type State = Record<string, Uint8Array>;

const trained = new Map<number, State>();

/** The state after `count` steps following the first. */
function stateAfter(steps: number): State {
  const cached = trained.get(steps);
  if (cached) return cached;
  const state = withDevice({ poison: true }, (device) => {
    const { step, read, batch } = prepare(device);
    for (let i = 0; i < steps; i++) device.step(() => void step(...batch));
    return read();
  });
  trained.set(steps, state);
  return state;
}

/** What a rejection must leave unchanged, besides the state. */
function arenaStateOf({ runtime }: Device) {
  const { live, pins, pinned } = runtime.arena.figures;
  return { live, pins, pinned };
}

function budgetStateOf({ runtime: { budget, persistent } }: Device) {
  return { used: budget.used, regions: persistent.regions.length };
}

/** What happens with a capture's work when the capture is rejected. */
type OnRejection = (run: () => void) => void;

const noAction: OnRejection = (run) => run();

/** The old way: rejected work runs at once, on top of what the attempt has done. */
const runAgain: OnRejection = (run) => {
  const { capture } = Runtime.prototype;
  const capturing: Pick<Runtime, "capture"> = {
    capture(this: Runtime, name, body): Replayable {
      try {
        const replayable = capture.call(this, name, body);
        if (replayable.mode === "direct") body();
        return replayable;
      } catch (error) {
        body();
        throw error;
      }
    },
  };
  withMethods(Runtime.prototype, capturing, run);
};

interface Rejection {
  readonly because: string;
  readonly code: ErrorCode;
  readonly wrap: Wrap;
}

const rejections: readonly Rejection[] = [
  {
    because: "the capture does not begin",
    code: "DRIVER_FAILED",
    wrap: failing("the 1st beginCapture fails with driver-failed"),
  },
  {
    because: "the driver rejects it",
    code: "CAPTURE_REJECTED",
    wrap: failing("the 1st beginCapture fails with capture-rejected"),
  },
  {
    because: "the capture does not end",
    code: "DRIVER_FAILED",
    wrap: failing("the 1st endCapture fails with driver-failed"),
  },
  {
    because: "the graph is not instantiated",
    code: "DRIVER_FAILED",
    wrap: failing("the 1st instantiate fails with driver-failed"),
  },
  {
    because: "the trial replay fails",
    code: "DRIVER_FAILED",
    wrap: failing("the 1st launchGraph fails with driver-failed"),
  },
  { because: "the graph has a memory node", code: "CAPTURE_NODES", wrap: addingNodes({ memory: 1 }) },
  {
    because: "the trial replay differs in a byte",
    code: "CAPTURE_MISMATCH",
    wrap: corruptingFirstReplay,
  },
];

for (const { because, code, wrap } of rejections) {
  regressionRow<OnRejection>({
    row: "C12",
    rule: `compiled, its capture rejected because ${because}: nothing has changed, and the next call succeeds like the first`,
    sound: noAction,
    faults: { [`rejected because ${because}, the work is run again at once`]: runAgain },
    check(onRejection) {
      withDevice(
        { poison: true, capture: "on" },
        (device) => {
          const { step, read, batch } = prepare(device);
          const [before, arena, budget] = [read(), arenaStateOf(device), budgetStateOf(device)];
          const compiled = device.compile(step, nativeGemms);
          let rejection: ReturnType<typeof rejectionOf>;
          onRejection(() => {
            rejection = rejectionOf(() => compiled(...batch));
          });
          sameNamedBytes(read(), before, "the state has changed");
          assert.deepEqual(arenaStateOf(device), arena);
          assert.equal(rejection?.code, code);
          assert.equal(compiled.plans, 0);
          compiled(...batch);
          assert.equal(latestPlanOf(compiled)?.replayable.mode, "graph");
          sameNamedBytes(read(), stateAfter(1), "after the next call");
          compiled.close();
          assert.deepEqual(budgetStateOf(device), budget, "closed, the step has left something");
        },
        wrap,
      );
    },
  });
}

interface AutoRun {
  readonly onRejection: OnRejection;
  readonly inner: Wrap;
}

regressionRow<AutoRun>({
  row: "C12",
  rule: 'compiled, in mode "auto": a rejected step runs its verified plan without the graph, once a call, with one warning',
  sound: { onRejection: noAction, inner: strict },
  faults: {
    "the work is run again at once": { onRejection: runAgain, inner: strict },
    "the writes of the direct run are not undone": { onRejection: noAction, inner: losingUploads },
  },
  check({ onRejection, inner }) {
    const printed: string[] = [];
    withDevice(
      { poison: true, capture: "auto", print: (text) => printed.push(text) },
      (device) => {
        const { step, read, batch } = prepare(device);
        onRejection(() => {
          for (const compiled of [device.compile(step, nativeGemms), device.compile(step, nativeGemms)]) {
            for (let i = 0; i < 3; i++) {
              device.runtime.arena.reset();
              compiled(...batch);
            }
            assert.equal(latestPlanOf(compiled)?.replayable.mode, "direct");
            assert.equal(compiled.plans, 1);
          }
        });
        sameNamedBytes(read(), stateAfter(6), "after six calls");
        const warnings = printed.filter((text) => text.includes("a capture was rejected"));
        assert.equal(warnings.length, 1);
        assert.match(warnings[0]!, /its work runs directly: beginCapture failed/);
      },
      (driver) => faulty(inner(driver), ["every beginCapture fails with capture-rejected"]),
    );
  },
});
