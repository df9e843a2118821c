/** The kernels of values against the reference on the host, bit for bit: every distribution, dtype and length. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { kernelDevices } from "../../../test/support/kernel-runtime.js";
import { sameBytes } from "../../../test/support/same-bytes.js";
import type { KernelSource } from "../../driver/index.js";
import { narrowToBf16, narrowToF16 } from "../../ir/index.js";
import type { Runtime, Storage } from "../../runtime/index.js";
import {
  type Distribution,
  drawIntegers,
  drawValues,
  type Integers,
  standardNormal,
} from "./distribution.js";
import { encodeState, stateBytes } from "./random-state.js";
import type { RandomStream } from "./random-stream.js";
import {
  drawKernel,
  drawLaunch,
  type ValueDtype,
  type ValueRange,
  valueDtypes,
  valueKernel,
  valueLaunch,
  valuesPerBlock,
} from "./value-kernel.js";

const stream: RandomStream = { seed: 0xfedcba9876543210n, id: 2 ** 33 + 5 };
const guardByte = 0xa5;
const guardBytes = 64;

const distributions: readonly Distribution[] = [
  { kind: "uniform", low: -0.3, high: 1.7 },
  { kind: "normal", mean: 0.25, std: 0.02 },
  standardNormal,
  { kind: "truncNormal", mean: 0, std: 1, low: -2, high: 2 },
  // Both tails of the quantile, and the mirrored side.
  { kind: "truncNormal", mean: 1, std: 0.5, low: Number.NEGATIVE_INFINITY, high: Number.POSITIVE_INFINITY },
  { kind: "truncNormal", mean: 0, std: 1, low: 6, high: 9 },
  { kind: "exponential", rate: 0.7 },
];

const encoders: Readonly<Record<ValueDtype, (values: Float32Array) => ArrayBufferView>> = {
  f32: (values) => values,
  f64: (values) => new Float64Array(values),
  bf16: narrowToBf16,
  f16: narrowToF16,
};

const bytesOf = (view: ArrayBufferView): Uint8Array =>
  new Uint8Array(view.buffer, view.byteOffset, view.byteLength);

/** Draws a range into memory with guard bytes after it, and returns all of the memory. */
function draw(
  runtime: Runtime,
  distribution: Distribution,
  dtype: ValueDtype,
  range: ValueRange,
  bytes: number,
  from = stream,
): Uint8Array {
  const memory = runtime.arena.allocate(bytes + guardBytes, "values");
  runtime.fill(memory, guardByte);
  const out: Storage = runtime.view(memory, 0, bytes, "values");
  const { blocks, scalars } = valueLaunch(distribution, from, range);
  const kernel = runtime.kernel(valueKernel(distribution.kind, dtype));
  runtime.launch({ op: "values", kernel, blocks, arguments: [out, ...scalars] });
  const result = runtime.read(memory);
  runtime.arena.dropView(out);
  runtime.arena.free(memory);
  return result;
}

function expected(values: Float32Array, dtype: ValueDtype): Uint8Array {
  const bytes = bytesOf(encoders[dtype](values));
  const all = new Uint8Array(bytes.length + guardBytes).fill(guardByte);
  all.set(bytes);
  return all;
}

for (const { device, skip, open } of kernelDevices) {
  describe(`on ${device}`, { skip }, () => {
    const runtime = skip ? undefined : open();

    const compare = (distribution: Distribution, dtype: ValueDtype, count: number): void => {
      const wanted = expected(drawValues(distribution, stream, count), dtype);
      const range = { first: 0, count };
      const actual = draw(runtime!, distribution, dtype, range, wanted.length - guardBytes);
      sameBytes(actual, wanted, `${count} values of ${distribution.kind} in ${dtype}`);
    };

    test("every distribution has the bits of the host, at every length", () => {
      for (const distribution of distributions)
        for (const count of [1, 2, 3, 4, 5, 7, 8, valuesPerBlock - 1, valuesPerBlock + 1, 5 * valuesPerBlock])
          compare(distribution, "f32", count);
    });

    test("values are rounded to the dtype from float32", () => {
      for (const dtype of valueDtypes)
        for (const kind of ["uniform", "normal", "truncNormal", "exponential"] as const)
          compare(distributions.find((distribution) => distribution.kind === kind)!, dtype, 1027);
    });

    test("a range of a stream can be drawn by itself", () => {
      for (const distribution of distributions.slice(1, 4)) {
        const all = drawValues(distribution, stream, 2100);
        const wanted = expected(all.slice(1024, 2099), "f32");
        const actual = draw(runtime!, distribution, "f32", { first: 1024, count: 1075 }, 4 * 1075);
        sameBytes(actual, wanted, distribution.kind);
      }
    });

    test("values of a draw in memory are those of the stream that its counter names", () => {
      const { seed, id } = stream;
      const state = runtime!.arena.allocate(stateBytes, "draw");
      runtime!.upload([{ source: encodeState({ seed, counter: id }), target: state }]);
      const drawn = (source: KernelSource, values: Distribution | Integers, count: number): Uint8Array => {
        const out = runtime!.arena.allocate(4 * count, "values");
        const { blocks, scalars } = drawLaunch(values, { first: 4, count });
        const kernel = runtime!.kernel(source);
        runtime!.launch({ op: "values", kernel, blocks, arguments: [out, state, ...scalars] });
        const bytes = runtime!.read(out);
        runtime!.arena.free(out);
        return bytes;
      };
      const [from, count] = [{ ...stream, use: "draws" } as const, 1029];
      for (const distribution of distributions.slice(0, 2)) {
        const { kind } = distribution;
        const wanted = bytesOf(drawValues(distribution, from, count + 4).slice(4));
        sameBytes(drawn(drawKernel({ kind, dtype: "f32" }), distribution, count), wanted, kind);
      }
      for (const [low, choices] of [
        [-3, 7],
        [-(2 ** 31), 2 ** 32 - 1],
        [5, 1],
      ] as const) {
        const integers = { kind: "integers", low, count: choices } as const;
        const wanted = bytesOf(drawIntegers(integers, from, count + 4).slice(4));
        sameBytes(
          drawn(drawKernel({ kind: "integers", dtype: "i32" }), integers, count),
          wanted,
          `${choices}`,
        );
      }
      runtime!.arena.free(state);
    });

    test("another seed, another stream and another scale are other bits", () => {
      const [normal] = distributions.slice(1, 2) as [Distribution];
      const wanted = expected(drawValues(normal, stream, 8), "f32");
      const range = { first: 0, count: 8 };
      for (const other of [
        { ...stream, seed: BigInt(stream.seed) ^ 1n },
        { ...stream, seed: BigInt(stream.seed) ^ (1n << 63n) },
        { ...stream, id: BigInt(stream.id) ^ 1n },
        { ...stream, id: BigInt(stream.id) ^ (1n << 40n) },
      ])
        assert.throws(() => sameBytes(draw(runtime!, normal, "f32", range, 32, other), wanted, "other"));
      const scaled: Distribution = { kind: "normal", mean: 0.25, std: 0.020001 };
      assert.throws(() => sameBytes(draw(runtime!, scaled, "f32", range, 32), wanted, "scaled"));
    });
  });
}
