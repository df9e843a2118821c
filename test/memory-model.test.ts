/** Random sequences of all operations that own memory, compared with a simple model, on the strict driver. */

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

const sequences = effort({ quick: 250, thorough: 20_000 });
const host = fakeHost(16 * GiB, 12 * GiB);
const device = openCpuDriver({ threads: 1, maximumBytes: 8 * MiB, hostRoot: host.root });
after(() => {
  device.close();
  host.remove();
});

/** A command: its kind, and two numbers that it interprets. */
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
        "rejected although the budget would let the arena grow",
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
    const picked = anyStorage(model, pick);
    if (!picked) return;
    const { block, storage } = picked;
    const offset = size % storage.span.size;
    const view = model.runtime.view(storage, offset, 1 + (pick % (storage.span.size - offset)), "view");
    assert.equal(view.owner, block.storage, "a view of a view is a view of the owner");
    block.views.push({ storage: view, step: model.openStep });
  },
  viewNonsense: (model, { pick, size }) => {
    const picked = anyStorage(model, pick);
    if (!picked) return;
    const { storage } = picked;
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
      model.blocks.filter((block) => block.views.length > 0),
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
    const picked = anyStorage(model, pick);
    if (!picked) return;
    model.runtime.arena.pin(picked.storage, "test");
    picked.block.pins.push(picked.storage);
  },
  unpin: (model, { pick }) => {
    const picked = anyStorage(model, pick);
    if (!picked) return;
    const { block, storage } = picked;
    const pinCount = block.pins.filter((pin) => pin === storage).length;
    const byGraphs = model.graphs.filter((graph) => graph.pinned === storage).length;
    if (pinCount === 0) return rejected(model, ["NOT_PINNED"], () => model.runtime.arena.unpin(storage));
    // Only a graph releases its pins.
    if (pinCount === byGraphs) return;
    model.runtime.arena.unpin(storage);
    model.unpinned(block, storage);
  },
  save: (model, { pick }) => {
    const saved = new SavedSet(model.runtime.arena, "backward");
    const picks = [anyStorage(model, pick), anyStorage(model, pick >> 3)].filter(
      (storage) => storage !== undefined,
    );
    for (const { block, storage } of picks) {
      saved.save(storage);
      block.pins.push(storage);
    }
    model.checkFigures();
    model.checkBytes();
    saved.release();
    saved.release();
    for (const { block, storage } of picks) if (model.blocks.includes(block)) model.unpinned(block, storage);
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
    const requested = 1 + (size % (3 * granularity));
    const whole = roundUp(requested, granularity);
    const call = () => model.runtime.persistent.place("weights", "region", [{ name: "w", size: requested }]);
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
/** Allocations are the most frequent; otherwise there would be nothing to work on. */
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

/** After every command that ends or rewrites memory, check every byte that must be unchanged. */
const endings: ReadonlySet<Command["name"]> = new Set([
  "free",
  "unpin",
  "endStep",
  "reset",
  "replay",
  "closeGraph",
]);

/** Runs random sequences and returns their commands; fails at the first that deviates from the model. */
function play(
  count: number,
  wrap: (driver: Driver) => Driver,
  options: fc.Parameters<[Command[], boolean]> = {},
): Set<string> {
  const seen = new Set<string>();
  const property = fc.property(
    fc.array(command, { minLength: 1, maxLength: 40 }),
    fc.boolean(),
    (sequence, poison) => {
      const free = device.memory().free;
      const model = MemoryModel.open(device, { driver: wrap(device), hostRoot: host.root, poison });
      try {
        for (const command of sequence) {
          commands[command.name](model, command);
          model.checkFigures();
          if (endings.has(command.name)) model.checkBytes();
          seen.add(command.name);
        }
        model.checkBytes();
      } finally {
        model.runtime.close();
      }
      assert.equal(device.memory().free, free, "a closed runtime has freed everything");
    },
  );
  fc.assert(property, { numRuns: count, ...options });
  return seen;
}

test(`${sequences} random sequences follow the model: no overlap, no changed byte, equal accounting, rejections without side effects`, () => {
  const seen = play(sequences, strict);
  assert.deepEqual([...seen].sort(), [...names].sort(), "every command was tried");
});

interface Fault {
  /** Runs with the fault in a class, or in the driver. */
  readonly inject?: (run: () => void) => void;
  readonly wrap?: (driver: Driver) => Driver;
  /** The model's message about it. */
  readonly message: RegExp;
}

/** Old faults, injected one at a time; on the plain driver, so that the model must detect them. */
const faults: Readonly<Record<string, Fault>> = {
  "blocks are allocated one unit too low": {
    inject: (run) => {
      const { slotOffset } = TlsfAllocator.prototype;
      const tooLow = function (this: TlsfAllocator, slot: number): number {
        return Math.max(0, slotOffset.call(this, slot) - 1);
      };
      withMethods(TlsfAllocator.prototype, { slotOffset: tooLow }, run);
    },
    message: /overlaps/,
  },
  "poison of dead memory also overwrites its neighbour": {
    wrap: (driver) =>
      interceptCalls(driver, (call, args, proceed) => {
        const [stream, target, byte] = args as Parameters<Driver["fill"]>;
        const isDeath = call === "fill" && byte === poisonByte && target.size < granularity;
        if (!isDeath) return proceed();
        return driver.fill(stream, { ...target, size: (target.size + 4) as Bytes }, byte);
      }),
    message: /bytes of op/,
  },
  "a returned charge stays in the accounts": {
    inject: (run) => withMethods(Budget.prototype, { release: () => undefined }, run),
    message: /budget/,
  },
  "a pinned block is not kept over a reset": {
    inject: (run) => {
      const { reset, unpin } = Arena.prototype;
      const careless = function (this: Arena): void {
        // Only after a legal reset: a rejected one is not the fault injected here.
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
    message: /live/,
  },
};

for (const [fault, { inject, wrap, message }] of Object.entries(faults)) {
  // One seed for the red proofs: otherwise the first symptom of a fault would be random.
  const run = (): void => void play(2000, wrap ?? ((driver) => driver), { seed: 42, endOnFailure: true });
  test(`red proof: the model detects that ${fault}`, () => {
    assert.throws(
      () => (inject ? inject(run) : run()),
      ({ cause }: Error) => cause instanceof assert.AssertionError && message.test(cause.message),
    );
  });
}
