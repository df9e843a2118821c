/** Elements of every dtype in kernels on every device: widened, computed, narrowed, the same at every position. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { kernelDevices, put } from "../../test/support/kernel-runtime.js";
import { sameBytes } from "../../test/support/same-bytes.js";
import { uploadAt } from "../../test/support/unaligned-memory.js";
import type { RowKernel } from "../ir/index.js";
import { type Dtype, dtypeNames, dtypes, iterateElements, term } from "../ir/index.js";
import { rowCalls } from "./kernel-call.js";
import { submit } from "./submit.js";

const bytesOf = (array: ArrayBufferView): Uint8Array =>
  new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
const f32 = (bytes: Uint8Array): Float32Array => new Float32Array(bytes.buffer);

/** The value of every pattern of 16 bits. */
function valuesOfPatterns(exponentBits: number, fractionBits: number): Float32Array {
  const bias = 2 ** (exponentBits - 1) - 1;
  const largest = 2 ** exponentBits - 1;
  const fractions = 2 ** fractionBits;
  const powers = Array.from({ length: largest }, (_, exponent) => 2 ** (Math.max(1, exponent) - bias));
  return Float32Array.from({ length: 65_536 }, (_, pattern) => {
    const exponent = (pattern >> fractionBits) & largest;
    const fraction = (pattern & (fractions - 1)) / fractions;
    const finite = ((exponent > 0 ? 1 : 0) + fraction) * powers[exponent % largest]!;
    const special = fraction === 0 ? Number.POSITIVE_INFINITY : Number.NaN;
    const magnitude = exponent === largest ? special : finite;
    return pattern & 0x8000 ? -magnitude : magnitude;
  });
}

const patternValues = { bf16: valuesOfPatterns(8, 7), f16: valuesOfPatterns(5, 10) } as const;

for (const { device, skip, open } of kernelDevices) {
  describe(`on ${device}`, { skip }, () => {
    const runtime = open();

    /**
     * Converts a buffer of one dtype to others through one kernel; elements of the source have the stride `step`, and all memory begins `offset` bytes after an aligned address.
     */
    function convert(
      source: Uint8Array,
      from: Dtype,
      targets: readonly Dtype[],
      { step = 1, offset = 0 } = {},
    ): Uint8Array[] {
      const count = Math.floor(source.length / dtypes[from].bytes / step);
      const value = term.load(0, dtypes[from].compute);
      const kernel: RowKernel = {
        name: `convert ${from}`,
        inputs: [from],
        outputs: targets.map((dtype) => ({ dtype, per: "element" })),
        scalars: [],
        stages: targets.map((to, output) => ({
          kind: "store",
          output,
          value: term.convert(value, dtypes[to].compute),
        })),
      };
      return runtime.step(() => {
        const outputs = targets.map((to) =>
          uploadAt(runtime, new Uint8Array(Math.max(1, count * dtypes[to].bytes)), offset),
        );
        const operands = [uploadAt(runtime, source, offset), ...outputs];
        const iteration = iterateElements([count], [[step], ...outputs.map(() => [1])]);
        submit(runtime, rowCalls({ kernel, iteration, operands }));
        return outputs.map((output) => runtime.read(output));
      });
    }

    const convertOne = (source: Uint8Array, from: Dtype, to: Dtype): Uint8Array =>
      convert(source, from, [to])[0]!;

    test("every bf16 and f16 pattern widens to its value and narrows back to itself", () => {
      const patterns = Uint16Array.from({ length: 65_536 }, (_, index) => index);
      for (const dtype of ["bf16", "f16"] as const) {
        const wide = convertOne(bytesOf(patterns), dtype, "f32");
        const back = new Uint16Array(convertOne(wide, "f32", dtype).buffer);
        const values = f32(wide);
        for (let pattern = 0; pattern < patterns.length; pattern++) {
          const value = values[pattern]!;
          const expected = patternValues[dtype][pattern]!;
          // A NaN may come back as another one.
          const isNan = (back[pattern]! & 0x7fff) > (dtype === "bf16" ? 0x7f80 : 0x7c00);
          const isSame = Number.isNaN(expected) ? isNan : back[pattern] === pattern;
          if (Object.is(value, expected) && isSame) continue;
          assert.fail(
            `${dtype} ${pattern.toString(16)} is ${value}, and back ${back[pattern]!.toString(16)}`,
          );
        }
      }
    });

    test("16-bit elements pass through vectors of eight, of four and single ones with the same bits", () => {
      const count = 8 * 300;
      const patterns = Uint16Array.from({ length: count }, (_, index) => (27 * index) % 0x7c00);
      for (const [length, offset] of [
        [count, 0],
        [count, 8],
        [count - 4, 0],
        [count, 2],
      ] as const) {
        const source = bytesOf(patterns.subarray(0, length));
        assert.deepEqual(convert(source, "f16", ["f16"], { offset })[0], new Uint8Array(source), `${length}`);
      }
    });

    test("narrowing a float rounds to nearest even, and overflows to infinity", () => {
      const cases: readonly [dtype: "f16" | "bf16", value: number, bits: number][] = [
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
      const values = Float32Array.from(cases, ([, value]) => value);
      for (const dtype of ["f16", "bf16"] as const) {
        const actual = new Uint16Array(convertOne(bytesOf(values), "f32", dtype).buffer);
        for (const [index, [own, value, bits]] of cases.entries()) {
          if (own === dtype) assert.equal(actual[index], bits, `${value} as ${dtype}`);
        }
      }
    });

    test("conversions between all dtypes are the same in vectors, in tails, at every address and with strides", () => {
      // 8-bit floats have two or three bits after the first.
      const values = [0, 1, 2, 7, 96, 3, 1, 0, 5, 10, 112, 4, 6];
      const sources = convert(bytesOf(Float32Array.from(values)), "f32", dtypeNames);
      for (const [which, from] of dtypeNames.entries()) {
        const source = sources[which]!;
        const { bytes } = dtypes[from];
        const stretched = new Uint8Array(2 * source.length);
        for (let index = 0; index < values.length; index++) {
          stretched.set(source.subarray(index * bytes, (index + 1) * bytes), 2 * index * bytes);
        }
        const there = convert(source, from, dtypeNames);
        for (const [index, to] of dtypeNames.entries()) {
          sameBytes(there[index]!, sources[index]!, `${from} to ${to}`);
        }
        // Eight bytes on, an element of every dtype may lie, but no four of them.
        const elsewhere = convert(source, from, dtypeNames, { offset: 8 });
        const strided = convert(stretched, from, dtypeNames, { step: 2 });
        for (const [index, to] of dtypeNames.entries()) {
          sameBytes(elsewhere[index]!, there[index]!, `${from} to ${to}, elsewhere`);
          sameBytes(strided[index]!, there[index]!, `${from} to ${to}, strided`);
        }
      }
      assert.deepEqual([...f32(sources[dtypeNames.indexOf("f32")]!)], values);
    });

    test("doubles keep all bits", () => {
      const values = Float64Array.from({ length: 9 }, (_, index) => Math.PI * (index - 3) * 1e-3);
      sameBytes(convertOne(bytesOf(values), "f64", "f64"), bytesOf(values), "doubles");
      const narrowed = Float32Array.from(values);
      sameBytes(convertOne(bytesOf(values), "f64", "f32"), bytesOf(narrowed), "floats");
    });

    test("comparisons are stored as 0 or 1 in every dtype, at every position, for every compared type", () => {
      const numbers = Float32Array.from({ length: 11 }, (_, index) => (index * 5) % 11);
      const expected = [...numbers].map((value) => (value > 4 ? 1 : 0));
      const targets = ["bool", "u8", "i32"] as const;
      for (const type of ["f32", "f64", "i32"] as const) {
        const isLarge = term.gt(term.load(0, type), 4);
        const kernel: RowKernel = {
          name: "isLarge",
          inputs: [type],
          outputs: targets.map((dtype) => ({ dtype, per: "element" })),
          scalars: [],
          stages: targets.map((_, output) => ({ kind: "store", output, value: isLarge })),
        };
        const source = convertOne(bytesOf(numbers), "f32", type);
        const actual = runtime.step(() => {
          const outputs = targets.map((dtype) =>
            runtime.arena.allocate(numbers.length * dtypes[dtype].bytes, "truths"),
          );
          const operands = [put(runtime, source, "numbers"), ...outputs];
          const iteration = iterateElements(
            [numbers.length],
            operands.map(() => [1]),
          );
          submit(runtime, rowCalls({ kernel, iteration, operands }));
          return outputs.map((output) => runtime.read(output));
        });
        for (const [index, dtype] of targets.entries()) {
          const stored = dtype === "i32" ? new Int32Array(actual[index]!.buffer) : actual[index]!;
          assert.deepEqual([...stored], expected, `${type} compared, stored as ${dtype}`);
        }
      }
    });

    test("a random word becomes a float in [0, 1) by its upper 24 bits, and its lower bits can be masked", () => {
      const words = Int32Array.of(0, -1, 0x12345678, -0x7fffffff, 255, 256, -256, 7, 1 << 30);
      const word = term.load(0, "i32");
      const uniform = term.mul(term.convert(term.shr(word, 8), "f32"), 2 ** -24);
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
          { kind: "store", output: 1, value: term.and(word, 0x1ff) },
        ],
      };
      const [uniforms, lowers] = runtime.step(() => {
        const outputs = ["uniforms", "lowers"].map((label) =>
          runtime.arena.allocate(words.byteLength, label),
        );
        const iteration = iterateElements([words.length], [[1], [1], [1]]);
        submit(
          runtime,
          rowCalls({ kernel, iteration, operands: [put(runtime, words, "words"), ...outputs] }),
        );
        return outputs.map((output) => runtime.read(output));
      });
      assert.deepEqual(
        f32(uniforms!),
        Float32Array.from(words, (word) => (word >>> 8) * 2 ** -24),
      );
      assert.deepEqual(
        new Int32Array(lowers!.buffer),
        words.map((word) => word & 0x1ff),
      );
    });
  });
}
