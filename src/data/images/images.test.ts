/** PNG and JPEG images: every kind that is read, the channels, and files that are damaged or too large. */

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import jpeg from "jpeg-js";
import { makeFolder } from "../../../test/support/folders.js";
import { makePng } from "../../../test/support/png.js";
import { rejects } from "../../../test/support/rejects.js";
import { HoldfastError } from "../../errors/index.js";
import { decodeImage, type ImageOptions, readImage } from "./decode-image.js";

const planes = (bytes: Uint8Array, options: ImageOptions = {}): readonly [number[], readonly number[]] => {
  const { values, shape } = decodeImage(bytes, options);
  return [[...values], shape];
};

/** 3 × 2 pixels of RGB. */
const rgb = [10, 20, 30, 40, 50, 60, 70, 80, 90, 5, 15, 255, 0, 200, 100, 1, 2, 3];
const byPlane = [0, 1, 2].flatMap((channel) => rgb.filter((_, index) => index % 3 === channel));

/** The rows with a filter, as an encoder writes them. */
function filtered(bytes: readonly number[], rowBytes: number, filter: number): number[] {
  const at = (row: number, column: number): number =>
    row < 0 || column < 0 ? 0 : bytes[row * rowBytes + column]!;
  return Array.from({ length: bytes.length / rowBytes }, (_, row) => [
    filter,
    ...Array.from({ length: rowBytes }, (_, column) => {
      const [a, b, c] = [at(row, column - 3), at(row - 1, column), at(row - 1, column - 3)];
      const p = a + b - c;
      const near = [a, b, c].toSorted((x, y) => Math.abs(p - x) - Math.abs(p - y))[0]!;
      const predicted = [0, a, b, (a + b) >> 1, near][filter]!;
      return (at(row, column) - predicted) & 255;
    }),
  ]).flat();
}

test("PNG with every filter", () => {
  for (let filter = 0; filter <= 4; filter++)
    assert.deepEqual(planes(makePng(3, 2, filtered(rgb, 9, filter))), [byPlane, [3, 2, 3]], `${filter}`);
});

test("PNG in gray, with a palette, with alpha, and with few bits", () => {
  assert.deepEqual(planes(makePng(2, 1, [0, 7, 9], { type: 0 })), [
    [7, 9],
    [1, 1, 2],
  ]);
  assert.deepEqual(planes(makePng(3, 1, [0, 0b1010_0000], { type: 0, depth: 1 }))[0], [255, 0, 255]);
  assert.deepEqual(planes(makePng(3, 1, [0, 0x1f, 0x80], { type: 0, depth: 4 }))[0], [17, 255, 136]);
  assert.deepEqual(planes(makePng(1, 1, [0, 5, 100], { type: 4 })), [
    [5, 100],
    [2, 1, 1],
  ]);
  assert.deepEqual(planes(makePng(1, 1, [0, 1, 2, 3, 4], { type: 6 })), [
    [1, 2, 3, 4],
    [4, 1, 1],
  ]);
  const palette = [1, 2, 3, 4, 5, 6];
  const indexed = makePng(2, 1, [0, 0b0100_0000], { type: 3, depth: 1, palette });
  assert.deepEqual(planes(indexed), [
    [1, 4, 2, 5, 3, 6],
    [3, 1, 2],
  ]);
  const clear = makePng(2, 1, [0, 0, 1], { type: 3, palette, alpha: [9] });
  assert.deepEqual(planes(clear), [
    [1, 4, 2, 5, 3, 6, 9, 255],
    [4, 1, 2],
  ]);
  rejects("BAD_FILE", () => decodeImage(makePng(1, 1, [0, 2], { type: 3, palette })), /color 2 of 2/);
});

test("the mode selects the channels", () => {
  const image = makePng(1, 1, [0, 255, 128, 0, 7], { type: 6 });
  assert.deepEqual(planes(image, { mode: "rgb" })[0], [255, 128, 0]);
  assert.deepEqual(planes(image, { mode: "gray" })[0], [151]);
  const gray = makePng(1, 1, [0, 9], { type: 0 });
  assert.deepEqual(planes(gray, { mode: "rgba" })[0], [9, 9, 9, 255]);
  rejects("BAD_ARGUMENT", () => decodeImage(gray, { mode: "cmyk" as "rgb" }), /"gray", "rgb"/);
});

/** A photo-like image of 24 × 16 pixels. */
const photo = Buffer.from(
  Array.from({ length: 24 * 16 }, (_, pixel) => [pixel % 24, pixel / 24, 9].map((v) => 20 + v * 7)).flatMap(
    (color) => [...color, 255],
  ),
);
const photoJpeg = new Uint8Array(jpeg.encode({ width: 24, height: 16, data: photo }, 95).data);

test("JPEG is close to the image that was encoded", () => {
  const { values, shape } = decodeImage(photoJpeg);
  assert.deepEqual(shape, [3, 16, 24]);
  for (const [index, value] of values.entries()) {
    const expected = photo[(index % 384) * 4 + Math.floor(index / 384)]!;
    assert.ok(Math.abs(value - expected) < 12, `${index}: ${value} for ${expected}`);
  }
});

test("altered images are read or rejected as bad files, and nothing else; those that are cut off are rejected", () => {
  const originals = [makePng(3, 2, filtered(rgb, 9, 4)), photoJpeg];
  const change = fc.tuple(fc.nat(), fc.nat(255));
  let rejected = 0;
  fc.assert(
    fc.property(fc.nat(1), fc.array(change, { minLength: 1, maxLength: 4 }), (file, changes) => {
      const bytes = originals[file]!.slice();
      for (const [position, value] of changes) bytes[position % bytes.length] = value;
      try {
        decodeImage(bytes);
      } catch (error) {
        assert.ok(error instanceof HoldfastError && error.code === "BAD_FILE", String(error));
        rejected += 1;
      }
    }),
    { numRuns: 200 },
  );
  assert.ok(rejected > 50, `${rejected}`);
  for (const original of originals)
    for (let length = 0; length < original.length; length += 13)
      rejects("BAD_FILE", () => decodeImage(original.slice(0, length)), /no image that can be read/);
});

test("large, interlaced and other images are rejected before memory is used", () => {
  rejects("BAD_FILE", () => decodeImage(makePng(60_000, 60_000, [0])), /60000 × 60000 pixels, more than/);
  rejects("BAD_FILE", () => decodeImage(photoJpeg, { maxPixels: 100 }), /24 × 16 pixels.*raise maxPixels/);
  rejects("BAD_FILE", () => decodeImage(makePng(5000, 5000, [0])), /do not decompress/);
  rejects("BAD_FILE", () => decodeImage(makePng(1, 1, new Array<number>(999).fill(0))), /do not decompress/);
  rejects("BAD_FILE", () => decodeImage(makePng(1, 1, [0, 0], { interlace: 1, type: 0 })), /interlaced/);
  rejects("BAD_FILE", () => decodeImage(makePng(1, 1, [0, 0, 0], { depth: 16, type: 0 })), /16 bits/);
  rejects("BAD_FILE", () => decodeImage(Buffer.from("GIF89a")), /neither PNG nor JPEG/);
  rejects("BAD_ARGUMENT", () => decodeImage(photoJpeg, { maxPixels: 0 }), /1 or more/);
});

test("files are read by their path, which errors name", () => {
  const path = join(makeFolder(), "dot.png");
  writeFileSync(path, makePng(1, 1, [0, 1, 2, 3]));
  assert.deepEqual([...readImage(path).values], [1, 2, 3]);
  writeFileSync(path, "text");
  rejects("BAD_FILE", () => readImage(path), /dot\.png: This is no image/);
  rejects("BAD_FILE", () => readImage(`${path}.jpg`), /dot\.png\.jpg.*ENOENT/);
});
