/** Any driver call may fail, once, at any moment: the error is a HoldfastError, and nothing half-done is left behind. */

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

/** What gives back what. */
const opposites: Partial<Record<DriverCall, DriverCall>> = {
  release: "reserve",
  freeHost: "allocateHost",
  destroyStream: "createStream",
  destroyEvent: "createEvent",
  unloadKernel: "loadKernel",
  destroyGraph: "endCapture",
};

/** Everything the runtime does, once. */
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
    const made = runtime.arena.allocate(4 * count, "made");
    runtime.arena.pin(made, "kept");
    runtime.fill(made, 0);
    runtime.copy(made, weight!);
    runtime.arena.free(runtime.arena.allocate(64, "short"));
    return made;
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
  /** What was taken from the device and not given back. */
  readonly left: Readonly<Record<string, number>>;
  /** The call that failed. */
  readonly struck: DriverCall | undefined;
  readonly calls: number;
}

function runWith(script: readonly string[]): Outcome {
  const device = openCpuDriver({ threads: 1, maximumBytes: 4096 * KiB });
  const left: Record<string, number> = {};
  const counted = interceptCalls(device, (call, _args, proceed) => {
    const result = proceed();
    const taken = opposites[call] ?? call;
    if (Object.values(opposites).includes(taken))
      left[taken] = (left[taken] ?? 0) + (taken === call ? 1 : -1);
    return result;
  });
  let calls = 0;
  let struck: DriverCall | undefined;
  const driver: Driver = interceptCalls(faulty(counted, script), (call, _args, proceed) => {
    calls += 1;
    try {
      return proceed();
    } catch (error) {
      struck ??= call;
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
  return { error, left, struck, calls };
}

describe("one failing driver call", () => {
  const sound = runWith([]);
  const nothing = Object.fromEntries(Object.values(opposites).map((call) => [call, 0]));

  test("the scenario passes where nothing fails, and gives everything back", () => {
    assert.equal(sound.error, undefined);
    assert.deepEqual({ ...nothing, ...sound.left }, nothing);
  });

  test(`each of the scenario's ${sound.calls} calls may be the one: an error with a code, everything else given back`, () => {
    const seen = new Set<DriverCall>();
    for (let n = 1; n <= sound.calls; n++) {
      const suffix = ["th", "st", "nd", "rd"][n % 100 > 10 && n % 100 < 14 ? 0 : n % 10] ?? "th";
      const { error, left, struck } = runWith([`the ${n}${suffix} call fails with driver-failed`]);
      assert.ok(error instanceof HoldfastError, `call ${n} (${struck}): ${error}`);
      assert.ok(struck);
      seen.add(struck);
      // What the device would not take back may stay with it; nothing else may.
      const rejected = opposites[struck];
      const others = Object.entries(left).filter(([taken]) => taken !== rejected);
      assert.deepEqual(
        others.filter(([, count]) => count !== 0),
        [],
        `call ${n} (${struck}): ${error.message}`,
      );
      assert.ok(!rejected || (left[rejected] ?? 0) <= 1, `call ${n} (${struck})`);
    }
    assert.ok(seen.size > 20, [...seen].join(", "));
  });
});
