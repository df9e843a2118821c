/**
 * N8: vector loads on odd sizes faulted and poisoned the context. Odd sizes and views with offsets, for the
 * kernels that work in vectors: no byte next to an output is written, and no byte after an input is used as a
 * value.
 */

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { type KernelSource, strict } from "holdfast/internals";
import { type CudaCode, encodeKernel } from "../../src/driver/index.js";
import { activations, functions, type Op } from "../../src/ops/index.js";
import type { Tensor } from "../../src/tensor/index.js";
import { openDevice } from "../support/devices.js";
import { isThorough } from "../support/effort.js";
import { guarded } from "../support/guarded-driver.js";
import { uploadOperand } from "../support/op-runs.js";
import { regressionRow } from "../support/regressions.js";
import { sameBytes } from "../support/same-bytes.js";
import { openTestDriver } from "../support/test-device.js";

const driver = openTestDriver();
const cpu = openDevice({ driver: strict(guarded(driver)), memory: "64MiB", poison: true });
after(() => driver.close());

/** Ways to double and to sum an array. */
interface Vectorised {
  double(x: Tensor): Tensor;
  total(x: Tensor): number;
}

const engine: Vectorised = { double: (x) => x.add(x), total: (x) => x.sum().item() };

/** The faulty kernels for a GPU, element by element: an unaligned vector would end the whole context. */
function cudaOf(name: string, body: string): CudaCode {
  const entry = `hf_${name}`;
  const head = `extern "C" __global__ void __launch_bounds__(32) ${entry}(const float* from, float* to, unsigned count)`;
  return { entry, threads: 32, code: `${head} {\n  if (threadIdx.x > 0u) return;\n${body}\n}\n` };
}

/** `for (at = 0; at < n; at += 4)`: the last vector may be partly after the end. */
const doubleInWasm = encodeKernel({
  name: "doubleInWholeVectors",
  parameters: ["in", "out", "u32"],
  body(code, argument) {
    const at = code.local("i32");
    code.loop((again) => {
      code.get(argument(1)).get(at).op("i32.add");
      for (const _ of [0, 1]) code.get(argument(0)).get(at).op("i32.add").memory("v128.load");
      code.op("f32x4.add").memory("v128.store");
      code.get(at).i32(16).op("i32.add").set(at);
      code.get(at).get(argument(2)).i32(2).op("i32.shl").op("i32.lt_u").branchIf(again);
    });
  },
});

const totalInWasm = encodeKernel({
  name: "totalOfWholeVectors",
  parameters: ["in", "out", "u32"],
  body(code, argument) {
    const at = code.local("i32");
    const sum = code.local("v128");
    code.loop((again) => {
      code.get(sum).get(argument(0)).get(at).op("i32.add").memory("v128.load").op("f32x4.add").set(sum);
      code.get(at).i32(16).op("i32.add").set(at);
      code.get(at).get(argument(2)).i32(2).op("i32.shl").op("i32.lt_u").branchIf(again);
    });
    code.get(argument(1));
    for (const lane of [0, 1, 2, 3]) {
      code.get(sum).lane("f32x4.extract_lane", lane);
      if (lane > 0) code.op("f32.add");
    }
    code.memory("f32.store");
  },
});

const doubleInWholeVectors: KernelSource = {
  ...doubleInWasm,
  cuda: cudaOf(
    doubleInWasm.name,
    `  for (unsigned at = 0; at < count; at += 4u)
    for (unsigned lane = 0; lane < 4u; lane++) to[at + lane] = from[at + lane] + from[at + lane];`,
  ),
};
const totalOfWholeVectors: KernelSource = {
  ...totalInWasm,
  cuda: cudaOf(
    totalInWasm.name,
    `  float total = 0.0f;
  for (unsigned at = 0; at < count; at += 4u)
    for (unsigned lane = 0; lane < 4u; lane++) total += from[at + lane];
  to[0] = total;`,
  ),
};

function launchOver(source: KernelSource, x: Tensor, shape: readonly number[]): Tensor {
  const { runtime } = cpu;
  const size = shape.reduce((count, extent) => count * extent, 1);
  const target = runtime.arena.allocate(4 * size, source.name);
  const kernel = runtime.kernel(source);
  runtime.launch({ op: source.name, kernel, blocks: 1, arguments: [x.array.storage!, target, x.numel] });
  return cpu.fromStorage(target, shape, "f32");
}

regressionRow<Vectorised>({
  row: "N8",
  rule: "at every size from 1 to 37 and from every offset, nothing next to the output is written and nothing after the input is read",
  sound: engine,
  faults: {
    "whole vectors are stored past an odd end": {
      ...engine,
      double: (x) => launchOver(doubleInWholeVectors, x, x.shape),
    },
    "whole vectors are read past an odd end": {
      ...engine,
      total: (x) => launchOver(totalOfWholeVectors, x, [1]).item(),
    },
  },
  check({ double, total }) {
    for (let size = 1; size <= 37; size++) {
      for (const layout of ["contiguous", "offset"] as const) {
        cpu.step(() => {
          const values = Array.from({ length: size }, (_, index) => index + 1);
          const { tensor } = uploadOperand(cpu, { shape: [size], values, dtype: "f32", layout }, "f32");
          const twice = values.map((value) => 2 * value);
          assert.deepEqual([...double(tensor).dataSync()], twice, `${size} elements, ${layout}`);
          assert.equal(total(tensor), (size * (size + 1)) / 2, `the sum of ${size} elements, ${layout}`);
        });
      }
    }
  },
});

const [longest, offsets] = [19, 5] as const;
const sizes = [1, 2, 3, 5, 7, 9, 17, longest] as const;

/** Every size from every offset; or each of them with some of the others. */
const slices = sizes
  .flatMap((size, index) => Array.from({ length: offsets }, (_, offset) => ({ size, index, offset })))
  .filter(({ index, offset }) => isThorough || (index + offset) % 4 === 0);

for (const dtype of ["f32", "f16", "bf16", "f64"] as const) {
  test(`N8: every function of one operand in ${dtype}, at odd sizes and offsets: the same bits at every offset of an element`, () => {
    const values = Array.from({ length: longest + offsets }, (_, index) => 0.05 + index / 13);
    for (const [name, op] of Object.entries({ ...functions, ...activations })) {
      const run = (x: Tensor) =>
        cpu.apply(op as unknown as Op, [x], { negativeSlope: 0.1, min: 0.2, value: 7 });
      cpu.step(() => {
        const x = cpu.fromHost(values, [values.length], dtype);
        const whole = run(x).dataSync().slice();
        for (const { size, offset } of slices) {
          sameBytes(
            run(viewFrom(x, offset, size)).dataSync(),
            whole.slice(offset, offset + size),
            `${name}: ${size} elements from ${offset} on`,
          );
        }
      });
    }
  });
}

/** A view of some elements, from any offset. */
function viewFrom(x: Tensor, offset: number, size: number): Tensor {
  const { storage, dtype } = x.array;
  const { span } = storage ?? assert.fail("there are no elements");
  const each = span.size / x.numel;
  return cpu.fromStorage(cpu.runtime.view(storage!, offset * each, size * each), [size], dtype);
}
