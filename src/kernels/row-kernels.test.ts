/** Row kernels on every device against a plain implementation: random expressions, shapes, strides and addresses. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { effort } from "../../test/support/effort.js";
import { evaluate } from "../../test/support/ir-reference.js";
import { kernelDevices, put } from "../../test/support/kernel-runtime.js";
import {
  f32Expressions,
  i32Expressions,
  inputDtypes,
  reach,
  scalarValue,
} from "../../test/support/random-expressions.js";
import { rejects } from "../../test/support/rejects.js";
import { uploadAt } from "../../test/support/unaligned-memory.js";
import type { Output, RowKernel } from "../ir/index.js";
import { iterateElements, iterateRows, term } from "../ir/index.js";
import type { Runtime, Storage } from "../runtime/index.js";
import { rowCalls } from "./kernel-call.js";
import { submit } from "./submit.js";

/** An operand's buffer with strides into it: contiguous, broadcast, permuted, stretched or padded along the shape. */
interface Operand {
  readonly values: Float32Array | Int32Array;
  readonly strides: readonly number[];
  /** Its distance from an aligned address, in elements. */
  readonly offset: number;
}

function operandOf(
  shape: readonly number[],
  way: number,
  make: (index: number) => number,
  isWhole: boolean,
): Operand {
  const stretch = way % 3 === 0 ? 2 : 1;
  const order =
    way % 2 === 0 ? shape.map((_, axis) => axis) : shape.map((_, axis) => shape.length - 1 - axis);
  const strides = shape.map(() => 0);
  let step = stretch;
  for (const axis of order.toReversed()) {
    if ((way >> (axis + 2)) % 4 === 1) continue;
    strides[axis] = step;
    step = step * (shape[axis] ?? 1) + (way % 7 === 0 ? 1 : 0);
  }
  const values = Array.from({ length: Math.max(1, step) + reach }, (_, index) => make(index));
  const offset = way % 5 === 0 ? 1 : 0;
  return { values: isWhole ? Int32Array.from(values) : Float32Array.from(values), strides, offset };
}

const contiguous = (shape: readonly number[]): number[] =>
  shape.map((_, axis) => shape.slice(axis + 1).reduce((product, size) => product * size, 1));

function offsetAt(shape: readonly number[], strides: readonly number[], index: number): number {
  let rest = index;
  let offset = 0;
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    const size = shape[axis] ?? 1;
    offset += (rest % size) * (strides[axis] ?? 0);
    rest = Math.floor(rest / size);
  }
  return offset;
}

const shapes = fc
  .array(fc.oneof(fc.integer({ min: 1, max: 9 }), fc.constantFrom(12, 17, 64)), { maxLength: 4 })
  // The obvious way is slow, and larger shapes have no other loops.
  .filter((shape) => shape.reduce((product, size) => product * size, 1) <= 5000);

const special = [
  ...[0, -0, 1, -1, 0.5, 3.25, -7.75, 1e30, -1e-30],
  ...[Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY],
];

/** Compares bits, except those of a NaN. */
function isSame(actual: number | undefined, expected: number): boolean {
  return Object.is(actual, expected) || (Number.isNaN(expected) && Number.isNaN(actual));
}

const f32Of = (runtime: Runtime, storage: Storage): Float32Array =>
  new Float32Array(runtime.read(storage).buffer);

for (const { device, skip, open } of kernelDevices) {
  describe(`on ${device}`, { skip }, () => {
    const runtime = open();

    test("every expression and layout gives the bits of the plain implementation", () => {
      // Several in a kernel: a compiler takes longer for ten kernels than for one of ten values.
      const values = fc.tuple(
        fc.array(f32Expressions, { minLength: 1, maxLength: 5 }),
        fc.array(i32Expressions, { maxLength: 4 }),
      );
      const ways = fc.array(fc.nat(4095), { minLength: 4, maxLength: 4 });
      fc.assert(
        fc.property(values, shapes, ways, fc.nat(2), ([floats, wholes], shape, ways, offset) => {
          const expressions = [...floats, ...wholes];
          const kernel: RowKernel = {
            name: "random",
            inputs: inputDtypes,
            outputs: [
              ...floats.map((): Output => ({ dtype: "f32", per: "element" })),
              ...wholes.map(
                (_, index): Output => ({ dtype: index % 2 === 0 ? "i32" : "u8", per: "element" }),
              ),
            ],
            scalars: ["f32"],
            stages: expressions.map((value, output) => ({ kind: "store", output, value })),
          };
          const inputs = ways.map((way, input) => {
            const float = (index: number) => special[(index * 5 + way) % special.length]!;
            return operandOf(shape, way, input === 2 ? (index) => (index % 7) - 3 : float, input === 2);
          });
          const count = shape.reduce((product, size) => product * size, 1);
          const actual = runtime.step(() => {
            const outputs = kernel.outputs.map(({ dtype }) =>
              dtype === "u8"
                ? uploadAt(runtime, new Uint8Array(count), offset)
                : uploadAt(runtime, new Float32Array(count), offset),
            );
            const operands = [
              ...inputs.map((input) => uploadAt(runtime, input.values, input.offset)),
              ...outputs,
            ];
            const strides = [
              ...inputs.map((input) => input.strides),
              ...outputs.map(() => contiguous(shape)),
            ];
            const iteration = iterateElements(shape, strides);
            submit(runtime, rowCalls({ kernel, iteration, operands, scalars: [scalarValue] }));
            return outputs.map((output) => runtime.read(output));
          });
          for (const [which, expression] of expressions.entries()) {
            const dtype = kernel.outputs[which]?.dtype;
            const array = { f32: Float32Array, i32: Int32Array, u8: Uint8Array }[dtype as "f32"];
            const own = new array(actual[which]!.buffer);
            for (let index = 0; index < count; index++) {
              const value = evaluate(expression, {
                load: (input, at) =>
                  inputs[input]!.values[offsetAt(shape, inputs[input]!.strides, index) + at]!,
                scalars: [scalarValue],
                reduced: new Map(),
              });
              const expected = dtype === "u8" ? value & 255 : value;
              assert.ok(
                isSame(own[index], expected),
                `output ${which}, element ${index} is ${own[index]}, expected ${expected}`,
              );
            }
          }
        }),
        { numRuns: device === "the CPU" ? 40 : effort({ quick: 14, thorough: 40 }) },
      );
    });

    describe("stages", () => {
      /** Runs a kernel over vectors in place: what its operands hold in the end. */
      function runOver(
        kernel: RowKernel,
        memory: readonly (Float32Array | Int32Array)[],
        /** The memory of each operand. */
        places: readonly number[],
        offset = 0,
      ): Uint8Array[] {
        return runtime.step(() => {
          const storages = memory.map((values) => uploadAt(runtime, values, offset));
          const count = Math.floor((storages[0]?.span.size ?? 0) / 4);
          const iteration = iterateElements(
            [count],
            places.map(() => [1]),
          );
          submit(runtime, rowCalls({ kernel, iteration, operands: places.map((place) => storages[place]!) }));
          return storages.map((storage) => runtime.read(storage));
        });
      }
      const [a, b] = [term.load(0, "f32"), term.load(1, "f32")];

      test("read values that earlier stages stored in their memory, and other memory unchanged", () => {
        const kernel: RowKernel = {
          name: "in place",
          inputs: ["f32", "f32"],
          outputs: [
            { dtype: "f32", per: "element" },
            { dtype: "f32", per: "element" },
          ],
          scalars: [],
          stages: [
            { kind: "store", output: 0, value: term.add(term.mul(a, 2), b) },
            { kind: "store", output: 1, value: term.sub(a, b) },
          ],
        };
        for (const count of [1, 3, 4, 8, 103]) {
          for (const offset of [0, 1]) {
            const x = Float32Array.from({ length: count }, (_, index) => index);
            const y = Float32Array.from({ length: count }, (_, index) => 100 + index);
            // The first output in a's memory: the second stage's a is the new one.
            const [first, second] = runOver(kernel, [x, y, new Float32Array(count)], [0, 1, 0, 2], offset);
            const sums = x.map((value, index) => 2 * value + y[index]!);
            assert.deepEqual(new Float32Array(first!.buffer), sums);
            const [, , last] = runOver(kernel, [x, y, new Float32Array(count)], [0, 1, 0, 2], offset);
            assert.deepEqual(
              new Float32Array(last!.buffer),
              sums.map((value, index) => value - y[index]!),
            );
            assert.deepEqual(new Float32Array(second!.buffer), y);
            // And in memory of its own: the input of the second stage has not changed.
            const apart = runOver(
              kernel,
              [x, y, new Float32Array(count), new Float32Array(count)],
              [0, 1, 2, 3],
              offset,
            );
            assert.deepEqual(
              new Float32Array(apart[3]!.buffer),
              x.map((value, index) => value - y[index]!),
            );
          }
        }
      });

      test("read stored values in their own dtype: rounded, or as other bits", () => {
        const rounding: RowKernel = {
          name: "rounded in place",
          inputs: ["bf16"],
          outputs: [
            { dtype: "bf16", per: "element" },
            { dtype: "f32", per: "element" },
          ],
          scalars: [],
          stages: [
            { kind: "store", output: 0, value: term.add(a, 0.001) },
            { kind: "store", output: 1, value: a },
          ],
        };
        const actual = runtime.step(() => {
          const halves = put(runtime, new Uint16Array(8).fill(0x3f80), "ones");
          const output = put(runtime, new Float32Array(8), "read");
          const iteration = iterateElements([8], [[1], [1], [1]]);
          submit(runtime, rowCalls({ kernel: rounding, iteration, operands: [halves, halves, output] }));
          return [...f32Of(runtime, output)];
        });
        assert.deepEqual(actual, Array(8).fill(1));

        const bits: RowKernel = {
          name: "other bits",
          inputs: ["i32", "f32"],
          outputs: [
            { dtype: "i32", per: "element" },
            { dtype: "f32", per: "element" },
          ],
          scalars: [],
          stages: [
            { kind: "store", output: 0, value: term.add(term.load(0, "i32"), 0x3f80_0000) },
            { kind: "store", output: 1, value: term.add(b, b) },
          ],
        };
        const [, , doubled] = runOver(
          bits,
          [new Int32Array(8), new Float32Array(8), new Float32Array(8)],
          [0, 1, 1, 2],
        );
        assert.deepEqual([...new Float32Array(doubled!.buffer)], Array(8).fill(2));
      });

      test("read values at an index that other elements of the row have stored", () => {
        const backwards = term.sub(term.sub(term.scalar(0, "i32"), 1), term.mul(term.position, 2));
        const turned = term.load(1, "f32", backwards);
        const kernelOf = (...stages: RowKernel["stages"]): RowKernel => ({
          name: "turned",
          inputs: ["f32", "f32"],
          outputs: [
            { dtype: "f32", per: "element" },
            { dtype: "f32", per: "element" },
          ],
          scalars: ["i32"],
          stages: [{ kind: "store", output: 0, value: term.add(a, 1) }, ...stages],
        });
        const stored = kernelOf({ kind: "store", output: 1, value: turned });
        const reduced = kernelOf(
          { kind: "reduce", op: "max", value: turned },
          { kind: "store", output: 1, value: term.sub(turned, term.reduced(1, "f32")) },
        );
        for (const [kernel, columns] of [stored, reduced].flatMap((kernel) =>
          [3, 33, 200, 1500].map((size) => [kernel, size] as const),
        )) {
          const rows = 3;
          const values = Float32Array.from({ length: rows * columns }, (_, index) => index);
          const actual = runtime.step(() => {
            const [middle, last] = ["middle", "last"].map((label) =>
              runtime.arena.allocate(values.byteLength, label),
            );
            const strides = [1, 2, 3, 4].map(() => [columns, 1]);
            const iteration = iterateRows([rows, columns], strides, 1);
            const operands = [put(runtime, values, "x"), middle!, middle!, last!];
            submit(runtime, rowCalls({ kernel, iteration, operands, scalars: [columns] }));
            return f32Of(runtime, last!);
          });
          for (const [index, value] of actual.entries()) {
            const row = Math.floor(index / columns);
            const from = row * columns + (columns - 1 - (index % columns));
            const largest = values[(row + 1) * columns - 1]! + 1;
            const expected = values[from]! + 1 - (kernel === reduced ? largest : 0);
            assert.equal(value, expected, `element ${index} of rows of ${columns}`);
          }
        }
      });
    });

    test("positions, row indices and reductions need an iteration over rows", () => {
      const kernel = (stages: RowKernel["stages"]): RowKernel => ({
        name: "placed",
        inputs: ["i32"],
        outputs: [{ dtype: "i32", per: "element" }],
        scalars: [],
        stages,
      });
      const iteration = iterateElements([4], [[1], [1]]);
      const whole = term.load(0, "i32");
      for (const stages of [
        [{ kind: "store", output: 0, value: term.add(whole, term.position) }],
        [{ kind: "store", output: 0, value: term.add(whole, term.row) }],
        [
          { kind: "reduce", op: "add", value: whole },
          { kind: "store", output: 0, value: term.reduced(0, "i32") },
        ],
      ] as const satisfies RowKernel["stages"][]) {
        rejects(
          "BAD_ARGUMENT",
          () => submit(runtime, rowCalls({ kernel: kernel(stages), iteration, operands: [] })),
          /Kernel "placed" .* Iterate over rows/,
        );
      }
      // Over rows they are numbers: 10 · row + position.
      const [rows, columns] = [3, 7];
      const place = term.add(term.mul(term.row, 10), term.position);
      const actual = runtime.step(() => {
        const input = put(runtime, new Int32Array(rows * columns), "zeros");
        const output = runtime.arena.allocate(4 * rows * columns, "places");
        const strides = [
          [columns, 1],
          [columns, 1],
        ];
        const stages = [{ kind: "store", output: 0, value: term.add(whole, place) }] as const;
        submit(
          runtime,
          rowCalls({
            kernel: kernel(stages),
            iteration: iterateRows([rows, columns], strides, 1),
            operands: [input, output],
          }),
        );
        return [...new Int32Array(runtime.read(output).buffer)];
      });
      assert.deepEqual(
        actual,
        Array.from(
          { length: rows * columns },
          (_, index) => Math.floor(index / columns) * 10 + (index % columns),
        ),
      );
    });
  });
}
