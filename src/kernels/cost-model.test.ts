/** The limits of a device: as its driver reports them, else by compute capability. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { maxSharedBytesPerBlock, residentSharedBytes } from "./cost-model.js";

const KiB = 1024;

test("the shared memory of a block is what the driver reports, also on a device that no table has", () => {
  assert.equal(
    maxSharedBytesPerBlock({ computeCapability: "13.0", sharedBytesPerBlock: 300 * KiB }),
    300 * KiB,
  );
  assert.equal(maxSharedBytesPerBlock({ computeCapability: "9.0", sharedBytesPerBlock: 99 * KiB }), 99 * KiB);
});

test("without a driver it follows from the compute capability; of an unknown one it is the static limit", () => {
  const limits = ["8.0", "8.6", "8.9", "9.0", "10.0", "12.0", "12.1", "13.0"].map((computeCapability) =>
    maxSharedBytesPerBlock({ computeCapability }),
  );
  assert.deepEqual(
    limits,
    [163, 99, 99, 227, 227, 99, 99, 48].map((size) => size * KiB),
  );
});

test("resident blocks share an SM's shared memory: 1 KiB of it is the system's, for each block", () => {
  const device = { computeCapability: "9.0", sharedBytesPerBlock: 99 * KiB };
  assert.equal(residentSharedBytes(device, 1024, 0), 49 * KiB);
  assert.equal(residentSharedBytes(device, 1024, 128), 49 * KiB - 128);
  assert.equal(residentSharedBytes(device, 32, 4 * KiB), 0);
  const desktop = { computeCapability: "12.1", sharedBytesPerBlock: 99 * KiB };
  assert.equal(
    residentSharedBytes(desktop, 1024, 0),
    99 * KiB,
    "two blocks of 1024 threads are too many for it",
  );
});
