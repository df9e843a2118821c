/** `uploadAhead`: the next batch is uploaded beside the work on this one. The strict driver checks the order of all accesses. */

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { openDevice } from "../../test/support/devices.js";
import { openTestDriver } from "../../test/support/test-device.js";
import { type Driver, interceptCalls, type Stream, strict } from "../driver/index.js";
import { type Device, type Tensor, tensor, zeros } from "../tensor/index.js";
import { AsyncDataLoader } from "./async-loader.js";
import { TensorDataset } from "./dataset.js";
import { DataLoader } from "./loader.js";

type Wrap = (driver: Driver) => Driver;
type Pair = readonly [x: Tensor, y: Tensor];

const rows = 7;
const data = new TensorDataset(
  Array.from({ length: rows }, (_, row) => [row, -row, row ** 2]),
  Int32Array.from({ length: rows }, (_, row) => row),
);

function open(wrap: Wrap = (driver) => driver): Device {
  const driver = openTestDriver();
  const device = openDevice({ driver: wrap(strict(driver)), poison: true });
  after(() => driver.close());
  return device;
}

const valuesOf = (field: unknown): number[] => [...(field as { readonly values: Float32Array }).values];

/** Makes a batch with ops on the device too. */
function collate(samples: readonly (readonly unknown[])[], { device }: { readonly device: Device }): Pair {
  const x = tensor(
    samples.map(([row]) => valuesOf(row)),
    { device },
  );
  const scaled = x.mul(2);
  x.release();
  const y = tensor(
    samples.flatMap(([, label]) => valuesOf(label)),
    { device, dtype: "i32" },
  );
  return [scaled, y];
}

type Loader = AsyncIterable<Pair> | Iterable<Pair>;

const loaders: Readonly<Record<string, (device: Device, uploadAhead: boolean) => Loader>> = {
  "an AsyncDataLoader": (device, uploadAhead) =>
    new AsyncDataLoader(data, {
      device,
      uploadAhead,
      batchSize: 2,
      shuffle: true,
      seed: 3,
    }) as unknown as Loader,
  "an AsyncDataLoader that collates by ops": (device, uploadAhead) =>
    new AsyncDataLoader(data, { device, uploadAhead, batchSize: 2, collate, prefetch: 0 }),
  "a DataLoader without resident data": (device, uploadAhead) =>
    new DataLoader(data, { device, uploadAhead, batchSize: 2, shuffle: true, seed: 3, resident: false }),
};

/** Two epochs of a compiled step and eager ones: the sums after each batch, read at the end. */
async function train(device: Device, loader: Loader): Promise<number[]> {
  const total = device.keep(zeros([4], { device }));
  const add = device.compile((x: Tensor, y: Tensor) => {
    total.narrow(0, 0, 3).add_(x.sum(0));
    total.narrow(0, 3, 1).add_(y.square().sum().to("f32"));
  });
  for (const isCompiled of [false, true]) {
    for await (const [x, y] of loader) {
      if (isCompiled) add(x, y);
      else device.step(() => total.mul_(0.5).add_(x.sum().add(y.sum())));
    }
  }
  const sums = [...total.dataSync()];
  add.close();
  return sums;
}

for (const [name, make] of Object.entries(loaders)) {
  test(`${name} gives the same batches, in an order that the strict driver accepts`, async () => {
    const device = open();
    const [expected, actual] = [
      await train(device, make(device, false)),
      await train(device, make(device, true)),
    ];
    assert.deepEqual(actual, expected);
  });

  test(`${name} without a wait is a race`, async () => {
    // Waits of the main stream for uploads, then waits of uploads for the memory that they overwrite.
    for (const isMain of [true, false]) {
      let main: Stream | undefined;
      const device = open((driver) =>
        interceptCalls(driver, (call, [stream], proceed) => {
          const isSkipped = call === "waitEvent" && main !== undefined && (stream === main) === isMain;
          return isSkipped ? undefined : proceed();
        }),
      );
      const loader = make(device, true);
      main = device.runtime.stream;
      const run = async (): Promise<void> => {
        const total = device.keep(zeros([], { device }));
        for await (const [x, y] of loader) device.step(() => total.add_(x.sum().add(y.sum())));
      };
      await assert.rejects(run, { code: "UNORDERED_ACCESS" }, `main: ${isMain}`);
      main = undefined;
    }
  });
}

test("the copy of the next batch is issued before the step, on a side stream, and the step does not wait for it", async () => {
  let calls: string[] = [];
  let main: Stream | undefined;
  const device = open((driver) =>
    interceptCalls(driver, (call, [stream], proceed) => {
      if (["copyToDevice", "launch", "waitEvent"].includes(call))
        calls.push(`${call} ${stream === main ? "main" : "side"}`);
      return proceed();
    }),
  );
  main = device.runtime.stream;
  const total = device.keep(zeros([], { device }));
  let drawsWithCopies = 0;
  for await (const [x] of new AsyncDataLoader(data, { device, uploadAhead: true, batchSize: 2 })) {
    const ofDraw = calls;
    calls = [];
    device.step(() => total.add_((x as Tensor).sum()));
    const ofStep = calls;
    calls = [];
    assert.ok(ofStep.includes("launch main") && !ofStep.includes("waitEvent main"), ofStep.join());
    const isFirst = ofDraw.includes("copyToDevice main");
    // The wait for the drawn batch comes before the copies of the next one.
    if (!isFirst) assert.equal(ofDraw[0], "waitEvent main", ofDraw.join());
    if (ofDraw.includes("copyToDevice side")) drawsWithCopies += 1;
  }
  assert.equal(drawsWithCopies, 3, "with each batch but the last");
});

test("an error of the next batch is thrown when it is due, and a loop that ends frees it", async () => {
  const device = open();
  const failing = new AsyncDataLoader(data, {
    ...{ device, uploadAhead: true, batchSize: 1 },
    collate(samples, options) {
      const [x, y] = collate(samples, options);
      if (y.dataSync()[0] === 2) throw new Error("a bad sample");
      return [x, y];
    },
  });
  const before = device.diagnostics().arena.live;
  const labels: number[] = [];
  const run = async (): Promise<void> => {
    for await (const [, y] of failing) labels.push(Number(y?.item()));
  };
  await assert.rejects(run, /a bad sample/);
  assert.deepEqual(labels, [0, 1]);
  const loader = new AsyncDataLoader(data, { device, uploadAhead: true, batchSize: 2 });
  for await (const _ of loader) break;
  await loader.close();
  assert.ok(device.diagnostics().arena.live - before <= 1024, "only what the failing function has left");
});
