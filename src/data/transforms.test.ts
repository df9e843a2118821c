/** Transforms of images, and images in folders: values, order, the seed of the loader, and errors. */

import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { openStrictDevice } from "../../test/support/devices.js";
import { makeFolder } from "../../test/support/folders.js";
import { makePng } from "../../test/support/png.js";
import { rejects } from "../../test/support/rejects.js";
import { readRepositoryFile } from "../../test/support/repository.js";
import { AsyncDataLoader } from "./async-loader.js";
import { ImageFolder } from "./image-folder.js";
import type { ImageArray } from "./images/index.js";
import { ConcatDataset, Subset } from "./map-dataset.js";
import { randomOf } from "./sample-context.js";
import {
  centerCrop,
  compose,
  normalize,
  randomCrop,
  randomHorizontalFlip,
  resize,
  toFloat,
} from "./transforms.js";

const random = randomOf({ seed: 1, epoch: 0 }, 0);
const bytes = (shape: ImageArray["shape"], ...values: number[]): ImageArray => ({
  values: Uint8Array.from(values),
  shape,
});
/** 2 × 3 pixels: 1 to 6. */
const six = bytes([1, 2, 3], 1, 2, 3, 4, 5, 6);

interface ResizeCase {
  readonly shape: ImageArray["shape"];
  readonly size: readonly [number, number];
  readonly image: readonly number[];
  readonly output: readonly number[];
}

test("images are resized as by PyTorch with antialiasing", () => {
  const cases = JSON.parse(readRepositoryFile("test/oracle/images.json")) as readonly ResizeCase[];
  for (const { shape, size, image, output } of cases) {
    const floats = resize(size)({ values: Float32Array.from(image), shape }, random);
    assert.deepEqual(floats.shape, [shape[0], ...size]);
    for (const [index, value] of floats.values.entries())
      assert.ok(
        Math.abs(value - output[index]!) < 1e-4,
        `${shape} to ${size}: ${value} for ${output[index]}`,
      );
    const rounded = resize(size)(bytes(shape, ...image), random).values;
    for (const [index, value] of rounded.entries()) assert.ok(Math.abs(value - output[index]!) <= 0.5 + 1e-9);
  }
  assert.deepEqual(resize(4)(six, random).shape, [1, 4, 6], "the shorter side");
});

test("the middle is cut out, with a border of zeros around smaller images", () => {
  assert.deepEqual([...centerCrop([2, 1])(six, random).values], [2, 5]);
  assert.deepEqual([...centerCrop([4, 3])(six, random).values], [0, 0, 0, 1, 2, 3, 4, 5, 6, 0, 0, 0]);
  assert.deepEqual([...centerCrop([1, 5])(six, random).values], [0, 1, 2, 3, 0]);
});

test("random crops reach every place, and flips mirror each row", () => {
  const crops = new Set(Array.from({ length: 100 }, () => String(randomCrop([1, 2])(six, random).values)));
  assert.deepEqual([...crops].sort(), ["1,2", "2,3", "4,5", "5,6"]);
  const padded = new Set(
    Array.from({ length: 200 }, () => String(randomCrop(4, { padding: 1 })(six, random).values)),
  );
  assert.deepEqual([...padded].sort(), [
    "0,0,0,0,0,1,2,3,0,4,5,6,0,0,0,0",
    "0,0,0,0,1,2,3,0,4,5,6,0,0,0,0,0",
  ]);
  assert.deepEqual([...randomHorizontalFlip(1)(six, random).values], [3, 2, 1, 6, 5, 4]);
  assert.equal(randomHorizontalFlip(0)(six, random), six);
  assert.deepEqual([...six.values], [1, 2, 3, 4, 5, 6], "the image itself stays");
});

test("bytes become fractions, and channels are normalized one by one", () => {
  const image = bytes([2, 1, 2], 0, 255, 51, 102);
  const steps = compose([toFloat(), normalize([0.5, 0.2], [0.5, 0.1])]);
  const expected = [-1, 1, 0, 2];
  for (const [index, value] of steps(image, random).values.entries())
    assert.ok(Math.abs(value - expected[index]!) < 1e-6);
});

test("wrong arguments and images that do not fit are rejected", () => {
  rejects("BAD_ARGUMENT", () => resize(0), /resize: the size is 0 × 0/);
  rejects("BAD_ARGUMENT", () => randomCrop(1, { padding: -1 }), /padding is -1/);
  rejects("BAD_ARGUMENT", () => randomHorizontalFlip(2), /p is 2/);
  rejects("BAD_ARGUMENT", () => normalize([0], [0]), /deviations \[0\]/);
  rejects("BAD_DTYPE", () => normalize([0], [1])(six, random), /Apply toFloat first/);
  rejects(
    "BAD_SHAPE",
    () => normalize([0, 0], [1, 1])(toFloat()(six, random), random),
    /1 channels.*2 means/,
  );
  rejects("BAD_SHAPE", () => randomCrop(3)(six, random), /2 × 3 .*smaller than 3 × 3/);
});

function makeImages(): string {
  const root = makeFolder();
  for (const [name, level] of [
    ["b/deep", 7],
    ["a", 3],
  ] as const) {
    mkdirSync(join(root, name), { recursive: true });
    for (const file of ["2.PNG", "1.png"]) {
      const row = [0, level, level + 1, level + 2, level + 3];
      writeFileSync(join(root, name, file), makePng(4, 1, row, { type: 0 }));
    }
    writeFileSync(join(root, name, "notes.txt"), "");
  }
  return root;
}

test("folders are classes in the order of their names, and files come in order", () => {
  const root = makeImages();
  const images = new ImageFolder(root, { mode: "gray" });
  assert.deepEqual(images.classes, ["a", "b"]);
  assert.deepEqual(
    images.files.map(({ path, label }) => [path.slice(root.length + 1), label]),
    [
      ["a/1.png", 0],
      ["a/2.PNG", 0],
      ["b/deep/1.png", 1],
      ["b/deep/2.PNG", 1],
    ],
  );
  assert.deepEqual(images.get(2), [bytes([1, 1, 4], 7, 8, 9, 10), 1]);
  assert.deepEqual(new ImageFolder(root).get(0)[0].shape, [3, 1, 4]);
  rejects("BAD_INDEX", () => images.get(4), /no sample 4/);
  mkdirSync(join(root, "c"));
  rejects("BAD_FILE", () => new ImageFolder(root), /c has no \.png/);
  rejects("BAD_FILE", () => new ImageFolder(join(root, "c")), /has no folders/);
  rejects("BAD_FILE", () => new ImageFolder(join(root, "d")), /ENOENT/);
});

test("random transforms depend on the loader's seed and epoch, and continue after a saved state", async () => {
  const cpu = openStrictDevice();
  const images = new ImageFolder(makeImages(), { mode: "gray", transform: randomCrop([1, 1]) });
  const loaderOf = (seed: number) =>
    new AsyncDataLoader(new ConcatDataset([new Subset(images, [0, 1, 2, 3])]), {
      batchSize: 2,
      seed,
      device: cpu,
    });
  const epochOf = async (loader: ReturnType<typeof loaderOf>, limit = Infinity): Promise<number[]> => {
    const values: number[] = [];
    for await (const [x] of loader) {
      values.push(...(x.flatten().tolist() as number[]));
      if (values.length >= limit) break;
    }
    return values;
  };
  const first = loaderOf(5);
  const epochs = [await epochOf(first), await epochOf(first), await epochOf(first)];
  assert.ok(new Set(epochs.map(String)).size > 1, `${epochs}`);
  const second = loaderOf(5);
  assert.deepEqual(await epochOf(second), epochs[0]);
  const start = await epochOf(second, 2);
  const resumed = loaderOf(6);
  resumed.loadStateDict(second.stateDict());
  assert.deepEqual([...start, ...(await epochOf(resumed))], epochs[1]);
  cpu.close();
});
