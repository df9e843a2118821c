/** Device memory on CUDA: committed in ranges if the virtual memory API works, else whole. */

import assert from "node:assert/strict";
import test, { afterEach, describe } from "node:test";
import fc from "fast-check";
import { emulatorMissing, openEmulator } from "../../../test/support/emulator.js";
import {
  heldOnEmulator,
  openBench,
  openEmulatorDriver,
  withEmulatorDriver,
} from "../../../test/support/emulator-driver.js";
import { bytes, endOf, GiB, MiB, overlaps, type Span, span } from "../../units/index.js";
import { openCpuDriver } from "../cpu/index.js";
import type { Driver } from "../driver.js";

const skip = emulatorMissing;
const emulator = skip ? undefined! : openEmulator();
const granularity = 2 * MiB;

afterEach(() => {
  if (!skip) emulator.reset();
});

const partOf = (range: Span, first: number, count = 1): Span =>
  span(range.address + first * granularity, count * granularity);

describe("the virtual memory API", { skip }, () => {
  test("a range is only addresses; memory is committed in ranges, and released with the whole range", () => {
    withEmulatorDriver({}, (driver) => {
      assert.deepEqual(
        [driver.describe().granularity, driver.describe().canCommitInParts],
        [granularity, true],
      );
      const { free } = driver.memory();
      const range = driver.reserve(bytes(1024 * GiB));
      assert.equal(driver.memory().free, free);
      driver.commit(partOf(range, 0));
      driver.commit(partOf(range, 3, 2));
      assert.equal(driver.memory().free, free - 3 * granularity);
      assert.equal(emulator.get("allocations"), 0);
      driver.release(range);
      assert.equal(driver.memory().free, free);
      assert.equal(emulator.get("reservations"), 0);
    });
  });

  test("growing changes no address and no byte, and a span may cross committed ranges", () => {
    withEmulatorDriver({}, (driver) => {
      const { read, write } = openBench(driver, granularity);
      const range = driver.reserve(bytes(8 * granularity));
      driver.commit(partOf(range, 0));
      const first = span(range.address + 12, 1000);
      const pattern = Uint8Array.from({ length: 1000 }, (_, index) => index % 251);
      write(first, pattern);
      for (let index = 1; index < 8; index++) driver.commit(partOf(range, index));
      assert.deepEqual(read(first), pattern);
      const across = span(range.address + granularity - 500, 1000);
      write(across, pattern);
      assert.deepEqual(read(across), pattern);
      assert.deepEqual(read(first), pattern);
    });
  });

  test("sizes are rounded up to the granularity", () => {
    withEmulatorDriver({}, (driver) => {
      assert.equal(driver.reserve(bytes(1)).size, granularity);
      assert.equal(driver.reserve(bytes(granularity + 1)).size, 2 * granularity);
    });
  });

  test("ranges reserved, committed and released in any order never overlap, and the figures add up", () => {
    const act = fc.oneof(
      fc.record({ kind: fc.constant("reserve" as const), parts: fc.integer({ min: 1, max: 5 }) }),
      fc.record({
        kind: fc.constant("commit" as const),
        range: fc.nat(7),
        first: fc.nat(4),
        parts: fc.integer({ min: 1, max: 3 }),
      }),
      fc.record({ kind: fc.constant("release" as const), range: fc.nat(7) }),
    );
    fc.assert(
      fc.property(fc.array(act, { maxLength: 25 }), (acts) =>
        withEmulatorDriver({}, (driver) => {
          const before = emulator.get("usedMemory");
          const ranges: { range: Span; taken: Set<number> }[] = [];
          for (const act of acts) {
            if (act.kind === "reserve") {
              const range = driver.reserve(bytes(act.parts * granularity));
              for (const other of ranges) assert.ok(!overlaps(other.range, range));
              ranges.push({ range, taken: new Set() });
              continue;
            }
            const target = ranges[act.range];
            if (!target) continue;
            if (act.kind === "release") {
              driver.release(target.range);
              ranges.splice(act.range, 1);
              continue;
            }
            // Another range may start at its end.
            if (act.first * granularity >= target.range.size) continue;
            const requested = Array.from({ length: act.parts }, (_, index) => act.first + index);
            const isLegal =
              (act.first + act.parts) * granularity <= target.range.size &&
              !requested.some((index) => target.taken.has(index));
            const commit = () => driver.commit(partOf(target.range, act.first, act.parts));
            if (isLegal) {
              commit();
              for (const index of requested) target.taken.add(index);
            } else assert.throws(commit, /Cannot commit/);
          }
          const taken = ranges.reduce((sum, { taken: parts }) => sum + parts.size, 0);
          assert.equal(emulator.get("usedMemory") - before, taken * granularity);
          assert.equal(emulator.get("reservations"), ranges.length);
        }),
      ),
      { numRuns: 40 },
    );
  });

  for (const call of ["cuMemCreate", "cuMemMap", "cuMemSetAccess"] as const) {
    test(`if ${call} fails, a commit has no effect and can be repeated`, () => {
      withEmulatorDriver({}, (driver) => {
        const range = driver.reserve(bytes(4 * granularity));
        driver.commit(partOf(range, 0));
        const before = heldOnEmulator();
        emulator.fail(call, 2, { times: 1 });
        assert.throws(() => driver.commit(partOf(range, 1, 2)), {
          code: "OUT_OF_MEMORY",
          message: new RegExp(`${call}\\(.*failed: CUDA_ERROR_OUT_OF_MEMORY \\(2\\)`),
        });
        assert.deepEqual(heldOnEmulator(), before);
        const stream = driver.createStream();
        assert.throws(() => driver.fill(stream, partOf(range, 1), 0), { code: "DEAD_ADDRESS" });
        driver.commit(partOf(range, 1, 2));
        driver.fill(stream, partOf(range, 0, 3), 0);
      });
    });
  }

  test("a release that fails halfway can be repeated, and then releases everything", () => {
    for (const call of ["cuMemUnmap", "cuMemRelease", "cuMemAddressFree"]) {
      for (const after of call === "cuMemAddressFree" ? [0] : [0, 1, 2]) {
        withEmulatorDriver({}, (driver) => {
          const stream = driver.createStream();
          const before = heldOnEmulator();
          const range = driver.reserve(bytes(3 * granularity));
          for (const index of [0, 1, 2]) driver.commit(partOf(range, index));
          emulator.fail(call, 1, { after, times: 1 });
          assert.throws(() => driver.release(range), { code: "DRIVER_FAILED" }, call);
          const fill = () => driver.fill(stream, partOf(range, 0), 0);
          // The first failure has changed nothing. After it the rest must not be accessed.
          if (call === "cuMemUnmap" && after === 0) fill();
          else assert.throws(fill, { code: "DEAD_ADDRESS" });
          driver.release(range);
          assert.deepEqual(heldOnEmulator(), before, `${call} after ${after}`);
        });
      }
    }
  });
});

describe("plain allocations", { skip }, () => {
  const reasons: Record<string, () => Driver> = {
    "the device has no virtual memory API": () => {
      emulator.set("virtualMemory", 0);
      return openEmulatorDriver();
    },
    "the device says that it has one and rejects to map": () => {
      emulator.set("canMap", 0);
      return openEmulatorDriver();
    },
    "it can't be made accessible": () => {
      emulator.fail("cuMemSetAccess", 801);
      return openEmulatorDriver();
    },
    "the caller asks for them": () => openEmulatorDriver({ allocation: "plain" }),
  };
  for (const [reason, open] of Object.entries(reasons)) {
    test(`are used if ${reason}, and the probe leaves nothing allocated`, () => {
      const before = heldOnEmulator();
      const driver = open();
      assert.deepEqual(heldOnEmulator(), before);
      assert.equal(driver.describe().canCommitInParts, false);
      const range = driver.reserve(bytes(100_000));
      assert.equal(range.size % driver.describe().granularity, 0);
      assert.equal(emulator.get("usedMemory") - before.usedMemory, range.size);
      assert.equal(emulator.get("allocations"), 1);
      const stream = driver.createStream();
      assert.throws(() => driver.fill(stream, range, 1), { code: "DEAD_ADDRESS" });
      driver.commit(range);
      driver.fill(stream, range, 1);
      driver.release(range);
      driver.close();
      assert.deepEqual(heldOnEmulator(), before);
    });
  }

  test("a device with the API does not use them", () => {
    withEmulatorDriver({}, (driver) => {
      driver.commit(driver.reserve(bytes(granularity)));
      assert.equal(emulator.calls("cuMemAlloc"), 0);
    });
  });

  test("close() releases everything", () => {
    withEmulatorDriver({ allocation: "plain" }, (driver) => {
      for (const size of [1, 70_000, 4 * MiB]) driver.commit(driver.reserve(bytes(size)));
      assert.equal(emulator.get("allocations"), 3);
    });
  });
});

describe("memory that the device does not have", { skip }, () => {
  for (const allocation of ["auto", "plain"] as const) {
    test(`${allocation}: is rejected with CUDA's name and the size, and nothing is allocated`, () => {
      emulator.set("totalMemory", 64 * MiB);
      emulator.set("foreignMemory", 32 * MiB);
      withEmulatorDriver({ allocation }, (driver) => {
        const { total, free } = driver.memory();
        assert.deepEqual([total, free], [64 * MiB, 32 * MiB - emulator.get("usedMemory")]);
        const take = (size: number) => driver.commit(driver.reserve(bytes(size)));
        take(16 * MiB);
        const before = heldOnEmulator();
        assert.throws(() => take(17 * granularity), {
          code: "OUT_OF_MEMORY",
          message: new RegExp(`size ${17 * granularity}.*CUDA_ERROR_OUT_OF_MEMORY \\(2\\).*HOLDFAST_MEMORY`),
          numbers: {
            call: allocation === "auto" ? "cuMemCreate" : "cuMemAlloc_v2",
            status: 2,
            name: "CUDA_ERROR_OUT_OF_MEMORY",
          },
        });
        assert.equal(heldOnEmulator().usedMemory, before.usedMemory);
        take(16 * MiB);
        assert.equal(driver.memory().free, 0);
      });
    });
  }
});

test("misuse is rejected with the CPU driver's codes, before CUDA is called", { skip }, () => {
  const codesOfMisuse = (driver: Driver): readonly string[] => {
    const { granularity: unit } = driver.describe();
    const range = driver.reserve(bytes(4 * unit));
    driver.commit(span(range.address, 2 * unit));
    const acts: (() => unknown)[] = [
      () => driver.reserve(bytes(0)),
      () => driver.reserve(-1 as never),
      () => driver.reserve(1.5 as never),
      () => driver.reserve(Number.NaN as never),
      () => driver.commit(span(endOf(range), unit)),
      () => driver.commit(span(range.address, 5 * unit)),
      () => driver.commit(span(range.address + 2 * unit, 100)),
      () => driver.commit(span(range.address + 2 * unit + 4, unit)),
      () => driver.commit(span(range.address + 2 * unit, 0)),
      () => driver.commit(span(range.address + unit, 2 * unit)),
      () => driver.release(span(range.address, unit)),
      () => driver.release(span(range.address + unit, 3 * unit)),
      () => driver.release(span(range.address, 8 * unit)),
    ];
    const codes = acts.map((act) => {
      try {
        act();
        return "none";
      } catch (error) {
        return (error as { code?: string }).code ?? String(error);
      }
    });
    driver.release(range);
    try {
      driver.release(range);
    } catch (error) {
      codes.push((error as { code: string }).code);
    }
    return codes;
  };
  const cpu = openCpuDriver({ threads: 1 });
  const expected = codesOfMisuse(cpu);
  cpu.close();
  assert.deepEqual([...new Set(expected)].sort(), ["BAD_ARGUMENT", "BAD_SIZE", "NOT_OWNER"]);
  const asked = ["cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemUnmap", "cuMemAddressFree"];
  withEmulatorDriver({}, (driver) => {
    const before = asked.map((call) => emulator.calls(call));
    assert.deepEqual(codesOfMisuse(driver), expected);
    // One reservation, one commit, one release.
    assert.deepEqual(
      asked.map((call, index) => emulator.calls(call) - before[index]!),
      [1, 1, 1, 1, 1],
    );
  });
});
