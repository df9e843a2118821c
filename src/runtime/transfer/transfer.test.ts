/** Uploads and read-backs: every byte, few copies, all items checked before the first copy. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import fc from "fast-check";
import { sameBytes } from "../../../test/support/same-bytes.js";
import { openTestCpu, openTestDriver, type TestDriver } from "../../../test/support/test-device.js";
import { type Driver, interceptCalls, strict } from "../../driver/index.js";
import { HoldfastError } from "../../errors/index.js";
import { KiB, type Span } from "../../units/index.js";
import { openRuntime, type Runtime, type RuntimeOptions } from "../runtime.js";

let device: TestDriver;
let runtime: Runtime;

function open(options: RuntimeOptions = {}, wrap: (driver: Driver) => Driver = strict): void {
  const driver = wrap(device);
  const settings = { staging: "64KiB", stallAfter: "off", environment: {}, print: () => {} } as const;
  runtime = openRuntime({ driver, ...settings, ...options });
}

beforeEach(() => {
  device = openTestDriver();
});
afterEach(() => {
  runtime.close();
  device.close();
});

const random = (size: number, seed: number): Uint8Array =>
  Uint8Array.from({ length: size }, (_, index) => (index * 31 + seed * 17 + (index >> 8)) & 0xff);

test("tensors of any size are uploaded and read back unchanged, in as few copies as possible", () => {
  open();
  const slot = 16 * KiB;
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 1, max: 40_000 }), { minLength: 1, maxLength: 30 }), (sizes) => {
      const placements = sizes.map((size, index) => ({ name: `t${index}`, size }));
      const region = runtime.persistent.place("weights", "model", placements);
      const items = region.storages.map((target, index) => ({
        source: random(target.span.size, index),
        target,
      }));
      const { copies, tensors } = runtime.upload(items);
      assert.equal(tensors, sizes.length);
      assert.equal(copies, Math.ceil((region.span.size - padding(sizes.at(-1)!)) / slot));
      for (const { source, target } of items) sameBytes(runtime.read(target), source, target.label);
      runtime.persistent.release(region);
    }),
    { numRuns: 60 },
  );
});

const padding = (size: number): number => (256 - (size % 256)) % 256;

test("uploads to two views of one storage do not change the bytes between them", () => {
  open();
  const owner = runtime.arena.allocate(300, "owner");
  runtime.upload([{ source: random(300, 1), target: owner }]);
  const views = [runtime.view(owner, 0, 100), runtime.view(owner, 200, 100)];
  runtime.upload(views.map((target, index) => ({ source: random(100, 5 + index), target })));
  const actual = runtime.read(owner);
  assert.deepEqual(actual.subarray(0, 100), random(100, 5));
  assert.deepEqual(actual.subarray(100, 200), random(300, 1).subarray(100, 200));
  assert.deepEqual(actual.subarray(200), random(100, 6));
});

test("one copy never crosses two regions, even if they are adjacent", () => {
  const targets: Span[] = [];
  // On a GPU they need not be adjacent.
  const cpu = openTestCpu();
  open({}, () =>
    interceptCalls(strict(cpu), (call, args, proceed) => {
      if (call === "copyToDevice") targets.push(args[1] as Span);
      return proceed();
    }),
  );
  const regions = ["a", "b"].map((name) =>
    runtime.persistent.place("weights", name, [{ name, size: 65536 }]),
  );
  assert.equal(regions[0]!.span.address + 65536, regions[1]!.span.address, "they do lie side by side");
  runtime.upload(regions.map(({ storages }) => ({ source: random(65536, 3), target: storages[0]! })));
  for (const target of targets) {
    const crosses =
      target.address < regions[1]!.span.address && target.address + target.size > regions[1]!.span.address;
    assert.ok(!crosses);
  }
  runtime.close();
  cpu.close();
});

test("every item is checked before the first byte moves", () => {
  open();
  const [good, bad] = [runtime.arena.allocate(16, "good"), runtime.arena.allocate(16, "bad")];
  runtime.fill(good, 1);
  const items = [
    { source: new Uint8Array(16), target: good },
    { source: new Uint8Array(15), target: bad },
  ];
  assert.throws(() => runtime.upload(items), /The upload to "bad" has 15 bytes, but the storage has 16/);
  assert.ok(runtime.read(good).every((byte) => byte === 1));
  const list = [{ source: [1, 2] as never, target: good }];
  assert.throws(() => runtime.upload(list), /is not a typed array/);
});

test("a source may be a view of a larger buffer, of any element type", () => {
  open();
  const target = runtime.arena.allocate(24, "f64");
  runtime.upload([{ source: new Float64Array([9, 1.5, -2, 3, 9]).subarray(1, 4), target }]);
  assert.deepEqual(new Float64Array(runtime.read(target).buffer), new Float64Array([1.5, -2, 3]));
});

test("with verification on, a byte that changes during the copy is detected", () => {
  open({ verifyUploads: true }, (driver) =>
    interceptCalls(driver, (call, args, proceed) => {
      const result = proceed();
      if (call === "copyToDevice") {
        driver.synchronize(args[0] as never);
        device.alterBytes(args[1] as Span, (actual) => {
          actual[3]! ^= 1;
        });
      }
      return result;
    }),
  );
  const target = runtime.arena.allocate(64, "w");
  assert.throws(
    () => runtime.upload([{ source: new Uint8Array(64), target }]),
    (error) => error instanceof HoldfastError && error.code === "UPLOAD_CORRUPT",
  );
});

test("with verification on, a correct upload passes", () => {
  open({ verifyUploads: true });
  const target = runtime.arena.allocate(40_000, "w");
  runtime.upload([{ source: random(40_000, 1), target }]);
});
