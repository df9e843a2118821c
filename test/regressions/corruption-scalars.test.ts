/**
 * Row C10: the loss seed, the step's scalars and its counters are persistent, so the end of a step can't
 * change them.
 */

import assert from "node:assert/strict";
import { type Driver, type Runtime, type Storage, strict } from "holdfast/internals";
import { add, f32Bytes, placeValues } from "../support/basic-ops.js";
import { regressionRow } from "../support/regressions.js";
import { readF32, withRuntime, writeF32 } from "../support/runtimes.js";
import {
  accumulate,
  allocateTensor,
  placeTinyModel,
  sample,
  type TinyModel,
  update,
} from "../support/tiny-training.js";

const steps = 50;
const memory = { memory: "64MiB", arena: "8MiB" } as const;

/** Moves the model's seed to another address, with its value. */
type PlaceSeed = (runtime: Runtime, model: TinyModel) => Storage;

interface Home {
  readonly placeSeed: PlaceSeed;
  readonly wrap: (device: Driver) => Driver;
}

const inArena: PlaceSeed = (runtime) => {
  const seed = runtime.arena.allocate(f32Bytes, "seed");
  writeF32(runtime, seed, [2]);
  return seed;
};

/** The old way: the seed is in the arena, and nothing checks that it is alive when its address is used. */
const inArenaUnchecked: PlaceSeed = (runtime, model) => ({
  ...model.seed,
  span: inArena(runtime, model).span,
  owner: model.seed,
});

interface Result {
  readonly p: Float32Array;
  readonly seed: readonly number[];
  readonly counter: readonly number[];
}

/** Trains for 50 steps; with a reset and a poisoned arena between the steps, or with neither. */
function train({ placeSeed, wrap }: Home, isReset: boolean): Result {
  return withRuntime(
    { ...memory, poison: isReset },
    ({ runtime }) => {
      const tiny = placeTinyModel(runtime);
      const model = { ...tiny, seed: placeSeed(runtime, tiny) };
      const { counter, one } = placeValues(runtime, "scalars", { counter: [0], one: [1] });
      const work = (step: number): void => {
        const x = allocateTensor(runtime, "x");
        writeF32(runtime, x, sample(step));
        accumulate(runtime, model, x);
        update(runtime, model);
        add(runtime, counter, one, counter);
      };
      for (let step = 0; step < steps; step++) {
        if (!isReset) work(step);
        else {
          runtime.arena.reset();
          runtime.step(() => work(step));
        }
      }
      const [p, seed, count] = [model.p, model.seed, counter].map((storage) => readF32(runtime, storage));
      return { p: p!, seed: [...seed!], counter: [...count!] };
    },
    wrap,
  );
}

regressionRow<Home>({
  row: "C10",
  rule: "seed, learning rate and counter survive 50 steps with resets and poison, and so does every dependent bit",
  sound: { placeSeed: (_, model) => model.seed, wrap: strict },
  faults: {
    "the loss seed is in the arena": { placeSeed: inArena, wrap: strict },
    "the loss seed is in the arena, unchecked": {
      placeSeed: inArenaUnchecked,
      wrap: (device) => device,
    },
  },
  check(home) {
    const withResets = train(home, true);
    const without = train(home, false);
    assert.deepEqual(withResets.seed, [2], "the seed has changed");
    assert.deepEqual(withResets, without);
    assert.deepEqual(without.counter, [steps]);
  },
});
