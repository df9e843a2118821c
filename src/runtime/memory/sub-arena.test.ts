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

function withEnclosing<T>(size: number, use: (given: { runtime: Runtime; enclosing: Storage }) => T): T {
  return withRuntime({ poison: true }, ({ runtime }) =>
    use({ runtime, enclosing: runtime.arena.allocate(size, "enclosing") }),
  );
}

describe("memory of a sub-arena", () => {
  test("is inside the storage, aligned, disjoint, and at the same addresses each time", () => {
    withEnclosing(kib(64), ({ runtime: { arena }, enclosing }) => {
      const run = () =>
        arena.withSubArena(enclosing, () => {
          const made = [1, 255, 256, 257, 4000].map((size) => arena.allocate(size, "made"));
          arena.free(made[1]!);
          made.push(arena.allocate(100, "in the gap"));
          return made.map(({ span }) => span);
        });
      const [first, second] = [run(), run()];
      assert.deepEqual(first, second);
      for (const span of first) {
        assert.ok(contains(enclosing.span, span));
        assert.equal(span.address % 256, 0);
      }
      assert.equal(first[5]!.address, first[1]!.address);
      for (const [index, one] of first.slice(2).entries())
        for (const other of first.slice(index + 3)) assert.ok(!overlaps(one, other));
    });
  });

  test("requests nothing from the device, and the figures show one storage", () => {
    const log = new CallLog();
    withRuntime(
      {},
      ({ runtime }) => {
        const { arena } = runtime;
        const enclosing = arena.allocate(kib(64), "enclosing");
        const [calls, live] = [log.calls.length, arena.figures.live];
        arena.withSubArena(enclosing, () => {
          arena.free(arena.allocate(kib(1), "short"));
          arena.allocate(kib(2), "made");
          assert.equal(arena.figures.live, live);
        });
        assert.deepEqual(log.namesFrom(calls), []);
        assert.equal(arena.figures.live, live);
        assert.deepEqual(
          arena.holders().map(({ label }) => label),
          ["enclosing"],
        );
      },
      (driver) => log.wrap(strict(driver)),
    );
  });

  test("is written and read like other memory, together with memory from outside", () => {
    withEnclosing(kib(64), ({ runtime, enclosing }) => {
      const { arena } = runtime;
      const outside = arena.allocate(16, "outside");
      writeF32(runtime, outside, [1, 2, 3, 4]);
      arena.withSubArena(enclosing, () => {
        const made = arena.allocate(16, "made");
        runtime.copy(made, outside);
        const view = runtime.view(made, 4, 8, "middle");
        runtime.fill(runtime.view(outside, 0, 4), 0);
        assert.deepEqual([...new Float32Array(runtime.read(view).buffer)], [2, 3]);
        arena.dropView(view);
      });
      assert.deepEqual([...new Float32Array(runtime.read(outside).buffer)], [0, 2, 3, 4]);
    });
  });

  test("in a view at any offset is aligned, and does not exceed its end", () => {
    withEnclosing(4096, ({ runtime: { arena }, enclosing }) => {
      const part = arena.view(enclosing, 4, 1024);
      const made: Span[] = [];
      arena.withSubArena(part, () => {
        rejects("ARENA_FULL", () => {
          for (;;) made.push(arena.allocate(1, "made").span);
        });
      });
      assert.equal(made.length, 3);
      for (const span of made) assert.ok(span.address % 256 === 0 && contains(part.span, span));
      // Too short for one storage.
      const shortest = arena.view(enclosing, 300, 100);
      arena.withSubArena(shortest, () => rejects("ARENA_FULL", () => arena.allocate(1, "made")));
    });
  });

  test("dies with the function, pinned or not, and later uses are rejected by name", () => {
    withEnclosing(kib(64), ({ runtime, enclosing }) => {
      const { arena } = runtime;
      const [made, pinned, view] = arena.withSubArena(enclosing, () => {
        const one = arena.allocate(64, "attention");
        const other = arena.allocate(64, "softmax");
        arena.pin(other, "backward");
        assert.ok(arena.isLive(one) && arena.isPinned(other) && !arena.isPinned(one));
        return [one, other, runtime.view(one, 0, 32, "head")];
      });
      for (const storage of [made!, pinned!, view!]) assert.equal(arena.isLive(storage), false);
      const dead = /storage "attention" is dead. It was allocated in a sub-arena/;
      rejects("DEAD_STORAGE", () => runtime.read(made!), dead);
      rejects("DEAD_STORAGE", () => runtime.fill(made!, 0), dead);
      rejects("DEAD_STORAGE", () => runtime.view(made!, 0, 4), dead);
      rejects("DEAD_STORAGE", () => arena.pin(made!, "late"), dead);
      rejects("DOUBLE_FREE", () => arena.free(made!), dead);
      rejects("DEAD_STORAGE", () => arena.unpin(pinned!), /"softmax"/);
      rejects("DEAD_STORAGE", () => arena.dropView(view!), /"head"/);
      // A later sub-arena at the same address does not revive it.
      arena.withSubArena(enclosing, () => {
        assert.equal(arena.allocate(64, "next").span.address, made!.span.address);
        rejects("DEAD_STORAGE", () => runtime.read(made!), dead);
      });
      assert.ok(arena.isLive(enclosing));
      arena.free(enclosing);
    });
  });

  test("that is freed inside is reused, and misuse is rejected", () => {
    withEnclosing(kib(2), ({ runtime: { arena }, enclosing }) =>
      arena.withSubArena(enclosing, () => {
        for (let turn = 0; turn < 100; turn++) arena.free(arena.allocate(kib(2), "all of it"));
        const made = arena.allocate(256, "made");
        arena.free(made);
        rejects("DOUBLE_FREE", () => arena.free(made), /"made"/);
        rejects("BAD_SIZE", () => arena.allocate(0, "nothing"));
        const kept = arena.allocate(256, "kept");
        arena.pin(kept, "somebody");
        rejects("PINNED", () => arena.free(kept), /pinned by somebody/);
        arena.unpin(kept);
        const view = arena.view(kept, 0, 4);
        rejects("HAS_VIEWS", () => arena.free(kept));
        arena.dropView(view);
        arena.free(kept);
      }),
    );
  });

  test("that does not suffice is rejected with the sub-arena's figures, and the arena is unchanged", () => {
    withEnclosing(kib(4), ({ runtime: { arena }, enclosing }) => {
      const before = arena.figures;
      arena.withSubArena(enclosing, () => {
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
    withEnclosing(kib(8), ({ runtime: { arena }, enclosing }) => {
      const other = arena.allocate(kib(8), "other");
      arena.withSubArena(enclosing, () => {
        const made = arena.allocate(256, "made");
        for (const storage of [other, enclosing])
          rejects(
            "BAD_ARGUMENT",
            () => arena.withSubArena(storage, () => undefined),
            /another sub-arena is active/,
          );
        assert.ok(arena.isLive(made) && contains(enclosing.span, arena.allocate(256, "next").span));
      });
      arena.withSubArena(other, () => assert.ok(contains(other.span, arena.allocate(256, "made").span)));
    });
  });

  test("ends on an exception, and memory comes from the arena again", () => {
    withEnclosing(kib(8), ({ runtime: { arena }, enclosing }) => {
      let escaped: Storage | undefined;
      const act = () =>
        arena.withSubArena(enclosing, () => {
          escaped = arena.allocate(256, "made");
          throw new Error("of the function");
        });
      assert.throws(act, /of the function/);
      assert.equal(arena.isLive(escaped!), false);
      assert.ok(!contains(enclosing.span, arena.allocate(256, "outside").span));
      assert.equal(arena.isPinned(enclosing), false);
    });
  });

  test("prevents a free of its storage", () => {
    withEnclosing(kib(8), ({ runtime: { arena }, enclosing }) => {
      arena.withSubArena(enclosing, () => {
        arena.allocate(256, "made");
        rejects("PINNED", () => arena.free(enclosing), /pinned by its sub-arena/);
      });
      arena.free(enclosing);
      rejects("DEAD_STORAGE", () => arena.withSubArena(enclosing, () => undefined), /enclosing/);
    });
  });

  test("needs a storage of this arena", () => {
    withEnclosing(kib(8), ({ runtime }) => {
      const [weight] = runtime.persistent.place("weights", "weights", [{ name: "w", size: 4096 }]).storages;
      rejects("NOT_OWNER", () => runtime.arena.withSubArena(weight!, () => undefined), /"w"/);
      withEnclosing(kib(8), ({ enclosing: foreign }) => {
        rejects("NOT_OWNER", () => runtime.arena.withSubArena(foreign, () => undefined));
      });
    });
  });

  test("allows memory from outside to be used, pinned, viewed and freed", () => {
    withEnclosing(kib(8), ({ runtime: { arena }, enclosing }) => {
      const [kept, freed] = [arena.allocate(512, "kept"), arena.allocate(512, "freed")];
      const view = arena.withSubArena(enclosing, () => {
        arena.pin(kept, "somebody");
        arena.free(freed);
        return arena.view(kept, 256, 128);
      });
      assert.ok(arena.isPinned(kept) && arena.isLive(view) && !arena.isLive(freed));
      arena.unpin(kept);
      arena.dropView(view);
      arena.free(kept);
    });
  });

  test("knows the owner of a storage's bytes", () => {
    withEnclosing(kib(8), ({ runtime: { arena }, enclosing }) => {
      const outside = arena.allocate(256, "outside");
      const made = arena.withSubArena(enclosing, () => {
        const inner = arena.allocate(256, "inner");
        assert.equal(arena.arenaOwnerOf(inner), enclosing);
        assert.equal(arena.arenaOwnerOf(arena.view(inner, 0, 4)), enclosing);
        assert.equal(arena.arenaOwnerOf(outside), outside);
        assert.equal(arena.arenaOwnerOf(enclosing), enclosing);
        return inner;
      });
      assert.equal(arena.arenaOwnerOf(made), made);
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
  withEnclosing(kib(16), ({ runtime: { arena }, enclosing }) => {
    const before = arena.figures.live;
    const run = (sequence: readonly Act[]): (Span | "rejected")[] =>
      arena.withSubArena(enclosing, () => {
        const live: Storage[] = [];
        return sequence.map((act): Span | "rejected" => {
          if (act.kind === "give") {
            const [freed] = live.splice(act.which, 1);
            if (freed) arena.free(freed);
            return freed?.span ?? "rejected";
          }
          try {
            const made = arena.allocate(act.size, "made");
            assert.ok(contains(enclosing.span, made.span));
            for (const other of live) assert.ok(!overlaps(other.span, made.span));
            live.push(made);
            return made.span;
          } catch (error) {
            assert.equal((error as { code?: string }).code, "ARENA_FULL", String(error));
            const taken = live.reduce((sum, { span }) => sum + Math.ceil(span.size / 256) * 256, 0);
            assert.ok(taken + act.size > kib(16) / 4, "there was room enough, in pieces or not");
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
