/** Regressions, hangs inside a capture: H4 and H5, with the 50 weights of CrossAsset on the device. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { HoldfastError } from "holdfast";
import { basicKernels, type DriverCall, type Storage, strict } from "holdfast/internals";
import type { Graph } from "../../src/driver/index.js";
import { type CapturePass, CaptureStateMachine } from "../../src/runtime/capture/capture-state.js";
import { CallLog } from "../support/call-log.js";
import { regressionRow } from "../support/regressions.js";
import { withMethods } from "../support/replaced-methods.js";
import { readF32 } from "../support/runtimes.js";
import { doubleWeights, type Model, passes, withModel } from "../support/weights-model.js";

/** An action that is illegal inside a capture, and what the error must say of it. */
interface IllegalAct {
  readonly act: (model: Model) => unknown;
  readonly says: RegExp;
  /** Lazy resources may be created in the first pass, which submits no work to the driver. */
  readonly rejectedIn: readonly CapturePass[];
}

/** The recording comes first: a red proof ends at the first pass that accepts the action. */
const afterTheFirst: readonly CapturePass[] = ["recording", "running"];

const illegalActs: Readonly<Record<string, IllegalAct>> = {
  "an allocation": {
    act: ({ runtime }) => runtime.arena.allocate(8 * 1024 * 1024, "attention scores"),
    says: /^Allocation of 8 MiB by attention scores is not allowed inside capture "train step"/,
    rejectedIn: afterTheFirst,
  },
  "a placement": {
    act: ({ runtime }) => runtime.persistent.place("moments", "late moments", [{ name: "m", size: 4096 }]),
    says: /^Placement of 4 KiB by late moments is not allowed inside capture "train step"/,
    rejectedIn: afterTheFirst,
  },
  "a kernel's load": {
    act: ({ runtime }) => runtime.kernel(basicKernels.sum),
    says: /^Load of a kernel by sum is not allowed inside capture "train step"/,
    rejectedIn: afterTheFirst,
  },
  "a synchronisation": {
    act: ({ runtime }) => runtime.synchronize(),
    says: /^Synchronization by synchronize\(\) is not allowed inside capture "train step"/,
    rejectedIn: passes,
  },
  "a read-back": {
    act: ({ runtime, weights }) => runtime.read(weights[0]!),
    says: /^Read-back of 193 KiB by Win\[0\] is not allowed inside capture "train step"/,
    rejectedIn: passes,
  },
  "an upload": {
    act: ({ runtime, weights }) => runtime.upload([{ source: new Float32Array(3), target: weights[49]! }]),
    says: /^Upload of 1 tensor by bout is not allowed inside capture "train step"/,
    rejectedIn: passes,
  },
};

/** Calls that a capture may pass to the driver while it records. */
const legalInCapture: ReadonlySet<DriverCall> = new Set(["launch", "fill", "copyOnDevice"]);

/** Performs the action in one pass of a capture; checks the error's name and that the driver got no call. */
function checkAct({ act, says }: IllegalAct, pass: CapturePass, log: CallLog, model: Model): void {
  let called: DriverCall[] = [];
  let passCount = 0;
  const body = (): void => {
    doubleWeights(model);
    if (passes[passCount++] !== pass) return;
    const before = log.calls.length;
    try {
      act(model);
    } finally {
      called = log.namesFrom(before);
    }
  };
  let rejection: unknown;
  try {
    model.runtime.capture("train step", body);
  } catch (error) {
    rejection = error;
  }
  assert.deepEqual(called, [], `the driver was called while ${pass}`);
  assert.ok(rejection instanceof HoldfastError, `nothing was rejected while ${pass}`);
  assert.equal(rejection.code, "CAPTURE_REJECTED");
  assert.match(rejection.message, says);
}

type Checks = (run: () => void) => void;

const noChecks: Checks = (run) =>
  withMethods(CaptureStateMachine.prototype, { reject: () => undefined, rejectInside: () => undefined }, run);

for (const [name, illegal] of Object.entries(illegalActs)) {
  regressionRow<Checks>({
    row: "H4",
    rule: `${name} inside a capture is rejected by name before a driver call`,
    sound: (run) => run(),
    faults: { [`${name} with the checks switched off`]: noChecks },
    check: (checks) => {
      const log = new CallLog();
      withModel(log.wrap, (model) =>
        checks(() => {
          for (const pass of illegal.rejectedIn) checkAct(illegal, pass, log, model);
          assert.deepEqual(
            log.namesInCapture().filter((call) => !legalInCapture.has(call)),
            [],
          );
        }),
      );
    },
  });
}

test("H4: a capture with the 50 weights replays as one launch of 50 nodes, and nothing else reaches the recording", () => {
  const log = new CallLog();
  withModel(
    (device) => strict(log.wrap(device)),
    (model) => {
      const { runtime, weights } = model;
      const before = weights.map((weight) => readF32(runtime, weight));
      const step = runtime.capture("train step", () => doubleWeights(model));
      const launches = log.count("launchGraph");
      step.replay();
      assert.equal(step.mode, "graph");
      assert.equal(log.count("launchGraph"), launches + 1);
      assert.deepEqual(
        log.namesInCapture(),
        weights.map(() => "launch"),
      );
      for (const [index, weight] of weights.entries()) {
        assert.deepEqual(
          readF32(runtime, weight),
          before[index]?.map((value) => 2 * value),
          weight.label,
        );
      }
    },
  );
});

/** A way to turn a function's work into a replay. */
type CaptureMethod = (model: Model, body: () => void) => () => void;

const ourDoor: CaptureMethod = ({ runtime }, body) => {
  const captured = runtime.capture("lazy", body);
  return () => captured.replay();
};

/** The old way: the first call of the function is the recorded one. */
const withoutWarmUp: CaptureMethod = ({ runtime: { stream }, driver }, body) => {
  let graph: Graph;
  driver.beginCapture(stream, "thread-local");
  try {
    body();
  } finally {
    graph = driver.endCapture(stream);
  }
  driver.instantiate(graph);
  return () => driver.launchGraph(stream, graph);
};

regressionRow<CaptureMethod>({
  row: "H5",
  rule: "the warm-up creates every lazy resource: no allocation and no load is counted inside the recording",
  sound: ourDoor,
  faults: { "a capture without a warm-up": withoutWarmUp },
  check: (capture) => {
    const log = new CallLog();
    withModel(log.wrap, (model) => {
      const { runtime, weights } = model;
      const bias = weights[49]!; // [3]
      const before = readF32(runtime, bias);
      let scratch: Storage | undefined;
      let madeInRecording = 0;
      const body = (): void => {
        const { allocations } = runtime.arena.figures;
        // Larger than the committed memory, like a library's first workspace.
        scratch ??= runtime.arena.allocate(16 * 1024 * 1024, "library workspace");
        if (log.isCapturing) madeInRecording += runtime.arena.figures.allocations - allocations;
        const kernel = runtime.kernel(basicKernels.add);
        const args = [bias, bias, bias, 3];
        runtime.launch({ op: "double", kernel, blocks: 1, arguments: args });
        runtime.fill(scratch, 0);
      };
      try {
        capture(model, body)();
      } finally {
        const illegal = log.namesInCapture().filter((call) => !legalInCapture.has(call));
        assert.deepEqual(illegal, [], "driver calls inside the recording");
        assert.equal(madeInRecording, 0, "allocations of the arena inside the recording");
      }
      assert.deepEqual(
        readF32(runtime, bias),
        before.map((value) => 2 * value),
      );
    });
  },
});
