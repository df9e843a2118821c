/** Column reductions made together: those that don't wait for each other, on a GPU, as long as they leave it idle; no others. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { effort } from "../../../test/support/effort.js";
import { cudaMissing, openCudaKernelRuntime, put } from "../../../test/support/kernel-runtime.js";
import { onCalls } from "../../../test/support/rewritten.js";
import { runProgram } from "../../../test/support/run-program.js";
import { sameBytes } from "../../../test/support/same-bytes.js";
import { type ColumnKernel, term } from "../../ir/index.js";
import type { Runtime } from "../../runtime/index.js";
import { accessesOf, type Buffer, type BufferSlice, type Call, mapSlices } from "../program/program.js";
import { groupReductions as groupReductionsIn } from "./group-reductions.js";
import { splitReductions as splitReductionsIn } from "./split-reductions.js";

const groupReductions = onCalls(groupReductionsIn);
const splitReductions = onCalls(splitReductionsIn);

/** All that the pass asks of a runtime. */
const on = (kind: "cuda" | "cpu", parallelism = 132): Runtime =>
  ({ device: { kind, parallelism } }) as unknown as Runtime;

const hopper = on("cuda");

let buffers = 0;
const bufferOf = (floats: number): Buffer => ({ id: buffers++, bytes: 4 * floats, label: `b${buffers}` });
const whole = (buffer: Buffer): BufferSlice => ({ buffer, offset: 0, size: buffer.bytes });

const kernelOf = (name: string): ColumnKernel => ({
  ...{ name, inputs: ["f32"], outputs: ["f32"], scalars: [], op: "add" },
  values: [term.load(0, "f32")],
});
const [sum, other] = [kernelOf("sum"), kernelOf("other")];

type Made = Call & { readonly result: Buffer };

function reduce(source: Buffer, rows: number, columns: number, kernel = sum): Made {
  const result = bufferOf(columns);
  const strides = [{ row: columns, column: "unit" }] as const;
  const operands = [whole(source), whole(result)];
  return {
    op: kernel.name,
    work: { kind: "column", kernel, rows, columns, strides, operands, scalars: [] },
    result,
  };
}

const copyOf = (source: Buffer): Made => {
  const result = bufferOf(source.bytes / 4);
  return { op: "copy", work: { kind: "copy", source: whole(source), target: whole(result) }, result };
};

const sizesOf = (calls: readonly Call[]): number[] =>
  calls.map(({ work }) => (work.kind === "grouped-reduce" ? work.columns.length : 1));

const [wide, narrow] = [bufferOf(3072 * 1024), bufferOf(3072 * 256)];

test("reductions by different kernels are one call, behind all that they wait for, and name what they are", () => {
  const made = copyOf(narrow);
  const reductions = [
    reduce(narrow, 3072, 256),
    reduce(wide, 3072, 1024),
    reduce(made.result, 3072, 256, other),
  ];
  const calls = groupReductions(hopper, [...reductions.slice(0, 2), made, reductions[2]!]);
  assert.deepEqual(sizesOf(calls), [1, 3]);
  assert.equal(calls[0], made);
  assert.equal(calls[1]?.op, "sum + other");
  assert.deepEqual(
    accessesOf(calls[1]!)
      .slice(0, -1)
      .map(({ slice, reads, writes }) => [slice.buffer, reads, writes]),
    [narrow, wide, made.result].flatMap((source, index) => [
      [source, true, false],
      [reductions[index]!.result, false, true],
    ]),
  );
});

test("those of many rows have scratch memory of their own, which the call writes; those of few have none", () => {
  const buffersOf = (call: Call): Buffer[] => accessesOf(call).map(({ slice }) => slice.buffer);
  const many = [reduce(narrow, 3072, 256), reduce(wide, 3072, 1024)];
  const groups = groupReductions(on("cuda", 14), [...many, ...many.map(({ work, op }) => ({ work, op }))]);
  assert.deepEqual(sizesOf(groups), [2, 2]);
  const scratch = groups.map((call) => accessesOf(call).at(-1)!);
  for (const { slice, reads, writes } of scratch) {
    assert.deepEqual(
      [slice.buffer.label, slice.offset, slice.size],
      ["reductions scratch", 0, 32 * 1280 * 4],
    );
    assert.deepEqual([slice.buffer.bytes, reads, writes], [slice.size, false, true]);
    assert.equal(slice.buffer.storage, undefined);
  }
  const ids = scratch.map(({ slice }) => slice.buffer.id);
  const others = many.flatMap(buffersOf).map(({ id }) => id);
  assert.equal(new Set([...ids, ...others]).size, 2 + new Set(others).size, "numbers of their own");
  const [few] = groupReductions(hopper, [reduce(narrow, 64, 256), reduce(wide, 64, 256)]);
  assert.equal(few!.work.kind === "grouped-reduce" && few!.work.scratch, undefined);
  assert.equal(accessesOf(few!).length, 4);
});

test("a reduction of few rows stays alone if it has a thread for each of very many columns", () => {
  const columns = 64 * 1024;
  const [many, few] = [bufferOf(8 * columns), bufferOf(8 * 256)];
  const calls = [reduce(few, 8, 256), reduce(many, 8, columns), reduce(few, 8, 256, other)];
  assert.deepEqual(sizesOf(groupReductions(hopper, calls)).sort(), [1, 2]);
  assert.deepEqual(sizesOf(groupReductions(on("cuda", 1024), calls)), [3], "on a GPU with more SMs");
});

test("its parts are found and replaced, each in its place", () => {
  const [call] = groupReductions(hopper, [reduce(narrow, 3072, 256), reduce(wide, 3072, 1024)]);
  const moved = bufferOf(3072 * 256);
  const work = mapSlices(call!.work, (slice) => (slice.buffer === narrow ? whole(moved) : slice));
  const read = accessesOf({ ...call!, work }).filter(({ reads }) => reads);
  assert.deepEqual(
    read.map(({ slice }) => slice.buffer),
    [moved, wide],
  );
  const elsewhere = bufferOf(32 * 1280);
  const again = mapSlices(call!.work, (slice) =>
    slice.buffer.label === "reductions scratch" ? whole(elsewhere) : slice,
  );
  assert.equal(accessesOf({ ...call!, work: again }).at(-1)?.slice.buffer, elsewhere);
});

test("one that reads another's result stays behind it, and one whose operand is written in between before that", () => {
  const first = reduce(wide, 3072, 1024);
  const needing = reduce(first.result, 4, 256);
  assert.deepEqual(groupReductions(hopper, [first, needing]), [first, needing]);
  const overwriting: Call = { op: "fill", work: { kind: "fill", target: whole(narrow), byte: 0 } };
  const apart = [reduce(narrow, 3072, 256), overwriting, reduce(narrow, 3072, 256)];
  assert.deepEqual(groupReductions(hopper, apart), apart);
});

test("a reduction alone has two phases if its blocks would leave multiprocessors idle for long", () => {
  const alone = (rows: number, columns: number, parallelism = 132) => {
    const [call] = groupReductions(on("cuda", parallelism), [
      reduce(bufferOf(4 * rows * columns), rows, columns),
    ]);
    return call!.work.kind;
  };
  assert.equal(alone(1 << 16, 64), "grouped-reduce");
  assert.equal(alone(4096, 64), "column", "a block is done soon");
  assert.deepEqual([alone(1 << 14, 2048), alone(1 << 14, 2048, 512)], ["column", "grouped-reduce"]);
});

test("what follows on a reduction waits with it until it is needed", () => {
  const [first, second] = [reduce(narrow, 3072, 256), reduce(wide, 3072, 1024)];
  const following = copyOf(first.result);
  const last = copyOf(following.result);
  assert.deepEqual(sizesOf(groupReductions(hopper, [first, following, second, last])), [2, 1, 1]);
});

test("no more than twelve become one, and a group that has enough to read takes no more", () => {
  const few = Array.from({ length: 15 }, () => reduce(bufferOf(64 * 8), 64, 8));
  assert.deepEqual(sizesOf(groupReductions(hopper, few)), [12, 3]);
  // 12 MiB each, and 33 MiB are enough.
  const many = Array.from({ length: 5 }, () => reduce(wide, 3072, 1024));
  assert.deepEqual(sizesOf(groupReductions(on("cuda", 33), many)), [3, 2]);
  assert.deepEqual(sizesOf(groupReductions(on("cuda", 8), many)), [1, 1, 1, 1, 1], "enough alone");
});

test("on the CPU nothing changes", () => {
  const calls = [reduce(narrow, 3072, 256), reduce(wide, 3072, 1024)];
  assert.equal(groupReductions(on("cpu"), calls), calls);
});

describe("on CUDA", { skip: cudaMissing }, () => {
  const runtime = openCudaKernelRuntime();

  test("programs of reductions and copies leave the same bytes, whoever waits for whom", () => {
    // Partial results of 1024 rows are joined in a second launch.
    const [rows, columns] = [1024, 32];
    const step = fc.record({
      kind: fc.constantFrom("sum", "other", "copy", "again"),
      from: fc.nat(),
      to: fc.nat(),
    });
    const wave = Float32Array.from({ length: rows * columns + 6 }, (_, place) => Math.sin(place));
    let [joined, begun] = [0, 0];
    fc.assert(
      fc.property(fc.array(step, { minLength: 2, maxLength: 14 }), (steps) => {
        const all = Array.from({ length: 6 }, () => bufferOf(rows * columns));
        const at = (index: number): Buffer => all[index % all.length]!;
        // A reduction leaves a row of the buffer that it writes; all of it is read by others.
        const program = steps.flatMap(({ kind, from, to }): Call[] => {
          if (at(from) === at(to)) return [];
          if (kind === "copy")
            return [{ op: kind, work: { kind, source: whole(at(from)), target: whole(at(to)) } }];
          const { work, ...rest } = reduce(at(from), rows, columns, kind === "sum" ? sum : other);
          if (work.kind !== "column") return [];
          const target = { buffer: at(to), offset: kind === "again" ? 4 * columns : 0, size: 4 * columns };
          return [{ ...rest, work: { ...work, operands: [whole(at(from)), target] } }];
        });
        const made = groupReductions(runtime, program);
        const early = splitReductions(runtime, made);
        joined += program.length - made.length;
        begun += early.length - made.length;
        const [before, ...after] = [program, made, early].map((calls) =>
          runtime.step(() => {
            const storages = new Map(
              all.map((buffer, index) => {
                return [buffer, put(runtime, wave.slice(index, index + buffer.bytes / 4), "buffer")];
              }),
            );
            runProgram(runtime, calls, storages);
            return all.map((buffer) => runtime.read(storages.get(buffer)!));
          }),
        );
        for (const [index, bytes] of before!.entries()) {
          for (const found of after) sameBytes(found[index]!, bytes, `buffer ${index}`);
        }
      }),
      { numRuns: effort({ quick: 5, thorough: 30 }) },
    );
    assert.ok(joined > 0, "some became one");
    assert.ok(begun > 0, "and some of them were begun early");
  });
});
