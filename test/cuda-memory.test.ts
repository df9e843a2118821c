/**
 * The budget and the arena over a GPU's memory, on the emulator: which memory counts as free, what the host
 * keeps, and devices without virtual memory.
 */

import assert from "node:assert/strict";
import test, { afterEach, describe } from "node:test";
import { Device, type DeviceInfo, manualSeed, nn, optim, type RuntimeOptions } from "holdfast";
import { bytes, type Driver, openRuntime, type Runtime, strict } from "holdfast/internals";
import { interceptCalls } from "../src/driver/index.js";
import { GiB, MiB } from "../src/units/index.js";
import { emulatorMissing, openEmulator } from "./support/emulator.js";
import { heldOnEmulator, openEmulatorDriver, withEmulatorDriver } from "./support/emulator-driver.js";
import { fakeHost } from "./support/fake-host.js";
import { rejects } from "./support/rejects.js";
import { sameBytes } from "./support/same-bytes.js";
import { testEnvironment } from "./support/test-device.js";

const skip = emulatorMissing;
const emulator = skip ? undefined! : openEmulator();

afterEach(() => {
  if (!skip) emulator.reset();
});

const quiet = { stallAfter: "off", environment: testEnvironment, print: () => {} } as const;

function withRuntime<T>(driver: Driver, options: RuntimeOptions, use: (runtime: Runtime) => T): T {
  const runtime = openRuntime({ ...quiet, driver, ...options });
  try {
    return use(runtime);
  } finally {
    runtime.close();
  }
}

/** A machine with unified memory, whose driver counts the page cache as used. */
function withUnifiedMachine(use: (driver: Driver, host: ReturnType<typeof fakeHost>) => void): void {
  emulator.set("integrated", 1);
  emulator.set("totalMemory", 120 * GiB);
  emulator.set("foreignMemory", 119 * GiB);
  const host = fakeHost(120 * GiB, 100 * GiB);
  try {
    withEmulatorDriver({}, (driver) => use(driver, host));
  } finally {
    host.remove();
  }
}

describe("free memory", { skip }, () => {
  test("of a discrete card is the driver's figure, independent of the host", () => {
    emulator.set("totalMemory", 40 * GiB);
    emulator.set("foreignMemory", 10 * GiB);
    const host = fakeHost(8 * GiB, GiB);
    withEmulatorDriver({}, (driver) =>
      withRuntime(driver, { hostRoot: host.root }, ({ budget, device }) => {
        assert.equal(device.memory, "discrete");
        assert.equal(budget.limit, Math.floor(30 * GiB - 0.02 * 40 * GiB));
        assert.match(budget.reason, /the card's free memory, 30 GiB/);
      }),
    );
    host.remove();
  });

  test("of a machine with unified memory is MemAvailable minus the host's share, independent of the driver's figure", () => {
    withUnifiedMachine((driver, host) => {
      assert.equal(driver.memory().free, GiB);
      for (const [total, available, limit] of [
        [120, 100, 88],
        [64, 40, 32],
      ] as const) {
        host.set(total * GiB, available * GiB);
        withRuntime(driver, { hostRoot: host.root }, ({ budget, device }) => {
          assert.equal(device.memory, "unified");
          assert.equal(budget.limit, limit * GiB);
          assert.match(budget.reason, /the host's MemAvailable/);
        });
      }
    });
  });

  test("red proof: as a discrete card, the same machine would have next to nothing", () => {
    withUnifiedMachine((driver, host) => {
      const lying = interceptCalls(driver, (call, _args, proceed) => {
        const result = proceed();
        return call === "describe" ? { ...(result as DeviceInfo), memory: "discrete" } : result;
      });
      rejects("OUT_OF_BUDGET", () => withRuntime(lying, { hostRoot: host.root }, () => undefined));
    });
  });

  test("that the host has lost since the start is not allocated, though the driver would allocate it", () => {
    withUnifiedMachine((driver, host) => {
      emulator.set("foreignMemory", 0);
      const options = { hostRoot: host.root, arena: "64MiB", staging: "1MiB" };
      withRuntime(driver, options, (runtime) => {
        host.set(120 * GiB, 12 * GiB + 4 * MiB);
        const { free } = driver.memory();
        const placeWeights = (size: number) =>
          runtime.persistent.place("weights", "model", [{ name: "w", size }]);
        rejects("OUT_OF_BUDGET", () => placeWeights(8 * MiB), /only 4 MiB is available on this machine/);
        assert.equal(driver.memory().free, free);
        placeWeights(2 * MiB);
      });
    });
  });

  test("that was requested and is not available is rejected at the start, and nothing is held", () => {
    emulator.set("totalMemory", 2 * GiB);
    withEmulatorDriver({}, (driver) => {
      const before = heldOnEmulator();
      rejects(
        "OUT_OF_BUDGET",
        () => withRuntime(driver, { memory: "3GiB" }, () => undefined),
        /at most 2 GiB is available/,
      );
      assert.deepEqual(heldOnEmulator(), before);
    });
  });
});

/** Reasons why a device has no virtual memory. */
const wholes: Record<string, () => Driver> = {
  "the virtual memory API is missing": () => {
    emulator.set("virtualMemory", 0);
    return openEmulatorDriver();
  },
  "the virtual memory API rejects to map": () => {
    emulator.set("canMap", 0);
    return openEmulatorDriver();
  },
  "the caller disables it": () => openEmulatorDriver({ allocation: "plain" }),
};

describe("without virtual memory", { skip }, () => {
  test("the arena is allocated at the start, within the budget, and freed at the end", () => {
    for (const [why, open] of Object.entries(wholes)) {
      const before = heldOnEmulator();
      const driver = open();
      withRuntime(driver, { memory: "64MiB", arena: "16MiB", staging: "1MiB" }, ({ arena, budget }) => {
        assert.equal(arena.figures.committed, 16 * MiB, why);
        assert.equal(budget.usedBy("step arena"), 16 * MiB);
        assert.equal(heldOnEmulator().usedMemory - before.usedMemory, 16 * MiB);
        const storages = [1, 5 * MiB, 8 * MiB].map((size) => arena.allocate(size, "made"));
        assert.equal(heldOnEmulator().usedMemory - before.usedMemory, 16 * MiB);
        rejects("ARENA_FULL", () => arena.allocate(8 * MiB, "more"), /capacity 16 MiB/);
        for (const storage of storages) arena.free(storage);
      });
      driver.close();
      assert.deepEqual(heldOnEmulator(), before, why);
      emulator.reset();
    }
  });

  test("the default settings leave as much for everything else", () => {
    emulator.set("virtualMemory", 0);
    emulator.set("totalMemory", 4 * GiB);
    withEmulatorDriver({}, (driver) => {
      for (const memory of ["auto", "1GiB", "64MiB"]) {
        withRuntime(driver, { memory }, ({ arena, budget, persistent }) => {
          const { capacity } = arena.figures;
          assert.ok(
            capacity > 0.2 * budget.limit && capacity <= 0.5 * budget.limit,
            `${capacity} of ${budget.limit}`,
          );
          persistent.place("weights", "model", [{ name: "w", size: Math.floor(0.9 * capacity) }]);
        });
      }
    });
  });

  test("an arena that the device can't allocate is rejected, and nothing is held", () => {
    emulator.set("virtualMemory", 0);
    emulator.set("totalMemory", GiB);
    withEmulatorDriver({}, (driver) => {
      emulator.fail("cuMemAlloc", 2, { times: 1 });
      const before = heldOnEmulator();
      const open = () =>
        withRuntime(driver, { memory: "64MiB", arena: "32MiB", staging: "1MiB" }, () => undefined);
      rejects("OUT_OF_MEMORY", open, /CUDA_ERROR_OUT_OF_MEMORY/);
      assert.deepEqual(heldOnEmulator(), before);
      open();
    });
  });

  test("training gives the same bits as with virtual memory", () => {
    const train = (driver: Driver): Uint8Array[] => {
      const device = new Device("cuda", {
        ...quiet,
        driver: strict(driver),
        memory: "64MiB",
        arena: "16MiB",
        staging: "1MiB",
        chunk: bytes(2 * MiB),
        poison: true,
      });
      try {
        manualSeed(3);
        const model = new nn.Sequential(new nn.Linear(6, 10), new nn.GELU(), new nn.Linear(10, 3)).to(device);
        const optimizer = new optim.AdamW(model.parameters(), { lr: 0.01 });
        const losses: number[] = [];
        for (let step = 0; step < 3; step++) {
          const x = Float32Array.from({ length: 42 }, (_, index) => Math.sin(index * (step + 1)));
          const y = Int32Array.from({ length: 7 }, (_, index) => (index * step) % 3);
          losses.push(
            device.step(() => {
              const logits = model.forward(device.fromHost(x, [7, 6], "f32"));
              const loss = nn.functional.crossEntropy(logits, device.fromHost(y, [7], "i32"));
              loss.backward();
              optimizer.step();
              optimizer.zeroGrad();
              return loss.item();
            }),
          );
        }
        assert.ok(losses.every(Number.isFinite) && losses[0] !== losses[2], losses.join(" "));
        return model.parameters().map(({ array }) => device.runtime.read(array.storage!));
      } finally {
        device.close();
        driver.close();
      }
    };
    const expected = train(openEmulatorDriver());
    for (const [why, open] of Object.entries(wholes)) {
      for (const [index, actual] of train(open()).entries()) sameBytes(actual, expected[index]!, why);
      emulator.reset();
    }
  });
});
