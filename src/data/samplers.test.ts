/** Samplers and data sets made of others: which samples they have, in which order, and what they reject. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { openStrictDevice } from "../../test/support/devices.js";
import { rejects } from "../../test/support/rejects.js";
import { TensorDataset } from "./dataset.js";
import { DataLoader } from "./loader.js";
import { ChainDataset, ConcatDataset, IterableDataset, randomSplit, Subset } from "./map-dataset.js";
import {
  BatchSampler,
  RandomSampler,
  Sampler,
  SequentialSampler,
  SubsetRandomSampler,
  WeightedRandomSampler,
} from "./samplers.js";

const cpu = openStrictDevice();
const range = (length: number): number[] => Array.from({ length }, (_, index) => index);
const ascending = (values: Iterable<number>): number[] => [...values].sort((a, b) => a - b);

test("random orders have every sample once per round, and depend only on seed and epoch", () => {
  const counts = fc.record({
    samples: fc.integer({ min: 1, max: 30 }),
    rounds: fc.integer({ min: 1, max: 3 }),
    epoch: fc.nat(1000),
    seed: fc.nat(),
  });
  fc.assert(
    fc.property(counts, ({ samples, rounds, epoch, seed }) => {
      const make = () => new RandomSampler(samples, { seed, numSamples: samples * rounds });
      const indices = make().indices(epoch);
      assert.deepEqual(
        ascending(indices),
        range(samples).flatMap((index) => Array<number>(rounds).fill(index)),
      );
      assert.deepEqual(make().indices(epoch), indices);
    }),
    { numRuns: 40 },
  );
});

test("rounds of different epochs are different orders", () => {
  const sampler = new RandomSampler(20, { seed: 1, numSamples: 40 });
  const orders = [0, 1].flatMap((epoch) => {
    const indices = [...sampler.indices(epoch)];
    return [indices.slice(0, 20).join(), indices.slice(20).join()];
  });
  assert.equal(new Set(orders).size, 4);
});

test("with replacement, and by weights, the frequencies are the probabilities", () => {
  const count = 20_000;
  const samplers: readonly [Iterable<number>, readonly number[]][] = [
    [new RandomSampler(4, { replacement: true, numSamples: count, seed: 5 }), [0.25, 0.25, 0.25, 0.25]],
    [new WeightedRandomSampler([1, 0, 2, 5], count, { seed: 5 }), [0.125, 0, 0.25, 0.625]],
  ];
  for (const [sampler, expected] of samplers) {
    const counts = [0, 0, 0, 0];
    for (const index of sampler) counts[index]! += 1;
    // Five standard deviations.
    for (const [index, probability] of expected.entries())
      assert.ok(
        Math.abs(counts[index]! / count - probability) <=
          5 * Math.sqrt((probability * (1 - probability)) / count),
      );
  }
});

test("by weights without replacement, no index comes twice, and heavy ones come first", () => {
  const weights = [1, 1, 1, 97, 0];
  let first = 0;
  for (let epoch = 0; epoch < 300; epoch++) {
    const indices = new WeightedRandomSampler(weights, 3, { replacement: false, seed: 2 }).indices(epoch);
    assert.equal(new Set(indices).size, 3);
    assert.ok(!indices.includes(4));
    if (indices[0] === 3) first += 1;
  }
  assert.ok(first > 270, `${first}`);
});

test("subsets, batches and sequences", () => {
  assert.deepEqual(ascending(new SubsetRandomSampler([8, 3, 5], { seed: 1 }).indices(9)), [3, 5, 8]);
  const sequence = new SequentialSampler({ length: 5 });
  assert.deepEqual([...new BatchSampler(sequence, { batchSize: 2 })], [[0, 1], [2, 3], [4]]);
  const whole = new BatchSampler(sequence, { batchSize: 2, dropLast: true });
  assert.deepEqual(
    [[...whole], whole.length],
    [
      [
        [0, 1],
        [2, 3],
      ],
      2,
    ],
  );
});

test("samplers reject what they cannot draw", () => {
  rejects("BAD_ARGUMENT", () => new SequentialSampler(0), /got 0 as a number of samples/);
  rejects("BAD_ARGUMENT", () => new WeightedRandomSampler([1, -1], 1), /weight 1 is -1/);
  rejects("BAD_ARGUMENT", () => new WeightedRandomSampler([0, 0], 1), /0 weights are above 0/);
  rejects("BAD_ARGUMENT", () => new WeightedRandomSampler([1, 0], 2, { replacement: false }), /Draw fewer/);
});

for (const resident of [true, false]) {
  test(`a DataLoader takes its rows from a sampler, ${resident ? "resident" : "uploaded"}, and resumes in the middle`, () => {
    const data = new TensorDataset(Float32Array.from(range(9)));
    const sampler = new WeightedRandomSampler(
      range(9).map((row) => row % 2),
      7,
      { seed: 3 },
    );
    const make = () => new DataLoader(data, { batchSize: 3, sampler, resident, device: cpu });
    const loader = make();
    for (const epoch of [0, 1]) {
      const rows = Array.from(loader, ([x]) => [...x.dataSync()]).flat();
      assert.deepEqual(rows, [...sampler.indices(epoch)]);
    }
    const state = { ...loader.stateDict(), epoch: 1, batch: 2 };
    const resumed = make();
    resumed.loadStateDict(state);
    assert.deepEqual(
      Array.from(resumed, ([x]) => [...x.dataSync()]),
      [[...sampler.indices(1)].slice(6)],
    );
  });
}

test("a DataLoader rejects a sampler with shuffle, rows that are not there, and a wrong length", () => {
  const data = new TensorDataset(new Float32Array(3));
  class Fixed extends Sampler {
    readonly list: number[];
    readonly length: number;

    constructor(list: number[], length: number) {
      super();
      this.list = list;
      this.length = length;
    }

    override indices(): number[] {
      return this.list;
    }
  }
  const make = (sampler: Sampler, shuffle = false) =>
    new DataLoader(data, { batchSize: 1, sampler, shuffle, device: cpu });
  rejects("BAD_ARGUMENT", () => make(new Fixed([0], 1), true), /a sampler and shuffle/);
  rejects("BAD_INDEX", () => make(new Fixed([3], 1)), /no sample 3; the 3 samples/);
  rejects("BAD_ARGUMENT", () => make(new Fixed([0, 1], 3)), /gave 2 indices .* length is 3/);
});

const firstValue = (dataset: Subset<unknown> | ConcatDataset<unknown>, index: number): number =>
  (dataset.get(index) as [{ values: Float32Array }])[0].values[0]!;

test("subsets and concatenations map indices, and random splits are parts without overlap", () => {
  const data = new TensorDataset(Float32Array.from(range(10)));
  const both = new ConcatDataset([new Subset(data, [9, 1]), data]);
  assert.deepEqual(
    range(both.length).map((index) => firstValue(both, index)),
    [9, 1, ...range(10)],
  );
  const parts = randomSplit(data, [0.55, 0.25, 0.2], { seed: 4 });
  assert.deepEqual(
    parts.map(({ length }) => length),
    [6, 2, 2],
  );
  assert.deepEqual(ascending(parts.flatMap(({ indices }) => [...indices])), range(10));
  assert.deepEqual(
    randomSplit(data, [7, 3]).map(({ length }) => length),
    [7, 3],
  );
  rejects("BAD_ARGUMENT", () => randomSplit(data, [7, 2]), /add up to 10/);
  rejects("BAD_INDEX", () => new Subset(data, [10]), /no sample 10/);
  rejects("BAD_INDEX", () => both.get(12), /no sample 12/);
  rejects("BAD_INDEX", () => data.get(-1), /no sample -1/);
});

test("rows of a TensorDataset keep their dtypes as samples; half floats are widened", () => {
  const data = new TensorDataset(
    { values: [1.5, 2, 3, 4], shape: [2, 2], dtype: "bf16" },
    new Int32Array([7, 8]),
  );
  assert.deepEqual(data.get(0), [
    { values: Float32Array.of(1.5, 2), shape: [2], dtype: "bf16" },
    { values: Int32Array.of(7), shape: [], dtype: "i32" },
  ]);
});

test("chained streams come one after the other, synchronous or not", async () => {
  class Numbers extends IterableDataset<number> {
    override *[Symbol.iterator](): Generator<number> {
      yield* [1, 2];
    }
  }
  class Later extends IterableDataset<number> {
    override async *[Symbol.asyncIterator](): AsyncGenerator<number> {
      yield 3;
    }
  }
  const all: number[] = [];
  for await (const number of new ChainDataset([new Numbers(), new Later(), new Numbers()])) all.push(number);
  assert.deepEqual(all, [1, 2, 3, 1, 2]);
});
