/** Sums over rows begin in the calls that have those rows at hand, on a GPU, and nowhere else; they leave the same bits. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { effort } from "../../../test/support/effort.js";
import { cudaMissing, openCudaKernelRuntime, put } from "../../../test/support/kernel-runtime.js";
import { onCalls } from "../../../test/support/rewritten.js";
import { runProgram } from "../../../test/support/run-program.js";
import { sameBytes } from "../../../test/support/same-bytes.js";
import { testDevice } from "../../../test/support/test-device.js";
import { type ColumnKernel, iterateElements, iterateRows, type RowKernel, term } from "../../ir/index.js";
import type { Runtime } from "../../runtime/index.js";
import { accessesOf, type Buffer, type BufferSlice, type Call, type ColumnCall } from "../program/program.js";
import { fuseColumnReductions as fuseColumnReductionsIn } from "./column-reductions.js";
import { fuseEpilogues as fuseEpiloguesIn } from "./epilogue.js";

const fuseColumnReductions = onCalls(fuseColumnReductionsIn);
const fuseEpilogues = onCalls(fuseEpiloguesIn);

const on = (kind: "cuda" | "cpu", precision = "tf32"): Runtime =>
  ({
    device: { kind, computeCapability: "9.0", parallelism: 132 },
    settings: { precision },
  }) as unknown as Runtime;
const hopper = on("cuda");

let buffers = 0;
const bufferOf = (elements: number, bytes = 4): Buffer => {
  buffers++;
  return { id: buffers, bytes: bytes * elements, label: `b${buffers}` };
};
const whole = (buffer: Buffer): BufferSlice => ({ buffer, offset: 0, size: buffer.bytes });

const [rows, columns] = [1024, 128];
const load = (input: number) => term.load(input, "f32");

/** Of [x, y]: their sum, and how far each is from its row's own. */
const centred: RowKernel = {
  ...{ name: "centred", inputs: ["f32", "f32"], scalars: [] },
  outputs: [
    { dtype: "f32", per: "element" },
    { dtype: "bf16", per: "element" },
  ],
  stages: [
    { kind: "reduce", op: "add", value: term.add(load(0), load(1)) },
    { kind: "store", output: 0, value: term.add(load(0), load(1)) },
    { kind: "store", output: 1, value: term.sub(load(0), term.mul(term.reduced(0, "f32"), 1 / columns)) },
  ],
};

interface Sources {
  readonly x?: Buffer;
  readonly y?: Buffer;
  readonly size?: readonly [rows: number, columns: number];
}

function centre({ size = [rows, columns], x, y }: Sources = {}) {
  return rowsOf(centred, size, x, y);
}

/** A kernel of two inputs with two outputs: f32, and bf16. */
function rowsOf(
  kernel: RowKernel,
  [rows, columns]: readonly [rows: number, columns: number],
  x = bufferOf(rows * columns),
  y = bufferOf(rows * columns),
) {
  const [sum, rounded] = [bufferOf(rows * columns), bufferOf(rows * columns, 2)];
  const strides = Array.from({ length: 4 }, () => [columns, 1]);
  const iteration = iterateRows([rows, columns], strides, 1);
  const operands = [x, y, sum, rounded].map(whole);
  const call: Call = {
    op: "centre",
    work: { kind: "row", kernel, iteration, operands, scalars: [] },
  };
  return { call, x, y, sum, rounded };
}

/** Sums of products of two, and of the first. */
const products: ColumnKernel = {
  ...{ name: "products", inputs: ["f32", "f32"], outputs: ["f32", "f32"], scalars: [], op: "add" },
  values: [term.mul(load(0), load(1)), load(0)],
};
const sumOf = (dtype: "f32" | "bf16", op: ColumnKernel["op"] = "add"): ColumnKernel => ({
  ...{ name: "sum", inputs: [dtype], outputs: ["f32"], scalars: [], op, values: [load(0)] },
});

function reduce(kernel: ColumnKernel, inputs: readonly Buffer[], count = rows, width = columns) {
  const results = kernel.outputs.map(() => bufferOf(width));
  const strides = inputs.map(() => ({ row: width, column: "unit" }) as const);
  const operands = [...inputs, ...results].map(whole);
  const sizes = { rows: count, columns: width };
  const work: ColumnCall = { kind: "column", kernel, ...sizes, strides, operands, scalars: [] };
  return { call: { op: kernel.name, work } satisfies Call, results };
}

const written = (call: Call): Buffer[] =>
  accessesOf(call).flatMap(({ slice, writes }) => (writes ? [slice.buffer] : []));
const read = (call: Call): Buffer[] =>
  accessesOf(call).flatMap(({ slice, reads }) => (reads ? [slice.buffer] : []));

test("a sum is begun where its rows are made, and ends where it stood; what only it reads is not stored", () => {
  const { call, x, y, sum, rounded } = centre();
  const { call: reduction, results } = reduce(products, [sum, x]);
  const reader: Call = { op: "copy", work: { kind: "copy", source: whole(rounded), target: whole(rounded) } };
  const [begun, between, ended, ...others] = fuseColumnReductions(hopper, [call, reader, reduction]);
  assert.deepEqual([others, between], [[], reader]);
  assert.ok(begun?.work.kind === "row" && ended?.work.kind === "column");
  assert.equal(begun.op, "centre + products");
  const left = written(begun).filter(({ label }) => label === "products sums");
  assert.deepEqual(written(begun), [rounded, ...left]);
  assert.deepEqual([...new Set(read(begun))], [x, y]);
  assert.deepEqual(
    left.map(({ bytes }) => bytes),
    [128 * columns * 4, 128 * columns * 4],
  );
  assert.deepEqual([ended.work.rows, read(ended), written(ended)], [128, left, results]);
  assert.equal(new Set([...written(begun), ...written(ended), x, y, sum].map(({ id }) => id)).size, 8);
});

test("several sums begin in one call, half floats as a store rounds them; what others read is stored as well", () => {
  const { call, x, sum, rounded } = centre();
  const reductions = [reduce(products, [sum, x]), reduce(sumOf("bf16"), [rounded])];
  const reader: Call = {
    op: "copy",
    work: { kind: "copy", source: whole(sum), target: whole(bufferOf(rows * columns)) },
  };
  const [begun] = fuseColumnReductions(hopper, [call, ...reductions.map((one) => one.call), reader]);
  assert.equal(begun?.op, "centre + products + sum");
  assert.deepEqual(
    written(begun).map(({ label }) => label),
    [sum.label, "products sums", "products sums", "sum sums"],
  );
  assert.ok(begun?.work.kind === "row");
  const { stages, outputs } = begun.work.kernel;
  const ofRounded = stages.findLast(
    (stage) => stage.kind === "store" && outputs[stage.output]?.per === "column",
  );
  assert.ok(ofRounded?.value.kind === "unary" && ofRounded.value.op === "roundBf16");
});

test("a sum begins as well in a call that reads its rows before it or behind it, and ends behind that", () => {
  const { call, x, y, rounded } = centre();
  const reader: Call = { op: "copy", work: { kind: "copy", source: whole(rounded), target: whole(rounded) } };
  const { call: reduction, results } = reduce(products, [x, y]);
  for (const calls of [
    [call, reader, reduction],
    [reduction, call, reader],
  ]) {
    const made = fuseColumnReductions(hopper, calls);
    assert.deepEqual(
      made.map(({ op }) => op),
      calls[0] === call
        ? ["centre + products", "copy", "products"]
        : ["centre + products", "products", "copy"],
    );
  }
  const [wanted] = results;
  const early: Call = { op: "fill", work: { kind: "fill", target: whole(wanted!), byte: 0 } };
  const [stays] = fuseColumnReductions(hopper, [reduction, early, call]);
  assert.equal(stays, reduction, "its result is wanted before that");
});

test("nothing begins where the rows are not whole yet, or others' memory would have to be read for it", () => {
  const { call, x, sum } = centre();
  const fill: Call = { op: "fill", work: { kind: "fill", target: whole(x), byte: 0 } };
  const stay = (calls: readonly Call[], runtime = hopper): void =>
    assert.deepEqual(fuseColumnReductions(runtime, calls), calls);
  const reduction = reduce(products, [sum, x]).call;
  stay([call, fill, reduction]);
  stay([call, reduce(products, [sum, bufferOf(rows * columns)]).call]);
  stay([call, reduce(sumOf("f32", "max"), [sum]).call]);
  stay([call, reduce(sumOf("f32"), [sum], rows / 2).call]);
  stay([{ ...call, isRematerialized: true }, reduction]);
  stay([{ ...call, isHoisted: true }, reduction]);
  stay([reduction]);
  stay([call, reduction], on("cpu"));
});

describe("sums over many rows", () => {
  const size = [8192, 768] as const;
  const partialsIn = (call: Call | undefined): number[] =>
    written(call!)
      .filter(({ label }) => label.endsWith(" sums"))
      .map(({ bytes }) => bytes / (4 * size[1]));

  test("begin in a kernel whose warps loop over rows; in float32 with a fixed number of partials", () => {
    const { call, x, sum, rounded } = centre({ size });
    const reductions = [reduce(products, [sum, x], ...size), reduce(sumOf("bf16"), [rounded], ...size)];
    const calls = [call, ...reductions.map((one) => one.call)];
    for (const [runtime, partials] of [
      [hopper, 132],
      [on("cuda", "f32"), 128],
    ] as const) {
      const [begun, ...ended] = fuseColumnReductions(runtime, calls);
      assert.equal(begun?.op, "centre + products + sum");
      assert.deepEqual(partialsIn(begun), [partials, partials, partials]);
      assert.deepEqual(
        ended.map(({ work }) => work.kind === "column" && work.rows),
        [partials, partials],
      );
    }
  });

  /** Of [x, y]: their sum, and their product. */
  const both: RowKernel = {
    ...centred,
    name: "both",
    stages: [
      { kind: "store", output: 0, value: term.add(load(0), load(1)) },
      { kind: "store", output: 1, value: term.mul(load(0), load(1)) },
    ],
  };

  test("begin in an elementwise kernel, if they read much", () => {
    const large = rowsOf(both, [8192, 3072]);
    const [begun, ended] = fuseColumnReductions(hopper, [
      large.call,
      reduce(sumOf("bf16"), [large.rounded], 8192, 3072).call,
    ]);
    assert.ok(begun?.work.kind === "row" && ended?.work.kind === "column");
    assert.deepEqual([begun.work.iteration.rows, begun.work.iteration.row.size], [8192, 3072]);
    assert.deepEqual([ended.work.rows, ended.work.columns], [128, 3072]);
    const small = rowsOf(both, [3072, 1024]);
    const calls = [small.call, reduce(sumOf("f32"), [small.sum], 3072, 1024).call];
    assert.deepEqual(fuseColumnReductions(hopper, calls), calls);
  });

  test("stay where they are if rows are short, so that too few loads would be in flight", () => {
    const { call, x, sum } = centre({ size: [65536, 72] });
    const calls = [call, reduce(products, [sum, x], 65536, 72).call];
    assert.deepEqual(fuseColumnReductions(on("cuda", "f32"), calls), calls);
  });

  test("stay where they are if the kernel's other sums would get another number of partials", () => {
    const [count, width] = [3072, 512];
    const { call, x, y, sum, rounded } = centre({ size: [count, width] });
    const reader: Call = {
      op: "copy",
      work: { kind: "copy", source: whole(rounded), target: whole(rounded) },
    };
    const sums = [[sum], [x], [y], [sum], [x]].map(
      (inputs) => reduce(sumOf("f32"), inputs, count, width).call,
    );
    const [begun, , ...ended] = fuseColumnReductions(hopper, [call, reader, ...sums]);
    assert.ok(begun?.work.kind === "row");
    // A block has shared memory for the rows of four sums.
    assert.equal(begun.work.kernel.outputs.filter(({ per }) => per === "column").length, 4);
    assert.deepEqual(
      ended.map(({ work }) => work.kind === "column" && work.rows),
      [128, 128, 128, 128, count],
    );
  });
});

describe("sums of what a product's kernel finishes", () => {
  const [m, n, k] = [3072, 1024, 256];
  const twice: RowKernel = {
    ...{ name: "twice", inputs: ["f32"], outputs: [{ dtype: "f32", per: "element" }], scalars: [] },
    stages: [{ kind: "store", output: 0, value: term.mul(load(0), 2) }],
  };
  function finished() {
    const [left, right, result, target] = [m * k, k * n, m * n, m * n].map((size) => bufferOf(size));
    const problem = {
      ...({ dtype: "f32", m, n, k } as const),
      a: { slice: whole(left!), rowStride: k },
      b: { slice: whole(right!), rowStride: n },
      c: { slice: whole(result!), rowStride: n },
    };
    const iteration = iterateElements([m * n], [[1], [1]]);
    const operands = [result!, target!].map(whole);
    const calls = fuseEpilogues(hopper, [
      { op: "linear", work: { kind: "gemm", problem } },
      { op: "twice", work: { kind: "row", kernel: twice, iteration, operands, scalars: [] } },
    ]);
    return { calls, target: target! };
  }
  const columnsOf = (source: Buffer, strides: ColumnCall["strides"], count = m): Call => ({
    op: "sum",
    work: {
      ...{ kind: "column", kernel: sumOf("f32"), rows: count, columns: n, strides, scalars: [] },
      operands: [source, bufferOf(n)].map(whole),
    },
  });
  const dense = [{ row: n, column: "unit" }] as const;

  test("begin in that kernel, sixteen rows at a time", () => {
    const { calls, target } = finished();
    const [begun, ended] = fuseColumnReductions(hopper, [...calls, columnsOf(target, dense)]);
    assert.ok(begun?.work.kind === "gemm-epilogue" && ended?.work.kind === "column");
    const [left] = written(begun).filter(({ label }) => label === "sum sums");
    assert.deepEqual(written(begun), [target, left]);
    assert.ok(!read(begun).includes(target), "what it reads back it has at hand");
    assert.deepEqual([left?.bytes, ended.work.rows, read(ended)], [(m / 16) * n * 4, m / 16, [left]]);
    assert.deepEqual(begun.work.epilogue.forwarded, [undefined, 0]);
  });

  test("stay where they are if they are of other rows than those", () => {
    const { calls, target } = finished();
    for (const other of [
      columnsOf(target, [{ row: 2 * n, column: "unit" }], m / 2),
      columnsOf(target, [{ row: n, column: "none" }]),
      columnsOf(target, dense, m / 2),
    ]) {
      assert.deepEqual(fuseColumnReductions(hopper, [...calls, other]), [...calls, other]);
    }
  });
});

describe("on CUDA", { skip: cudaMissing }, () => {
  const runtime = openCudaKernelRuntime();

  test("programs of rows, sums and copies leave the same bytes, whoever waits for whom", () => {
    const step = fc.record({
      kind: fc.constantFrom("centre", "grouped-gemm", "sum", "halves", "copy"),
      from: fc.nat(),
      beside: fc.nat(),
      to: fc.nat(),
    });
    const numRuns = effort({ quick: 4, thorough: 25 });
    const wave = Float32Array.from({ length: rows * columns + 8 }, (_, place) => Math.sin(place));
    let begun = 0;
    fc.assert(
      fc.property(fc.array(step, { minLength: 3, maxLength: 9 }), (steps) => {
        const floats = Array.from({ length: 3 }, () => bufferOf(rows * columns));
        const halves = Array.from({ length: 2 }, () => bufferOf(rows * columns, 2));
        const sums = Array.from({ length: 3 }, () => bufferOf(columns));
        const at = (list: readonly Buffer[], index: number): Buffer => list[index % list.length]!;
        const program = steps.flatMap(({ kind, from, beside, to }): Call[] => {
          const [source, other, target] = [from, beside, to].map((index) => at(floats, index));
          if (kind === "copy")
            return source === target
              ? []
              : [{ op: kind, work: { kind, source: whole(source!), target: whole(target!) } }];
          if (kind === "centre") {
            const { call } = centre({ x: source!, y: other! });
            if (call.work.kind !== "row") return [];
            const operands = [source!, other!, target!, at(halves, to)].map(whole);
            return [{ ...call, work: { ...call.work, operands } }];
          }
          const kernel = kind === "grouped-gemm" ? products : sumOf(kind === "halves" ? "bf16" : "f32");
          const inputs =
            kind === "grouped-gemm" ? [source!, other!] : [kind === "halves" ? at(halves, from) : source!];
          const { call } = reduce(kernel, inputs);
          const results = kernel.outputs.map((_, place) => at(sums, to + place));
          return [{ ...call, work: { ...call.work, operands: [...inputs, ...results].map(whole) } }];
        });
        const made = fuseColumnReductions(runtime, program);
        begun += made.filter(({ op }) => op.startsWith("centre +")).length;
        const all = [...floats, ...halves, ...sums];
        const [before, after] = [program, made].map((calls) =>
          runtime.step(() => {
            const storages = new Map(
              all.map((buffer, index) => {
                return [buffer, put(runtime, wave.slice(index, index + buffer.bytes / 4), "buffer")];
              }),
            );
            runProgram(runtime, calls, storages);
            return sums.map((buffer) => runtime.read(storages.get(buffer)!));
          }),
        );
        for (const [index, bytes] of before!.entries()) sameBytes(after![index]!, bytes, `sum ${index}`);
      }),
      { numRuns },
    );
    // Sums of so few rows are not worth a partial sum on a large GPU.
    if (testDevice !== "cuda") assert.ok(begun > numRuns / 8, `${begun} sums were begun`);
  });
});
