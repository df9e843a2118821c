/** Copies of one form in one launch: which go together, where the one stands, and that it moves what they moved. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { iterateElements, type RowKernel, term } from "../../ir/index.js";
import type { Runtime } from "../../runtime/index.js";
import { accessesOf, type Buffer, type Call, type Part, type RowCall } from "../program/program.js";
import { copyAlike } from "./batch-copies.js";

const on = (kind: "cuda" | "cpu"): Runtime => ({ device: { kind } }) as unknown as Runtime;

let buffers = 0;
const bufferOf = (bytes: number): Buffer => ({ id: buffers++, bytes, label: `b${buffers}` });
const whole = (buffer: Buffer): Part => ({ buffer, offset: 0, size: buffer.bytes });

/** Persistent memory at an address of its own. */
function regionOf(bytes: number): Buffer {
  const buffer = bufferOf(bytes);
  const storage = { span: { address: (buffer.id + 1) * 2 ** 20, size: bytes } };
  return { ...buffer, storage: storage as unknown as NonNullable<Buffer["storage"]> };
}

const [weights, gradients] = [regionOf(4096), regionOf(4096)];
const partAt = (buffer: Buffer, offset: number, size = 96): Part => ({ buffer, offset, size });

const kernel: RowKernel = {
  ...{ name: "copy", inputs: ["f32"], outputs: [{ dtype: "f32", per: "element" }], scalars: [] },
  stages: [{ kind: "store", output: 0, value: term.load(0, "f32") }],
};

/** Two matrices [3, 4], one behind the other, side by side: [3, 8]. */
function sideBySide(from: Part, to: Part): Call & { readonly work: RowCall } {
  const strides = [
    [4, 12, 1],
    [8, 4, 1],
  ];
  const iteration = iterateElements([3, 2, 4], strides);
  return { op: "sideBySide", work: { kind: "rows", kernel, iteration, operands: [from, to], scalars: [] } };
}

const copyOf = (source: Part, target: Part): Call => ({ op: "copy", work: { kind: "copy", source, target } });

/** Every word that a program's row calls move: from where to where. */
function moved(calls: readonly Call[]): string[] {
  return calls.flatMap(({ work }) => {
    if (work.kind !== "rows") return [];
    const [from, to] = work.operands as [Part, Part];
    const { outer, row } = work.iteration;
    let places: readonly (readonly [number, number])[] = [[from.offset, to.offset]];
    for (const { size, strides } of [...outer, row]) {
      places = places.flatMap(([a, b]) =>
        Array.from(
          { length: size },
          (_, at) => [a + 4 * at * (strides[0] ?? 0), b + 4 * at * (strides[1] ?? 0)] as const,
        ),
      );
    }
    return places.map(([a, b]) => `${from.buffer.storage ? "weights" : "step"} ${a} → ${b}`);
  });
}

test("copies of weights at equal steps are one, before the first that reads what they make", () => {
  const [one, two, three] = [bufferOf(96), bufferOf(96), bufferOf(96)];
  const target = (index: number): Part => partAt(gradients, 96 * index);
  const calls = [
    // Backward, the last layer comes first.
    sideBySide(partAt(weights, 2048), whole(three)),
    copyOf(whole(three), target(3)),
    sideBySide(partAt(weights, 1024), whole(two)),
    copyOf(whole(two), target(2)),
    sideBySide(partAt(weights, 0), whole(one)),
    copyOf(whole(one), target(1)),
  ];
  const [joint, ...readers] = copyAlike(calls, on("cuda"));
  assert.equal(joint?.op, "sideBySide of 3");
  assert.deepEqual(
    readers.map(({ op }) => op),
    ["copy", "copy", "copy"],
  );
  const apart = [partAt(weights, 0), partAt(weights, 1024), partAt(weights, 2048)].flatMap((from, index) =>
    moved([sideBySide(from, partAt(bufferOf(1024), 256 * index))]),
  );
  assert.deepEqual(moved([joint!]).sort(), apart.sort());
  const read = readers.map((call) => accessesOf(call)[0]?.part);
  assert.deepEqual(
    read.map((part) => [part?.offset, part?.size]),
    [
      [512, 96],
      [256, 96],
      [0, 96],
    ],
  );
  assert.equal(new Set([...read.map((part) => part?.buffer), accessesOf(joint!)[1]?.part.buffer]).size, 1);
});

test("copies into persistent memory are one behind the last that makes what they read", () => {
  const [one, two] = [bufferOf(96), bufferOf(96)];
  const calls = [
    copyOf(partAt(weights, 0), whole(two)),
    sideBySide(whole(two), partAt(gradients, 1024)),
    copyOf(partAt(weights, 96), whole(one)),
    sideBySide(whole(one), partAt(gradients, 512)),
  ];
  const made = copyAlike(calls, on("cuda"));
  assert.deepEqual(
    made.map(({ op }) => op),
    ["copy", "copy", "sideBySide of 2"],
  );
  const [from, to] = accessesOf(made[2]!).map(({ part }) => part);
  assert.deepEqual([to?.buffer, to?.offset, to?.size], [gradients, 512, 512 + 96]);
  assert.deepEqual([from?.offset, from?.size], [0, 256 + 96]);
});

test("what one group has made of its buffers another leaves alone", () => {
  const [one, two, first, second] = [bufferOf(96), bufferOf(96), bufferOf(96), bufferOf(96)];
  const calls = [
    sideBySide(partAt(weights, 0), whole(one)),
    sideBySide(partAt(weights, 1024), whole(two)),
    sideBySide(whole(one), whole(first)),
    sideBySide(whole(two), whole(second)),
  ];
  const made = copyAlike(calls, on("cuda"));
  assert.deepEqual(
    made.map(({ op }) => op),
    ["sideBySide of 2", "sideBySide", "sideBySide"],
  );
  const [, joint] = accessesOf(made[0]!);
  for (const call of made.slice(1)) assert.equal(accessesOf(call)[0]?.part.buffer, joint?.part.buffer);
});

test("what is of another form, lies otherwise, waits for the other, or runs on a CPU stays as it is", () => {
  const [one, two, last, wide] = [bufferOf(96), bufferOf(96), bufferOf(96), bufferOf(192)];
  const pair = [sideBySide(partAt(weights, 0), whole(one)), sideBySide(partAt(weights, 512), whole(two))];
  assert.equal(copyAlike(pair, on("cuda")).length, 1);
  const otherKernel = { ...pair[1]!, work: { ...pair[1]!.work, kernel: { ...kernel } } };
  const programs: readonly [string, readonly Call[], "cuda" | "cpu"][] = [
    ["on a CPU", pair, "cpu"],
    ["another kernel", [pair[0]!, otherKernel], "cuda"],
    ["overlapping", [pair[0]!, sideBySide(partAt(weights, 48), whole(two))], "cuda"],
    [
      "parts of one buffer",
      [0, 96].map((at) => sideBySide(partAt(weights, 8 * at), partAt(wide, at))),
      "cuda",
    ],
    [
      "one reads the other's",
      [sideBySide(whole(one), whole(two)), sideBySide(whole(two), whole(last))],
      "cuda",
    ],
    ["in between", [pair[0]!, copyOf(whole(one), partAt(weights, 512)), pair[1]!], "cuda"],
  ];
  for (const [what, calls, device] of programs) assert.deepEqual(copyAlike(calls, on(device)), calls, what);
});
