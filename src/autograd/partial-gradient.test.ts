/** Gradients that arrive part by part, on memory that is NaN before. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openStrictDevice } from "../../test/support/devices.js";
import { allocateArray, contiguousStrides, type DeviceArray } from "../ops/index.js";
import { type Box, viewOfBox } from "./box.js";
import { PartialGradient } from "./partial-gradient.js";

const device = openStrictDevice();
const { runtime } = device;
const shape = [6];

const along = (start: number, count: number): Box => [{ start, step: 1, count }];

/** Memory that held other values. */
function staleArray(): DeviceArray {
  const array = allocateArray(runtime, shape, "f32", "gradient");
  runtime.fill(array.storage!, 0xff);
  return array;
}

const valuesOf = (array: DeviceArray): number[] => [...new Float32Array(runtime.read(array.storage!).buffer)];

function partial(expected: readonly Box[]) {
  const array = staleArray();
  const gradient = new PartialGradient(runtime, array, expected);
  const add = (box: Box, value: number): void => {
    const [{ count }] = box as [Box[number]];
    const part = device.fromHost(new Float32Array(count).fill(value), [count], "f32").array;
    gradient.add(part, viewOfBox(box, { shape, strides: contiguousStrides(shape) }), box);
  };
  return { array, gradient, add };
}

test("parts that were expected and do not arrive are zero", () => {
  device.step(() => {
    const { array, gradient, add } = partial([along(0, 3), along(3, 3)]);
    add(along(0, 3), 5);
    gradient.finish();
    assert.deepEqual(valuesOf(array), [5, 5, 5, 0, 0, 0]);
  });
});

test("red proof: without its end, such a gradient has values of earlier memory", () => {
  device.step(() => {
    const { array, add } = partial([along(0, 3), along(3, 3)]);
    add(along(0, 3), 5);
    assert.deepEqual(valuesOf(array), [5, 5, 5, Number.NaN, Number.NaN, Number.NaN]);
  });
});

test("parts that were not expected are written or added like others", () => {
  device.step(() => {
    const { array, gradient, add } = partial([along(0, 2)]);
    add(along(4, 2), 1);
    add(along(0, 2), 2);
    add(along(1, 4), 10);
    gradient.finish();
    assert.deepEqual(valuesOf(array), [2, 12, 10, 10, 11, 1]);
  });
});

test("a gradient without any part is zero", () => {
  device.step(() => {
    const { array, gradient } = partial([]);
    gradient.finish();
    assert.deepEqual(valuesOf(array), [0, 0, 0, 0, 0, 0]);
  });
});
