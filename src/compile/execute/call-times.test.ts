/** The times of a step's calls, on a device whose commands take known times; and the order in which they run. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openTestDriver } from "../../../test/support/test-device.js";
import { basicKernels, blockCount, strict } from "../../driver/index.js";
import { type LoadedCommand, openRuntime, type Runtime, type Storage } from "../../runtime/index.js";
import { FakeClock } from "../../units/index.js";
import { timeInGraphs } from "./call-times.js";

/** Milliseconds of a launch of a graph, of one more command in it, and of a wait for the device. */
const [launchMs, gapMs, waitMs] = [0.004, 0.001, 0.006];

/** A device whose commands take known times. */
function timedDevice(durations: readonly number[]) {
  const clock = new FakeClock();
  const commands = durations.map((_, call) => ({ call, op: `op ${call}`, command: {} as LoadedCommand }));
  const durationOf = new Map(commands.map(({ command }, index) => [command, durations[index] ?? 0]));
  let submitted: readonly LoadedCommand[] = [];
  let replays = 0;
  const runtime: Pick<Runtime, "captureForTiming" | "submit" | "synchronize"> = {
    submit: (list) => {
      submitted = list as readonly LoadedCommand[];
    },
    captureForTiming: (_, body) => {
      body();
      const ms = submitted.reduce((sum, command) => sum + gapMs + (durationOf.get(command) ?? 0), launchMs);
      const replay = (): void => {
        replays += 1;
        clock.advance(ms);
      };
      return { mode: "graph", replay, close: () => undefined };
    },
    synchronize: () => clock.advance(waitMs),
  };
  return { clock, commands, runtime, countReplays: () => replays };
}

const roundUs = (us: number): number => Math.round(us * 10) / 10;

test("in a short step, a command's time is what it adds to the graph of the commands before it", () => {
  const { runtime, commands, clock } = timedDevice([0.01, 0.002, 0.04]);
  const [first = 0, ...others] = timeInGraphs(runtime, commands, clock);
  // Waiting is spread over the launches of a group. The first command also has the graph's launch.
  assert.ok(Math.abs(first - 15) < 1, `${first} µs`);
  assert.deepEqual(others.map(roundUs), [3, 41]);
});

test("in a long step, the commands run a few times, and their times add up to the step", () => {
  const durations = Array.from({ length: 400 }, (_, index) => (index % 7 === 0 ? 0.5 : 0.02));
  const { runtime, commands, clock, countReplays } = timedDevice(durations);
  const times = timeInGraphs(runtime, commands, clock);
  assert.ok(countReplays() < 12 * durations.length, `${countReplays()} replays`);
  const stepUs = durations.reduce((sum, ms) => sum + 1000 * (ms + gapMs), 0);
  const totalUs = times.reduce((sum, us) => sum + us, 0);
  assert.ok(Math.abs(totalUs - stepUs) < 20, `${totalUs} and ${stepUs} µs`);
  for (const [index, us] of times.entries())
    assert.ok(Math.abs(us - 1000 * ((durations[index] ?? 0) + gapMs)) < 0.1, `command ${index}: ${us} µs`);
});

test("a command that is shorter than the overhead has no time, and the times still add up", () => {
  const durations = Array.from({ length: 400 }, (_, index) => (index < 100 ? -0.0045 : 0.5));
  const { runtime, commands, clock } = timedDevice(durations);
  const times = timeInGraphs(runtime, commands, clock);
  assert.ok(times.every((us) => us >= 0));
  const stepUs = durations.reduce((sum, ms) => sum + 1000 * (ms + gapMs), 0);
  assert.ok(Math.abs(times.reduce((sum, us) => sum + us, 0) - stepUs) < 20);
});

test("commands run only in the order of the step, because they may change what they read", () => {
  const device = openTestDriver();
  const runtime = openRuntime({
    driver: strict(device),
    stallAfter: "off",
    environment: {},
    print: () => {},
  });
  const { storages } = runtime.persistent.place(
    "weights",
    "state",
    ["one", "steps", "sum"].map((name) => ({ name, size: 4 })),
  );
  const [one, steps, sum] = [storages[0]!, storages[1]!, storages[2]!];
  runtime.upload(storages.map((target, index) => ({ source: Float32Array.of(index === 0 ? 1 : 0), target })));
  const add = (from: Storage, to: Storage): LoadedCommand => ({
    kind: "launch",
    request: {
      ...{ op: "add", kernel: runtime.kernel(basicKernels.add), blocks: blockCount(1) },
      arguments: [to, from, to, 1],
    },
  });
  const commands = [add(one, steps), add(steps, sum)].map((command, call) => ({ call, op: "add", command }));
  let nowMs = 0;
  timeInGraphs(runtime, commands, {
    nowMs: () => {
      nowMs += 1000;
      return nowMs;
    },
  });
  const [stepCount = 0, total] = [steps, sum].map(
    (storage) => new Float32Array(runtime.read(storage).buffer)[0],
  );
  assert.ok(stepCount > 0);
  assert.equal(total, (stepCount * (stepCount + 1)) / 2);
  runtime.close();
  device.close();
});
