/** The available memory of each kind of machine. */

import assert from "node:assert/strict";
import { test } from "node:test";
import type { DeviceInfo, Driver, HostMemoryInfo } from "../../driver/index.js";
import { HoldfastError } from "../../errors/index.js";
import { bytes, GiB, MiB } from "../../units/index.js";
import { chooseLimit, readFreeMemory } from "./free-memory.js";

function freeOn(
  memory: DeviceInfo["memory"],
  reported: { total: number; free: number },
  host: { total: number; available: number; binding?: number },
) {
  const driver = {
    memory: () => ({ total: bytes(reported.total), free: bytes(reported.free) }),
  } as Partial<Driver> as Driver;
  const hostInfo: HostMemoryInfo = {
    total: bytes(host.total),
    available: bytes(host.available),
    binding: bytes(host.binding ?? host.total),
    cgroupLimit: undefined,
    cgroupUsed: undefined,
  };
  return readFreeMemory({ memory } as Partial<DeviceInfo> as DeviceInfo, driver, () => hostInfo);
}

const anyHost = { total: 64 * GiB, available: 32 * GiB };

test("a discrete card has the driver's free figure less max(512 MiB, 2 %)", () => {
  assert.equal(
    freeOn("discrete", { total: 16 * GiB, free: 10 * GiB }, anyHost).available,
    10 * GiB - 512 * MiB,
  );
  const large = freeOn("discrete", { total: 100 * GiB, free: 90 * GiB }, anyHost);
  assert.equal(large.available, 88 * GiB);
  assert.equal(large.free, 90 * GiB);
});

test("a unified machine has MemAvailable less max(8 GiB, 10 %), independent of the driver's figure", () => {
  const reported = { total: 128 * GiB, free: GiB };
  assert.equal(freeOn("unified", reported, { total: 160 * GiB, available: 100 * GiB }).free, 100 * GiB);
  assert.equal(freeOn("unified", reported, { total: 160 * GiB, available: 100 * GiB }).available, 84 * GiB);
  assert.equal(freeOn("unified", reported, { total: 32 * GiB, available: 20 * GiB }).available, 12 * GiB);
  assert.equal(freeOn("unified", reported, { total: 32 * GiB, available: 7 * GiB }).available, 0);
});

test("the CPU has its driver's address space, or the host's memory less max(512 MiB, 10 %) if that is less", () => {
  const reported = { total: 4 * GiB, free: 4 * GiB };
  assert.equal(freeOn("host", reported, anyHost).available, 4 * GiB);
  assert.equal(freeOn("host", reported, { total: 2 * GiB, available: GiB }).available, GiB - 512 * MiB);
});

test("in a container the margin is a share of the binding limit, not of the host", () => {
  const reported = { total: 4 * GiB, free: 4 * GiB };
  const host = { total: 24 * GiB, available: 1900 * MiB, binding: 2 * GiB };
  const free = freeOn("host", reported, host);
  assert.equal(free.available, 1900 * MiB - 512 * MiB);
  assert.match(free.reason, /^what remains of the cgroup limit of 2 GiB, 1\.86 GiB, less 512 MiB$/);
  const small = freeOn("host", reported, { ...host, available: 400 * MiB, binding: 512 * MiB });
  assert.equal(small.available, 400 * MiB - 128 * MiB);
});

test("a requested size has no margin", () => {
  const reported = { total: 4 * GiB, free: 4 * GiB };
  const free = freeOn("host", reported, { total: 24 * GiB, available: 300 * MiB, binding: 2 * GiB });
  assert.equal(free.available, 0);
  assert.deepEqual(chooseLimit(bytes(256 * MiB), free), { limit: 256 * MiB, reason: "HOLDFAST_MEMORY" });
  assert.throws(
    () => chooseLimit(bytes(512 * MiB), free),
    /asks for 512 MiB, but at most 300 MiB is available/,
  );
});

test("a budget that the machine cannot provide is rejected at the start, with both numbers", () => {
  const free = freeOn("unified", { total: 32 * GiB, free: GiB }, { total: 32 * GiB, available: 20 * GiB });
  assert.deepEqual(chooseLimit(bytes(12 * GiB), free), { limit: 12 * GiB, reason: "HOLDFAST_MEMORY" });
  assert.throws(
    () => chooseLimit(bytes(24 * GiB), free),
    (error) =>
      error instanceof HoldfastError &&
      error.code === "OUT_OF_BUDGET" &&
      /asks for 24 GiB, but at most 12 GiB is available\. The default would be 12 GiB \(the host's MemAvailable, 20 GiB, less 8 GiB\)/.test(
        error.message,
      ),
  );
});

test("a machine without available memory is rejected at the start", () => {
  const free = freeOn("unified", { total: 32 * GiB, free: GiB }, { total: 32 * GiB, available: 7 * GiB });
  assert.throws(
    () => chooseLimit("auto", free),
    /No memory is left for the budget: .* is free, and the margin is /,
  );
});
