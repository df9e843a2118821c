/** The machine's GPUs: the list, unusable ones, and several at once. */

import assert from "node:assert/strict";
import test, { afterEach, describe } from "node:test";
import { emulatorMissing, openEmulator } from "../../../test/support/emulator.js";
import {
  heldOnEmulator,
  openBench,
  openEmulatorDriver,
  withEmulatorDriver,
} from "../../../test/support/emulator-driver.js";
import { bytes, GiB, KiB, span } from "../../units/index.js";
import { basicKernels } from "../basic-kernels.js";
import { listCudaDevices } from "./devices.js";

const skip = emulatorMissing;
const emulator = skip ? undefined! : openEmulator();
const environment = { HOLDFAST_CUDA_PATH: emulator?.folder };

afterEach(() => {
  if (!skip) emulator.reset();
});

/** The number of retained contexts that were not released. */
const heldContexts = (): number =>
  emulator.calls("cuDevicePrimaryCtxRetain") - emulator.calls("cuDevicePrimaryCtxRelease");

describe("the list of devices", { skip }, () => {
  test("describes each device, usable or not, and opens none", () => {
    emulator.set("devices", 2);
    emulator.set("computeMajor", 7);
    emulator.set("computeMinor", 5);
    emulator.set("multiprocessors", 40);
    emulator.set("totalMemory", 16 * GiB);
    const one = {
      name: "Emulator GPU",
      computeCapability: "7.5",
      isIntegrated: false,
      multiprocessors: 40,
      sharedBytesPerBlock: 64 * KiB,
      totalBytes: 16 * GiB,
      driverVersion: 13_000,
    };
    assert.deepEqual(listCudaDevices(environment), [
      { index: 0, ...one, uuid: "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadae00" },
      { index: 1, ...one, uuid: "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadae01" },
    ]);
    assert.equal(emulator.calls("cuDevicePrimaryCtxRetain"), 0);
  });

  test("shows which devices share the host's memory", () => {
    emulator.set("integrated", 1);
    assert.deepEqual(
      listCudaDevices(environment).map(({ isIntegrated }) => isIntegrated),
      [true],
    );
  });
});

describe("a device that cannot be opened", { skip }, () => {
  test("because its index is out of range is rejected with the number of devices", () => {
    emulator.set("devices", 2);
    for (const index of [2, 7, -1, 0.5, Number.NaN]) {
      assert.throws(() => openEmulatorDriver({ index }), {
        code: "NO_CUDA",
        message: new RegExp(`GPU ${index} does not exist: this process sees 2 GPUs\\..*CUDA_VISIBLE_DEVICES`),
        numbers: { index, count: 2 },
      });
    }
    emulator.set("devices", 1);
    assert.throws(() => openEmulatorDriver({ index: 1 }), {
      message: /does not exist: this process sees 1 GPU\./,
    });
    assert.equal(emulator.calls("cuDevicePrimaryCtxRetain"), 0);
  });

  test("because there is none is rejected with CUDA's reason", () => {
    emulator.set("devices", 0);
    assert.throws(() => openEmulatorDriver(), {
      code: "NO_CUDA",
      message: /CUDA_ERROR_NO_DEVICE \(100\).*nvidia-smi/,
    });
    assert.throws(() => listCudaDevices(environment), { code: "NO_CUDA" });
  });

  test("because it is older than Ampere is rejected with its name and compute capability", () => {
    emulator.set("computeMajor", 7);
    emulator.set("computeMinor", 5);
    assert.throws(() => openEmulatorDriver(), {
      code: "NO_CUDA",
      message: /^GPU 0, Emulator GPU, has compute capability 7\.5; Holdfast needs 8\.0 or later/,
      numbers: { index: 0, computeCapability: "7.5" },
    });
    assert.equal(emulator.calls("cuDevicePrimaryCtxRetain"), 0);
    for (const [major, minor] of [
      [8, 0],
      [10, 0],
      [12, 1],
    ] as const) {
      emulator.set("computeMajor", major);
      emulator.set("computeMinor", minor);
      withEmulatorDriver({}, (driver) =>
        assert.equal(driver.describe().computeCapability, `${major}.${minor}`),
      );
    }
  });

  test("because a call fails releases everything", () => {
    const before = heldOnEmulator();
    const calls = ["cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetAttribute", "cuDriverGetVersion"];
    const later = ["cuDeviceTotalMem", "cuDeviceGetName", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent"];
    for (const call of [...calls, ...later]) {
      // The current context is remembered between openings.
      withEmulatorDriver({ index: 0 }, () => undefined);
      const contexts = heldContexts();
      emulator.fail(call, 1, { times: 1 });
      assert.throws(
        () => openEmulatorDriver(),
        { code: "DRIVER_FAILED", message: new RegExp(`^${call}`) },
        call,
      );
      const isContext = call === "cuDevicePrimaryCtxRetain" ? 1 : 0;
      assert.equal(heldContexts() - isContext, contexts, call);
      assert.deepEqual(heldOnEmulator(), before, call);
    }
  });
});

describe("several devices", { skip }, () => {
  test("are used alternately, each in its context, and closed in any order", () => {
    emulator.set("devices", 3);
    const before = heldOnEmulator();
    const contexts = heldContexts();
    const drivers = [0, 1, 2].map((index) => openEmulatorDriver({ index }));
    const benches = drivers.map((driver) => ({
      driver,
      ...openBench(driver),
      kernel: driver.loadKernel(basicKernels.fill),
    }));
    assert.deepEqual(
      drivers.map((driver) => driver.describe().index),
      [0, 1, 2],
    );
    for (let turn = 0; turn < 3; turn++) {
      for (const [index, { driver, stream, memory, kernel }] of benches.entries())
        driver.launch(stream, { kernel, blocks: 1, arguments: [memory, 10 * turn + index, 4] });
      for (const [index, { memory, read }] of benches.entries())
        assert.equal(new Float32Array(read(span(memory.address, 4)).buffer)[0], 10 * turn + index);
    }
    drivers[1]!.close();
    assert.throws(() => drivers[1]!.reserve(bytes(1)), { code: "CLOSED" });
    for (const { driver, stream, memory } of [benches[2]!, benches[0]!]) driver.fill(stream, memory, 1);
    drivers[0]!.close();
    benches[2]!.driver.synchronize(benches[2]!.stream);
    drivers[2]!.close();
    assert.deepEqual(heldOnEmulator(), before);
    assert.equal(heldContexts(), contexts);
  });

  test("change the context only when another device is used", () => {
    emulator.set("devices", 2);
    withEmulatorDriver({ index: 0 }, (first) => {
      const bench = openBench(first);
      withEmulatorDriver({ index: 1 }, (second) => {
        const other = openBench(second);
        const before = emulator.calls("cuCtxSetCurrent");
        for (let turn = 0; turn < 5; turn++) second.fill(other.stream, other.memory, turn);
        assert.equal(emulator.calls("cuCtxSetCurrent"), before);
        first.fill(bench.stream, bench.memory, 0);
        second.fill(other.stream, other.memory, 0);
        assert.equal(emulator.calls("cuCtxSetCurrent"), before + 2);
      });
    });
  });

  test("may be one device opened twice, and closing one leaves the other usable", () => {
    withEmulatorDriver({}, (first) => {
      const { stream, memory, read } = openBench(first);
      withEmulatorDriver({}, (second) => second.fill(openBench(second).stream, openBench(second).memory, 3));
      first.fill(stream, memory, 7);
      assert.equal(read(span(memory.address, 1))[0], 7);
    });
  });
});
