/** Row C6: a view keeps its owner alive over the end of its step, over a reset and against a free. */

import assert from "node:assert/strict";
import { type Runtime, SavedSet, type Span, type Storage } from "holdfast/internals";
import { fillFreeMemory } from "../support/fill-free-memory.js";
import { arenaPool, type OpenPool, oldPool, requireDisjointMembers } from "../support/pools.js";
import { regressionRow } from "../support/regressions.js";
import { rejectionOf } from "../support/rejections.js";
import { withRuntime } from "../support/runtimes.js";

const memory = { memory: "64MiB", arena: "1MiB", poison: true } as const;

/** Saves a view for a later backward, and returns the function that frees it. */
type Save = (runtime: Runtime, view: Storage) => () => void;

const saveWithOwner: Save = (runtime, view) => {
  const saved = new SavedSet(runtime.arena, "backward");
  saved.save(view);
  return () => saved.release();
};

regressionRow<Save>({
  row: "C6",
  rule: "a saved view keeps its owner's bytes over the step's end and a reset, until backward frees it",
  sound: saveWithOwner,
  faults: { "only the view's address is saved": () => () => undefined },
  check(save) {
    withRuntime(memory, ({ runtime, device }) => {
      const { source, view, release } = runtime.step(() => {
        const source = runtime.arena.allocate(4096, "source");
        runtime.fill(source, 7);
        const nested = runtime.view(runtime.view(source, 1024, 2048, "reshaped"), 256, 1028, "transposed");
        return { source, view: nested, release: save(runtime, nested) };
      });
      runtime.arena.reset();
      fillFreeMemory(runtime, 0x5a);
      runtime.synchronize();
      const isIntact = (span: Span): boolean => device.deviceBytes(span).every((byte) => byte === 7);
      assert.ok(isIntact(view.span), "the view's bytes belong to another storage now");
      assert.ok(isIntact(source.span), "the owner's bytes belong to another storage now");
      assert.ok(runtime.read(view).every((byte) => byte === 7));
      release();
      assert.equal(rejectionOf(() => runtime.read(view))?.code, "DEAD_STORAGE", "freed, it is dead by name");
    });
  },
});

regressionRow<OpenPool>({
  row: "C6",
  rule: "a source can't be freed while a view of it lives, and can once the view is dropped",
  sound: arenaPool,
  faults: { "a reshape's source is freed under the view": oldPool },
  check(open) {
    withRuntime(memory, ({ runtime }) => {
      const pool = open(runtime);
      const source = pool.allocate(1024);
      const view = runtime.view(source, 256, 512, "reshaped");
      const rejection = rejectionOf(() => pool.free(source));
      requireDisjointMembers(runtime, { "the view": view, "the next block": pool.allocate(1024) });
      assert.equal(rejection?.code, "HAS_VIEWS");
      assert.match(rejection.message, /"block" cannot be freed: it has 1 live view/);
      runtime.arena.dropView(view);
      pool.free(source);
      assert.equal(rejectionOf(() => runtime.read(view))?.code, "DEAD_STORAGE");
    });
  },
});

/** Creates a view, of an owner or of a view. */
type View = (runtime: Runtime, storage: Storage, offset: number, size: number) => Storage;

const naiveView: View = (_, storage, offset, size) => ({
  ...storage,
  span: { address: storage.span.address + offset, size } as Span,
  owner: storage,
});

regressionRow<View>({
  row: "C6",
  rule: "a view of a view has the root as its owner, and outlives the view between them",
  sound: (runtime, storage, offset, size) => runtime.view(storage, offset, size),
  faults: {
    "a view is owned by its immediate source": (runtime, storage, offset, size) =>
      storage.owner ? naiveView(runtime, storage, offset, size) : runtime.view(storage, offset, size),
    "a view has no owner at all": (runtime, storage, offset, size) => {
      const { owner: _, ...rest } = naiveView(runtime, storage, offset, size);
      return { ...rest, owner: undefined };
    },
  },
  check(viewOf) {
    withRuntime(memory, ({ runtime }) => {
      const root = runtime.arena.allocate(4096, "root");
      const middle = viewOf(runtime, root, 1024, 2048);
      const leaf = viewOf(runtime, middle, 512, 256);
      assert.equal(middle.owner, root, "the view does not keep the root");
      assert.equal(leaf.owner, root, "the view of a view does not keep the root");
      assert.deepEqual(leaf.span, { address: root.span.address + 1536, size: 256 });
      runtime.arena.dropView(middle);
      runtime.fill(leaf, 7);
      assert.ok(runtime.read(leaf).every((byte) => byte === 7));
      assert.equal(rejectionOf(() => runtime.arena.free(root))?.code, "HAS_VIEWS", "the leaf keeps the root");
    });
  },
});
