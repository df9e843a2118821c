/** Ops on 64-bit memory give the bits of 32-bit memory. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { Device, manualSeed, randn, tensor } from "holdfast";
import { openCpuDriver } from "holdfast/internals";

// Before V8 13 (Node 24) a flag enables it, in memories of up to 4 GiB at least.
if (Number.parseInt(process.versions.v8, 10) < 13) setFlagsFromString("--experimental-wasm-memory64");

/** A packed and a direct product, reductions, reversed and gathered rows, elementary functions, and their gradients. */
function computeAll(hasWideAddresses: boolean): number[] {
  const driver = openCpuDriver({ threads: 1, hasWideAddresses });
  const cpu = new Device("cpu", { driver, stallAfter: "off", environment: {}, print: () => {} });
  manualSeed(7);
  try {
    return cpu.step(() => {
      const x = randn([70, 80], { requiresGrad: true });
      const products = x
        .matmul(randn([80, 67]))
        .softmax(-1)
        .flip(0);
      const rows = products.indexSelect(0, tensor([3, 1, 3, 0], { dtype: "i32" }));
      const sum = rows
        .exp()
        .matmul(randn([67, 5]))
        .cumsum(0)
        .std(1)
        .sum();
      sum.backward();
      return [sum.item(), x.grad?.tolist(), products.tolist()].flat(3).map(Number);
    });
  } finally {
    cpu.close();
    driver.close();
  }
}

test("ops give the same bits with 32-bit and 64-bit addresses", () => {
  const narrow = computeAll(false);
  assert.ok(narrow.length > 10_000 && narrow.every(Number.isFinite));
  assert.deepEqual(computeAll(true), narrow);
});
