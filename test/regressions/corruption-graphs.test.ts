/** Rows C8 and C9: a graph keeps its own arguments and owns the memory that it touches. */

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  basicKernels,
  blockCount,
  type Driver,
  type Runtime,
  type Span,
  type Storage,
  strict,
} from "holdfast/internals";
import { Arena, PersistentMemory, poisonByte } from "../../src/runtime/index.js";
import { add, elementsOf, placeValues, scale } from "../support/basic-ops.js";
import { effort } from "../support/effort.js";
import { fillFreeMemory } from "../support/fill-free-memory.js";
import { collectGarbage } from "../support/gc.js";
import { keepingReferences } from "../support/injected-captures.js";
import { regressionRow } from "../support/regressions.js";
import { rejectionOf } from "../support/rejections.js";
import { withMethods } from "../support/replaced-methods.js";
import { readF32, withRuntime, writeF32 } from "../support/runtimes.js";
import { sameBytes, sameNamedBytes } from "../support/same-bytes.js";
import type { TestDriver } from "../support/test-device.js";
import {
  accumulate,
  allocateTensor,
  placeTinyModel,
  sample,
  stateBytes,
  type TinyModel,
  update,
} from "../support/tiny-training.js";

const memory = { memory: "64MiB", arena: "2MiB", capture: "on" } as const;
const replays = effort({ quick: 40, thorough: 600 });

/** A storage whose span its caller still changes, whatever the types say. */
interface Movable extends Storage {
  readonly span: { -readonly [Field in keyof Span]: Span[Field] };
}

function movable(runtime: Runtime, storage: Storage): Movable {
  return runtime.view(storage, 0, storage.span.size);
}

/**
 * p = ½p + x by two launches, many times; as a graph whose caller then changes all of its arguments, or
 * directly.
 */
function repeat(mode: "replayed" | "direct", wrap: (device: TestDriver) => Driver): Uint8Array {
  return withRuntime(
    memory,
    ({ runtime }) => {
      const { p, x, half, decoy } = placeValues(runtime, "weights", {
        p: sample(1),
        x: sample(2),
        half: [0.5],
        decoy: sample(3),
      });
      const storages = { p: movable(runtime, p), x: movable(runtime, x), half: movable(runtime, half) };
      const halve: (Storage | number)[] = [storages.p, storages.p, storages.half, elementsOf(p)];
      const addX: (Storage | number)[] = [storages.p, storages.x, storages.p, elementsOf(p)];
      const blocks = blockCount(elementsOf(p));
      const body = (): void => {
        runtime.launch({ op: "halve", kernel: runtime.kernel(basicKernels.scale), blocks, arguments: halve });
        runtime.launch({ op: "add", kernel: runtime.kernel(basicKernels.add), blocks, arguments: addX });
      };
      if (mode === "direct") {
        for (let i = 0; i < replays; i++) body();
        return runtime.read(p);
      }
      const graph = runtime.capture("step", body);
      assert.equal(graph.mode, "graph");
      for (const storage of Object.values(storages)) storage.span.address = decoy.span.address;
      halve.fill(0);
      addX.length = 0;
      for (let i = 0; i < replays; i++) {
        // Garbage of the same size as the arguments, so that the caller's freed arguments are really gone and
        // overwritten.
        const garbage = Array.from({ length: 200 }, () => [movable(runtime, decoy), { ...decoy.span }, i]);
        assert.equal(garbage.length, 200);
        if (i % 10 === 0) collectGarbage();
        graph.replay();
      }
      return runtime.read(p);
    },
    wrap,
  );
}

regressionRow<(device: TestDriver) => Driver>({
  row: "C8",
  rule: `${replays} replays under collections, after the caller changed all arguments, equal direct runs`,
  sound: strict,
  faults: { "a graph keeps its caller's argument arrays by reference": keepingReferences },
  check(wrap) {
    sameBytes(repeat("replayed", wrap), repeat("direct", wrap), "the replays ran with other arguments");
  },
});

/** Pins without effect: a graph then owns nothing. */
const noPins = { pin: () => undefined, unpin: () => undefined };

/** The memory of a step that a graph reads and writes. */
interface StepMemory {
  readonly x: Storage;
  readonly scaled: Storage;
  readonly change: Storage;
}

function takeStepMemory(runtime: Runtime): StepMemory {
  const x = allocateTensor(runtime, "x");
  writeF32(runtime, x, sample(5));
  return { x, scaled: allocateTensor(runtime, "scaled"), change: allocateTensor(runtime, "change") };
}

function trainOnce(runtime: Runtime, model: TinyModel, { x, scaled, change }: StepMemory): void {
  accumulate(runtime, model, x, scaled);
  update(runtime, model, change);
}

function replayAmongStrangers(wrap: (device: TestDriver) => Driver): void {
  const direct = withRuntime(memory, ({ runtime }) => {
    const model = placeTinyModel(runtime);
    runtime.step(() => {
      const memory = takeStepMemory(runtime);
      for (let i = 0; i < 3; i++) trainOnce(runtime, model, memory);
    });
    return stateBytes(runtime, model);
  });
  withRuntime(
    { ...memory, poison: true },
    ({ runtime }) => {
      const model = placeTinyModel(runtime);
      const graph = runtime.step(() => {
        const memory = takeStepMemory(runtime);
        return runtime.capture("step", () => trainOnce(runtime, model, memory));
      });
      runtime.arena.reset();
      const fillers = fillFreeMemory(runtime, poisonByte);
      for (let i = 0; i < 3; i++) graph.replay();
      sameNamedBytes(stateBytes(runtime, model), direct, "the replays read other allocations' bytes");
      for (const filler of fillers) {
        assert.ok(
          runtime.read(filler).every((byte) => byte === poisonByte),
          "the replays wrote to another allocation",
        );
      }
      graph.close();
      assert.equal(runtime.arena.figures.pins, 0, "a closed graph frees its memory");
    },
    wrap,
  );
}

regressionRow<() => void>({
  row: "C9",
  rule: "captured, its step ended, the arena reset and all the rest filled with NaN: a replay equals the direct run",
  sound: () => replayAmongStrangers(strict),
  faults: {
    "a graph does not pin what it touches": () =>
      withMethods(Arena.prototype, noPins, () => replayAmongStrangers((device) => device)),
  },
  check: (run) => run(),
});

function releaseUnderGraph(): void {
  withRuntime(memory, ({ runtime }) => {
    const placeNamed = (name: string) => runtime.persistent.place("weights", name, [{ name, size: 4096 }]);
    const region = placeNamed("captured");
    const graph = runtime.capture("fill", () => runtime.fill(region.storages[0]!, 7));
    const rejection = rejectionOf(() => runtime.persistent.release(region));
    const next = placeNamed("next").storages[0]!;
    runtime.fill(next, 1);
    graph.replay();
    assert.ok(
      runtime.read(next).every((byte) => byte === 1),
      "the replay wrote to memory that was placed there in between",
    );
    assert.equal(rejection?.code, "PINNED");
    assert.match(rejection.message, /Region "captured" is pinned by graph "fill"/);
    graph.close();
    runtime.persistent.release(region);
  });
}

regressionRow<() => void>({
  row: "C9",
  rule: "a region of persistent memory can't be released before a graph that uses it is closed, and can afterwards",
  sound: releaseUnderGraph,
  faults: {
    "a graph does not pin persistent memory": () =>
      withMethods(PersistentMemory.prototype, noPins, releaseUnderGraph),
  },
  check: (run) => run(),
});

test("C9: a graph that touches only a view owns the whole storage", () => {
  withRuntime({ ...memory, poison: true }, ({ runtime }) => {
    const { p, two } = placeValues(runtime, "weights", { p: [1, 2, 3], two: [2] });
    const graph = runtime.step(() => {
      const whole = runtime.arena.allocate(4096, "whole");
      const slice = runtime.view(whole, 1024, 12, "partial-out");
      writeF32(runtime, slice, [10, 20, 30]);
      return runtime.capture("double and add", () => {
        scale(runtime, slice, two, slice);
        add(runtime, p, slice, p);
      });
    });
    runtime.arena.reset();
    fillFreeMemory(runtime, poisonByte);
    graph.replay();
    graph.replay();
    assert.deepEqual([...readF32(runtime, p)], [61, 122, 183]);
  });
});
