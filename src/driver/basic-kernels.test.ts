/** The basic kernels on every device: the same bits at any size and offset, and no write outside the output. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { kernelDevices, put } from "../../test/support/kernel-runtime.js";
import { sameBytes } from "../../test/support/same-bytes.js";
import { basicKernels } from "./basic-kernels.js";
import { blockCount, elementsPerBlock } from "./index.js";

const guard = 12345;
const sizes = [1, 3, 4, 5, elementsPerBlock - 1, elementsPerBlock + 1, 2 * elementsPerBlock + 3];
const value = (index: number): number => Math.fround(Math.sin(index * 1.7) * 100);

/** The expected `out` of each kernel, for `a`, `b` and the factor b[0]. */
const references: Readonly<
  Record<keyof typeof basicKernels, (a: Float32Array, b: Float32Array) => Float32Array>
> = {
  fill: (a) => a.map(() => 2.5),
  copy: (a) => a,
  add: (a, b) => a.map((element, index) => element + b[index]!),
  scale: (a, b) => a.map((element) => element * b[0]!),
  sum: (a) =>
    Float32Array.from({ length: blockCount(a.length) }, (_, block) =>
      sumInLanes(a.subarray(block * elementsPerBlock, (block + 1) * elementsPerBlock)),
    ),
};

/** Four lanes, added as (0 + 1) + (2 + 3), then the last elements one by one. */
function sumInLanes(elements: Float32Array): number {
  const lanes = new Float32Array(4);
  const whole = elements.length - (elements.length % 4);
  for (let index = 0; index < whole; index++) lanes[index % 4]! += elements[index]!;
  const halves = Float32Array.of(lanes[0]! + lanes[1]!, lanes[2]! + lanes[3]!);
  let total = Math.fround(halves[0]! + halves[1]!);
  for (const element of elements.subarray(whole)) total = Math.fround(total + element);
  return total;
}

for (const { device, skip, open } of kernelDevices) {
  describe(`on ${device}`, { skip }, () => {
    const runtime = open();

    for (const [name, source] of Object.entries(basicKernels)) {
      test(`${name} gives the bits of its definition at odd sizes and offsets, and writes nothing else`, () => {
        for (const size of sizes) {
          for (const offset of [0, 1, 3]) {
            const actual = runtime.step(() => {
              const [a, b] = [value, (index: number) => value(index + size)].map((make) => {
                const whole = put(
                  runtime,
                  Float32Array.from({ length: size + 8 }, (_, index) => make(index)),
                  "in",
                );
                return runtime.view(whole, 4 * offset, 4 * size);
              });
              const room = put(runtime, new Float32Array(size + 8).fill(guard), "out");
              const length = name === "sum" ? blockCount(size) : size;
              const out = runtime.view(room, 4 * offset, 4 * length);
              const operands = {
                fill: [out, 2.5],
                copy: [a!, out],
                add: [a!, b!, out],
                scale: [a!, out, b!],
                sum: [a!, out],
              }[name as keyof typeof basicKernels];
              const kernel = runtime.kernel(source);
              // One block more than needed.
              const blocks = name === "sum" ? length : blockCount(size) + 1;
              runtime.launch({ op: name, kernel, blocks, arguments: [...operands, size] });
              return new Float32Array(runtime.read(room).buffer);
            });
            const elementsFrom = (first: number) =>
              Float32Array.from({ length: size }, (_, index) => value(first + offset + index));
            const expected = new Float32Array(size + 8).fill(guard);
            expected.set(
              references[name as keyof typeof basicKernels](elementsFrom(0), elementsFrom(size)),
              offset,
            );
            sameBytes(actual, expected, `${size} elements from ${offset} on`);
          }
        }
      });
    }
  });
}

test("every basic kernel has WebAssembly and CUDA code", () => {
  for (const { wasm, cuda, name } of Object.values(basicKernels)) assert.ok(wasm && cuda, name);
});
