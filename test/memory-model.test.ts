/** Random sequences of everything that owns memory, against the plain shadow model, on the strict driver. */

import assert from "node:assert/strict";
import { after, test } from "node:test";
import fc from "fast-check";
import { type ErrorCode, HoldfastError } from "holdfast";
import { type Driver, openCpuDriver, SavedSet, type Storage, strict } from "holdfast/internals";
import { interceptCalls } from "../src/driver/index.js";
import { Arena, Budget, poisonByte } from "../src/runtime/index.js";
import { TlsfAllocator } from "../src/runtime/memory/tlsf-allocator.js";
import { type Bytes, GiB, MiB } from "../src/units/index.js";
import { effort } from "./support/effort.js";
import { fakeHost } from "./support/fake-host.js";
import { capacity, granularity, MemoryModel, type ModelBlock, roundUp } from "./support/memory-model.js";
import { withMethods } from "./support/replaced-methods.js";

const sequences = effort({ quick: 5_000, thorough: 20_000 });
const host = fakeHost(16 * GiB, 12 * GiB);
const device = openCpuDriver({ threads: 1, maximumBytes: 8 * MiB, hostRoot: host.root });
after(() => {
  device.close();
  host.remove();
});

/** A command: which, and two numbers that it uses as it likes. */
interface Command {
  readonly name: keyof typeof commands;
  readonly pick: number;
  readonly size: number;
}

function rejected(model: MemoryModel, codes: readonly ErrorCode[], call: () => unknown): void {
  assert.throws(
    call,
    (error) => error instanceof HoldfastError && codes.includes(error.code),
    `expected one of ${codes.join(", ")}`,
  );
  model.checkFigures();
  model.checkBytes();
}

function any<T>(list: readonly T[], pick: number): T | undefined {
  return list[pick % Math.max(1, list.length)];
}

/** A live storage or one of its views, with its block. */
function anyStorage(model: MemoryModel, pick: number): { block: ModelBlock; storage: Storage } | undefined {
  const block = any(model.blocks, pick);
  if (!block) return undefined;
  const storage = any([block.storage, ...block.views.map((view) => view.storage)], pick >> 4);
  return storage && { block, storage };
}

function allocate(model: MemoryModel, size: number, pattern: number): ModelBlock | undefined {
  const { runtime } = model;
  const label = `op${model.allocations % 20}`;
  const extent = roundUp(size, 256);
  let storage: Storage;
  try {
    storage = runtime.arena.allocate(size, label);
  } catch (error) {
    assert.ok(error instanceof HoldfastError);
    if (error.code === "ARENA_FULL")
      assert.ok(model.largestGap() < extent, "rejected although a gap is large enough");
    else {
      assert.equal(error.code, "OUT_OF_BUDGET");
      assert.ok(
        model.left < capacity - model.committed,
        "rejected although the budget could let the arena grow whole",
      );
    }
    model.checkFigures();
    return undefined;
  }
  model.allocated(storage, size, pattern);
  runtime.fill(storage, pattern);
  return model.blocks.at(-1);
}

const commands = {
  allocate: (model, { pick, size }) => void allocate(model, 1 + (size % 6000), pick % 251),
  allocateMuch: (model, { pick, size }) => void allocate(model, 1 + (size % (capacity + 4096)), pick % 251),
  allocateNonsense: (model, { pick }) => {
    const size = any([0, -1, -4096, 0.5, Number.NaN, Number.POSITIVE_INFINITY], pick) ?? 0;
    rejected(model, ["BAD_SIZE"], () => model.runtime.arena.allocate(size, "nonsense"));
  },
  free: (model, { pick }) => {
    const block = any(model.blocks, pick);
    if (!block) return;
    const call = (): void => model.runtime.arena.free(block.storage);
    if (block.pins.length > 0) return rejected(model, ["PINNED"], call);
    if (block.views.length > 0) return rejected(model, ["HAS_VIEWS"], call);
    call();
    model.died(block);
  },
  freeDead: (model, { pick }) => {
    const storage = any(model.dead, pick);
    if (!storage) return;
    rejected(model, ["DOUBLE_FREE"], () => model.runtime.arena.free(storage));
    rejected(model, ["DEAD_STORAGE"], () => model.runtime.fill(storage, 0));
    rejected(model, ["DEAD_STORAGE"], () => model.runtime.arena.pin(storage, "late"));
  },
  freeImpostor: (model, { pick }) => {
    const block = any(model.blocks, pick);
    if (!block) return;
    const { storage } = block;
    const { address, size } = storage.span;
    const impostors = [
      { ...storage },
      { ...storage, span: { address: (address + 4) as never, size } },
      { ...storage, span: { address, size: (size + 256) as never } },
    ];
    rejected(model, ["NOT_OWNER"], () => model.runtime.arena.free(impostors[pick % 3]!));
  },
  view: (model, { pick, size }) => {
    const found = anyStorage(model, pick);
    if (!found) return;
    const { block, storage } = found;
    const offset = size % storage.span.size;
    const view = model.runtime.view(storage, offset, 1 + (pick % (storage.span.size - offset)), "view");
    assert.equal(view.owner, block.storage, "a view of a view is a view of the owner");
    block.views.push({ storage: view, step: model.openStep });
  },
  viewNonsense: (model, { pick, size }) => {
    const found = anyStorage(model, pick);
    if (!found) return;
    const { storage } = found;
    rejected(model, ["BAD_ARGUMENT"], () =>
      model.runtime.view(storage, size % 9, storage.span.size + 1, "view"),
    );
    rejected(model, ["BAD_ARGUMENT"], () => model.runtime.view(storage, -1, 1, "view"));
    rejected(model, ["BAD_ARGUMENT"], () => model.runtime.view(storage, 0, 0, "view"));
  },
  freeView: (model, { pick }) => {
    const view = any(
      model.blocks.flatMap((block) => block.views),
      pick,
    );
    if (view) rejected(model, ["VIEW_NOT_OWNER"], () => model.runtime.arena.free(view.storage));
  },
  dropView: (model, { pick }) => {
    const block = any(
      model.blocks.filter((one) => one.views.length > 0),
      pick,
    );
    const view = any(block?.views ?? [], pick >> 4);
    if (!block || !view) return;
    const call = (): void => model.runtime.arena.dropView(view.storage);
    if (block.pins.includes(view.storage)) return rejected(model, ["PINNED"], call);
    call();
    block.views.splice(block.views.indexOf(view), 1);
  },
  pin: (model, { pick }) => {
    const found = anyStorage(model, pick);
    if (!found) return;
    model.runtime.arena.pin(found.storage, "test");
    found.block.pins.push(found.storage);
  },
  unpin: (model, { pick }) => {
    const found = anyStorage(model, pick);
    if (!found) return;
    const { block, storage } = found;
    const own = block.pins.filter((one) => one === storage).length;
    const byGraphs = model.graphs.filter((graph) => graph.pinned === storage).length;
    if (own === 0) return rejected(model, ["NOT_PINNED"], () => model.runtime.arena.unpin(storage));
    // A graph's pins are its own to take back.
    if (own === byGraphs) return;
    model.runtime.arena.unpin(storage);
    model.unpinned(block, storage);
  },
  save: (model, { pick }) => {
    const saved = new SavedSet(model.runtime.arena, "backward");
    const found = [anyStorage(model, pick), anyStorage(model, pick >> 3)].filter((one) => one !== undefined);
    for (const { block, storage } of found) {
      saved.save(storage);
      block.pins.push(storage);
    }
    model.checkFigures();
    model.checkBytes();
    saved.release();
    saved.release();
    for (const { block, storage } of found) if (model.blocks.includes(block)) model.unpinned(block, storage);
  },
  beginStep: (model) => {
    const call = (): void => model.runtime.arena.beginStep(model.steps + 1);
    if (model.openStep > 0) return rejected(model, ["STEP_NESTED"], call);
    call();
    model.steps += 1;
    model.openStep = model.steps;
  },
  endStep: (model) => {
    model.runtime.arena.endStep();
    if (model.openStep > 0) model.endStep();
  },
  reset: (model) => {
    const call = (): void => model.runtime.arena.reset();
    if (model.openStep > 0) return rejected(model, ["STEP_NESTED"], call);
    call();
    model.reset();
  },
  place: (model, { pick, size }) => {
    const asked = 1 + (size % (3 * granularity));
    const whole = roundUp(asked, granularity);
    const call = () => model.runtime.persistent.place("weights", "region", [{ name: "w", size: asked }]);
    if (whole > model.left) return rejected(model, ["OUT_OF_BUDGET"], call);
    const region = call();
    model.regionBytes += whole;
    model.checkFigures();
    if (pick % 4 === 0) return;
    model.runtime.persistent.release(region);
    model.regionBytes -= whole;
    rejected(model, ["DOUBLE_FREE"], () => model.runtime.persistent.release(region));
  },
  capture: (model, { pick, size }) => {
    const block = any(model.blocks, pick);
    if (!block) return;
    const pattern = size % 251;
    const call = () => model.runtime.capture("graph", () => model.runtime.fill(block.storage, pattern));
    if (model.left < 1024) return rejected(model, ["OUT_OF_BUDGET"], call);
    const replayable = call();
    block.pins.push(block.storage);
    model.graphs.push({ replayable, block, pinned: block.storage, pattern });
    assert.equal(replayable.mode, "graph");
  },
  captureIllegal: (model, { pick }) => {
    const { runtime } = model;
    const block = any(model.blocks, pick);
    if (!block) return;
    const illegal = [
      () => runtime.arena.reset(),
      () => runtime.arena.free(block.storage),
      () => runtime.read(block.storage),
      () => runtime.synchronize(),
      () => runtime.step(() => undefined),
      () => runtime.upload([{ source: new Uint8Array(block.storage.span.size), target: block.storage }]),
    ][pick % 6]!;
    const body = (): void => {
      runtime.fill(block.storage, 99);
      illegal();
    };
    rejected(model, ["CAPTURE_REJECTED", "OUT_OF_BUDGET"], () => runtime.capture("illegal", body));
  },
  replay: (model, { pick }) => {
    const graph = any(model.graphs, pick);
    if (!graph) return;
    graph.replayable.replay();
    graph.block.pattern = graph.pattern;
  },
  closeGraph: (model, { pick }) => {
    const graph = any(model.graphs, pick);
    if (!graph) return;
    graph.replayable.close();
    graph.replayable.close();
    model.graphs.splice(model.graphs.indexOf(graph), 1);
    model.unpinned(graph.block, graph.pinned);
    rejected(model, ["CLOSED"], () => graph.replayable.replay());
  },
} satisfies Record<string, (model: MemoryModel, command: { pick: number; size: number }) => void>;

const names = Object.keys(commands) as (keyof typeof commands)[];
/** Allocations come most often, or there is nothing to play with. */
const weighted = [
  ...names,
  ...Array.from({ length: 6 }, () => "allocate" as const),
  "beginStep",
  "endStep",
] as const;

const command: fc.Arbitrary<Command> = fc.record({
  name: fc.constantFrom(...weighted),
  pick: fc.nat({ max: 1 << 16 }),
  size: fc.nat({ max: 1 << 20 }),
});

/** What ends or rewrites memory is followed by a look at every byte that should have stayed. */
const endings: ReadonlySet<Command["name"]> = new Set([
  "free",
  "unpin",
  "endStep",
  "reset",
  "replay",
  "closeGraph",
]);

/** Plays random sequences and tells which commands they had; fails at the first that leaves the model. */
function play(count: number, wrap: (driver: Driver) => Driver, seed?: number): Set<string> {
  const seen = new Set<string>();
  const property = fc.property(
    fc.array(command, { minLength: 1, maxLength: 40 }),
    fc.boolean(),
    (sequence, poison) => {
      const free = device.memory().free;
      const model = MemoryModel.open(device, { driver: wrap(device), hostRoot: host.root, poison });
      try {
        for (const one of sequence) {
          commands[one.name](model, one);
          model.checkFigures();
          if (endings.has(one.name)) model.checkBytes();
          seen.add(one.name);
        }
        model.checkBytes();
      } finally {
        model.runtime.close();
      }
      assert.equal(device.memory().free, free, "a closed runtime has given everything back");
    },
  );
  fc.assert(property, { numRuns: count, ...(seed !== undefined && { seed }) });
  return seen;
}

test(`${sequences} random sequences keep to the model: no overlap, no changed byte, equal accounting, rejections without trace`, () => {
  const seen = play(sequences, strict);
  assert.deepEqual([...seen].sort(), [...names].sort(), "every command was tried");
});

interface Fault {
  /** Runs with the fault in a class, or in the driver. */
  readonly inject?: (run: () => void) => void;
  readonly wrap?: (driver: Driver) => Driver;
  /** What the model says of it. */
  readonly seenAs: RegExp;
}

/** Old faults, planted one at a time; on the plain driver, so that the model is what must see them. */
const faults: Readonly<Record<string, Fault>> = {
  "blocks are handed out one unit early": {
    inject: (run) => {
      const { slotOffset } = TlsfAllocator.prototype;
      const early = function (this: TlsfAllocator, slot: number): number {
        return Math.max(0, slotOffset.call(this, slot) - 1);
      };
      withMethods(TlsfAllocator.prototype, { slotOffset: early }, run);
    },
    seenAs: /overlaps/,
  },
  "what dies is poisoned with what lies beside it": {
    wrap: (driver) =>
      interceptCalls(driver, (call, args, proceed) => {
        const [stream, target, byte] = args as Parameters<Driver["fill"]>;
        const isDeath = call === "fill" && byte === poisonByte && target.size < granularity;
        if (!isDeath) return proceed();
        return driver.fill(stream, { ...target, size: (target.size + 4) as Bytes }, byte);
      }),
    seenAs: /bytes of op/,
  },
  "a returned charge stays in the books": {
    inject: (run) => withMethods(Budget.prototype, { release: () => undefined }, run),
    seenAs: /budget/,
  },
  "a pinned block is not kept over a reset": {
    inject: (run) => {
      const { reset, unpin } = Arena.prototype;
      const careless = function (this: Arena): void {
        // Only behind a reset that is legal: a rejected one is not what is planted here.
        reset.call(this);
        for (const storage of pinned.splice(0)) if (this.isLive(storage)) unpin.call(this, storage);
      };
      const pinned: Storage[] = [];
      const { pin } = Arena.prototype;
      const noting = function (this: Arena, storage: Storage, by: string): void {
        pin.call(this, storage, by);
        if (by === "test") pinned.push(storage);
      };
      withMethods(Arena.prototype, { reset: careless, pin: noting }, run);
    },
    seenAs: /live/,
  },
};

for (const [fault, { inject, wrap, seenAs }] of Object.entries(faults)) {
  // One seed for the proofs: which symptom of a fault is met first would else be left to chance.
  const run = (): void => void play(2000, wrap ?? ((driver) => driver), 42);
  test(`red proof: the model sees that ${fault}`, () => {
    assert.throws(
      () => (inject ? inject(run) : run()),
      ({ cause }: Error) => cause instanceof assert.AssertionError && seenAs.test(cause.message),
    );
  });
}
