/** Each kind of call in the table of calls. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { effort } from "../../../test/support/effort.js";
import { bufferOf, elementwise, type View } from "../../../test/support/row-calls.js";
import { term } from "../../ir/index.js";
import type { Call, GemmCall, Schedule } from "../program/program.js";
import { bytesOf } from "../program/traffic.js";
import { formatCalls } from "./call-table.js";
import { reportWidth } from "./text-columns.js";

function scheduled(...calls: readonly Call[]): Schedule {
  return { calls: calls.map((call) => ({ call, stream: 0, after: [] })) };
}

function gemm(problem: Partial<GemmCall["problem"]>, a: View, b: View, c: View): Call {
  const layoutOf = ({ slice, shape }: View) => ({ slice, rowStride: shape[1] ?? 1 });
  const shape = { m: 8, n: 4, k: 16, dtype: "f32" } as const;
  return {
    op: "linear",
    work: { kind: "gemm", problem: { ...shape, a: layoutOf(a), b: layoutOf(b), c: layoutOf(c), ...problem } },
  };
}

const [a, b, c] = [bufferOf([8, 16]), bufferOf([16, 4]), bufferOf([8, 4])];

test("a row of the table has the index, op, kernel, kind, shape, read bytes and written bytes of a call", () => {
  const add = elementwise("add", (x, y) => term.add(x!, y!), [c, bufferOf([4])], bufferOf([8, 4]));
  const calls = [
    gemm({}, a, b, c),
    add,
    { op: "zeros", work: { kind: "fill", target: c.slice, byte: 0 } },
    { op: "copy", work: { kind: "copy", target: c.slice, source: bufferOf([8, 4]).slice } },
  ] as const;
  assert.deepEqual(formatCalls(scheduled(...calls)), [
    "call  op      kernel       kind   shape  reads  writes",
    "   0  linear  gemm NN f32  gemm  8×4×16  768 B   128 B",
    "   1  add     add          row      8×4  144 B   128 B",
    "   2  zeros   fill 0       fill            0 B   128 B",
    "   3  copy    copy         copy          128 B   128 B",
  ]);
});

test("the row of a GEMM has its operand layouts, dtypes, batch and epilogue", () => {
  const bias = bufferOf([4]).slice;
  const transposed = { slice: b.slice, rowStride: 16, isTransposed: true };
  const problem = {
    b: transposed,
    ...({ batch: 12, bias, activation: "gelu", dtype: "bf16", resultDtype: "f32" } as const),
  };
  const [, line = ""] = formatCalls(scheduled(gemm(problem, a, b, c)));
  assert.match(line, /gemm NT bf16 → f32 \+ bias…\s+gemm\s+8×4×16×12\b/);
});

test("the row of attention has its direction, dtypes, and rows × columns × width × pairs", () => {
  const shape = {
    dtype: "f32",
    batch: 2,
    heads: 4,
    rows: 12,
    columns: 12,
    width: 8,
    valueWidth: 8,
    scale: 1,
  } as const;
  const [read, written] = [bufferOf([96, 8]).slice, bufferOf([48, 8]).slice];
  const work = { kind: "attention", operands: { query: read, out: written }, layouts: {} } as const;
  const lines = formatCalls(
    scheduled(
      { op: "attention", work: { ...work, direction: "forward", shape: { ...shape, resultDtype: "bf16" } } },
      { op: "attention", work: { ...work, direction: "backward", shape } },
    ),
  );
  assert.match(lines[1] ?? "", /attention\.f32 → bf16\s+attention\s+12×12×8×8\s+3 KiB\s+1\.5 KiB/);
  assert.match(lines[2] ?? "", /attention\.backward\.f32 /);
});

test("a slice that a call reads twice counts once, and an accumulated output counts as read and written", () => {
  const square = elementwise("mul", (x, y) => term.mul(x!, y!), [c, c], bufferOf([8, 4]));
  assert.deepEqual(bytesOf(square), { read: 128, written: 128 });
  assert.deepEqual(bytesOf(gemm({ beta: 1 }, a, b, c)), { read: 512 + 256 + 128, written: 128 });
});

test("the widest rows fit the report width", () => {
  const name = "layerNorm + gelu + dropout + ".repeat(4);
  const wide = bufferOf([3_000_000, 4096]);
  const call = { ...elementwise(name, (x) => x!, [wide], bufferOf([3_000_000, 4096])), op: name };
  const count = effort({ quick: 10_001, thorough: 100_001 });
  const many = scheduled(...Array.from({ length: count }, () => call));
  const lines = formatCalls(many);
  // The number of a call may have six digits.
  const furtherDigits = 6 - String(count).length;
  const widest = Math.max(lines[0]?.length ?? 0, lines.at(-1)?.length ?? 0) + furtherDigits;
  assert.ok(widest > 100 && widest <= reportWidth, String(widest));
});
