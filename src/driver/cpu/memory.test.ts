/** Device memory: reservations, commits and correct figures. */

import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { bytes, endOf, GiB, MiB, overlaps, type Span, span } from "../../units/index.js";
import { DeviceMemory } from "./memory.js";
import { pageBytes } from "./wasm.js";

const page = bytes(pageBytes);
const small = () => new DeviceMemory({ maximumBytes: 16 * pageBytes });

test("the first page, with address 0, is never reserved", () => {
  const memory = small();
  const whole = memory.reserve(bytes(16 * pageBytes));
  assert.deepEqual(whole, span(pageBytes, 16 * pageBytes));
  memory.commit(whole);
  assert.equal(memory.holds(span(0, 4)), false);
  assert.equal(memory.holds(span(pageBytes - 4, 8)), false);
  assert.equal(memory.holds(whole), true);
});

test("sizes are rounded up to whole pages", () => {
  assert.equal(small().reserve(bytes(1)).size, pageBytes);
});

test("the first gap that is wide enough is used", () => {
  const memory = small();
  const [a, b] = [memory.reserve(bytes(4 * pageBytes)), memory.reserve(bytes(2 * pageBytes))];
  memory.reserve(page);
  memory.release(a);
  assert.equal(memory.reserve(bytes(3 * pageBytes)).address, a.address);
  assert.equal(memory.reserve(bytes(2 * pageBytes)).address, endOf(b) + pageBytes);
  assert.equal(memory.reserve(page).address, a.address + 3 * pageBytes);
});

test("a reservation that fits no gap is rejected with the figures", () => {
  const memory = small();
  const reservations = [1, 2, 3, 4].map(() => memory.reserve(bytes(4 * pageBytes)));
  memory.release(reservations[0]!);
  memory.release(reservations[2]!);
  assert.throws(() => memory.reserve(bytes(5 * pageBytes)), {
    code: "OUT_OF_MEMORY",
    numbers: { size: 5 * pageBytes, reserved: 8 * pageBytes, limit: 16 * pageBytes },
  });
  assert.equal(memory.reserve(bytes(4 * pageBytes)).address, reservations[0]!.address);
});

test("holds() is true for committed bytes only, and adjacent commits merge", () => {
  const memory = small();
  const range = memory.reserve(bytes(4 * pageBytes));
  memory.commit(span(range.address + pageBytes, pageBytes));
  assert.equal(memory.holds(range), false);
  memory.commit(span(range.address, pageBytes));
  assert.equal(memory.holds(span(range.address + 10, 2 * pageBytes - 10)), true);
  assert.equal(memory.holds(span(range.address + 10, 2 * pageBytes)), false);
  assert.equal(memory.committedBytes, 2 * pageBytes);
});

test("the WebAssembly memory covers committed ranges, and their bytes are usable", () => {
  const memory = new DeviceMemory({ maximumBytes: 64 * MiB });
  const range = memory.reserve(bytes(40 * MiB));
  assert.equal(memory.bytes.length, pageBytes);
  memory.commit(range);
  assert.ok(memory.bytes.length >= endOf(range));
  memory.bytes[endOf(range) - 1] = 9;
  assert.equal(new Uint8Array(memory.wasm.buffer)[endOf(range) - 1], 9);
});

test("the last byte of 4 GiB can be committed and written", () => {
  const memory = new DeviceMemory();
  const whole = memory.reserve(bytes(4 * GiB - pageBytes));
  assert.equal(endOf(whole), 4 * GiB);
  memory.commit(span(4 * GiB - pageBytes, pageBytes));
  memory.bytes[4 * GiB - 1] = 5;
  assert.equal(memory.bytes[4 * GiB - 1], 5);
});

test("an impossible commit is rejected and changes nothing", () => {
  const memory = small();
  const range = memory.reserve(bytes(4 * pageBytes));
  memory.commit(span(range.address, 2 * pageBytes));
  const rejected: readonly (readonly [string, Span])[] = [
    ["NOT_OWNER", span(endOf(range), pageBytes)],
    ["NOT_OWNER", span(range.address, 5 * pageBytes)],
    ["NOT_OWNER", span(0, pageBytes)],
    ["BAD_ARGUMENT", span(range.address + 2 * pageBytes, 100)],
    ["BAD_ARGUMENT", span(range.address + 2 * pageBytes + 4, pageBytes)],
    ["BAD_ARGUMENT", span(range.address + 2 * pageBytes, 0)],
    ["BAD_ARGUMENT", span(range.address + pageBytes, 2 * pageBytes)],
  ];
  for (const [code, range] of rejected) assert.throws(() => memory.commit(range), { code });
  assert.equal(memory.committedBytes, 2 * pageBytes);
});

test("a release needs the whole reservation, once", () => {
  const memory = small();
  const range = memory.reserve(bytes(2 * pageBytes));
  memory.commit(range);
  assert.throws(() => memory.release(span(range.address, pageBytes)), { code: "NOT_OWNER" });
  assert.throws(() => memory.release(span(range.address + pageBytes, pageBytes)), { code: "NOT_OWNER" });
  assert.equal(memory.committedBytes, 2 * pageBytes);
  memory.release(range);
  assert.equal(memory.committedBytes, 0);
  assert.equal(memory.holds(range), false);
  assert.throws(() => memory.release(range), {
    code: "NOT_OWNER",
    message: /no such reservation\. Pass the whole span that reserve\(\) returned, once/,
  });
});

test("a size of 0 and an impossible maximum are rejected", () => {
  assert.throws(() => small().reserve(bytes(0)), { code: "BAD_SIZE" });
  for (const maximumBytes of [0, -pageBytes, 1000, pageBytes + 1, Number.NaN]) {
    assert.throws(() => new DeviceMemory({ maximumBytes }), { code: "BAD_SETTING" });
  }
});

test("free and total follow the host, the cgroup and the committed bytes", () => {
  const hostRoot = mkdtempSync(join(tmpdir(), "holdfast-memory-"));
  try {
    const write = (path: string, content: string) => writeFileSync(join(hostRoot, path), content);
    mkdirSync(join(hostRoot, "proc/self"), { recursive: true });
    mkdirSync(join(hostRoot, "sys/fs/cgroup"), { recursive: true });
    write("proc/meminfo", `MemTotal: ${8 * 1024 * 1024} kB\nMemAvailable: ${3 * 1024} kB\n`);
    const memory = new DeviceMemory({ maximumBytes: 4 * MiB, hostRoot });
    const range = memory.reserve(bytes(4 * MiB));
    assert.deepEqual(memory.info(), { total: 4 * MiB, free: 3 * MiB });
    assert.throws(() => memory.commit(range), {
      code: "OUT_OF_MEMORY",
      numbers: { size: 4 * MiB, free: 3 * MiB },
    });
    memory.commit(span(range.address, 2 * MiB));
    assert.deepEqual(memory.info(), { total: 4 * MiB, free: 2 * MiB });
    write("proc/self/cgroup", "0::/\n");
    write("sys/fs/cgroup/memory.max", `${3 * MiB}`);
    write("sys/fs/cgroup/memory.current", "0");
    assert.deepEqual(memory.info(), { total: 3 * MiB, free: 1 * MiB });
    memory.release(range);
    assert.deepEqual(memory.info(), { total: 3 * MiB, free: 3 * MiB });
  } finally {
    rmSync(hostRoot, { recursive: true });
  }
});

test("ranges reserved and released in any order never overlap, and the figures add up", () => {
  const steps = fc.array(
    fc.record({ takes: fc.boolean(), pages: fc.integer({ min: 1, max: 5 }), pick: fc.nat(15) }),
  );
  fc.assert(
    fc.property(steps, (script) => {
      const memory = new DeviceMemory({ maximumBytes: 12 * pageBytes });
      const live: Span[] = [];
      for (const { takes, pages, pick } of script) {
        const victim = live[pick % Math.max(1, live.length)];
        if (takes) {
          const used = live.reduce((total, range) => total + range.size, 0);
          try {
            const range = memory.reserve(bytes(pages * pageBytes));
            assert.ok(range.address >= pageBytes && endOf(range) <= 13 * pageBytes);
            assert.ok(!live.some((other) => overlaps(other, range)));
            live.push(range);
            memory.commit(range);
          } catch (error) {
            assert.equal((error as { code?: string }).code, "OUT_OF_MEMORY");
            assert.ok(used + pages * pageBytes > 12 * pageBytes || live.length > 0);
          }
        } else if (victim) {
          memory.release(victim);
          live.splice(live.indexOf(victim), 1);
        }
        assert.equal(
          memory.committedBytes,
          live.reduce((total, range) => total + range.size, 0),
        );
        for (const range of live) assert.ok(memory.holds(range));
      }
    }),
    { numRuns: 60 },
  );
});
