/** Reductions that are begun before all of their group can be: which, and where. Their bits are held by the tests of groups. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { onCalls } from "../../../test/support/rewritten.js";
import { type ColumnKernel, term } from "../../ir/index.js";
import type { Runtime } from "../../runtime/index.js";
import { accessesOf, type Buffer, type BufferSlice, type Call, mapSlices } from "../program/program.js";
import { groupReductions as groupReductionsIn } from "./group-reductions.js";
import { splitReductions as splitReductionsIn } from "./split-reductions.js";

const groupReductions = onCalls(groupReductionsIn);
const splitReductions = onCalls(splitReductionsIn);

/** All that the passes ask of a runtime. */
const on = (kind: "cuda" | "cpu"): Runtime => ({ device: { kind, parallelism: 132 } }) as unknown as Runtime;

let buffers = 0;
const bufferOf = (floats: number): Buffer => ({ id: buffers++, bytes: 4 * floats, label: `b${buffers}` });
const whole = (buffer: Buffer): BufferSlice => ({ buffer, offset: 0, size: buffer.bytes });

const kernel: ColumnKernel = {
  ...{ name: "sum", inputs: ["f32"], outputs: ["f32"], scalars: [], op: "add" },
  values: [term.load(0, "f32")],
};

type Made = Call & { readonly result: Buffer };

function reduce(source: Buffer, rows: number, columns: number): Made {
  const result = bufferOf(columns);
  const strides = [{ row: columns, column: "unit" }] as const;
  const operands = [whole(source), whole(result)];
  return {
    op: "sum",
    work: { kind: "column", kernel, rows, columns, strides, operands, scalars: [] },
    result,
  };
}

const copyOf = (source: Buffer, op = "copy"): Made => {
  const result = bufferOf(source.bytes / 4);
  return { op, work: { kind: "copy", source: whole(source), target: whole(result) }, result };
};

/** Weight gradients, of which nothing but their kind counts here. */
const products: Call = { op: "grouped-gemm", work: { kind: "grouped-gemm", problems: [] } };

const [rows, columns] = [3072, 256];
const source = bufferOf(rows * columns);

/** One that is there at once, others only behind some calls. */
function program(...others: readonly Call[]): { readonly calls: readonly Call[]; readonly late: Made } {
  const late = copyOf(source, "late");
  const reductions = [reduce(source, rows, columns), reduce(late.result, rows, columns)];
  return { calls: groupReductions(on("cuda"), [reductions[0]!, ...others, late, reductions[1]!]), late };
}

const kindsOf = (calls: readonly Call[]): string[] =>
  calls.map(({ op, work }) => (work.kind === "copy" ? op : work.kind));

test("what is there early is begun at once, and joined where the last of its group is made", () => {
  const { calls } = program(copyOf(source));
  assert.deepEqual(kindsOf(calls), ["copy", "late", "grouped-reduce"]);
  const early = splitReductions(on("cuda"), calls);
  assert.deepEqual(kindsOf(early), ["partial-reduce", "copy", "late", "grouped-reduce"]);
  const [begun, , , rest] = early.map(({ work }) => work);
  assert.ok(begun?.kind === "partial-reduce" && rest?.kind === "grouped-reduce");
  assert.deepEqual([begun.columns.length, rest.columns.length], [1, 1]);
  assert.equal(rest.partials, begun);
  assert.notEqual(rest.scratch?.buffer, begun.scratch.buffer);
  assert.deepEqual([begun.scratch.size, rest.scratch?.size], [32 * 4 * columns, 32 * 4 * columns]);
});

test("products that nobody waits for come before it", () => {
  const { calls } = program(copyOf(source), products, copyOf(source));
  const early = splitReductions(on("cuda"), calls);
  assert.deepEqual(kindsOf(early), [
    "copy",
    "grouped-gemm",
    "partial-reduce",
    "copy",
    "late",
    "grouped-reduce",
  ]);
});

test("what is begun reads its operands and leaves scratch memory, which the rest reads and makes results of", () => {
  const { calls, late } = program();
  const early = splitReductions(on("cuda"), calls);
  const [begun, , rest] = early;
  const shapeOf = (call: Call) =>
    accessesOf(call).map(({ slice, reads, writes }) => [slice.buffer.label, reads, writes]);
  const [results, scratch] = [
    accessesOf(calls.at(-1)!).filter(({ slice, writes }) => writes && slice.size === 4 * columns),
    "reductions scratch",
  ];
  const [first, second] = results.map(({ slice }) => slice.buffer.label);
  assert.deepEqual(shapeOf(begun!), [
    [source.label, true, false],
    [scratch, false, true],
  ]);
  assert.deepEqual(shapeOf(rest!), [
    [scratch, true, false],
    [first, false, true],
    [late.result.label, true, false],
    [second, false, true],
    [scratch, false, true],
  ]);
  const moved = bufferOf(rows * columns);
  for (const [call, buffer] of [
    [begun!, source],
    [rest!, late.result],
  ] as const) {
    const work = mapSlices(call.work, (slice) => (slice.buffer === buffer ? whole(moved) : slice));
    const read = accessesOf({ ...call, work }).filter(({ reads }) => reads);
    assert.ok(read.some(({ slice }) => slice.buffer === moved));
    assert.ok(read.every(({ slice }) => slice.buffer !== buffer));
  }
});

test("nothing is begun that has one step, is there no earlier than the others, or runs on the CPU", () => {
  const few = [copyOf(source), copyOf(source)];
  const brief = groupReductions(on("cuda"), [
    reduce(source, 64, columns),
    ...few,
    reduce(few[1]!.result, 64, columns),
  ]);
  assert.deepEqual(splitReductions(on("cuda"), brief), brief);
  const late = copyOf(source);
  const together = groupReductions(on("cuda"), [
    late,
    reduce(late.result, rows, columns),
    reduce(late.result, rows, columns),
  ]);
  assert.deepEqual(splitReductions(on("cuda"), together), together);
  const { calls } = program(copyOf(source));
  assert.equal(splitReductions(on("cpu"), calls), calls);
});

test("an operand that is written in between is read behind that", () => {
  const again: Call = {
    op: "again",
    work: { kind: "copy", source: whole(bufferOf(rows * columns)), target: whole(source) },
  };
  const own = reduce(source, rows, columns);
  const late = copyOf(bufferOf(rows * columns), "late");
  const calls = groupReductions(on("cuda"), [again, own, late, reduce(late.result, rows, columns)]);
  assert.deepEqual(kindsOf(splitReductions(on("cuda"), calls)), [
    "again",
    "partial-reduce",
    "late",
    "grouped-reduce",
  ]);
});
