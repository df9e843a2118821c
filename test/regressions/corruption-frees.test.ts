/** Rows C5 and C16: a span is freed once, whole, by its owner; any other request is an error with a name. */

import assert from "node:assert/strict";
import { test } from "node:test";
import type { ErrorCode } from "holdfast";
import { type Driver, type Region, type Runtime, type Span, type Storage, strict } from "holdfast/internals";
import { interceptCalls } from "../../src/driver/index.js";
import { arenaPool, type OpenPool, oldPool, type Pool, requireDisjointMembers } from "../support/pools.js";
import { regressionRow } from "../support/regressions.js";
import { rejectionOf } from "../support/rejections.js";
import { withCpuRuntime, withRuntime } from "../support/runtimes.js";
import type { TestDriver } from "../support/test-device.js";

const memory = { memory: "64MiB", arena: "1MiB" } as const;
const blockBytes = 512;

/** A pool in use: a live block of it, and a block of a pool of the same kind on another device. */
interface Scene {
  readonly runtime: Runtime;
  readonly pool: Pool;
  readonly kept: Storage;
  readonly foreign: Storage;
}

interface Misuse {
  readonly row: "C5" | "C16";
  readonly what: string;
  readonly code: ErrorCode;
  /** How the old pool handled it. */
  readonly fault: string;
  /** The size of the next two allocations: one that would fit into the wrongly freed memory. */
  readonly nextBytes: number;
  /** Sets up the case and returns the call that must be rejected. */
  readonly prepare: (scene: Scene) => () => unknown;
}

function changed(storage: Storage, by: { readonly address?: number; readonly size?: number }): Storage {
  const { address, size } = storage.span;
  return { ...storage, span: { address: address + (by.address ?? 0), size: size + (by.size ?? 0) } as Span };
}

const misuses: readonly Misuse[] = [
  {
    row: "C5",
    what: "a double free",
    code: "DOUBLE_FREE",
    fault: "a block freed twice is allocated twice",
    nextBytes: 256,
    prepare: ({ pool }) => {
      const once = pool.allocate(256);
      pool.free(once);
      return () => pool.free(once);
    },
  },
  {
    row: "C5",
    what: "a zero-byte allocation",
    code: "BAD_SIZE",
    fault: "an empty request rewinds the pool",
    nextBytes: 256,
    prepare: ({ pool }) => {
      return () => pool.allocate(0);
    },
  },
  {
    row: "C5",
    what: "a negative allocation",
    code: "BAD_SIZE",
    fault: "a negative request moves the pool's pointer back",
    nextBytes: 256,
    prepare: ({ pool }) => {
      return () => pool.allocate(-blockBytes);
    },
  },
  {
    row: "C5",
    what: "freeing a view",
    code: "VIEW_NOT_OWNER",
    fault: "a freed view's bytes are allocated again under its owner",
    nextBytes: 256,
    prepare: ({ runtime, pool, kept }) => {
      const view = runtime.view(kept, 256, 256, "a block's end");
      return () => pool.free(view);
    },
  },
  {
    row: "C16",
    what: "a free with a larger size",
    code: "NOT_OWNER",
    fault: "a free with a larger size also frees the neighbour",
    nextBytes: blockBytes + 256,
    prepare: ({ pool, kept }) => {
      return () => pool.free(changed(kept, { size: 256 }));
    },
  },
  {
    row: "C16",
    what: "a free with a smaller size",
    code: "NOT_OWNER",
    fault: "a free with a smaller size frees half a block",
    nextBytes: 256,
    prepare: ({ pool, kept }) => {
      return () => pool.free(changed(kept, { size: -256 }));
    },
  },
  {
    row: "C16",
    what: "a free at an interior pointer",
    code: "NOT_OWNER",
    fault: "a free at an interior pointer allocates the block's inside again",
    nextBytes: 256,
    prepare: ({ pool, kept }) => {
      return () => pool.free(changed(kept, { address: 256, size: -256 }));
    },
  },
  {
    row: "C16",
    what: "a free of another arena's block",
    code: "NOT_OWNER",
    fault: "another pool's address frees the memory at the same address in this one",
    nextBytes: blockBytes,
    prepare: ({ pool, foreign }) => {
      return () => pool.free(foreign);
    },
  },
];

for (const { row, what, code, fault, nextBytes, prepare } of misuses) {
  regressionRow<OpenPool>({
    row,
    rule: `${what} is rejected by name, changes no figure, and makes no two blocks share memory`,
    sound: arenaPool,
    faults: { [fault]: oldPool },
    check(open) {
      withRuntime(memory, ({ runtime: other }) => {
        withRuntime(memory, ({ runtime }) => {
          const foreign = open(other).allocate(blockBytes);
          const pool = open(runtime);
          const kept = pool.allocate(blockBytes);
          const neighbour = pool.allocate(blockBytes);
          const call = prepare({ runtime, pool, kept, foreign });
          const before = pool.figures();
          const rejection = rejectionOf(call);
          const after = pool.figures();
          const next = { first: pool.allocate(nextBytes), second: pool.allocate(nextBytes) };
          requireDisjointMembers(runtime, { "the kept block": kept, "its neighbour": neighbour, ...next });
          assert.deepEqual(after, before, "the figures have changed");
          assert.equal(rejection?.code, code);
          assert.match(rejection.message, /block/, "the message names the storage");
        });
      });
    },
  });
}

/**
 * A page of the CPU driver: a region of this size fills its reservation, so an address and a size identify
 * it. A GPU need not place the next region at the address of the last one.
 */
const regionBytes = 64 * 1024;

function placeNamed(runtime: Runtime, name: string): Region {
  return runtime.persistent.place("weights", name, [{ name, size: regionBytes }]);
}

interface Release {
  readonly release: (runtime: Runtime, region: Region, device: TestDriver) => void;
  readonly wrap: (device: TestDriver) => Driver;
}

const ownersRelease: Release = {
  release: (runtime, region) => runtime.persistent.release(region),
  wrap: strict,
};

/** The old way: any address can be released, and releasing an invalid one is not detected. */
const releaseByAddress: Release = {
  release: (_, region, device) => device.release(region.span),
  wrap: (device) =>
    interceptCalls(device, (call, _, proceed) => {
      if (call !== "release") return proceed();
      rejectionOf(proceed);
      return undefined;
    }),
};

regressionRow<Release>({
  row: "C16",
  rule: "a region released twice is rejected by name, and a region placed there in between keeps its memory",
  sound: ownersRelease,
  faults: { "a release by address frees the next owner's memory": releaseByAddress },
  check({ release, wrap }) {
    withCpuRuntime(
      memory,
      ({ runtime, device }) => {
        const first = placeNamed(runtime, "first");
        runtime.persistent.release(first);
        const second = placeNamed(runtime, "second");
        assert.equal(second.span.address, first.span.address, "the second is at the address of the first");
        const used = runtime.budget.used;
        const rejection = rejectionOf(() => release(runtime, first, device));
        assert.equal(runtime.budget.used, used);
        const [next] = placeNamed(runtime, "next").storages;
        requireDisjointMembers(runtime, { "the second region": second.storages[0]!, "the next one": next! });
        assert.equal(rejection?.code, "DOUBLE_FREE");
        assert.match(rejection.message, /Region "first"/);
      },
      wrap,
    );
  },
});

regressionRow<Release>({
  row: "C16",
  rule: "a region is released by the runtime that placed it and by no other",
  sound: ownersRelease,
  faults: { "a release by address frees this runtime's memory there": releaseByAddress },
  check({ release, wrap }) {
    withCpuRuntime(memory, ({ runtime: other }) => {
      const theirs = placeNamed(other, "theirs");
      withCpuRuntime(
        memory,
        ({ runtime, device }) => {
          const ours = placeNamed(runtime, "ours");
          assert.deepEqual(ours.span, theirs.span, "the two devices use the same addresses");
          const rejection = rejectionOf(() => release(runtime, theirs, device));
          const [next] = placeNamed(runtime, "next").storages;
          requireDisjointMembers(runtime, { "our region": ours.storages[0]!, "the next one": next! });
          assert.equal(rejection?.code, "DOUBLE_FREE");
          assert.match(rejection.message, /Region "theirs" .* belongs to another runtime/);
        },
        wrap,
      );
    });
  },
});

test("C16: the arena frees nothing that persistent memory placed", () => {
  withRuntime(memory, ({ runtime }) => {
    const [storage] = placeNamed(runtime, "weights").storages;
    assert.equal(rejectionOf(() => runtime.arena.free(storage!))?.code, "NOT_OWNER");
    runtime.fill(storage!, 7);
    assert.equal(runtime.read(storage!)[0], 7);
  });
});

test("C16: a block that its owner frees whole is free once, and its memory is reused", () => {
  withRuntime(memory, ({ runtime }) => {
    const block = runtime.arena.allocate(blockBytes, "block");
    runtime.arena.free(block);
    assert.equal(runtime.arena.figures.live, 0);
    assert.equal(runtime.arena.allocate(blockBytes, "next").span.address, block.span.address);
    assert.equal(rejectionOf(() => runtime.arena.free(block))?.code, "DOUBLE_FREE");
  });
});
