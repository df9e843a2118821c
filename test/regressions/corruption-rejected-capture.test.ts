/** Row C12: a rejected capture leaves state unchanged, whatever rejected it and however far it came. */

import assert from "node:assert/strict";
import { type ErrorCode, HoldfastError } from "holdfast";
import { type Driver, faulty, type Replayable, type Runtime, type Storage, strict } from "holdfast/internals";
import { add, placeValues } from "../support/basic-ops.js";
import { addingNodes, corruptingFirstReplay, losingUploads } from "../support/injected-captures.js";
import { regressionRow } from "../support/regressions.js";
import { readF32, withRuntime, writeF32 } from "../support/runtimes.js";

const memory = { memory: "64MiB", arena: "1MiB", poison: true } as const;

/** The tensors that a captured function of this file updates: one of each kind of memory, and a view. */
interface State {
  readonly p: Storage; // [3], persistent
  readonly kept: Storage; // [3], in the arena, pinned
  readonly viewed: Storage; // [2], a view into the arena
  readonly one: Storage; // [3]
  readonly twoOnes: Storage; // [2], a view of `one`
}

function makeState(runtime: Runtime): State {
  const { p, one } = placeValues(runtime, "weights", { p: [1, 2, 3], one: [1, 1, 1] });
  const kept = runtime.arena.allocate(12, "kept");
  writeF32(runtime, kept, [10, 20, 30]);
  runtime.arena.pin(kept, "test");
  const whole = runtime.arena.allocate(1024, "whole");
  runtime.fill(whole, 0);
  return {
    p,
    one,
    kept,
    viewed: runtime.view(whole, 256, 8, "partial-out"),
    twoOnes: runtime.view(one, 0, 8),
  };
}

/** Three launches; each adds one. */
function updateState(runtime: Runtime, { p, kept, viewed, one, twoOnes }: State): void {
  add(runtime, p, one, p);
  add(runtime, kept, one, kept);
  add(runtime, viewed, twoOnes, viewed);
}

/** All state that a rejected capture must leave unchanged. */
function stateOf(runtime: Runtime, state: State) {
  const values = Object.entries(state).map(([name, storage]) => [name, [...readF32(runtime, storage)]]);
  const { used, left } = runtime.budget;
  return { values, figures: runtime.arena.figures, used, left, holders: runtime.budget.holders() };
}

/** A reason why a capture is rejected. */
interface Rejection {
  readonly because: string;
  readonly code: ErrorCode | "its own error";
  readonly wrap?: (device: Driver) => Driver;
  /** What the function does after its updates; `run` counts its runs from 1. */
  readonly afterwards?: (runtime: Runtime, state: State, run: number) => unknown;
}

const failing = (script: string) => (device: Driver) => faulty(strict(device), [script]);

/** The function is run three times: observed, run directly, recorded. */
const passes = [1, 2, 3];

const rejections: readonly Rejection[] = [
  {
    because: "the function reads a value",
    code: "CAPTURE_REJECTED",
    afterwards: (runtime, { p }) => runtime.read(p),
  },
  {
    because: "the function uploads",
    code: "CAPTURE_REJECTED",
    afterwards: (runtime, { p }) => runtime.upload([{ source: new Float32Array(3), target: p }]),
  },
  {
    because: "the function synchronises",
    code: "CAPTURE_REJECTED",
    afterwards: (runtime) => runtime.synchronize(),
  },
  {
    because: "the function opens a step",
    code: "CAPTURE_REJECTED",
    afterwards: (runtime) => runtime.step(() => undefined),
  },
  {
    because: "the function resets the arena",
    code: "CAPTURE_REJECTED",
    afterwards: (runtime, _, run) => run === 1 && runtime.arena.reset(),
  },
  {
    because: "the function releases a region",
    code: "CAPTURE_REJECTED",
    afterwards: (runtime, _, run) => run === 1 && runtime.persistent.release(runtime.persistent.regions[0]!),
  },
  {
    because: "the function launches on a second stream",
    code: "CAPTURE_REJECTED",
    afterwards: (runtime, { one }) => add(runtime, one, one, one, runtime.createStream()),
  },
  {
    because: "the function captures",
    code: "CAPTURE_ORDER",
    afterwards: (runtime) => runtime.capture("inner", () => undefined),
  },
  {
    because: "the function is async",
    code: "CAPTURE_REJECTED",
    afterwards: () => Promise.resolve(),
  },
  ...passes.slice(1).map(
    (pass): Rejection => ({
      because: `the function allocates in pass ${pass}`,
      code: "CAPTURE_REJECTED",
      afterwards: (runtime, _, run) => run === pass && runtime.arena.allocate(256, "late"),
    }),
  ),
  ...passes.slice(1).map(
    (pass): Rejection => ({
      because: `the function does other work in pass ${pass}`,
      code: "CAPTURE_REJECTED",
      afterwards: (runtime, { p, one }, run) => run === pass && add(runtime, p, one, p),
    }),
  ),
  ...passes.map(
    (pass): Rejection => ({
      because: `the function throws in pass ${pass}`,
      code: "its own error",
      afterwards: (_runtime, _state, run) => {
        if (run === pass) throw new RangeError("its own error");
      },
    }),
  ),
  {
    because: "a launch of the direct run fails",
    code: "DRIVER_FAILED",
    wrap: failing("the 2nd launch fails with driver-failed"),
  },
  {
    because: "the capture does not begin",
    code: "DRIVER_FAILED",
    wrap: failing("the 1st beginCapture fails with driver-failed"),
  },
  {
    because: "a recorded launch fails",
    code: "DRIVER_FAILED",
    wrap: failing("the 5th launch fails with driver-failed"),
  },
  {
    because: "the capture does not end",
    code: "DRIVER_FAILED",
    wrap: failing("the 1st endCapture fails with driver-failed"),
  },
  {
    because: "the graph has a memory node",
    code: "CAPTURE_NODES",
    wrap: addingNodes({ memory: 1 }),
  },
  {
    because: "the graph has a host node",
    code: "CAPTURE_NODES",
    wrap: addingNodes({ host: 1 }),
  },
  {
    because: "the graph has an extra kernel",
    code: "CAPTURE_NODES",
    wrap: addingNodes({ kernel: 4 }),
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
  {
    because: "the trial replay differs in a byte",
    code: "CAPTURE_MISMATCH",
    wrap: corruptingFirstReplay,
  },
];

type Capture = (runtime: Runtime, body: () => void) => Replayable;

const soundCapture: Capture = (runtime, body) => runtime.capture("update", body);

/** The old way: rejected work runs at once, on top of what the attempt has done. */
const runAgainOnRejection: Capture = (runtime, body) => {
  try {
    return soundCapture(runtime, body);
  } catch {
    body();
    return { mode: "direct", replay: body, close: () => undefined };
  }
};

function codeOf(error: unknown): string {
  return error instanceof HoldfastError ? error.code : (error as Error).message;
}

for (const { because, code, wrap = strict, afterwards = () => undefined } of rejections) {
  regressionRow<Capture>({
    row: "C12",
    rule: `rejected because ${because}, a capture leaves bytes, pins and budget unchanged`,
    sound: soundCapture,
    faults: { [`rejected because ${because}, the work is run again at once`]: runAgainOnRejection },
    check(capture) {
      withRuntime(
        { ...memory, capture: "on" },
        ({ runtime }) => {
          const state = makeState(runtime);
          const before = stateOf(runtime, state);
          let runs = 0;
          let ending = "a graph";
          try {
            capture(runtime, () => {
              runs += 1;
              updateState(runtime, state);
              return afterwards(runtime, state, runs);
            });
          } catch (error) {
            ending = codeOf(error);
          }
          const after = stateOf(runtime, state);
          assert.deepEqual(after.values, before.values, "the state has changed");
          assert.deepEqual(after, before);
          assert.equal(ending, code);
          const graph = runtime.capture("next", () => runtime.fill(state.kept, 0));
          assert.equal(graph.mode, "graph", "the next capture can begin");
        },
        wrap,
      );
    },
  });
}

/** Captures twice in mode "auto", where the third run is illegal, and replays each three times. */
interface AutoRun {
  readonly capture: Capture;
  readonly wrap: (device: Driver) => Driver;
}

regressionRow<AutoRun>({
  row: "C12",
  rule: 'in mode "auto" rejected work runs directly, once a replay and not before, with one warning',
  sound: { capture: soundCapture, wrap: strict },
  faults: {
    "the work is run again at once": {
      capture: (runtime, body) => {
        const replayable = soundCapture(runtime, body);
        if (replayable.mode === "direct") body();
        return replayable;
      },
      wrap: strict,
    },
    "the writes of the direct run are not undone": { capture: soundCapture, wrap: losingUploads },
  },
  check({ capture, wrap }) {
    const printed: string[] = [];
    withRuntime(
      { ...memory, capture: "auto", print: (text) => printed.push(text) },
      ({ runtime }) => {
        const state = makeState(runtime);
        for (const [attempt, expected] of [
          [4, 5, 6],
          [7, 8, 9],
        ].entries()) {
          let runs = 0;
          const replayable = capture(runtime, () => {
            runs += 1;
            updateState(runtime, state);
            if (runs === 3) runtime.arena.allocate(256, "late");
          });
          assert.equal(replayable.mode, "direct");
          const runsBefore = runs;
          for (let i = 0; i < 3; i++) replayable.replay();
          assert.deepEqual([...readF32(runtime, state.p)], expected, `attempt ${attempt + 1}`);
          assert.equal(runs - runsBefore, 3, "one run a replay");
        }
        const warnings = printed.filter((text) => text.includes("a capture was rejected"));
        assert.equal(warnings.length, 1);
        assert.match(warnings[0]!, /Allocation of 256 B by late is not allowed inside capture "update"/);
      },
      wrap,
    );
  },
});
