/** Regressions, hangs at the begin and the end of a capture: how it is entered (H6, H7) and how it ends (H8). */

import assert from "node:assert/strict";
import { test } from "node:test";
import { HoldfastError } from "holdfast";
import { type Driver, strict } from "holdfast/internals";
import { interceptCalls, type Stream } from "../../src/driver/index.js";
import { CaptureStateMachine } from "../../src/runtime/capture/capture-state.js";
import { CallLog } from "../support/call-log.js";
import { regressionRow } from "../support/regressions.js";
import { withMethods } from "../support/replaced-methods.js";
import { filesBelow, readRepositoryFile } from "../support/repository.js";
import { openTestDriver } from "../support/test-device.js";
import { doubleWeights, type Model, passes, withModel } from "../support/weights-model.js";

interface Source {
  readonly file: string;
  readonly text: string;
}

interface Doors {
  readonly sources: readonly Source[];
  /** The objects of a runtime's user. */
  readonly surface: (model: Model) => object;
}

const ourDoors: Doors = {
  sources: filesBelow("src", ".ts")
    .filter((file) => !file.endsWith(".test.ts"))
    .map((file) => ({ file, text: readRepositoryFile(file) })),
  surface: ({ runtime }) => runtime,
};

/** All objects that are reachable from an object through properties, including itself. */
function reachableFrom(start: object): Set<object> {
  const reached = new Set<object>([start]);
  for (const object of reached) {
    if (ArrayBuffer.isView(object)) continue;
    for (const value of Object.values(object))
      if (typeof value === "object" && value !== null) reached.add(value);
  }
  return reached;
}

regressionRow<Doors>({
  row: "H6",
  rule: "a capture has one entry: only runtime/capture.ts begins one, and the runtime does not expose its driver",
  sound: ourDoors,
  faults: {
    "a second file that begins a capture": {
      ...ourDoors,
      sources: [
        ...ourDoors.sources,
        { file: "src/train/fast-path.ts", text: 'driver.beginCapture(stream, "thread-local");' },
      ],
    },
    "a runtime that exposes its driver": {
      ...ourDoors,
      surface: ({ runtime, driver }) => Object.assign(Object.create(runtime), { backend: { driver } }),
    },
  },
  check: ({ sources, surface }) => {
    const doors = sources.filter(
      ({ file, text }) => !file.startsWith("src/driver/") && /beginCapture/.test(text),
    );
    assert.deepEqual(
      doors.map(({ file }) => file),
      ["src/runtime/capture/capture.ts"],
    );
    withModel(strict, (model) => {
      const leaks = [...reachableFrom(surface(model))].filter((object) => "beginCapture" in object);
      assert.equal(leaks.length, 0, "a driver can be reached from the runtime");
    });
  },
});

/** Changes the mode of captures. */
const relaxing = (inner: Driver): Driver =>
  interceptCalls(inner, (call, args, proceed) => {
    if (call !== "beginCapture") return proceed();
    return inner.beginCapture(args[0] as Stream, "relaxed" as never);
  });

regressionRow<(driver: Driver) => Driver>({
  row: "H7",
  rule: "every capture reaches the driver in thread-local mode",
  sound: (driver) => driver,
  faults: {
    "a capture in relaxed mode": relaxing,
    "a capture in relaxed mode, under strict": (driver) => relaxing(strict(driver)),
  },
  check: (wrap) => {
    const log = new CallLog();
    withModel(
      (device) => wrap(log.wrap(device)),
      (model) => {
        model.runtime.capture("train step", () => doubleWeights(model)).close();
        const modes = log.calls.filter(({ call }) => call === "beginCapture").map(({ args }) => args[1]);
        assert.deepEqual(modes, ["thread-local"]);
      },
    );
  },
});

test("H7: strict rejects the relaxed mode, and nothing has begun", () => {
  const device = openTestDriver();
  const driver = strict(device);
  const stream = driver.createStream();
  assert.throws(() => driver.beginCapture(stream, "relaxed" as never), {
    code: "CAPTURE_REJECTED",
    message: /Capture mode "relaxed" is not allowed/,
  });
  assert.throws(() => driver.endCapture(stream), { code: "CAPTURE_ORDER" });
  device.close();
});

/** Runs the check on an engine, with a fault injected. */
interface Ending {
  readonly inject: (run: () => void) => void;
  readonly wrap: (driver: Driver) => Driver;
}

/** The old state: every end decrements a counter, even a second end. */
function withCountingState(run: () => void): void {
  const { enter, leave } = CaptureStateMachine.prototype;
  const depths = new WeakMap<CaptureStateMachine, number>();
  const depthOf = (machine: CaptureStateMachine): number => depths.get(machine) ?? 0;
  const counting: Pick<CaptureStateMachine, "enter" | "leave"> = {
    enter(this: CaptureStateMachine, name) {
      if (depthOf(this) !== 0) throw new HoldfastError("CAPTURE_ORDER", `The depth is ${depthOf(this)}.`);
      depths.set(this, 1);
      enter.call(this, name);
    },
    leave(this: CaptureStateMachine) {
      depths.set(this, depthOf(this) - 1);
      return leave.call(this);
    },
  };
  withMethods(CaptureStateMachine.prototype, counting, run);
}

/** The old watchdog: it ends a capture that the normal path also ends. */
const endingTwice = (inner: Driver): Driver =>
  interceptCalls(inner, (call, args, proceed) => {
    if (call === "endCapture") inner.destroyGraph(inner.endCapture(args[0] as Stream));
    return proceed();
  });

regressionRow<Ending>({
  row: "H8",
  rule: "a capture that is ended twice, or by an exception in any pass, leaves the next one intact",
  sound: { inject: (run) => run(), wrap: (driver) => driver },
  faults: {
    "a state that counts": { inject: withCountingState, wrap: (driver) => driver },
    "a second end on the driver": { inject: (run) => run(), wrap: endingTwice },
  },
  check: ({ inject, wrap }) => {
    const log = new CallLog();
    inject(() =>
      withModel(
        (device) => wrap(strict(log.wrap(device))),
        (model) => {
          const { runtime } = model;
          for (const pass of passes) {
            let passCount = 0;
            const failing = (): void => {
              doubleWeights(model);
              if (passes[passCount++] === pass) throw new RangeError(`no luck while ${pass}`);
            };
            assert.throws(() => runtime.capture("failing", failing), new RangeError(`no luck while ${pass}`));
            const captured = runtime.capture("good", () => doubleWeights(model));
            captured.replay();
            captured.close();
            captured.close();
          }
          const ends = log.calls.map(({ call }) => call).filter((call) => /^(begin|end)Capture$/.test(call));
          // One capture that fails while recording, and a good one after each of the three that fail.
          assert.deepEqual(ends, Array.from({ length: 4 }, () => ["beginCapture", "endCapture"]).flat());
        },
      ),
    );
  },
});

regressionRow<(run: () => void) => void>({
  row: "H8",
  rule: "the capture state is idle after any number of ends, also after one while the function runs",
  sound: (run) => run(),
  faults: { "a state that counts, ended twice": withCountingState },
  check: (inject) =>
    inject(() => {
      const machine = new CaptureStateMachine();
      machine.enter("first");
      assert.deepEqual([machine.leave(), machine.leave()], [true, false]);
      machine.enter("second");
      machine.during("recording", () => void machine.leave());
      machine.leave();
      assert.equal(machine.state, "idle");
      machine.enter("third");
      assert.equal(machine.state, "preparing");
    }),
});
