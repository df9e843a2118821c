/** Native kernels: functions of this process that run on device memory, in the stream's order. */

import assert from "node:assert/strict";
import test from "node:test";
import { bytes, MiB, type Span, span } from "../../units/index.js";
import type { Driver, KernelSource } from "../driver.js";
import { loadKoffi } from "../foreign-functions.js";
import { strict } from "../strict/index.js";
import { type CpuDriver, openCpuDriver } from "./driver.js";

function memsetKernel(): KernelSource {
  const memset = loadKoffi().load(null).func("void memset(uint64_t target, int byte, size_t size)");
  return {
    name: "memset",
    parameters: ["out", "i32", "u32"],
    native: (...args) => {
      const [firstBlock = 0, endBlock = 0, target = 0, byte, blockBytes = 0] = args;
      memset(target + firstBlock * blockBytes, byte, (endBlock - firstBlock) * blockBytes);
    },
  };
}

function withDriver(use: (driver: CpuDriver) => void): void {
  const device = openCpuDriver({ threads: 4 });
  try {
    use(device);
  } finally {
    device.close();
  }
}

function committed(driver: Driver, size: number): Span {
  const range = driver.reserve(bytes(size));
  driver.commit(range);
  return range;
}

test("a native kernel writes device memory in place, all blocks at once", () => {
  withDriver((driver) => {
    const stream = driver.createStream();
    const kernel = driver.loadKernel(memsetKernel());
    const memory = committed(driver, 65536);
    driver.fill(stream, memory, 1);
    const target = span(memory.address + 256, 64 * 16);
    driver.launch(stream, { kernel, blocks: 64, arguments: [target, 7, 16] });
    driver.synchronize(stream);
    const actual = driver.deviceBytes(memory);
    const expected = new Uint8Array(65536).fill(1).fill(7, 256, 256 + 64 * 16);
    assert.equal(Buffer.compare(actual, expected), 0);
  });
});

test("a native kernel's addresses stay valid while device memory grows", () => {
  withDriver((driver) => {
    const stream = driver.createStream();
    const kernel = driver.loadKernel(memsetKernel());
    for (const byte of [3, 4, 5]) {
      const memory = committed(driver, 20 * MiB);
      driver.launch(stream, { kernel, blocks: 1, arguments: [memory, byte, memory.size] });
      driver.synchronize(stream);
      const actual = driver.deviceBytes(memory);
      assert.deepEqual([actual[0], actual.at(-1)], [byte, byte]);
    }
  });
});

test("a native kernel can be captured, replayed and unloaded, under the strict driver", () => {
  withDriver((device) => {
    const driver = strict(device);
    const stream = driver.createStream();
    const kernel = driver.loadKernel(memsetKernel());
    const memory = committed(driver, 65536);
    driver.annotate?.(memory, "live");
    driver.beginCapture(stream, "thread-local");
    driver.launch(stream, { kernel, blocks: 1, arguments: [memory, 9, 65536] });
    const graph = driver.endCapture(stream);
    driver.instantiate(graph);
    driver.fill(stream, memory, 0);
    driver.launchGraph(stream, graph);
    driver.synchronize(stream);
    assert.ok(device.deviceBytes(memory).every((actual) => actual === 9));
    driver.unloadKernel(kernel);
    assert.throws(() => driver.launchGraph(stream, graph), { code: "CLOSED" });
  });
});

test("the error of a native kernel is thrown by the stream's next synchronize", () => {
  withDriver((driver) => {
    const stream = driver.createStream();
    const native = () => {
      throw new Error("no such luck");
    };
    const kernel = driver.loadKernel({ name: "unlucky", parameters: [], native });
    driver.launch(stream, { kernel, blocks: 1, arguments: [] });
    assert.throws(() => driver.synchronize(stream), {
      code: "KERNEL_FAILED",
      message: /"unlucky" trapped .*no such luck/,
    });
  });
});
