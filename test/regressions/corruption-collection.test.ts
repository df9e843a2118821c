/** Row C4: garbage collection never frees device memory, neither by itself nor through a late free. */

import assert from "node:assert/strict";
import { test } from "node:test";
import type { Runtime, Storage } from "holdfast/internals";
import { effort } from "../support/effort.js";
import { collectGarbage } from "../support/gc.js";
import { arenaPool, type OpenPool, oldPool, type Pool, requireDisjointMembers } from "../support/pools.js";
import { regressionRow } from "../support/regressions.js";
import { rejectionOf } from "../support/rejections.js";
import { filesBelow, readRepositoryFile } from "../support/repository.js";
import { withRuntime, writeF32 } from "../support/runtimes.js";
import { sameBytes, sameNamedBytes } from "../support/same-bytes.js";
import { accumulate, placeTinyModel, sample, stateBytes, update } from "../support/tiny-training.js";

const memory = { memory: "64MiB", arena: "8MiB" } as const;

const sources = filesBelow("src", ".ts").map((path) => ({ path, text: readRepositoryFile(path) }));

/** It lists modules, which own no device memory, and has no finalizer. */
const listOfModules = "src/units/weak-list.ts";

regressionRow<typeof sources>({
  row: "C4",
  rule: "nothing in src/ registers a finalizer that could free device memory",
  sound: sources,
  faults: {
    "a pool frees collected blocks": [
      ...sources,
      { path: "src/pool.ts", text: "const late = new FinalizationRegistry((block) => pool.free(block));" },
    ],
    "a table holds its storages weakly": [
      ...sources,
      { path: "src/table.ts", text: "const table = new Map<number, WeakRef<Storage>>();" },
    ],
  },
  check(files) {
    assert.ok(files.length > 50, "the sources were found");
    const finalizing = files.filter(
      ({ path, text }) => /\b(FinalizationRegistry|WeakRef)\b/.test(text) && path !== listOfModules,
    );
    assert.deepEqual(
      finalizing.map(({ path }) => path),
      [],
      "these register finalizers",
    );
  },
});

regressionRow<OpenPool>({
  row: "C4",
  rule: "alloc A, reset, alloc B at its address, free A: rejected by name, and B's bytes are unchanged",
  sound: arenaPool,
  faults: { "a late free by address allocates B's memory again": oldPool },
  check(open) {
    withRuntime(memory, ({ runtime }) => {
      const pool = open(runtime);
      const a = pool.allocate(1024);
      pool.reset();
      const b = pool.allocate(1024);
      assert.equal(b.span.address, a.span.address, "B is at A's address");
      const rejection = rejectionOf(() => pool.free(a));
      requireDisjointMembers(runtime, { B: b, "the next block": pool.allocate(1024) });
      assert.equal(rejection?.code, "DOUBLE_FREE");
      assert.match(rejection.message, /free: storage "block" is dead/);
    });
  },
});

/** A collection in the middle of a step: `dead` was created in the step before, and is unreferenced. */
type Collection = (pool: Pool, dead: readonly Storage[]) => void;

const steps = effort({ quick: 45, thorough: 300 });

/** Trains on a pool's memory and returns the final state. */
function train(runtime: Runtime, pool: Pool, onCollection: Collection): Record<string, Uint8Array> {
  const model = placeTinyModel(runtime);
  let dead: Storage[] = [];
  for (let step = 0; step < steps; step++) {
    const storages: Storage[] = [];
    const allocateNext = (): Storage => {
      const storage = pool.allocate(model.p.span.size);
      storages.push(storage);
      return storage;
    };
    const x = allocateNext();
    writeF32(runtime, x, sample(step));
    if (step % 3 === 0) onCollection(pool, dead);
    accumulate(runtime, model, x, allocateNext());
    accumulate(runtime, model, x, allocateNext());
    update(runtime, model, allocateNext());
    pool.reset();
    dead = storages;
  }
  return stateBytes(runtime, model);
}

interface CollectedRun {
  readonly open: OpenPool;
  readonly onCollection: Collection;
}

regressionRow<CollectedRun>({
  row: "C4",
  rule: `${steps} steps under forced collections end with the same bits as without`,
  sound: { open: arenaPool, onCollection: collectGarbage },
  faults: {
    "a finalizer frees dead blocks by their addresses": {
      open: oldPool,
      onCollection: (pool, dead) => {
        for (const storage of dead) pool.free(storage);
      },
    },
  },
  check({ open, onCollection }) {
    const run = (collection: Collection) =>
      withRuntime(memory, ({ runtime }) => train(runtime, open(runtime), collection));
    const undisturbed = run(() => undefined);
    sameNamedBytes(run(onCollection), undisturbed, "the collections have changed the result");
  },
});

test("C4: a collected storage's memory is neither freed nor moved: figures and bytes are as before", () => {
  withRuntime(memory, ({ runtime, device }) => {
    const { address, size } = runtime.arena.allocate(4096, "dropped").span;
    runtime.fill(runtime.arena.allocate(4096, "dropped too"), 7);
    runtime.synchronize();
    const before = runtime.arena.figures;
    const bytesBefore = device.deviceBytes({ address, size }).slice();
    for (let round = 0; round < 5; round++) collectGarbage();
    assert.deepEqual(runtime.arena.figures, before);
    sameBytes(device.deviceBytes({ address, size }), bytesBefore, "the new owner's bytes");
    assert.notEqual(runtime.arena.allocate(4096, "next").span.address, address);
  });
});
