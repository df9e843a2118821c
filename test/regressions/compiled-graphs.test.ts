/** C8 and C9 for compiled steps: their graph keeps its own arguments, and owns the plan's block. */

import assert from "node:assert/strict";
import { type Driver, type Span, strict } from "holdfast/internals";
import type { PlacedStep } from "../../src/compile/index.js";
import {
  Arena,
  type LoadedCommand,
  PersistentMemory,
  poisonByte,
  type Storage,
} from "../../src/runtime/index.js";
import { latestPlanOf } from "../../src/tensor/index.js";
import { keepBatch, nativeGemms, prepareTraining } from "../support/compiled-training.js";
import { withDevice } from "../support/devices.js";
import { effort } from "../support/effort.js";
import { fillFreeMemory } from "../support/fill-free-memory.js";
import { collectGarbage } from "../support/gc.js";
import { keepingReferences } from "../support/injected-captures.js";
import { regressionRow } from "../support/regressions.js";
import { rejectionOf } from "../support/rejections.js";
import { withMethods } from "../support/replaced-methods.js";
import { sameNamedBytes } from "../support/same-bytes.js";
import type { TestDriver } from "../support/test-device.js";

const memory = { memory: "64MiB", arena: "2MiB", capture: "on", poison: true } as const;
const batchCount = 3;

type State = Record<string, Uint8Array>;

const trained = new Map<number, State>();

/** The state after `count` eager steps. */
function trainEagerly(steps: number): State {
  const cached = trained.get(steps);
  if (cached) return cached;
  const state = withDevice(memory, (device) => {
    const { step, read } = prepareTraining(device);
    const batches = Array.from({ length: batchCount }, (_, seed) => keepBatch(device, seed));
    for (let i = 0; i < steps; i++) device.step(() => void step(...batches[i % batchCount]!));
    return read();
  });
  trained.set(steps, state);
  return state;
}

/** The storages that a command got. */
function storagesOf(work: LoadedCommand): Storage[] {
  if (work.kind === "fill") return [work.target];
  if (work.kind === "copy") return [work.target, work.source];
  return work.request.arguments.filter((argument) => typeof argument !== "number");
}

/**
 * Redirects the arguments that were passed, whatever the types say; the returned function restores them.
 * Labels stay, because kernels use them as indices, which would then be out of range.
 */
function moveArguments({ commands }: PlacedStep, decoy: Storage): () => void {
  const spansOf = (chosen: typeof commands): Set<Span> =>
    new Set(chosen.flatMap(({ command: work }) => storagesOf(work)).map(({ span }) => span));
  const spans = spansOf(commands);
  for (const span of spansOf(commands.filter(({ op }) => op.includes("crossEntropy")))) spans.delete(span);
  const before = [...spans].map((span) => [span, { ...span }] as const);
  for (const span of spans) Object.assign(span, { address: decoy.span.address } satisfies Partial<Span>);
  return () => {
    for (const [span, old] of before) Object.assign(span, old);
  };
}

const replays = effort({ quick: 15, thorough: 600 });

/** Larger than any argument of a command. */
const decoyBytes = 64 * 1024;

function replayUnderCollection(wrap: (driver: TestDriver) => Driver): State {
  return withDevice(
    memory,
    (device) => {
      const { step, read } = prepareTraining(device);
      const batches = Array.from({ length: batchCount }, (_, seed) => keepBatch(device, seed));
      const [decoy] = device.runtime.persistent.place("scalars", "decoy", [
        { name: "decoy", size: decoyBytes },
      ]).storages;
      const compiled = device.compile(step, nativeGemms);
      compiled(...batches[0]!);
      const { placed, replayable } = latestPlanOf(compiled)!;
      assert.equal(replayable.mode, "graph");
      for (const { command: work } of placed.commands)
        assert.ok(storagesOf(work).every(({ span }) => span.size <= decoyBytes));
      const restore = moveArguments(placed, decoy!);
      for (let i = 1; i < replays; i++) {
        // Garbage of the same size as the arguments, so that freed arguments are really gone and overwritten.
        const garbage = Array.from({ length: 200 }, () => [{ ...decoy! }, { ...decoy!.span }, i]);
        assert.equal(garbage.length, 200);
        if (i % effort({ quick: 5, thorough: 10 }) === 0) collectGarbage();
        compiled(...batches[i % batchCount]!);
      }
      restore();
      return read();
    },
    wrap,
  );
}

regressionRow<(driver: TestDriver) => Driver>({
  row: "C8",
  rule: `${replays} calls of a compiled step under collections, after all arguments of its capture have changed, equal eager steps`,
  sound: strict,
  faults: { "a graph keeps the arguments by reference": keepingReferences },
  check(wrap) {
    sameNamedBytes(
      replayUnderCollection(wrap),
      trainEagerly(replays),
      "the replays ran with other arguments",
    );
  },
});

/** Pins without effect: nothing then owns the memory of a plan. */
const noPins = { pin: () => undefined, unpin: () => undefined };

/** Those in the arena, except for the batches, which the test keeps. */
function withoutPins(run: () => void): void {
  const { pin, unpin } = Arena.prototype;
  const pinned = new Set<Storage>();
  const ownedByNobody: Pick<Arena, "pin" | "unpin"> = {
    pin(this: Arena, storage, by) {
      if (by === "step" || by.startsWith("graph")) return;
      pinned.add(storage);
      pin.call(this, storage, by);
    },
    unpin(this: Arena, storage) {
      if (pinned.has(storage)) unpin.call(this, storage);
    },
  };
  withMethods(Arena.prototype, ownedByNobody, run);
}

const among = 5;

function replayAmongStrangers(): void {
  withDevice(
    memory,
    (device) => {
      const { runtime } = device;
      const { step, read } = prepareTraining(device);
      const inputs = Array.from({ length: batchCount }, (_, seed) => keepBatch(device, seed));
      const compiled = device.compile(step, nativeGemms);
      for (let i = 0; i < 2; i++) compiled(...inputs[i % batchCount]!);
      runtime.arena.reset();
      const fillers = fillFreeMemory(runtime, poisonByte);
      for (let i = 2; i < among; i++) compiled(...inputs[i % batchCount]!);
      sameNamedBytes(read(), trainEagerly(among), "the replays read other allocations' bytes");
      for (const filler of fillers) {
        const actual = runtime.read(filler);
        assert.ok(
          actual.every((byte) => byte === poisonByte),
          "the replays wrote to another allocation",
        );
      }
    },
    (driver) => driver,
  );
}

regressionRow<() => void>({
  row: "C9",
  rule: "compiled, the arena reset and the rest of it filled with NaN: the next calls equal eager steps and write to no other memory",
  sound: replayAmongStrangers,
  faults: {
    "nothing pins the plan's memory": () => withoutPins(replayAmongStrangers),
  },
  check: (run) => run(),
});

function releaseUnderStep(): void {
  withDevice(memory, (device) => {
    const { persistent } = device.runtime;
    const { step } = prepareTraining(device, "flat");
    const batch = keepBatch(device, 0);
    device.step(() => void step(...batch));
    const before = persistent.regions;
    const compiled = device.compile(step, nativeGemms);
    compiled(...batch);
    const added = persistent.regions.filter((region) => !before.includes(region));
    assert.ok(added.length >= 2, "inputs and results have their own memory");
    for (const region of [...before, ...added]) {
      const isAccessed = latestPlanOf(compiled)!.planned.memory.persistent.some(
        ({ label }) => label === region.name,
      );
      if (isAccessed)
        assert.equal(rejectionOf(() => persistent.release(region))?.code, "PINNED", region.name);
    }
    compiled.close();
    assert.deepEqual(persistent.regions, before, "a closed step frees its memory");
  });
}

regressionRow<() => void>({
  row: "C9",
  rule: "the weights, inputs, results and constants of a compiled step can't be released before it is closed, and can afterwards",
  sound: releaseUnderStep,
  faults: {
    "a graph does not pin persistent memory": () =>
      withMethods(PersistentMemory.prototype, noPins, releaseUnderStep),
  },
  check: (run) => run(),
});
