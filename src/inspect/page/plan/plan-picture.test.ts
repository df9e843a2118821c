/** The picture of a plan: its rectangles, the tensor at a point, and the tensors live at the peak. */

import assert from "node:assert/strict";
import test from "node:test";
import * as fc from "fast-check";
import type { CallReport, PlanMemory, PlannedTensor } from "../wire.js";
import {
  BoxIndex,
  liveAtPeak,
  matchingTensors,
  neighbour,
  phaseOf,
  pictureOf,
  sumBytes,
} from "./plan-picture.js";

function tensor(birth: number, death: number, offset: number, bytes: number, label = "x"): PlannedTensor {
  return { label, type: "f32 [1]", bytes, offset, birth, death, isSaved: false };
}

function memory(tensors: PlannedTensor[], peakAt: number): PlanMemory {
  return { peak: 1024, lowerBound: 0, peakAt, tensors, persistent: [] };
}

const call = (phase: CallReport["phase"]): CallReport => ({
  op: "add",
  kernel: "k",
  kind: "elementwise",
  shape: "[1]",
  phase,
  stream: 0,
  readBytes: 0,
  writtenBytes: 0,
});

const tensors = [
  tensor(0, 2, 0, 256, "matmul"),
  tensor(1, 1, 256, 256, "relu"),
  { ...tensor(2, 3, 256, 768, "softmax"), isSaved: true },
];
const calls = [call("forward"), call("forward"), call("backward"), call("update")];
const picture = pictureOf({ memory: memory(tensors, 2), calls });

test("a tensor's rectangle extends from the call that makes it to the last call that reads it", () => {
  assert.deepEqual(picture.boxes[1], { left: 1, right: 2, bottom: 256, top: 512 });
  assert.deepEqual(picture.calls, { min: 0, max: 4 });
  assert.deepEqual(picture.bytes, { min: 0, max: 1024 });
});

test("the box at a point is found, and none elsewhere", () => {
  const index = new BoxIndex(picture);
  assert.equal(index.at(0.5, 10), 0);
  assert.equal(index.at(1.99, 256), 1);
  assert.equal(index.at(2, 300), 2);
  assert.equal(index.at(3.5, 10), -1);
  assert.equal(index.at(99, 1e9), -1);
});

test("the index finds the same box as a linear search", () => {
  const box = fc.record({
    birth: fc.integer({ min: 0, max: 300 }),
    calls: fc.integer({ min: 0, max: 30 }),
    offset: fc.integer({ min: 0, max: 5000 }),
    bytes: fc.integer({ min: 1, max: 500 }),
  });
  const point = fc.tuple(
    fc.double({ min: 0, max: 330, noNaN: true }),
    fc.double({ min: 0, max: 5500, noNaN: true }),
  );
  fc.assert(
    fc.property(fc.array(box, { maxLength: 80 }), fc.array(point), (drawn, points) => {
      const list = drawn.map(({ birth, calls, offset, bytes }) =>
        tensor(birth, birth + calls, offset, bytes),
      );
      const drawing = pictureOf({ memory: memory(list, -1), calls: [] });
      const index = new BoxIndex(drawing);
      for (const [x, y] of points) {
        const slow = drawing.boxes.findIndex(
          ({ left, right, bottom, top }) => left <= x && x < right && bottom <= y && y < top,
        );
        assert.equal(index.at(x, y), slow);
      }
    }),
  );
});

test("the tensors live at the peak are sorted by size and add up to the lower bound", () => {
  const live = liveAtPeak(memory(tensors, 2));
  assert.deepEqual(
    live.map(({ label }) => label),
    ["softmax", "matmul"],
  );
  assert.equal(sumBytes(live), 1024);
  assert.deepEqual(liveAtPeak(memory([], -1)), []);
});

test("a peak between two calls is found if more bytes are live there than at the call", () => {
  const branches = [tensor(0, 3, 0, 100), tensor(1.5, 1.5, 100, 50), tensor(2, 3, 100, 20)];
  assert.equal(sumBytes(liveAtPeak(memory(branches, 2))), 150);
  assert.deepEqual(pictureOf({ memory: memory(branches, 2), calls }).boxes[1]?.right, 2);
});

test("a tensor belongs to the phase of the call that makes it; scratch memory has no phase", () => {
  assert.equal(phaseOf(tensors[2]!, calls), "backward");
  assert.equal(phaseOf({ ...tensors[0]!, type: undefined }, calls), "scratch");
  assert.equal(phaseOf(tensor(1.5, 2, 0, 1), calls), "backward");
  assert.equal(phaseOf(tensors[0]!, []), "forward");
});

test("a search finds names, types and saved tensors, ignoring case; an empty search finds nothing", () => {
  assert.deepEqual([...(matchingTensors(tensors, "RELU") ?? [])], [1]);
  assert.deepEqual([...(matchingTensors(tensors, "saved") ?? [])], [2]);
  assert.equal(matchingTensors(tensors, "f32")?.size, 3);
  assert.equal(matchingTensors(tensors, "  "), undefined);
});

test("keys move to the nearest box in their direction, and stay at the border", () => {
  assert.equal(neighbour(picture.boxes, 0, "right"), 1);
  assert.equal(neighbour(picture.boxes, 1, "down"), 0);
  assert.equal(neighbour(picture.boxes, 2, "right"), 2);
  assert.equal(neighbour([], -1, "up"), -1);
});
