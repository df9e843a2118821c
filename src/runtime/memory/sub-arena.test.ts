/** Sub-arenas: a function's memory comes from one storage, at the same addresses each time, and dies at its end. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { CallLog } from "../../../test/support/call-log.js";
import { rejects } from "../../../test/support/rejects.js";
import { withRuntime, writeF32 } from "../../../test/support/runtimes.js";
import { strict } from "../../driver/index.js";
import { contains, KiB, overlaps, type Span } from "../../units/index.js";
import type { Runtime } from "../runtime.js";
import type { Storage } from "./storage.js";

const kib = (count: number): number => count * KiB;

function withContainer<T>(size: number, use: (context: { runtime: Runtime; container: Storage }) => T): T {
  return withRuntime({ poison: true }, ({ runtime }) =>
    use({ runtime, container: runtime.arena.allocate(size, "container") }),
  );
}

describe("memory of a sub-arena", () => {
  test("is inside the storage, aligned, disjoint, and at the same addresses each time", () => {
    withContainer(kib(64), ({ runtime: { arena }, container }) => {
      const run = () =>
        arena.withSubArena(container, () => {
          const allocated = [1, 255, 256, 257, 4000].map((size) => arena.allocate(size, "made"));
          arena.free(allocated[1]!);
          allocated.push(arena.allocate(100, "in the gap"));
          return allocated.map(({ span }) => span);
        });
      const [first, second] = [run(), run()];
      assert.deepEqual(first, second);
      for (const span of first) {
        assert.ok(contains(container.span, span));
        assert.equal(span.address % 256, 0);
      }
      assert.equal(first[5]!.address, first[1]!.address);
      for (const [index, storage] of first.slice(2).entries())
        for (const other of first.slice(index + 3)) assert.ok(!overlaps(storage, other));
    });
  });

  test("requests nothing from the device, and the figures show one storage", () => {
    const log = new CallLog();
    withRuntime(
      {},
      ({ runtime }) => {
        const { arena } = runtime;
        const container = arena.allocate(kib(64), "container");
        const [calls, live] = [log.calls.length, arena.figures.live];
        arena.withSubArena(container, () => {
          arena.free(arena.allocate(kib(1), "short"));
          arena.allocate(kib(2), "made");
          assert.equal(arena.figures.live, live);
        });
        assert.deepEqual(log.namesFrom(calls), []);
        assert.equal(arena.figures.live, live);
        assert.deepEqual(
          arena.holders().map(({ label }) => label),
          ["container"],
        );
      },
      (driver) => log.wrap(strict(driver)),
    );
  });

  test("is written and read like other memory, together with memory from outside", () => {
    withContainer(kib(64), ({ runtime, container }) => {
      const { arena } = runtime;
      const outside = arena.allocate(16, "outside");
      writeF32(runtime, outside, [1, 2, 3, 4]);
      arena.withSubArena(container, () => {
        const allocated = arena.allocate(16, "made");
        runtime.copy(allocated, outside);
        const view = runtime.view(allocated, 4, 8, "middle");
        runtime.fill(runtime.view(outside, 0, 4), 0);
        assert.deepEqual([...new Float32Array(runtime.read(view).buffer)], [2, 3]);
        arena.dropView(view);
      });
      assert.deepEqual([...new Float32Array(runtime.read(outside).buffer)], [0, 2, 3, 4]);
    });
  });

  test("in a view at any offset is aligned, and does not exceed its end", () => {
    withContainer(4096, ({ runtime: { arena }, container }) => {
      const view = arena.view(container, 4, 1024);
      const allocated: Span[] = [];
      arena.withSubArena(view, () => {
        rejects("ARENA_FULL", () => {
          for (;;) allocated.push(arena.allocate(1, "made").span);
        });
      });
      assert.equal(allocated.length, 3);
      for (const span of allocated) assert.ok(span.address % 256 === 0 && contains(view.span, span));
      // Too short for one storage.
      const shortest = arena.view(container, 300, 100);
      arena.withSubArena(shortest, () => rejects("ARENA_FULL", () => arena.allocate(1, "made")));
    });
  });

  test("dies with the function, pinned or not, and later uses are rejected by name", () => {
    withContainer(kib(64), ({ runtime, container }) => {
      const { arena } = runtime;
      const [allocated, pinned, view] = arena.withSubArena(container, () => {
        const storage = arena.allocate(64, "attention");
        const other = arena.allocate(64, "softmax");
        arena.pin(other, "backward");
        assert.ok(arena.isLive(storage) && arena.isPinned(other) && !arena.isPinned(storage));
        return [storage, other, runtime.view(storage, 0, 32, "head")];
      });
      for (const storage of [allocated!, pinned!, view!]) assert.equal(arena.isLive(storage), false);
      const dead = /storage "attention" is dead. It was allocated in a sub-arena/;
      rejects("DEAD_STORAGE", () => runtime.read(allocated!), dead);
      rejects("DEAD_STORAGE", () => runtime.fill(allocated!, 0), dead);
      rejects("DEAD_STORAGE", () => runtime.view(allocated!, 0, 4), dead);
      rejects("DEAD_STORAGE", () => arena.pin(allocated!, "late"), dead);
      rejects("DOUBLE_FREE", () => arena.free(allocated!), dead);
      rejects("DEAD_STORAGE", () => arena.unpin(pinned!), /"softmax"/);
      rejects("DEAD_STORAGE", () => arena.dropView(view!), /"head"/);
      // A later sub-arena at the same address does not revive it.
      arena.withSubArena(container, () => {
        assert.equal(arena.allocate(64, "next").span.address, allocated!.span.address);
        rejects("DEAD_STORAGE", () => runtime.read(allocated!), dead);
      });
      assert.ok(arena.isLive(container));
      arena.free(container);
    });
  });

  test("that is freed inside is reused, and misuse is rejected", () => {
    withContainer(kib(2), ({ runtime: { arena }, container }) =>
      arena.withSubArena(container, () => {
        for (let turn = 0; turn < 100; turn++) arena.free(arena.allocate(kib(2), "all of it"));
        const allocated = arena.allocate(256, "made");
        arena.free(allocated);
        rejects("DOUBLE_FREE", () => arena.free(allocated), /"made"/);
        rejects("BAD_SIZE", () => arena.allocate(0, "nothing"));
        const pinned = arena.allocate(256, "kept");
        arena.pin(pinned, "somebody");
        rejects("PINNED", () => arena.free(pinned), /pinned by somebody/);
        arena.unpin(pinned);
        const view = arena.view(pinned, 0, 4);
        rejects("HAS_VIEWS", () => arena.free(pinned));
        arena.dropView(view);
        arena.free(pinned);
      }),
    );
  });

  test("that does not suffice is rejected with the sub-arena's figures, and the arena is unchanged", () => {
    withContainer(kib(4), ({ runtime: { arena }, container }) => {
      const before = arena.figures;
      arena.withSubArena(container, () => {
        arena.allocate(kib(3), "attention");
        rejects(
          "ARENA_FULL",
          () => arena.allocate(kib(2), "matmul"),
          /^matmul asked the arena for 2 KiB, but the arena is full.*\n {2}capacity 4 KiB, committed 4 KiB, offset 3 KiB.*\n.*\n {2}· attention 3 KiB in 1\n/,
        );
        rejects("ARENA_FULL", () => arena.allocate(kib(64), "far too much"), /capacity 4 KiB/);
        arena.allocate(kib(1), "fits");
      });
      assert.deepEqual(arena.figures, before);
    });
  });
});

describe("a sub-arena", () => {
  test("cannot be nested, and a rejected attempt does not change the open one", () => {
    withContainer(kib(8), ({ runtime: { arena }, container }) => {
      const other = arena.allocate(kib(8), "other");
      arena.withSubArena(container, () => {
        const allocated = arena.allocate(256, "made");
        for (const storage of [other, container])
          rejects(
            "BAD_ARGUMENT",
            () => arena.withSubArena(storage, () => undefined),
            /another sub-arena is active/,
          );
        assert.ok(arena.isLive(allocated) && contains(container.span, arena.allocate(256, "next").span));
      });
      arena.withSubArena(other, () => assert.ok(contains(other.span, arena.allocate(256, "made").span)));
    });
  });

  test("ends on an exception, and memory comes from the arena again", () => {
    withContainer(kib(8), ({ runtime: { arena }, container }) => {
      let escaped: Storage | undefined;
      const act = () =>
        arena.withSubArena(container, () => {
          escaped = arena.allocate(256, "made");
          throw new Error("of the function");
        });
      assert.throws(act, /of the function/);
      assert.equal(arena.isLive(escaped!), false);
      assert.ok(!contains(container.span, arena.allocate(256, "outside").span));
      assert.equal(arena.isPinned(container), false);
    });
  });

  test("prevents a free of its storage", () => {
    withContainer(kib(8), ({ runtime: { arena }, container }) => {
      arena.withSubArena(container, () => {
        arena.allocate(256, "made");
        rejects("PINNED", () => arena.free(container), /pinned by its sub-arena/);
      });
      arena.free(container);
      rejects("DEAD_STORAGE", () => arena.withSubArena(container, () => undefined), /container/);
    });
  });

  test("needs a storage of this arena", () => {
    withContainer(kib(8), ({ runtime }) => {
      const [weight] = runtime.persistent.place("weights", "weights", [{ name: "w", size: 4096 }]).storages;
      rejects("NOT_OWNER", () => runtime.arena.withSubArena(weight!, () => undefined), /"w"/);
      withContainer(kib(8), ({ container: foreign }) => {
        rejects("NOT_OWNER", () => runtime.arena.withSubArena(foreign, () => undefined));
      });
    });
  });

  test("allows memory from outside to be used, pinned, viewed and freed", () => {
    withContainer(kib(8), ({ runtime: { arena }, container }) => {
      const [pinned, freed] = [arena.allocate(512, "kept"), arena.allocate(512, "freed")];
      const view = arena.withSubArena(container, () => {
        arena.pin(pinned, "somebody");
        arena.free(freed);
        return arena.view(pinned, 256, 128);
      });
      assert.ok(arena.isPinned(pinned) && arena.isLive(view) && !arena.isLive(freed));
      arena.unpin(pinned);
      arena.dropView(view);
      arena.free(pinned);
    });
  });

  test("knows the owner of a storage's bytes", () => {
    withContainer(kib(8), ({ runtime: { arena }, container }) => {
      const outside = arena.allocate(256, "outside");
      const allocated = arena.withSubArena(container, () => {
        const inner = arena.allocate(256, "inner");
        assert.equal(arena.arenaOwnerOf(inner), container);
        assert.equal(arena.arenaOwnerOf(arena.view(inner, 0, 4)), container);
        assert.equal(arena.arenaOwnerOf(outside), outside);
        assert.equal(arena.arenaOwnerOf(container), container);
        return inner;
      });
      assert.equal(arena.arenaOwnerOf(allocated), allocated);
    });
  });
});

type Act =
  | { readonly kind: "take"; readonly size: number }
  | { readonly kind: "give"; readonly which: number };

const acts: fc.Arbitrary<readonly Act[]> = fc.array(
  fc.oneof(
    fc.record({ kind: fc.constant("take" as const), size: fc.integer({ min: 1, max: 3000 }) }),
    fc.record({ kind: fc.constant("give" as const), which: fc.nat(20) }),
  ),
  { maxLength: 40 },
);

test("allocations in any order never overlap, never leave the storage, and repeat", () => {
  withContainer(kib(16), ({ runtime: { arena }, container }) => {
    const before = arena.figures.live;
    const run = (sequence: readonly Act[]): (Span | "rejected")[] =>
      arena.withSubArena(container, () => {
        const live: Storage[] = [];
        return sequence.map((act): Span | "rejected" => {
          if (act.kind === "give") {
            const [freed] = live.splice(act.which, 1);
            if (freed) arena.free(freed);
            return freed?.span ?? "rejected";
          }
          try {
            const allocated = arena.allocate(act.size, "made");
            assert.ok(contains(container.span, allocated.span));
            for (const other of live) assert.ok(!overlaps(other.span, allocated.span));
            live.push(allocated);
            return allocated.span;
          } catch (error) {
            assert.equal((error as { code?: string }).code, "ARENA_FULL", String(error));
            const liveBytes = live.reduce((sum, { span }) => sum + Math.ceil(span.size / 256) * 256, 0);
            assert.ok(liveBytes + act.size > kib(16) / 4, "there was room enough, in pieces or not");
            return "rejected";
          }
        });
      });
    fc.assert(
      fc.property(acts, (sequence) => {
        assert.deepEqual(run(sequence), run(sequence));
        assert.equal(arena.figures.live, before);
      }),
      { numRuns: 300 },
    );
  });
});
