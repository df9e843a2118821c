/** Loaders: every row once per epoch, orders from the seed, and batches that end when the next is drawn. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { openStrictDevice } from "../../test/support/devices.js";
import { rejects } from "../../test/support/rejects.js";
import type { Tensor } from "../tensor/index.js";
import { TensorDataset } from "./dataset.js";
import { DataLoader, type DataLoaderOptions } from "./loader.js";

const cpu = openStrictDevice();

/** Row r is [r, r + 0.25, …] with label r. */
function numberedRows(
  rows: number,
  width = 3,
): TensorDataset<[{ values: Float32Array; shape: number[] }, Int32Array]> {
  const values = Float32Array.from(
    { length: rows * width },
    (_, index) => Math.floor(index / width) + (index % width) / 4,
  );
  return new TensorDataset(
    { values, shape: [rows, width] },
    Int32Array.from({ length: rows }, (_, row) => row),
  );
}

/** Checks each row against its label, and returns the labels of an epoch by batch. */
function labelsOf(batches: Iterable<readonly [Tensor, Tensor]>): number[][] {
  return Array.from(batches, ([x, y]) => {
    const labels = [...y.dataSync()];
    const width = x.shape[1] ?? 0;
    const expected = labels.map((label) => Array.from({ length: width }, (_, index) => label + index / 4));
    assert.deepEqual(x.tolist(), expected);
    return labels;
  });
}

test("in order: every row once; the last batch is smaller, or left out with dropLast", () => {
  const data = numberedRows(7);
  assert.deepEqual(labelsOf(new DataLoader(data, { batchSize: 3 })), [[0, 1, 2], [3, 4, 5], [6]]);
  const whole = new DataLoader(data, { batchSize: 3, dropLast: true });
  assert.deepEqual(
    [labelsOf(whole), whole.length],
    [
      [
        [0, 1, 2],
        [3, 4, 5],
      ],
      2,
    ],
  );
  assert.deepEqual(labelsOf(new DataLoader(data, { batchSize: 100 })), [[0, 1, 2, 3, 4, 5, 6]]);
});

test("shuffled: every row once for any sizes, in the same order resident and not", () => {
  const sizes = fc.record({
    rows: fc.integer({ min: 1, max: 40 }),
    width: fc.integer({ min: 1, max: 9 }),
    batchSize: fc.integer({ min: 1, max: 45 }),
    seed: fc.nat(),
  });
  fc.assert(
    fc.property(sizes, ({ rows, width, batchSize, seed }) => {
      const data = numberedRows(rows, width);
      const options: DataLoaderOptions = { batchSize, shuffle: true, seed, device: cpu };
      const loaders = [new DataLoader(data, options), new DataLoader(data, { ...options, resident: false })];
      const [resident, uploaded] = loaders.map((loader) => labelsOf(loader));
      assert.deepEqual(
        resident!.flat().sort((a, b) => a - b),
        Array.from({ length: rows }, (_, row) => row),
      );
      assert.deepEqual(uploaded, resident);
      for (const loader of loaders) loader.close();
      data.release(cpu);
    }),
    { numRuns: 60 },
  );
  assert.equal(cpu.runtime.diagnostics().arena.live, 0);
});

test("an epoch's order depends on the seed and its number, and can be repeated", () => {
  const data = numberedRows(50);
  const make = (seed: number): DataLoader<typeof data extends TensorDataset<infer S> ? S : never> =>
    new DataLoader(data, { batchSize: 8, shuffle: true, seed });
  const [a, b] = [make(1), make(1)];
  const [first, second] = [labelsOf(a), labelsOf(a)];
  assert.notDeepEqual(first, second);
  assert.deepEqual(labelsOf(b.epoch(1)), second);
  assert.deepEqual(labelsOf(b.epoch(0)), first);
  assert.deepEqual(labelsOf(b), second, "the epoch after the repeated one comes next");
  assert.notDeepEqual(labelsOf(make(2)), first);
});

test("batches have one address, and a batch's tensors are rejected by name once the next batch is drawn", () => {
  const loader = new DataLoader(numberedRows(5), { batchSize: 2 });
  const addresses = new Set<number>();
  const earlierBatches: Tensor[] = [];
  for (const [x] of loader) {
    addresses.add(x.array.storage!.span.address);
    for (const old of earlierBatches) {
      rejects("DEAD_TENSOR", () => old.sum(), /column 0 of batch \d in epoch 0.* clone\(\)/);
      rejects("DEAD_TENSOR", () => old.tolist());
    }
    earlierBatches.push(x);
  }
  assert.equal(addresses.size, 1);
  assert.deepEqual(earlierBatches.at(-1)?.shape, [1, 3], "the last batch stays");
});

test("a clone outlives its batch, and backward detects that the next batch has overwritten a saved tensor", () => {
  const loader = new DataLoader(numberedRows(4), { batchSize: 2 });
  const pass = loader[Symbol.iterator]();
  const [x] = pass.next().value!;
  const clone = x.clone();
  cpu.step(() => {
    const weight = clone.mul(0).keep();
    weight.requiresGrad = true;
    const loss = weight.mul(x).sum();
    pass.next();
    rejects("SAVED_CHANGED", () => loss.backward());
    weight.release();
  });
  assert.deepEqual(clone.tolist(), [
    [0, 0.25, 0.5],
    [1, 1.25, 1.5],
  ]);
  clone.release();
});

test("two concurrent passes of one loader are rejected; two loaders share the data set", () => {
  const data = numberedRows(6);
  const [loader, other] = [new DataLoader(data, { batchSize: 2 }), new DataLoader(data, { batchSize: 3 })];
  const first = loader[Symbol.iterator]();
  first.next();
  const second = loader[Symbol.iterator]();
  second.next();
  assert.deepEqual(labelsOf(other), [
    [0, 1, 2],
    [3, 4, 5],
  ]);
  rejects("BAD_ARGUMENT", () => first.next(), /Epoch 0 was still in progress when epoch 1 started/);
  assert.deepEqual(second.next().value?.[1].tolist(), [2, 3]);
});

test("a loader reports its uploads", () => {
  const data = numberedRows(6);
  const row = 3 * 4 + 4;
  const uploadsWith = (options: Partial<DataLoaderOptions>): object =>
    new DataLoader(data, { batchSize: 2, ...options }).uploads;
  assert.deepEqual(uploadsWith({}), { perEpoch: 0, perBatch: 0 });
  assert.deepEqual(uploadsWith({ shuffle: true }), { perEpoch: 24, perBatch: 0 });
  assert.deepEqual(uploadsWith({ resident: false }), { perEpoch: 0, perBatch: 2 * row });
});

test("a closed loader frees its buffers, and its batches are invalid", () => {
  const data = numberedRows(4);
  const before = cpu.runtime.budget.used;
  const loader = new DataLoader(data, { batchSize: 2 });
  const [x] = loader[Symbol.iterator]().next().value!;
  loader.close();
  loader.close();
  data.release(cpu);
  assert.equal(cpu.runtime.budget.used, before);
  rejects("DEAD_TENSOR", () => x.sum());
});

test("invalid epoch numbers are rejected", () => {
  const loader = new DataLoader(numberedRows(4), { batchSize: 2 });
  for (const epoch of [-1, 0.5, Number.NaN])
    rejects("BAD_ARGUMENT", () => loader.epoch(epoch).next(), /no epoch/);
});

test("a loader continues from its state with the rest of the epoch, and then with the next epochs", () => {
  const data = new TensorDataset(Float32Array.from({ length: 10 }, (_, row) => row));
  for (const shuffle of [false, true]) {
    const make = (seed: number) => new DataLoader(data, { batchSize: 3, shuffle, seed, device: cpu });
    const rowsOf = (loader: ReturnType<typeof make>, count: number): string[] => {
      const rows: string[] = [];
      while (rows.length < count) {
        for (const [x] of loader) {
          rows.push(String(x.tolist()));
          if (rows.length === count) break;
        }
      }
      return rows;
    };
    const uninterrupted = rowsOf(make(1), 12);
    for (let stop = 1; stop <= 8; stop++) {
      const first = make(1);
      const before = rowsOf(first, stop);
      const second = make(2);
      second.loadStateDict(JSON.parse(JSON.stringify(first.stateDict())));
      assert.deepEqual([...before, ...rowsOf(second, 12 - stop)], uninterrupted, `after ${stop} batches`);
    }
  }
});

test("the epoch of the last batch ends when its loop ends", () => {
  const loader = new DataLoader(new TensorDataset([[1], [2]]), { batchSize: 1, device: cpu });
  const states = Array.from(loader, () => loader.stateDict());
  assert.deepEqual(
    states.map(({ epoch, batch }) => [epoch, batch]),
    [
      [0, 1],
      [0, 2],
    ],
  );
  assert.deepEqual(loader.position, { epoch: 1, batch: 0 });
  loader.loadStateDict(states[1]!);
  assert.equal([...loader].length, 0);
  assert.deepEqual(loader.position, { epoch: 1, batch: 0 });
  assert.equal([...loader].length, 2);
});

test("a state of other data, of other batches or with an invalid position is rejected", () => {
  const make = (options: { batchSize: number; shuffle?: boolean }, rows = 4) =>
    new DataLoader(new TensorDataset(new Float32Array(rows)), { ...options, device: cpu });
  const loader = make({ batchSize: 2 });
  const state = loader.stateDict();
  rejects("BAD_STATE", () => make({ batchSize: 4 }).loadStateDict(state), /batchSize was 2 and is 4 here/);
  rejects("BAD_STATE", () => make({ batchSize: 2 }, 6).loadStateDict(state), /rows was 4 and is 6 here/);
  rejects("BAD_STATE", () => make({ batchSize: 2, shuffle: true }).loadStateDict(state), /shuffled/);
  for (const change of [{ batch: 3 }, { batch: -1 }, { epoch: 0.5 }, { seed: "x" }]) {
    rejects("BAD_STATE", () => loader.loadStateDict({ ...state, ...change }), /stateDict\(\) returned/);
  }
  assert.deepEqual(loader.stateDict(), state);
});
