/** Elements of every dtype through a printed kernel: widened, computed with, narrowed, and the same at every place. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openKernelRuntime } from "../../../test/support/kernel-runtime.js";
import { type Dtype, dtypeNames, dtypes } from "../dtypes.js";
import type { Expression, RowKernel } from "../ir.js";
import { iterateElements } from "../iteration.js";
import { launchRows } from "../launch.js";

const runtime = openKernelRuntime();

/** Converts a buffer of one dtype to another through a kernel, elements `step` apart in the source. */
function convert(source: Uint8Array, from: Dtype, to: Dtype, step = 1): Uint8Array {
  const count = Math.floor(source.length / dtypes[from].bytes / step);
  const load: Expression = { kind: "load", input: 0, type: dtypes[from].compute };
  const kernel: RowKernel = {
    name: "convert",
    inputs: [from],
    outputs: [{ dtype: to, per: "element" }],
    scalars: [],
    stages: [{ kind: "store", output: 0, value: { kind: "convert", a: load, type: dtypes[to].compute } }],
  };
  return runtime.step(() => {
    const input = runtime.arena.allocate(source.length, "from");
    const output = runtime.arena.allocate(Math.max(1, count * dtypes[to].bytes), "to");
    runtime.upload([{ source, target: input }]);
    launchRows(runtime, {
      kernel,
      iteration: iterateElements([count], [[step], [1]]),
      operands: [input, output],
    });
    return runtime.read(output);
  });
}

const bytesOf = (array: ArrayBufferView): Uint8Array =>
  new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
const f32 = (bytes: Uint8Array): Float32Array => new Float32Array(bytes.buffer);

test("every bf16 and f16 pattern widens to its value and narrows back to itself", () => {
  const patterns = Uint16Array.from({ length: 65_536 }, (_, index) => index);
  for (const dtype of ["bf16", "f16"] as const) {
    const wide = convert(bytesOf(patterns), dtype, "f32");
    const back = new Uint16Array(convert(wide, "f32", dtype).buffer);
    const values = f32(wide);
    for (const [pattern, value] of values.entries()) {
      const [exponentBits, fractionBits] = dtype === "bf16" ? [8, 7] : [5, 10];
      const exponent = (pattern >> fractionBits) & (2 ** exponentBits - 1);
      const fraction = pattern & (2 ** fractionBits - 1);
      if (exponent === 2 ** exponentBits - 1 && fraction !== 0) {
        assert.ok(Number.isNaN(value) && (back[pattern]! & 0x7fff) > (dtype === "bf16" ? 0x7f80 : 0x7c00));
        continue;
      }
      const bias = 2 ** (exponentBits - 1) - 1;
      const magnitude =
        exponent === 2 ** exponentBits - 1
          ? Number.POSITIVE_INFINITY
          : exponent === 0
            ? fraction * 2 ** (1 - bias - fractionBits)
            : (1 + fraction / 2 ** fractionBits) * 2 ** (exponent - bias);
      assert.ok(
        Object.is(value, pattern & 0x8000 ? -magnitude : magnitude),
        `${dtype} ${pattern.toString(16)}`,
      );
      assert.equal(back[pattern], pattern, `${dtype} ${pattern.toString(16)}`);
    }
  }
});

test("narrowing a float rounds to the nearest, ties to even, and overflows to infinity", () => {
  const cases: [Dtype, number, number][] = [
    ["f16", 1 + 2 ** -11, 0x3c00],
    ["f16", 1 + 3 * 2 ** -11, 0x3c02],
    ["f16", 65_519, 0x7bff],
    ["f16", 65_520, 0x7c00],
    ["f16", 1e30, 0x7c00],
    ["f16", 2 ** -25, 0x0000],
    ["f16", 2 ** -25 * 1.0001, 0x0001],
    ["f16", -1e30, 0xfc00],
    ["bf16", 1 + 2 ** -8, 0x3f80],
    ["bf16", 1 + 3 * 2 ** -8, 0x3f82],
    ["bf16", 3.4e38, 0x7f80],
  ];
  for (const [dtype, value, expected] of cases) {
    const found = new Uint16Array(convert(bytesOf(Float32Array.of(value)), "f32", dtype).buffer)[0];
    assert.equal(found, expected, `${value} as ${dtype}`);
  }
});

test("every dtype converts to every other alike in vectors, at a row's end and over strides", () => {
  const values = [0, 1, 2, 7, 100, 3, 1, 0, 5, 9, 255, 4, 6];
  for (const from of dtypeNames) {
    const source = convert(bytesOf(Float32Array.from(values)), "f32", from);
    const stretched = new Uint8Array(2 * source.length);
    const { bytes } = dtypes[from];
    for (let index = 0; index < values.length; index++) {
      stretched.set(source.subarray(index * bytes, (index + 1) * bytes), 2 * index * bytes);
    }
    for (const to of dtypeNames) {
      const there = convert(source, from, to);
      assert.deepEqual(convert(stretched, from, to, 2), there, `${from} to ${to}, strided`);
      assert.deepEqual([...f32(convert(there, to, "f32"))], values, `${from} to ${to}`);
    }
  }
});

test("doubles keep all their bits, and their elementary functions are the engine's", () => {
  const values = Float64Array.from({ length: 9 }, (_, index) => Math.PI * (index - 3) * 1e-3);
  const x: Expression = { kind: "load", input: 0, type: "f64" };
  const power: Expression = {
    kind: "binary",
    op: "pow",
    a: { kind: "constant", value: 2, type: "f64" },
    b: x,
    type: "f64",
  };
  const kernel: RowKernel = {
    name: "doubles",
    inputs: ["f64"],
    outputs: [{ dtype: "f64", per: "element" }],
    scalars: [],
    stages: [
      {
        kind: "store",
        output: 0,
        value: {
          kind: "binary",
          op: "add",
          a: { kind: "unary", op: "exp", a: x, type: "f64" },
          b: power,
          type: "f64",
        },
      },
    ],
  };
  const found = runtime.step(() => {
    const [input, output] = ["in", "out"].map((label) => runtime.arena.allocate(values.byteLength, label));
    runtime.upload([{ source: values, target: input! }]);
    launchRows(runtime, { kernel, iteration: iterateElements([9], [[1], [1]]), operands: [input!, output!] });
    return new Float64Array(runtime.read(output!).buffer);
  });
  assert.deepEqual(
    found,
    values.map((value) => Math.exp(value) + 2 ** value),
  );
});

test("truth values are stored as 0 or 1 in every dtype, at every place, from every type compared", () => {
  for (const type of ["f32", "f64", "i32"] as const) {
    const isLarge: Expression = {
      kind: "compare",
      op: "gt",
      a: { kind: "load", input: 0, type },
      b: { kind: "constant", value: 4, type },
      type: "i32",
    };
    const source = convert(
      bytesOf(Float32Array.from({ length: 11 }, (_, index) => (index * 5) % 11)),
      "f32",
      type,
    );
    for (const dtype of ["bool", "u8", "i32"] as const) {
      const kernel: RowKernel = {
        name: "isLarge",
        inputs: [type],
        outputs: [{ dtype, per: "element" }],
        scalars: [],
        stages: [{ kind: "store", output: 0, value: isLarge }],
      };
      const found = runtime.step(() => {
        const input = runtime.arena.allocate(source.length, "in");
        const output = runtime.arena.allocate(11 * dtypes[dtype].bytes, "out");
        runtime.upload([{ source, target: input }]);
        launchRows(runtime, {
          kernel,
          iteration: iterateElements([11], [[1], [1]]),
          operands: [input, output],
        });
        return runtime.read(output);
      });
      const expected = Int32Array.from({ length: 11 }, (_, index) => ((index * 5) % 11 > 4 ? 1 : 0));
      const stored = dtype === "i32" ? new Int32Array(found.buffer) : Int32Array.from(found);
      assert.deepEqual(stored, expected, `${type} compared, stored as ${dtype}`);
    }
  }
});

test("a random word becomes a float from 0 to 1 by its upper 24 bits, and keeps its lower ones under a mask", () => {
  const words = Int32Array.of(0, -1, 0x12345678, -0x7fffffff, 255, 256, -256, 7, 1 << 30);
  const word: Expression = { kind: "load", input: 0, type: "i32" };
  const upper: Expression = {
    kind: "binary",
    op: "shr",
    a: word,
    b: { kind: "constant", value: 8, type: "i32" },
    type: "i32",
  };
  const uniform: Expression = {
    kind: "binary",
    op: "mul",
    a: { kind: "convert", a: upper, type: "f32" },
    b: { kind: "constant", value: 2 ** -24, type: "f32" },
    type: "f32",
  };
  const lower: Expression = {
    kind: "binary",
    op: "and",
    a: word,
    b: { kind: "constant", value: 0x1ff, type: "i32" },
    type: "i32",
  };
  const kernel: RowKernel = {
    name: "words",
    inputs: ["i32"],
    outputs: [
      { dtype: "f32", per: "element" },
      { dtype: "i32", per: "element" },
    ],
    scalars: [],
    stages: [
      { kind: "store", output: 0, value: uniform },
      { kind: "store", output: 1, value: lower },
    ],
  };
  const [uniforms, lowers] = runtime.step(() => {
    const input = runtime.arena.allocate(words.byteLength, "words");
    runtime.upload([{ source: words, target: input }]);
    const outputs = ["uniforms", "lowers"].map((label) => runtime.arena.allocate(words.byteLength, label));
    const iteration = iterateElements([words.length], [[1], [1], [1]]);
    launchRows(runtime, { kernel, iteration, operands: [input, ...outputs] });
    return outputs.map((output) => runtime.read(output));
  });
  assert.deepEqual(
    f32(uniforms!),
    Float32Array.from(words, (one) => (one >>> 8) * 2 ** -24),
  );
  assert.deepEqual(
    new Int32Array(lowers!.buffer),
    words.map((one) => one & 0x1ff),
  );
});
