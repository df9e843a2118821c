/** Rows C2 and C3: in-place writes keep the address, over steps and for every in-place op. */

import assert from "node:assert/strict";
import type { Runtime, Storage } from "holdfast/internals";
import { add, copyValues, f32Bytes, placeValues, scale, setAll } from "../support/basic-ops.js";
import { effort } from "../support/effort.js";
import { regressionRow } from "../support/regressions.js";
import { readF32, withRuntime, writeF32 } from "../support/runtimes.js";
import { sameBytes } from "../support/same-bytes.js";
import {
  accumulate,
  allocateTensor,
  placeTinyModel,
  sample,
  stateBytes,
  stateNames,
  type TinyModel,
  update,
} from "../support/tiny-training.js";

const memory = { memory: "64MiB", arena: "8MiB", poison: true } as const;

type Accumulate = (runtime: Runtime, model: TinyModel, x: Storage) => void;

/** The old way: the sum goes to fresh step memory, which becomes the model's gradient. */
const accumulateIntoArena: Accumulate = (runtime, model, x) => {
  const moved = allocateTensor(runtime, "g");
  add(runtime, model.g, x, moved);
  model.g = moved;
};

const steps = effort({ quick: 12, thorough: 100 });

/** Trains for some steps of four samples, in `microBatches` accumulations a step. */
function train(accumulateInto: Accumulate, microBatches: 1 | 2 | 4): Record<string, Uint8Array> {
  return withRuntime(memory, ({ runtime }) => {
    const model = placeTinyModel(runtime);
    const original = { ...model };
    for (let step = 0; step < steps; step++) {
      runtime.step(() => {
        for (let micro = 0; micro < microBatches; micro++) {
          const batch = allocateTensor(runtime, "batch"); // [N], the sum of its samples
          runtime.fill(batch, 0);
          for (let part = 0; part < 4 / microBatches; part++) {
            const x = allocateTensor(runtime, "x");
            writeF32(runtime, x, sample(4 * step + (4 / microBatches) * micro + part));
            add(runtime, batch, x, batch);
          }
          accumulateInto(runtime, model, batch);
        }
        update(runtime, model);
      });
      for (const name of stateNames) {
        assert.deepEqual(model[name].span, original[name].span, `${name} has moved in step ${step + 1}`);
      }
      assert.equal(runtime.arena.figures.live, 0, "a step leaves nothing in the arena");
    }
    return stateBytes(runtime, model);
  });
}

regressionRow<Accumulate>({
  row: "C2",
  rule: `over ${steps} steps p, g, m and v stay at their addresses, and two or four micro-batches equal one batch`,
  sound: accumulate,
  faults: { "accumulating moves the gradient into the arena": accumulateIntoArena },
  check(accumulateInto) {
    const oneBatch = train(accumulateInto, 1);
    assert.ok(
      oneBatch["p"]!.some((byte) => byte !== 0),
      "the run has trained something",
    );
    assert.deepEqual(train(accumulateInto, 2), oneBatch);
    assert.deepEqual(train(accumulateInto, 4), oneBatch);
  },
});

/** The operands of an in-place op: its target `a`, another tensor and a factor. */
interface Operands {
  readonly a: Storage; // [N]
  readonly b: Storage; // [N]
  readonly factor: Storage; // [1]
}

/** An op with an in-place variant. It has the address of its result, and the formula for one element. */
interface InPlaceOp {
  readonly run: (runtime: Runtime, operands: Operands) => Storage;
  readonly expected: (a: number, b: number, factor: number) => number;
}

const inPlace = (run: (runtime: Runtime, operands: Operands) => void): InPlaceOp["run"] => {
  return (runtime, operands) => {
    run(runtime, operands);
    return operands.a;
  };
};

const ops: Readonly<Record<string, InPlaceOp>> = {
  "fill of a": {
    run: inPlace((runtime, { a }) => setAll(runtime, a, 2.5)),
    expected: () => 2.5,
  },
  "fill of a's bytes": {
    run: inPlace((runtime, { a }) => runtime.fill(a, 0)),
    expected: () => 0,
  },
  "copy of b to a": {
    run: inPlace((runtime, { a, b }) => copyValues(runtime, a, b)),
    expected: (_, b) => b,
  },
  "copy of b's bytes to a": {
    run: inPlace((runtime, { a, b }) => runtime.copy(a, b)),
    expected: (_, b) => b,
  },
  "a = a + b": {
    run: inPlace((runtime, { a, b }) => add(runtime, a, b, a)),
    expected: (a, b) => a + b,
  },
  "a = b + a": {
    run: inPlace((runtime, { a, b }) => add(runtime, b, a, a)),
    expected: (a, b) => a + b,
  },
  "a = a + a": {
    run: inPlace((runtime, { a }) => add(runtime, a, a, a)),
    expected: (a) => a + a,
  },
  "a = a · factor": {
    run: inPlace((runtime, { a, factor }) => scale(runtime, a, factor, a)),
    expected: (a, _, factor) => a * factor,
  },
};

/** The old way: the op works on a copy of its target in the arena and returns that as the result. */
function rehomed(op: InPlaceOp): InPlaceOp {
  return {
    ...op,
    run(runtime, operands) {
      const a = runtime.arena.allocate(operands.a.span.size, "result");
      runtime.copy(a, operands.a);
      return op.run(runtime, { ...operands, a });
    },
  };
}

/** The same, and the result is copied back: the address is right again, but memory was allocated. */
function detoured(op: InPlaceOp): InPlaceOp {
  return {
    ...op,
    run(runtime, operands) {
      runtime.copy(operands.a, rehomed(op).run(runtime, operands));
      return operands.a;
    },
  };
}

/** Around a vector of four, and around a block of 4096. */
const sizes = [1, 3, 4, 5, 4095, 4096, 4097, 8195];
/** The offsets of a view, in elements: aligned to a vector, unaligned, and at the next alignment. */
const offsets = [0, 1, 3, 64];
const homeElements = Math.max(...sizes) + Math.max(...offsets) + 5;
const factorValue = -3;

/** Runs the op on views of every size and offset in `home`, which is as large as `bHome`. */
function checkViews(runtime: Runtime, op: InPlaceOp, memory: Storage, bHome: Storage, factor: Storage): void {
  const aValues = Float32Array.from({ length: homeElements }, (_, i) => (i % 13) - 6);
  const bValues = Float32Array.from({ length: homeElements }, (_, i) => ((i * 3) % 11) - 5);
  writeF32(runtime, bHome, bValues);
  for (const elements of sizes) {
    for (const offset of offsets) {
      const where = `${elements} elements at ${offset} in ${memory.kind} memory`;
      writeF32(runtime, memory, aValues);
      const a = runtime.view(memory, offset * f32Bytes, elements * f32Bytes, "a");
      const b = runtime.view(bHome, f32Bytes, elements * f32Bytes, "b");
      const before = runtime.arena.figures;
      const result = op.run(runtime, { a, b, factor });
      assert.deepEqual(result.span, a.span, `${where}: the result is at another address`);
      assert.deepEqual(runtime.arena.figures, before, `${where}: memory was allocated`);
      const expected = aValues.map((value, i) => {
        const isInside = i >= offset && i < offset + elements;
        return isInside ? op.expected(value, bValues[i - offset + 1]!, factorValue) : value;
      });
      sameBytes(readF32(runtime, memory), expected, `${where}: the values, and those next to the view`);
    }
  }
}

for (const [name, op] of Object.entries(ops)) {
  regressionRow<InPlaceOp>({
    row: "C3",
    rule: `${name} works in place, allocates no memory and writes nothing outside it, for every size and offset`,
    sound: op,
    faults: {
      [`${name} moves its target into the arena`]: rehomed(op),
      [`${name} makes a copy in the arena`]: detoured(op),
    },
    check(subject) {
      withRuntime(memory, ({ runtime }) => {
        const zeros = new Float32Array(homeElements);
        const storages = placeValues(runtime, "weights", { home: zeros, b: zeros, factor: [factorValue] });
        checkViews(runtime, subject, storages.home, storages.b, storages.factor);
        runtime.step(() => {
          const home = runtime.arena.allocate(homeElements * f32Bytes, "home");
          checkViews(runtime, subject, home, storages.b, storages.factor);
        });
      });
    },
  });
}
