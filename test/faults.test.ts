/** Any driver call may fail, once, at any moment: the error is a HoldfastError, and everything is undone. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { HoldfastError } from "holdfast";
import {
  basicKernels,
  blockCount,
  type Driver,
  type DriverCall,
  faulty,
  openCpuDriver,
  openRuntime,
  type Runtime,
} from "holdfast/internals";
import { interceptCalls } from "../src/driver/index.js";
import { bytes, KiB } from "../src/units/index.js";

/** Calls that free something, with their counterparts. */
const opposites: Partial<Record<DriverCall, DriverCall>> = {
  release: "reserve",
  freeHost: "allocateHost",
  destroyStream: "createStream",
  destroyEvent: "createEvent",
  unloadKernel: "loadKernel",
  destroyGraph: "endCapture",
};

/** All operations of the runtime, once. */
function useEverything(runtime: Runtime): void {
  const count = 5000;
  const region = runtime.persistent.place("weights", "model", [
    { name: "w", size: 4 * count },
    { name: "rate", size: 4 },
  ]);
  const [weight, rate] = region.storages;
  const items = [weight!, rate!].map((target) => ({
    source: new Uint8Array(target.span.size).fill(1),
    target,
  }));
  runtime.upload(items);
  const kernel = runtime.kernel(basicKernels.scale);
  const side = runtime.createStream();
  runtime.orderStreams(runtime.stream, side);
  const kept = runtime.step(() => {
    const result = runtime.arena.allocate(4 * count, "made");
    runtime.arena.pin(result, "kept");
    runtime.fill(result, 0);
    runtime.copy(result, weight!);
    runtime.arena.free(runtime.arena.allocate(64, "short"));
    return result;
  });
  const graph = runtime.capture("update", () => {
    const values = [weight!, kept, rate!, count];
    runtime.launch({ op: "update", kernel, blocks: blockCount(count), arguments: values });
  });
  graph.replay();
  runtime.read(kept);
  graph.close();
  runtime.arena.unpin(kept);
  runtime.arena.reset();
  runtime.synchronize();
  runtime.persistent.release(region);
}

interface Outcome {
  readonly error: unknown;
  /** Resources of the device that were not freed. */
  readonly left: Readonly<Record<string, number>>;
  /** The call that failed. */
  readonly failedCall: DriverCall | undefined;
  readonly calls: number;
}

function runWith(script: readonly string[]): Outcome {
  const device = openCpuDriver({ threads: 1, maximumBytes: 4096 * KiB });
  const left: Record<string, number> = {};
  const counted = interceptCalls(device, (call, _args, proceed) => {
    const result = proceed();
    const undone = opposites[call] ?? call;
    if (Object.values(opposites).includes(undone))
      left[undone] = (left[undone] ?? 0) + (undone === call ? 1 : -1);
    return result;
  });
  let calls = 0;
  let failedCall: DriverCall | undefined;
  const driver: Driver = interceptCalls(faulty(counted, script), (call, _args, proceed) => {
    calls += 1;
    try {
      return proceed();
    } catch (error) {
      failedCall ??= call;
      throw error;
    }
  });
  let error: unknown;
  try {
    const runtime = openRuntime({
      driver,
      memory: "2MiB",
      arena: "512KiB",
      staging: "64KiB",
      chunk: bytes(64 * KiB),
      poison: true,
      capture: "on",
      stallAfter: "off",
      environment: {},
      print: () => {},
    });
    try {
      useEverything(runtime);
    } finally {
      runtime.close();
    }
  } catch (caught) {
    error = caught;
  }
  device.close();
  return { error, left, failedCall, calls };
}

describe("one failing driver call", () => {
  const sound = runWith([]);
  const balanced = Object.fromEntries(Object.values(opposites).map((call) => [call, 0]));

  test("the scenario passes without a fault, and frees everything", () => {
    assert.equal(sound.error, undefined);
    assert.deepEqual({ ...balanced, ...sound.left }, balanced);
  });

  test(`each of the scenario's ${sound.calls} calls may fail: the program gets an error with a code, and everything else is freed`, () => {
    const seen = new Set<DriverCall>();
    for (let n = 1; n <= sound.calls; n++) {
      const suffix = ["th", "st", "nd", "rd"][n % 100 > 10 && n % 100 < 14 ? 0 : n % 10] ?? "th";
      const { error, left, failedCall } = runWith([`the ${n}${suffix} call fails with driver-failed`]);
      assert.ok(error instanceof HoldfastError, `call ${n} (${failedCall}): ${error}`);
      assert.ok(failedCall);
      seen.add(failedCall);
      // A resource that the device failed to free may stay; nothing else may.
      const rejected = opposites[failedCall];
      const others = Object.entries(left).filter(([name]) => name !== rejected);
      assert.deepEqual(
        others.filter(([, count]) => count !== 0),
        [],
        `call ${n} (${failedCall}): ${error.message}`,
      );
      assert.ok(!rejected || (left[rejected] ?? 0) <= 1, `call ${n} (${failedCall})`);
    }
    assert.ok(seen.size > 20, [...seen].join(", "));
  });
});
