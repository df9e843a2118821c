/** When a gradient reads the signs of a ReLU from its bf16 copy, and when the f32 result stays. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openCpuKernelRuntime, put } from "../../../test/support/kernel-runtime.js";
import { rewritten } from "../../../test/support/rewritten.js";
import { runProgram } from "../../../test/support/run-program.js";
import { sameBytes } from "../../../test/support/same-bytes.js";
import { type Expression, iterateElements, type RowKernel, term } from "../../ir/index.js";
import type { Buffer, BufferSlice, Call } from "../program/program.js";
import { readSignsOfCasts } from "./sign-reads.js";

const values = Float32Array.of(1, -1, 0, -0, 3e-39, -3e-39, 2 ** -126, Infinity, -Infinity, NaN, 0.1, -7e30);
const size = values.length;

let buffers = 0;
const bufferOf = (label: string, elementBytes = 4): Buffer => ({
  id: buffers++,
  bytes: elementBytes * size,
  label,
});
const whole = (buffer: Buffer): BufferSlice => ({ buffer, offset: 0, size: buffer.bytes });
const rowsOf = (op: string, kernel: RowKernel, operands: readonly BufferSlice[]): Call => ({
  op,
  work: {
    ...{ kind: "row", kernel, operands, scalars: [] },
    iteration: iterateElements(
      [size],
      operands.map(() => [1]),
    ),
  },
});

const [first, second] = [term.load(0, "f32"), term.load(1, "f32")];
const relu = term.max(first, 0);

interface Shape {
  readonly copy?: "bf16" | "f16";
  /** True if the copy reads the stored f32 result again, false if it has the same expression. */
  readonly isReadAgain?: boolean;
  readonly gradient?: Expression;
  readonly from?: (wide: Buffer) => BufferSlice;
}

/** A ReLU that is stored twice, and a kernel of the upstream gradient and the f32 result. */
function program({ copy = "bf16", isReadAgain = false, gradient = mask, from = whole }: Shape = {}) {
  const [x, upstream, wide, result] = ["x", "upstream", "relu", "gradient"].map((label) => bufferOf(label));
  const narrow = bufferOf("copy", 2);
  const stored: RowKernel = {
    ...{ name: "relu", inputs: isReadAgain ? ["f32", "f32"] : ["f32"], scalars: [] },
    outputs: [
      { dtype: "f32", per: "element" },
      { dtype: copy, per: "element" },
    ],
    stages: [
      { kind: "store", output: 0, value: relu },
      { kind: "store", output: 1, value: isReadAgain ? second : relu },
    ],
  };
  const passed: RowKernel = {
    ...{ name: "reluGradient", inputs: ["f32", "f32"], scalars: [] },
    outputs: [{ dtype: "f32", per: "element" }],
    stages: [{ kind: "store", output: 0, value: gradient }],
  };
  const inputs = isReadAgain ? [x!, wide!] : [x!];
  const calls = [
    rowsOf("relu", stored, [...inputs, wide!, narrow].map(whole)),
    rowsOf("reluGradient", passed, [whole(upstream!), from(wide!), whole(result!)]),
  ];
  return { calls, x: x!, upstream: upstream!, wide: wide!, narrow, result: result! };
}
const mask = term.select(
  term.max(term.gt(second, 0), term.ne(second, second)),
  first,
  term.constant(0, "f32"),
);

const rewrite = (calls: readonly Call[]): readonly Call[] => rewritten(calls, readSignsOfCasts);
const buffersOf = (calls: readonly Call[]): Set<Buffer> =>
  new Set(
    calls.flatMap(({ work }) => (work.kind === "row" ? work.operands.map(({ buffer }) => buffer) : [])),
  );

test("a gradient that tests for signs reads the bf16 copy, with the same bits, and f32 is not stored", () => {
  const runtime = openCpuKernelRuntime();
  for (const isReadAgain of [false, true]) {
    const { calls, x, upstream, wide, narrow, result } = program({ isReadAgain });
    const made = rewrite(calls);
    assert.ok(!buffersOf(made).has(wide));
    const [before, after] = [calls, made].map((list) =>
      runtime.step(() => {
        const given = [x, upstream].map((buffer) => [buffer, put(runtime, values, buffer.label)] as const);
        const written = [narrow, result].map(
          (buffer) => [buffer, runtime.arena.allocate(buffer.bytes, buffer.label)] as const,
        );
        runProgram(runtime, list, new Map([...given, ...written]));
        return written.map(([, storage]) => runtime.read(storage));
      }),
    );
    for (const [index, bytes] of before!.entries())
      sameBytes(after![index]!, bytes, ["copy", "gradient"][index]!);
  }
});

test("the f32 result stays if its value matters, if the copy is f16, or if part of it is read", () => {
  const half = (buffer: Buffer): BufferSlice => ({
    buffer,
    offset: buffer.bytes / 2,
    size: buffer.bytes / 2,
  });
  const kept: readonly Shape[] = [
    { gradient: term.mul(first, second) },
    { gradient: term.select(term.gt(second, 1), first, second) },
    { gradient: second },
    // f16 has fewer exponents: a small positive value is 0.
    { copy: "f16" },
    { from: half },
  ];
  for (const shape of kept) {
    const { calls, wide } = program(shape);
    assert.ok(buffersOf(rewrite(calls)).has(wide), JSON.stringify(shape));
  }
});
