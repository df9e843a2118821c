/** Readers of a conversion to f32 load the half floats themselves. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { kernelDevices, put } from "../../../test/support/kernel-runtime.js";
import { onCalls } from "../../../test/support/rewritten.js";
import { bufferOf, elementwise, reducing, type View } from "../../../test/support/row-calls.js";
import { runProgram } from "../../../test/support/run-program.js";
import { term } from "../../ir/index.js";
import type { Runtime } from "../../runtime/index.js";
import type { BufferSlice, Call, RowCall } from "../program/program.js";
import { readWidened } from "./widened-reads.js";

const rewrite = onCalls(readWidened);
const on = (kind: "cpu" | "cuda"): Runtime => ({ device: { kind } }) as unknown as Runtime;

const [rows, columns] = [6, 8];

/** The right half of each row of floats. */
function rightOf(matrix: View): View {
  const offset = 4 * (columns / 2);
  const slice = { ...matrix.slice, offset, size: matrix.slice.size - offset };
  return { ...matrix, slice, shape: [rows, columns / 2], strides: [columns, 1] };
}

interface Options {
  readonly dtype?: "bf16" | "f16" | "i32";
  readonly isCopied?: boolean;
  readonly isSummed?: boolean;
  readonly isOverwritten?: boolean;
}

/** A conversion, and calls that read all of it, and the right half of each row. */
function program({
  dtype = "bf16",
  isCopied = false,
  isSummed = false,
  isOverwritten = false,
}: Options = {}) {
  const [x, wide] = [bufferOf([rows, columns], { label: "x", dtype }), bufferOf([rows, columns])];
  const [y, half] = [bufferOf([rows, columns]), bufferOf([rows, columns / 2])];
  const calls: Call[] = [
    elementwise("cast", (value) => term.convert(value, "f32"), [x], wide),
    ...(isOverwritten ? [elementwise("zero", () => term.constant(0, "f32"), [], x)] : []),
    elementwise("double", (value) => term.mul(value, 2), [wide], y),
    elementwise("right", term.neg, [rightOf(wide)], half),
    ...(isSummed
      ? [
          reducing(
            "sum",
            [["add", (value) => value]],
            [() => term.reduced(0, "f32")],
            [wide],
            [bufferOf([rows])],
          ),
        ]
      : []),
    ...(isCopied
      ? [
          {
            op: "copy",
            work: { kind: "copy", source: wide.slice, target: bufferOf([rows, columns]).slice },
          } as const,
        ]
      : []),
  ];
  return { calls, x, results: [y, half] };
}

const opsOf = (calls: readonly Call[]): string[] => calls.map(({ op }) => op);

test("each reader loads the half floats at the same elements, and the conversion is gone", () => {
  for (const dtype of ["bf16", "f16"] as const) {
    const { calls, x } = program({ dtype });
    const [double, right, ...others] = rewrite(on("cpu"), calls);
    assert.deepEqual([double?.op, right?.op, others], ["double", "right", []]);
    const [whole, part] = [double, right].map((call) => call?.work as RowCall);
    assert.deepEqual([whole!.kernel.inputs, part!.kernel.inputs], [[dtype], [dtype]]);
    assert.deepEqual(whole!.operands[0], x.slice);
    const size = 2 * ((rows - 1) * columns + columns / 2);
    assert.equal(part!.operands[0]?.buffer, x.slice.buffer);
    assert.equal(part!.operands[0]?.offset, columns);
    assert.ok((part!.operands[0]?.size ?? 0) >= size);
    assert.deepEqual(part!.iteration, (calls[2]!.work as RowCall).iteration);
  }
});

describe("nothing changes", () => {
  const unchanged = (options: Options, kind: "cpu" | "cuda" = "cuda"): void => {
    const { calls } = program(options);
    assert.deepEqual(opsOf(rewrite(on(kind), calls)), opsOf(calls));
  };

  test("if another call than a row kernel reads the result", () => unchanged({ isCopied: true }));
  test("if the half floats are overwritten before a reader", () => unchanged({ isOverwritten: true }));
  test("for a conversion of integers", () => unchanged({ dtype: "i32" }));
  test("on a CPU if a row is summed, whose order depends on the operands", () => {
    unchanged({ isSummed: true }, "cpu");
    assert.equal(opsOf(rewrite(on("cuda"), program({ isSummed: true }).calls)).includes("cast"), false);
  });
});

/** Runs calls on fixed half floats, and reads what they wrote to the last two results. */
function resultsOf(
  runtime: Runtime,
  calls: readonly Call[],
  { x, results }: Omit<ReturnType<typeof program>, "calls">,
) {
  return runtime.step(() => {
    const values = Uint16Array.from({ length: rows * columns }, (_, index) => 0x3f00 + 7 * index);
    const places = new Map([[x.slice.buffer, put(runtime, values, "x")]]);
    for (const { slice } of results) places.set(slice.buffer, runtime.arena.allocate(slice.size, "result"));
    runProgram(runtime, calls, places);
    return results.map(({ slice }) => runtime.read(places.get(slice.buffer)!));
  });
}

for (const { device, skip, open } of kernelDevices) {
  test(`the readers store the same bits on ${device}, and others if they load at the offset of the f32`, {
    skip,
  }, () => {
    const runtime = open();
    const { calls, ...memory } = program();
    const expected = resultsOf(runtime, calls, memory);
    const widened = rewrite(runtime, calls);
    assert.deepEqual(resultsOf(runtime, widened, memory), expected);
    const shifted = widened.map((call, index) => {
      const { operands, ...work } = call.work as RowCall;
      const [first, ...others] = operands as [BufferSlice, ...BufferSlice[]];
      const at = { ...first, offset: 2 * first.offset, size: first.size - first.offset };
      return index === 1 ? { ...call, work: { ...work, operands: [at, ...others] } } : call;
    });
    assert.notDeepEqual(resultsOf(runtime, shifted, memory), expected);
  });
}
