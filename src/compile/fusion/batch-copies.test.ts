/** Copies of one form in one launch: which go together, where the one stands, and that it moves what they moved. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { onCalls } from "../../../test/support/rewritten.js";
import { iterateElements, type RowKernel, term } from "../../ir/index.js";
import type { Runtime } from "../../runtime/index.js";
import { accessesOf, type Buffer, type BufferSlice, type Call, type RowCall } from "../program/program.js";
import { batchCopies as batchCopiesIn } from "./batch-copies.js";

const batchCopies = onCalls(batchCopiesIn);

const on = (kind: "cuda" | "cpu"): Runtime => ({ device: { kind } }) as unknown as Runtime;

let buffers = 0;
const bufferOf = (bytes: number): Buffer => ({ id: buffers++, bytes, label: `b${buffers}` });
const whole = (buffer: Buffer): BufferSlice => ({ buffer, offset: 0, size: buffer.bytes });

/** Persistent memory at an address of its own. */
function regionOf(bytes: number): Buffer {
  const buffer = bufferOf(bytes);
  const storage = { span: { address: (buffer.id + 1) * 2 ** 20, size: bytes } };
  return { ...buffer, storage: storage as unknown as NonNullable<Buffer["storage"]> };
}

const [weights, gradients] = [regionOf(4096), regionOf(4096)];
const sliceAt = (buffer: Buffer, offset: number, size = 96): BufferSlice => ({ buffer, offset, size });

const kernel: RowKernel = {
  ...{ name: "copy", inputs: ["f32"], outputs: [{ dtype: "f32", per: "element" }], scalars: [] },
  stages: [{ kind: "store", output: 0, value: term.load(0, "f32") }],
};

/** Two matrices [3, 4], one behind the other, side by side: [3, 8]. */
function concatWeights(from: BufferSlice, to: BufferSlice): Call & { readonly work: RowCall } {
  const strides = [
    [4, 12, 1],
    [8, 4, 1],
  ];
  const iteration = iterateElements([3, 2, 4], strides);
  return { op: "concatWeights", work: { kind: "row", kernel, iteration, operands: [from, to], scalars: [] } };
}

const copyOf = (source: BufferSlice, target: BufferSlice): Call => ({
  op: "copy",
  work: { kind: "copy", source, target },
});

/** Every word that a program's row calls move: from where to where. */
function moved(calls: readonly Call[]): string[] {
  return calls.flatMap(({ work }) => {
    if (work.kind !== "row") return [];
    const [from, to] = work.operands as [BufferSlice, BufferSlice];
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
  const target = (index: number): BufferSlice => sliceAt(gradients, 96 * index);
  const calls = [
    // Backward, the last layer comes first.
    concatWeights(sliceAt(weights, 2048), whole(three)),
    copyOf(whole(three), target(3)),
    concatWeights(sliceAt(weights, 1024), whole(two)),
    copyOf(whole(two), target(2)),
    concatWeights(sliceAt(weights, 0), whole(one)),
    copyOf(whole(one), target(1)),
  ];
  const [joint, ...readers] = batchCopies(on("cuda"), calls);
  assert.equal(joint?.op, "concatWeights of 3");
  assert.deepEqual(
    readers.map(({ op }) => op),
    ["copy", "copy", "copy"],
  );
  const apart = [sliceAt(weights, 0), sliceAt(weights, 1024), sliceAt(weights, 2048)].flatMap((from, index) =>
    moved([concatWeights(from, sliceAt(bufferOf(1024), 256 * index))]),
  );
  assert.deepEqual(moved([joint!]).sort(), apart.sort());
  const read = readers.map((call) => accessesOf(call)[0]?.slice);
  assert.deepEqual(
    read.map((slice) => [slice?.offset, slice?.size]),
    [
      [512, 96],
      [256, 96],
      [0, 96],
    ],
  );
  assert.equal(new Set([...read.map((slice) => slice?.buffer), accessesOf(joint!)[1]?.slice.buffer]).size, 1);
});

test("copies into persistent memory are one behind the last that makes what they read", () => {
  const [one, two] = [bufferOf(96), bufferOf(96)];
  const calls = [
    copyOf(sliceAt(weights, 0), whole(two)),
    concatWeights(whole(two), sliceAt(gradients, 1024)),
    copyOf(sliceAt(weights, 96), whole(one)),
    concatWeights(whole(one), sliceAt(gradients, 512)),
  ];
  const made = batchCopies(on("cuda"), calls);
  assert.deepEqual(
    made.map(({ op }) => op),
    ["copy", "copy", "concatWeights of 2"],
  );
  const [from, to] = accessesOf(made[2]!).map(({ slice }) => slice);
  assert.deepEqual([to?.buffer, to?.offset, to?.size], [gradients, 512, 512 + 96]);
  assert.deepEqual([from?.offset, from?.size], [0, 256 + 96]);
});

test("what one group has made of its buffers another leaves alone", () => {
  const [one, two, first, second] = [bufferOf(96), bufferOf(96), bufferOf(96), bufferOf(96)];
  const calls = [
    concatWeights(sliceAt(weights, 0), whole(one)),
    concatWeights(sliceAt(weights, 1024), whole(two)),
    concatWeights(whole(one), whole(first)),
    concatWeights(whole(two), whole(second)),
  ];
  const made = batchCopies(on("cuda"), calls);
  assert.deepEqual(
    made.map(({ op }) => op),
    ["concatWeights of 2", "concatWeights", "concatWeights"],
  );
  const [, joint] = accessesOf(made[0]!);
  for (const call of made.slice(1)) assert.equal(accessesOf(call)[0]?.slice.buffer, joint?.slice.buffer);
});

test("what is of another form, lies otherwise, waits for the other, or runs on a CPU stays as it is", () => {
  const [one, two, last, wide] = [bufferOf(96), bufferOf(96), bufferOf(96), bufferOf(192)];
  const pair = [
    concatWeights(sliceAt(weights, 0), whole(one)),
    concatWeights(sliceAt(weights, 512), whole(two)),
  ];
  assert.equal(batchCopies(on("cuda"), pair).length, 1);
  const otherKernel = { ...pair[1]!, work: { ...pair[1]!.work, kernel: { ...kernel } } };
  const programs: readonly [string, readonly Call[], "cuda" | "cpu"][] = [
    ["on a CPU", pair, "cpu"],
    ["another kernel", [pair[0]!, otherKernel], "cuda"],
    ["overlapping", [pair[0]!, concatWeights(sliceAt(weights, 48), whole(two))], "cuda"],
    [
      "parts of one buffer",
      [0, 96].map((at) => concatWeights(sliceAt(weights, 8 * at), sliceAt(wide, at))),
      "cuda",
    ],
    [
      "one reads the other's",
      [concatWeights(whole(one), whole(two)), concatWeights(whole(two), whole(last))],
      "cuda",
    ],
    ["in between", [pair[0]!, copyOf(whole(one), sliceAt(weights, 512)), pair[1]!], "cuda"],
  ];
  for (const [what, calls, device] of programs) assert.deepEqual(batchCopies(on(device), calls), calls, what);
});
