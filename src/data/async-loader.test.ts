/** Loaders of samples: their batches, collation, prefetching, worker threads, exact resume and errors. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openStrictDevice } from "../../test/support/devices.js";
import { rejects } from "../../test/support/rejects.js";
import { type Tensor, tensor } from "../tensor/index.js";
import { AsyncDataLoader, type AsyncDataLoaderOptions } from "./async-loader.js";
import { defaultCollate, defaultConvert } from "./collate.js";
import { Dataset, IterableDataset } from "./map-dataset.js";
import { BatchSampler, SequentialSampler, SubsetRandomSampler } from "./samplers.js";

const cpu = openStrictDevice();

class Squares extends Dataset<readonly [Float32Array, number]> {
  readonly length: number;
  readonly log: number[] = [];

  constructor(length: number) {
    super();
    this.length = length;
  }

  override async get(index: number): Promise<readonly [Float32Array, number]> {
    this.log.push(index);
    await Promise.resolve();
    if (index === 100) throw new Error("no such file");
    return [Float32Array.of(index, -index), index ** 2];
  }
}

class Countdown extends IterableDataset<number> {
  hasEnded = false;

  override async *[Symbol.asyncIterator](): AsyncGenerator<number> {
    try {
      for (let number = 7; number > 0; number--) yield number;
    } finally {
      this.hasEnded = true;
    }
  }
}

/** The labels of each batch; checks the inputs against them. */
async function labelsOf(
  loader: AsyncIterable<readonly [Tensor, Tensor]>,
  limit = Infinity,
): Promise<number[][]> {
  const labels: number[][] = [];
  for await (const [x, y] of loader) {
    labels.push([...y.dataSync()]);
    assert.deepEqual(
      x.tolist(),
      labels.at(-1)!.map((label) => [Math.sqrt(label), -Math.sqrt(label)]),
    );
    if (labels.length === limit) break;
  }
  return labels;
}

test("batches in order, with a smaller last one, without it, and by a batch sampler", async () => {
  const data = new Squares(5);
  const batchesWith = (options: AsyncDataLoaderOptions<readonly [Float32Array, number]>) =>
    labelsOf(new AsyncDataLoader(data, { device: cpu, ...options }));
  assert.deepEqual(await batchesWith({ batchSize: 2 }), [[0, 1], [4, 9], [16]]);
  assert.deepEqual(await batchesWith({ batchSize: 2, dropLast: true }), [
    [0, 1],
    [4, 9],
  ]);
  const batchSampler = new BatchSampler(new SequentialSampler(3), { batchSize: 2 });
  assert.deepEqual(await batchesWith({ batchSampler }), [[0, 1], [4]]);
  const sampled = await batchesWith({ sampler: new SubsetRandomSampler([1, 3]), batchSize: 2 });
  assert.deepEqual(
    sampled.map((batch) => [...batch].sort()),
    [[1, 9]],
  );
  assert.equal(cpu.runtime.diagnostics().arena.live, 0, "the tensors of batches are freed");
});

test("a loader resumes in the middle of an epoch with the same order, also of the next epochs", async () => {
  const make = (seed: number) =>
    new AsyncDataLoader(new Squares(7), { batchSize: 2, shuffle: true, seed, device: cpu });
  const straight = make(1);
  const expected = [await labelsOf(straight), await labelsOf(straight)];
  assert.notDeepEqual(expected[0], expected[1]);
  const first = make(1);
  const start = await labelsOf(first, 2);
  const resumed = make(2);
  resumed.loadStateDict(JSON.parse(JSON.stringify(first.stateDict())));
  assert.deepEqual([...start, ...(await labelsOf(resumed))], expected[0]);
  assert.deepEqual(await labelsOf(resumed), expected[1]);
  const other = new AsyncDataLoader(new Squares(8), { batchSize: 2, device: cpu });
  rejects("BAD_STATE", () => other.loadStateDict(first.stateDict()), /7 samples in 4 batches.*8 samples/);
});

test("samples are loaded ahead by `prefetch` batches, and not further", async () => {
  for (const prefetch of [0, 2]) {
    const data = new Squares(20);
    for await (const _ of new AsyncDataLoader(data, { batchSize: 2, prefetch, device: cpu })) break;
    assert.equal(data.log.length, 2 * (1 + prefetch));
  }
});

test("streams are read once, batch by batch, and closed when a loop ends early", async () => {
  const stream = new Countdown();
  const loader = new AsyncDataLoader(stream, { batchSize: 3, device: cpu });
  const batches: number[][] = [];
  for await (const batch of loader) batches.push([...batch.dataSync()]);
  assert.deepEqual(batches, [[7, 6, 5], [4, 3, 2], [1]]);
  stream.hasEnded = false;
  for await (const _ of loader) break;
  await new Promise(setImmediate);
  assert.equal(stream.hasEnded, true);
  assert.deepEqual(loader.stateDict(), { epoch: 1, batch: 1, seed: loader.stateDict().seed });
  for await (const batch of loader) batches.push([...batch.dataSync()]);
  assert.deepEqual(batches.slice(3), [[4, 3, 2], [1]], "the rest of the epoch");
});

const squaresModule = new URL(
  `data:text/javascript,${encodeURIComponent(`
    import { threadId } from "node:worker_threads";
    export default ({ length, bad }) => ({
      length,
      get(index) {
        if (bad === "function") return () => index;
        if (index === bad) throw new Error("sample " + index + " is broken");
        return { index, thread: threadId, x: Float64Array.of(index) };
      },
    });
    export const nothing = 3;
  `)}`,
);

interface Loaded {
  readonly index: number;
  readonly thread: number;
  readonly x: Float64Array;
}

/** The loader's data set is never asked for samples. */
const loadedBy = (
  argument: { readonly length: number; readonly bad?: number | "function" },
  exportName = "default",
) => {
  const dataset: Dataset<Loaded> = {
    length: argument.length,
    get: () => assert.fail("on this thread"),
  };
  const workerSource = { module: squaresModule, exportName, argument };
  return (numWorkers: number, batchSize: number) =>
    new AsyncDataLoader(dataset, { batchSize, numWorkers, workerSource, device: cpu });
};

test("worker threads load samples, in the order of the loader, and report failures", async () => {
  const loader = loadedBy({ length: 9 })(2, 2);
  const threads = new Set<number>();
  const indices: number[] = [];
  for await (const { index, thread, x } of loader) {
    indices.push(...index.dataSync());
    for (const id of thread.dataSync()) threads.add(id);
    assert.deepEqual([x.dtype, x.shape[1]], ["f64", 1]);
  }
  assert.deepEqual(indices, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
  assert.equal(threads.size, 2);
  assert.ok(!threads.has(0));
  await loader.close();
  await assert.rejects(async () => {
    for await (const _ of loader) break;
  }, /was closed/);

  for (const [broken, message] of [
    [loadedBy({ length: 3, bad: 1 })(1, 1), /could not load its samples: sample 1 is broken$/],
    [loadedBy({ length: 3, bad: "function" })(1, 1), /could not be cloned\. Samples must be numbers/],
    [loadedBy({ length: 3 }, "nothing")(1, 1), /makes no data set/],
  ] as const) {
    await assert.rejects(async () => {
      for await (const _ of broken);
    }, message);
    await broken.close();
  }
});

test("a failure of a sample ends the loop; two loops at once, and options that do not fit, are rejected", async () => {
  const failing = new AsyncDataLoader(new Squares(101), { batchSize: 50, device: cpu });
  await assert.rejects(async () => {
    for await (const _ of failing);
  }, /no such file/);
  const loader = new AsyncDataLoader(new Squares(4), { device: cpu });
  await assert.rejects(async () => {
    for await (const _ of loader) for await (const __ of loader) break;
  }, /began another loop/);
  const make = (options: object, data: Dataset<unknown> | IterableDataset<unknown> = new Squares(4)) =>
    new AsyncDataLoader(data, { device: cpu, ...options });
  const sampler = new SequentialSampler(2);
  const batchSampler = new BatchSampler(sampler, { batchSize: 1 });
  rejects("BAD_ARGUMENT", () => make({ batchSampler, batchSize: 2 }), /batchSampler replaces/);
  rejects("BAD_ARGUMENT", () => make({ sampler, shuffle: true }), /replaces shuffle/);
  rejects("BAD_ARGUMENT", () => make({ numWorkers: 1 }), /workerSource/);
  rejects("BAD_ARGUMENT", () => make({ shuffle: true }, new Countdown()), /a stream has no sampler/);
  rejects("BAD_ARGUMENT", () => make({ prefetch: -1 }), /prefetch is -1/);
});

test("samples of all kinds are collated: numbers, booleans, rows, arrays, tensors, tuples, records, lists", () => {
  const options = { device: cpu };
  const batch = defaultCollate(
    [1, 2].map((n) => ({
      ...{ n, flag: n > 1, row: [n, 0], matrix: [[n], [n]], name: `${n}` },
      ...{ labels: Int32Array.of(n), pair: [n, Float64Array.of(n)] as const },
      ...{ one: { values: Uint8Array.of(n, n), shape: [2, 1] }, t: tensor([n], options) },
    })),
    options,
  );
  const { n, flag, row, matrix, name, labels, pair, one, t } = batch;
  const tensors = [n, flag, row, matrix, labels, ...pair, one, t] as Tensor[];
  assert.deepEqual(
    tensors.map(({ dtype, shape }) => `${dtype} ${shape.join()}`),
    ["f32 2", "bool 2", "f32 2,2", "f32 2,2,1", "i32 2,1", "f32 2", "f64 2,1", "u8 2,2,1", "f32 2,1"],
  );
  assert.deepEqual(name, ["1", "2"]);
  const converted = defaultConvert([{ x: Float32Array.of(1, 2) }, "a"], options) as [{ x: Tensor }, string];
  assert.deepEqual([converted[0].x.tolist(), converted[1]], [[1, 2], "a"]);
  for (const made of [...tensors, converted[0].x]) made.release();
});

test("samples that do not fit together are rejected with the sample and its field", () => {
  const collate = (samples: readonly unknown[]) => () => defaultCollate(samples, { device: cpu });
  rejects("BAD_SHAPE", collate([{ x: Float32Array.of(1) }, { x: Float32Array.of(1, 2) }]), /"x" of sample 1/);
  rejects("BAD_SHAPE", collate([Float32Array.of(1), Float64Array.of(1)]), /Float64Array .* Float32Array/);
  rejects("BAD_ARGUMENT", collate([{ x: 1 }, { y: 1 }]), /sample 1 .* another kind/);
  rejects("BAD_ARGUMENT", collate([[1, "a"], ["a"]]), /another kind/);
  rejects("BAD_ARGUMENT", collate([]), /no samples/);
});
