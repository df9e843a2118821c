/** The arena's rules, one by one. Random sequences of calls are in test/memory-model.test.ts. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, test } from "node:test";
import { rejects } from "../../../test/support/rejects.js";
import { openTestDriver, type TestDriver } from "../../../test/support/test-device.js";
import { strict } from "../../driver/index.js";
import { bytes, type Span } from "../../units/index.js";
import { openRuntime, type Runtime } from "../runtime.js";

const mib = 1024 * 1024;

let device: TestDriver;
let runtime: Runtime;

beforeEach(() => {
  device = openTestDriver();
  runtime = openRuntime({
    driver: strict(device),
    memory: "16MiB",
    arena: "8MiB",
    staging: "2MiB",
    // The minimum that a GPU commits.
    chunk: bytes(2 * mib),
    poison: true,
    stallAfter: "off",
    environment: {},
    print: () => {},
  });
});

afterEach(() => {
  runtime.close();
  device.close();
});

function bytesAt(span: Span): Uint8Array {
  runtime.synchronize();
  return device.deviceBytes(span);
}

describe("growth", () => {
  test("memory is committed in chunks as it is used, and nothing moves", () => {
    const { arena } = runtime;
    assert.equal(arena.figures.committed, 0);
    const first = arena.allocate(1000, "first");
    assert.equal(arena.figures.committed, 2 * mib);
    runtime.fill(first, 7);
    arena.allocate(5 * mib, "second");
    assert.equal(arena.figures.committed, 6 * mib);
    assert.ok(bytesAt(first.span).every((byte) => byte === 7));
    assert.deepEqual([arena.figures.misses, arena.figures.hits], [2, 0]);
  });

  test("the last chunk is short if the budget has no more", () => {
    const { arena, persistent } = runtime;
    persistent.place("weights", "big", [{ name: "w", size: 12 * mib }]);
    arena.allocate(1000, "small");
    assert.equal(arena.figures.committed, 2 * mib);
    rejects("OUT_OF_BUDGET", () => arena.allocate(2 * mib, "matmul"), /matmul asked the arena for 2 MiB/);
    assert.equal(arena.figures.committed, 2 * mib);
    arena.allocate(1.5 * mib, "still fits");
  });
});

describe("life and death", () => {
  test("a storage of a step dies at its end, filled with NaN, and its use is rejected by name", () => {
    const gone = runtime.step(() => {
      const storages = runtime.arena.allocate(64, "softmax");
      runtime.fill(storages, 0);
      return storages;
    });
    assert.ok(bytesAt(gone.span).every((byte) => byte === 0xff));
    rejects("DEAD_STORAGE", () => runtime.read(gone), /read-back: storage "softmax" is dead.*step 1/);
  });

  test("a storage allocated outside a step survives steps and dies at a reset", () => {
    const kept = runtime.arena.allocate(64, "kept");
    runtime.step(() => undefined);
    assert.ok(runtime.arena.isLive(kept));
    runtime.arena.reset();
    assert.ok(!runtime.arena.isLive(kept));
  });

  test("a pin keeps exactly its bytes; adjacent memory is reused", () => {
    const { arena } = runtime;
    const [, middle] = runtime.step(() => {
      const storages = ["a", "b", "c"].map((label) => arena.allocate(256, label));
      runtime.fill(storages[1]!, 5);
      arena.pin(storages[1]!, "backward");
      return storages;
    });
    const adjacent = [arena.allocate(256, "d"), arena.allocate(256, "e")].map((one) => one.span.address);
    assert.deepEqual(adjacent.sort(), [middle!.span.address - 256, middle!.span.address + 256]);
    assert.ok(bytesAt(middle!.span).every((byte) => byte === 5));
    arena.unpin(middle!);
    rejects("DEAD_STORAGE", () => runtime.read(middle!));
  });

  test("a storage unpinned inside its step lives until the step ends", () => {
    runtime.step(() => {
      const storages = runtime.arena.allocate(256, "a");
      runtime.arena.pin(storages, "save");
      runtime.arena.unpin(storages);
      assert.ok(runtime.arena.isLive(storages));
    });
    assert.equal(runtime.arena.figures.live, 0);
  });

  test("the same step run again gets the same addresses", () => {
    const run = (): number[] =>
      runtime.step(() =>
        [3000, 17, 40_000, 256].map((size) => runtime.arena.allocate(size, "op").span.address),
      );
    assert.deepEqual(run(), run());
  });
});

describe("misuse", () => {
  test("a double free, and a free of a view, a pinned or a viewed storage, are errors with a code", () => {
    const { arena } = runtime;
    const a = arena.allocate(512, "a");
    const view = runtime.view(a, 256, 128, "tail");
    rejects("VIEW_NOT_OWNER", () => arena.free(view), /"tail" is a view of storage "a"/);
    rejects("HAS_VIEWS", () => arena.free(a), /it has 1 live view\. Drop it/);
    arena.dropView(view);
    rejects("DEAD_STORAGE", () => arena.dropView(view));
    arena.pin(a, "graph 1");
    rejects("PINNED", () => arena.free(a), /pinned by graph 1/);
    arena.unpin(a);
    rejects("NOT_PINNED", () => arena.unpin(a));
    arena.free(a);
    rejects("DOUBLE_FREE", () => arena.free(a), /free: storage "a" is dead/);
  });

  test("a free after the memory was reused is rejected, and the new storage is unchanged", () => {
    const { arena } = runtime;
    const a = arena.allocate(512, "a");
    arena.reset();
    const b = arena.allocate(512, "b");
    assert.equal(a.span.address, b.span.address);
    runtime.fill(b, 9);
    rejects("DOUBLE_FREE", () => arena.free(a), /generation 0.*generation 1/);
    assert.ok(bytesAt(b.span).every((byte) => byte === 9));
  });

  test("a reset inside a step, and a step inside a step, are rejected", () => {
    runtime.step(() => {
      rejects("STEP_NESTED", () => runtime.arena.reset());
      rejects("STEP_NESTED", () => runtime.step(() => undefined), /Cannot open step 2 inside step 1/);
    });
  });

  test("after close() every call is rejected", () => {
    const a = runtime.arena.allocate(16, "a");
    runtime.close();
    rejects("CLOSED", () => runtime.arena.allocate(16, "b"));
    rejects("CLOSED", () => runtime.arena.free(a));
    rejects("CLOSED", () => runtime.read(a));
  });
});

test("the error of a full arena has the figures, the holders by op and the cause", () => {
  runtime.step(() => {
    for (let index = 0; index < 4; index++) runtime.arena.allocate(1.5 * mib, "attention");
    rejects(
      "ARENA_FULL",
      () => runtime.arena.allocate(3 * mib, "matmul"),
      /^matmul asked the arena for 3 MiB, but the arena is full\. Diagnosis: mis-sized: .*\n {2}capacity 8 MiB, committed 6 MiB, offset 6 MiB, pinned 0 B\n {2}this step: 4 allocations, 6 MiB; 0 resets in total .*\n {2}· attention 6 MiB in 4\nRaise HOLDFAST_ARENA/,
    );
  });
});

test("holders are summed by op, largest first", () => {
  const { arena } = runtime;
  arena.allocate(256, "small");
  for (let index = 0; index < 3; index++) arena.allocate(512, "large");
  assert.deepEqual(arena.holders(), [
    { label: "large", count: 3, size: 1536 },
    { label: "small", count: 1, size: 256 },
  ]);
});
