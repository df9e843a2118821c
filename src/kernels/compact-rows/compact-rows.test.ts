/**
 * The gradient of embeddings as compact rows: row maps and sums have the bits of scatterAdd to whole tables, and the reduction of a vector with
 * compact rows has the bits of the vector with all its zeros.
 */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { cudaMissing, openCudaKernelRuntime, put } from "../../../test/support/kernel-runtime.js";
import { sameBytes } from "../../../test/support/same-bytes.js";
import { type ChunkedReduceKernel, term } from "../../ir/index.js";
import type { Command, Runtime, Storage } from "../../runtime/index.js";
import { backendOf } from "../backend.js";
import { chunkLength } from "../codegen/cuda/chunked-reduce-kernel.js";
import type { ReducedVector } from "../multi-tensor/reduce-problem.js";
import type { ScatterAdd } from "../scan-scatter/problem.js";
import { submit } from "../submit.js";
import { lowerRowMapOnCuda } from "./cuda-row-map.js";

/** Entries that select few rows of each table, some of them often, and some entries that select nothing. */
function idsOf(count: number, tables: readonly number[]): Int32Array<ArrayBuffer> {
  return Int32Array.from({ length: count * tables.length }, (_, place) => {
    const rows = tables[place % tables.length]!;
    const mixed = Math.imul(place + 1, 0x9e3779b1) >>> 8;
    return mixed % 11 === 0 ? [-1, rows, 2 ** 31 - 1][mixed % 3]! : (mixed % 23) * Math.floor(rows / 23);
  });
}

/** Numbers whose sums depend on the order of additions. */
const numbersOf = (count: number): Float32Array<ArrayBuffer> =>
  Float32Array.from({ length: count }, (_, place) => Math.sin(place + 1) * 10 ** (place % 7));

interface Sizes {
  /** Rows of each table. */
  readonly tables: readonly number[];
  readonly width: number;
  readonly count: number;
}

type Plant = (command: Command) => Command;
const sound: Plant = (command) => command;

/** The compact rows of tables whose entries are columns of one matrix, and whose sources are columns of another. */
function compact(runtime: Runtime, { tables, width, count }: Sizes, plant = sound) {
  const ids = idsOf(count, tables);
  const sources = numbersOf(count * tables.length * width);
  const allRows = tables.reduce((sum, rows) => sum + rows, 0);
  const [index, source] = [put(runtime, ids, "ids"), put(runtime, sources, "sources")];
  const allocate = (elements: number, label: string): Storage => runtime.arena.allocate(4 * elements, label);
  const map = allocate(allRows, "map");
  const owners = allocate(count * tables.length, "owners");
  const values = allocate(count * tables.length * width, "values");
  const columns = tables.map((rows, table) => ({
    index: runtime.view(index, 4 * table, 4 * ((count - 1) * tables.length + 1)),
    ...{ stride: tables.length, count, rows },
  }));
  submit(runtime, lowerRowMapOnCuda({ tables: columns, map, owners }, "rowMap").map(plant));
  const part = (storage: Storage, table: number, elements: number): Storage =>
    runtime.view(storage, 4 * table * elements, 4 * elements);
  const members = tables.map(
    (_, table): ScatterAdd => ({
      ...{
        dtype: "f32",
        outer: 1,
        length: count,
        inner: width,
        count,
        isIndexShared: true,
        overwrites: true,
      },
      ...{ index: part(owners, table, count), target: part(values, table, count * width) },
      source: runtime.view(source, 4 * table * width, 4 * (((count - 1) * tables.length + 1) * width)),
      strides: { outerSource: 0, sourceRow: tables.length * width },
    }),
  );
  submit(runtime, backendOf(runtime).lowerScatterGroup({ members, scratch: [] }, "scatterAdd").map(plant));
  return { ids, sources, map, values };
}

/** The whole tables by plain loops, one after the other. */
function wholeTables({ tables, width, count }: Sizes, ids: Int32Array, sources: Float32Array): Float32Array {
  const whole = new Float32Array(tables.reduce((sum, rows) => sum + rows, 0) * width);
  let firstRow = 0;
  for (const [table, rows] of tables.entries()) {
    for (let entry = 0; entry < count; entry++) {
      const row = ids[entry * tables.length + table]!;
      if (row < 0 || row >= rows) continue;
      for (let column = 0; column < width; column++) {
        const to = (firstRow + row) * width + column;
        const from = (entry * tables.length + table) * width + column;
        whole[to] = whole[to]! + sources[from]!;
      }
    }
    firstRow += rows;
  }
  return whole;
}

/** The whole tables from their compact rows. */
function expand(map: Int32Array, values: Float32Array, width: number): Float32Array {
  const whole = new Float32Array(map.length * width);
  for (const [row, position] of map.entries())
    if (position >= 0) whole.set(values.subarray(position * width, (position + 1) * width), row * width);
  return whole;
}

function proveCompact(runtime: Runtime, sizes: Sizes, plant = sound): void {
  runtime.step(() => {
    const { ids, sources, map, values } = compact(runtime, sizes, plant);
    const positions = new Int32Array(runtime.read(map).buffer);
    const rows = new Float32Array(runtime.read(values).buffer);
    sameBytes(expand(positions, rows, sizes.width), wholeTables(sizes, ids, sources), "the rows");
  });
}

/** A fault in the code of the kernels that have this text. */
const planting =
  (text: string, fault: string): Plant =>
  (command) => {
    if (command.kind !== "launch" || !command.source.cuda?.code.includes(text)) return command;
    const code = command.source.cuda.code.replaceAll(text, fault);
    return { ...command, source: { ...command.source, cuda: { ...command.source.cuda, code } } };
  };

const squares: ChunkedReduceKernel = {
  ...{ name: "squares", dtype: "f32", scalars: [], op: "add", ignoresZeros: true },
  value: term.mul(term.convert(term.load(0, "f32"), "f64"), term.convert(term.load(0, "f32"), "f64")),
};
const largest: ChunkedReduceKernel = {
  ...{ name: "largest", dtype: "f32", scalars: [], op: "max", ignoresZeros: true },
  value: term.abs(term.load(0, "f32")),
};

function reduce(
  runtime: Runtime,
  kernel: ChunkedReduceKernel,
  vector: ReducedVector<Storage>,
  plant = sound,
): Uint8Array {
  const bytes = (kernel.value.type === "f64" ? 8 : 4) * Math.ceil(vector.length / chunkLength);
  const results = runtime.arena.allocate(bytes, "results");
  const view = (storage: Storage, offset: number, size: number): Storage =>
    runtime.view(storage, offset, size);
  const calls = backendOf(runtime).lowerChunkedReduce({ kernel, vectors: [vector], results, view });
  submit(
    runtime,
    calls.map((call) => (call.kind === "launch" ? plant(call) : call)),
  );
  return runtime.read(results);
}

/** A vector of a dense section, two tables as one section with gaps around it, and a dense section, in both forms. */
function vectors(
  runtime: Runtime,
  { before, gap, after }: Readonly<Record<"before" | "gap" | "after", number>>,
) {
  const sizes = { tables: [500, 301], width: 36, count: 40 };
  const { ids, sources, map, values } = compact(runtime, sizes);
  const tables = wholeTables(sizes, ids, sources);
  const [first, last] = [numbersOf(before), numbersOf(after)];
  const start = before + gap;
  const length = start + tables.length + gap + after;
  const whole = new Float32Array(length);
  for (const [offset, part] of [
    [0, first],
    [start, tables],
    [length - after, last],
  ] as const)
    whole.set(part, offset);
  const sections = [
    ...(before > 0 ? [{ first: 0, length: before, storage: put(runtime, first, "first") }] : []),
    {
      ...{ first: start, length: tables.length, storage: values },
      rowMap: { storage: map, width: sizes.width },
    },
    ...(after > 0 ? [{ first: length - after, length: after, storage: put(runtime, last, "last") }] : []),
  ];
  return { plain: { length, storage: put(runtime, whole, "whole") }, sectioned: { length, sections } };
}

describe("compact rows, on CUDA", { skip: cudaMissing }, () => {
  const runtime = cudaMissing ? undefined! : openCudaKernelRuntime();
  const tables: Sizes = { tables: [200, 37, 90], width: 32, count: 300 };

  test("have the sums of scatterAdd to whole tables, in the order of the entries", () => {
    proveCompact(runtime, tables);
    proveCompact(runtime, { tables: [23], width: 33, count: 5 });
  });

  const faults: Readonly<Record<string, readonly [text: string, fault: string]>> = {
    "owners that are the last entries of their rows and not the first": [
      "firstEntry + entry);",
      "~(firstEntry + entry));",
    ],
    "tables that share the first one's part of the map": ["firstRow + row", "0 * firstRow + row"],
    "sources without their stride": ["(long long)sourceRow", "(long long)(0 * sourceRow + inner)"],
    "an index that all tables share": ["index = index1;", "index = index1 ? index0 : index1;"],
  };
  for (const [fault, [text, planted]] of Object.entries(faults)) {
    test(`red proof: ${fault}`, () => {
      assert.throws(() => proveCompact(runtime, tables, planting(text, planted)), /the rows/);
    });
  }

  const layouts = {
    "a table alone": { before: 0, gap: 0, after: 0 },
    "gaps and short sections around the tables": { before: 256, gap: 64, after: 7 },
    "sections of whole chunks around the tables": { before: 2 * chunkLength + 64, gap: 0, after: 9001 },
  };
  for (const [name, layout] of Object.entries(layouts)) {
    test(`are reduced with the bits of whole vectors: ${name}`, () => {
      for (const kernel of [squares, largest]) {
        runtime.step(() => {
          const { plain, sectioned } = vectors(runtime, layout);
          sameBytes(reduce(runtime, kernel, sectioned), reduce(runtime, kernel, plain), kernel.name);
        });
      }
    });
  }

  test("are reduced with the bits of whole vectors: more sections than a launch has", () => {
    runtime.step(() => {
      const [count, half] = [20, chunkLength / 2];
      const whole = numbersOf(count * half);
      const sections = Array.from({ length: count }, (_, index) => ({
        ...{ first: index * half, length: half },
        storage: put(runtime, whole.slice(index * half, (index + 1) * half), "section"),
      }));
      const plain = { length: whole.length, storage: put(runtime, whole, "whole") };
      const sectioned = { length: whole.length, sections };
      sameBytes(reduce(runtime, squares, sectioned), reduce(runtime, squares, plain), "squares");
    });
  });

  test("red proof: a reduction that leaves out a warp or the end of a row, or adds in another order", () => {
    for (const [text, fault] of [
      ["warp < 8u", "warp < 7u"],
      ["part <= last", "part < last"],
      ["((acc[0] + acc[1]) + (acc[2] + acc[3]))", "((acc[0] + acc[2]) + (acc[1] + acc[3]))"],
    ] as const) {
      runtime.step(() => {
        const { plain, sectioned } = vectors(runtime, layouts["gaps and short sections around the tables"]);
        const faulty = reduce(runtime, squares, sectioned, planting(text, fault));
        assert.throws(() => sameBytes(faulty, reduce(runtime, squares, plain), "squares"), /squares/);
      });
    }
  });
});
