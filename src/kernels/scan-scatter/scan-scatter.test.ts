/** Scans and scatters against plain loops, to the bit: every dtype, odd sizes, offset storages, on every device. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { effort } from "../../../test/support/effort.js";
import { rounded } from "../../../test/support/ir-reference.js";
import {
  cudaMissing,
  openCpuKernelRuntime,
  openCudaKernelRuntime,
  put,
} from "../../../test/support/kernel-runtime.js";
import { rejects } from "../../../test/support/rejects.js";
import { sameBytes } from "../../../test/support/same-bytes.js";
import type { Command, Runtime } from "../../runtime/index.js";
import { backendOf } from "../backend.js";
import type { KernelCall } from "../kernel-call.js";
import { submit } from "../submit.js";
import { cudaScatterScratchBytes, lowerScatterAddOnCuda } from "./cuda-scatter.js";
import { buckets, maxSparseRows, planScatter, tileElements } from "./cuda-scatter-plan.js";
import type { ScanDtype } from "./element.js";
import type { Scan, ScatterAdd } from "./problem.js";
import { scanCalls } from "./scan.js";
import { scatterAddCalls } from "./scatter-add.js";

const runsOnCpu = effort({ quick: 15, thorough: 150 });

/** The bits are the same on all devices. Without a GPU under test, the CUDA kernels run on the emulator, which is slow. */
const devices = [
  { device: "one thread", skip: false, open: () => openCpuKernelRuntime(1), runs: runsOnCpu },
  { device: "two threads", skip: false, open: () => openCpuKernelRuntime(2), runs: runsOnCpu },
  {
    device: "CUDA",
    skip: cudaMissing,
    open: openCudaKernelRuntime,
    runs: effort({ quick: 10, thorough: 60 }),
  },
] as const;

const wideSizes = effort({
  quick: { length: 603, inner: 260, count: 90 },
  thorough: { length: 1100, inner: 300, count: 700 },
});
const narrowSizes = effort({
  quick: { length: 1003, inner: 1, count: 800 },
  thorough: { length: 2000, inner: 1, count: 3000 },
});

const arrays = { f32: Float32Array, f64: Float64Array, i32: Int32Array } as const;
type Values = Float32Array<ArrayBuffer> | Float64Array<ArrayBuffer> | Int32Array<ArrayBuffer>;

/** Numbers whose sums depend on the order of additions, with zeros of both signs and integers that wrap. */
function valuesOf(dtype: ScanDtype, count: number, seed: number): Values {
  const values = new arrays[dtype](count);
  let state = seed | 1;
  for (let place = 0; place < count; place++) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0;
    const isZero = (state >>> 28) % 8 === 0;
    values[place] = dtype === "i32" ? state : isZero ? -0 : state / 3e5;
  }
  return values;
}

/** An array in the middle of a buffer: the buffer, the array, and its offset. */
function place(runtime: Runtime, values: Values, offset: number, label: string) {
  const buffer = new Uint8Array(values.byteLength + 64).fill(0xa5);
  const start = offset * values.BYTES_PER_ELEMENT;
  buffer.set(new Uint8Array(values.buffer, values.byteOffset, values.byteLength), start);
  const whole = put(runtime, buffer, label);
  return { whole, storage: runtime.view(whole, start, values.byteLength), start };
}

/** Fails unless the buffer has these values in its middle, and its fill pattern everywhere else. */
function proveWhole(actual: Uint8Array, expected: Values, start: number, what: string): void {
  const bytes = new Uint8Array(actual.length).fill(0xa5);
  bytes.set(new Uint8Array(expected.buffer, expected.byteOffset, expected.byteLength), start);
  sameBytes(actual, bytes, what);
}

const dtypeOf = fc.constantFrom("f32" as const, "f64" as const, "i32" as const);
const size = fc.integer({ min: 1, max: 6 });
const innerSize = fc.oneof(fc.integer({ min: 1, max: 9 }), fc.constantFrom(15, 16, 17, 31, 32, 35, 67));
const offsets = fc.nat(3);

/** The reference; the first element is its own prefix sum. */
function scanPlainly(scan: Omit<Scan, "input" | "output" | "op">, input: Values): Values {
  const { dtype, outer, length, inner, isReversed } = scan;
  const output = new arrays[dtype](input.length);
  for (let o = 0; o < outer; o++) {
    for (let i = 0; i < inner; i++) {
      for (let step = 0; step < length; step++) {
        const row = isReversed ? length - 1 - step : step;
        const at = (o * length + row) * inner + i;
        const before = at + (isReversed ? inner : -inner);
        output[at] = step === 0 ? input[at]! : rounded(dtype, output[before]! + input[at]!);
      }
    }
  }
  return output;
}

const scans = fc.record({
  dtype: dtypeOf,
  outer: size,
  length: fc.oneof(fc.integer({ min: 1, max: 9 }), fc.constantFrom(33, 100)),
  inner: innerSize,
  isReversed: fc.boolean(),
});

interface Scatter {
  readonly dtype: ScanDtype;
  readonly outer: number;
  readonly length: number;
  readonly inner: number;
  readonly count: number;
  readonly isIndexShared: boolean;
  readonly overwrites?: boolean;
}

function scatterPlainly(scatter: Scatter, index: Int32Array, source: Values, target: Values): Values {
  const { dtype, outer, length, inner, count, isIndexShared } = scatter;
  const sums = scatter.overwrites ? new arrays[dtype](target.length) : target.slice();
  for (let o = 0; o < outer; o++) {
    for (let c = 0; c < count; c++) {
      for (let i = 0; i < inner; i++) {
        const from = (o * count + c) * inner + i;
        const row = index[isIndexShared ? c : from]!;
        if (row < 0 || row >= length) continue;
        const to = (o * length + row) * inner + i;
        sums[to] = rounded(dtype, sums[to]! + source[from]!);
      }
    }
  }
  return sums;
}

/** Indices that are mostly valid; some are just outside of the axis, some far outside. */
function indicesOf(count: number, length: number, seed: number): Int32Array<ArrayBuffer> {
  const outside = [-1, length, length + 1, 2 ** 31 - 1, -(2 ** 31), -length];
  return Int32Array.from({ length: count }, (_, place) => {
    const mixed = Math.imul(place + seed + 1, 0x9e3779b1) >>> 8;
    return mixed % 9 === 0 ? outside[mixed % 6]! : mixed % length;
  });
}

function indicesFor({ isIndexShared, outer, length, inner, count }: Scatter, seed: number) {
  return indicesOf(isIndexShared ? count : outer * count * inner, length, seed);
}

const scatters = fc.record({
  dtype: dtypeOf,
  outer: size,
  length: size,
  inner: innerSize,
  count: fc.oneof(fc.integer({ min: 1, max: 9 }), fc.constantFrom(40, 101)),
  isIndexShared: fc.boolean(),
  overwrites: fc.boolean(),
});

/** Scatters between storages at offsets, and compares the target and the memory around it with the plain loops. */
function proveScatter(
  runtime: Runtime,
  scatter: Scatter,
  seed: number,
  offset: readonly [number, number, number],
  {
    lower = (problem: ScatterAdd): readonly KernelCall[] => scatterAddCalls(problem),
    index = indicesFor(scatter, seed),
  } = {},
): void {
  const { dtype, outer, length, inner, count } = scatter;
  const source = valuesOf(dtype, outer * count * inner, seed);
  const target = valuesOf(dtype, outer * length * inner, seed + 1);
  const expected = scatterPlainly(scatter, index, source, target);
  runtime.step(() => {
    const to = place(runtime, target, offset[0], "target");
    submit(
      runtime,
      lower({
        ...scatter,
        index: place(runtime, index, offset[1], "index").storage,
        source: place(runtime, source, offset[2], "source").storage,
        target: to.storage,
      }),
    );
    proveWhole(runtime.read(to.whole), expected, to.start, "the target");
  });
}

for (const { device, skip, open, runs } of devices) {
  describe(`on ${device}`, { skip }, () => {
    const runtime = open();

    test("a scan adds in the order of the axis, forwards or backwards, and writes nothing else", () => {
      fc.assert(
        fc.property(scans, offsets, offsets, fc.boolean(), (scan, fromOffset, toOffset, isInPlace) => {
          const count = scan.outer * scan.length * scan.inner;
          const values = valuesOf(scan.dtype, count, count);
          const expected = scanPlainly(scan, values);
          runtime.step(() => {
            const from = place(runtime, values, fromOffset, "from");
            const to = isInPlace ? from : place(runtime, new arrays[scan.dtype](count), toOffset, "to");
            submit(
              runtime,
              scanCalls(backendOf(runtime), { ...scan, op: "add", input: from.storage, output: to.storage }),
            );
            proveWhole(runtime.read(to.whole), expected, to.start, "the scan");
          });
        }),
        { numRuns: runs },
      );
    });

    test("a long scan has the bits of the plain loop", () => {
      const scan = { dtype: "f32", outer: 6, length: 500, inner: 33 } as const;
      const values = valuesOf("f32", 6 * 500 * 33, 5);
      runtime.step(() => {
        const input = put(runtime, values, "x");
        const output = runtime.arena.allocate(values.byteLength, "sums");
        submit(runtime, scanCalls(backendOf(runtime), { ...scan, op: "add", input, output }));
        sameBytes(runtime.read(output), scanPlainly(scan, values), "the scan");
      });
    });

    test("entries are added in order at their indices, and entries outside of the axis are skipped", () => {
      fc.assert(
        fc.property(scatters, fc.nat(999), fc.tuple(offsets, offsets, offsets), (scatter, seed, offset) =>
          proveScatter(runtime, scatter, seed, offset),
        ),
        { numRuns: runs },
      );
    });

    test("scatters over long axes and wide rows are correct, with an index per row or per element", () => {
      for (const isIndexShared of [true, false]) {
        // A block of CUDA has several rows here, and the last one fewer; columns for two blocks; and a lone column.
        const wide = { dtype: "f32", outer: 2, ...wideSizes, isIndexShared } as const;
        proveScatter(runtime, wide, 1, [0, 0, 0]);
        const narrow = { dtype: "f64", outer: 3, ...narrowSizes, isIndexShared } as const;
        proveScatter(runtime, narrow, 2, [1, 2, 3]);
      }
    });
  });
}

/** A device so small that reading the index again in every block costs more than a partition, even of few entries. */
const smallDevice = { parallelism: 1 };

/** Lowers for the small device, with scratch memory that has other contents before. */
function lowerOnSmallDevice(runtime: Runtime, scatter: ScatterAdd): readonly Command[] {
  const scratch = cudaScatterScratchBytes(smallDevice, scatter).map((bytes, buffer) =>
    put(runtime, new Uint8Array(bytes).fill(0xc3), `scratch ${buffer}`),
  );
  return lowerScatterAddOnCuda(smallDevice, { ...scatter, scratch }, "scatterAdd");
}

describe("partitioned entries, on CUDA", { skip: cudaMissing }, () => {
  const runtime = openCudaKernelRuntime();
  const lower = (scatter: ScatterAdd) => lowerOnSmallDevice(runtime, scatter);
  const shared = { dtype: "f32", outer: 1, isIndexShared: true, overwrites: true } as const;

  /** Scatters of which every one is partitioned: a long axis makes many blocks. */
  const cases: Readonly<Record<string, { scatter: Scatter; index?: Int32Array<ArrayBuffer> }>> = {
    "several rows per block and several blocks per bucket": {
      scatter: { ...shared, length: 35_001, inner: 33, count: 601 },
    },
    "one column": { scatter: { ...shared, length: 90_001, inner: 1, count: 2500 } },
    "several arrays, added to the target": {
      scatter: { ...shared, dtype: "f64", outer: 3, length: 2100, inner: 40, count: 2050, overwrites: false },
    },
    "more entries than rows, added to several arrays": {
      scatter: { ...shared, dtype: "f64", outer: 3, length: 800, inner: 40, count: 901, overwrites: false },
    },
    "more entries than rows, in wide rows": {
      scatter: { ...shared, length: 501, inner: 130, count: 2700 },
    },
    "a single row for all of many rows": {
      scatter: { ...shared, length: 4000, inner: 65, count: 3501 },
      index: new Int32Array(3501).fill(3999),
    },
    "a single row for all entries, over several rounds": {
      scatter: { ...shared, dtype: "i32", length: 2000, inner: 32, count: 5001 },
      index: new Int32Array(5001).fill(1777),
    },
    "no entry inside of the axis": {
      scatter: { ...shared, length: 4000, inner: 32, count: 3501 },
      index: new Int32Array(3501).fill(-1),
    },
  };

  for (const [name, { scatter, index = indicesFor(scatter, 7) }] of Object.entries(cases)) {
    test(`add in the order of the index: ${name}`, () => {
      assert.equal(cudaScatterScratchBytes(smallDevice, scatter).length, 5, "it is partitioned");
      proveScatter(runtime, scatter, 7, [1, 2, 3], { lower, index });
    });
  }

  /** Tables with few rows, whose entries are listed. */
  const wide = { ...shared, length: 8, inner: 490, count: 3400 } as const;
  const listed: Readonly<Record<string, (typeof cases)[string] & { isAligned?: true }>> = {
    "in vectors of 16 bytes": { scatter: { ...wide, inner: 484 }, isAligned: true },
    "in vectors of two elements, added to several arrays": {
      scatter: { ...wide, dtype: "f64", outer: 3, inner: 190, overwrites: false },
      isAligned: true,
    },
    "almost all entries in one row, the others without any or few": {
      scatter: { ...wide, dtype: "i32", inner: 481 },
      index: Int32Array.from({ length: 3400 }, (_, entry) => (entry % 100 === 7 ? (entry % 3) * 4 : 5)),
    },
  };

  for (const [name, { scatter, isAligned, index = indicesFor(scatter, 7) }] of Object.entries(listed)) {
    test(`row lists add in the order of the index: ${name}`, () => {
      assert.equal(cudaScatterScratchBytes(smallDevice, scatter).length, 2, "it has lists");
      proveScatter(runtime, scatter, 7, isAligned ? [1, 2, 0] : [1, 2, 3], { lower, index });
    });
  }

  const dense = { ...shared, length: 2000, inner: 32, count: 4101 };
  const sparse = { ...shared, length: 4000, inner: 32, count: 3501 };
  const faults: Readonly<Record<string, readonly [scatter: Scatter, sound: string, planted: string]>> = {
    "a partition that reverses the entries of a warp": [
      dense,
      "__popc(before)",
      "__popc(lanes & ~before) - 1",
    ],
    "a block that swaps the entries of its warps": [dense, "if (i < warp) slot", "if (i > warp) slot"],
    "sums that start at other values than zero": [
      dense,
      "] = 0;\n  }\n\n  // The accumulator",
      "] = 1;\n  }\n  //",
    ],
    "a list that reverses the entries of a warp": [
      sparse,
      "__popc(lanes & ((1u << lane) - 1))",
      "__popc(lanes) - 1 - __popc(lanes & ((1u << lane) - 1))",
    ],
    "lists that reverse the entries of a warp": [
      wide,
      "__popc(lanes & ((1u << lane) - 1))",
      "__popc(lanes) - 1 - __popc(lanes & ((1u << lane) - 1))",
    ],
    "copies to the round that is being added": [wide, "copyRound(first + 192)", "copyRound(first + 256)"],
    "sums that start anew after some entries": [sparse, "isStarted = true", "isStarted = false"],
    "rows without entries that keep their values": [sparse, "toRow[column] = 0", "toRow[column] += 0"],
  };

  for (const [fault, [scatter, sound, planted]] of Object.entries(faults)) {
    test(`red proof: ${fault}`, () => {
      const index = Int32Array.from(
        { length: scatter.count },
        (_, entry) => (17 + (entry % 2)) % scatter.length,
      );
      const plant = (command: Command): Command => {
        if (command.kind !== "launch" || !command.source.cuda?.code.includes(sound)) return command;
        const code = command.source.cuda.code.replace(sound, planted);
        return { ...command, source: { ...command.source, cuda: { ...command.source.cuda, code } } };
      };
      const lowerFaulty = (problem: ScatterAdd) => {
        const commands = lower(problem);
        const planted = commands.map(plant);
        assert.notDeepEqual(planted, commands, "the fault is planted");
        return planted;
      };
      assert.throws(
        () => proveScatter(runtime, scatter, 7, [0, 0, 0], { index, lower: lowerFaulty }),
        /the target/,
      );
    });
  }

  test("the plan of a scatter covers its rows and its entries, and each block's entries are in one bucket", () => {
    const sizes = fc.record({
      parallelism: fc.integer({ min: 1, max: 200 }),
      dtype: dtypeOf,
      outer: fc.integer({ min: 1, max: 9 }),
      length: fc.integer({ min: 1, max: 3_000_000 }),
      inner: fc.integer({ min: 1, max: 4000 }),
      count: fc.integer({ min: 1, max: 2_000_000 }),
    });
    fc.assert(
      fc.property(sizes, (shape) => {
        const { length, inner, count } = shape;
        const plan = planScatter(shape, shape);
        const { isSparse, rowsPerBlock, columnsPerBlock, blocks, partition, hasLists } = plan;
        assert.ok(rowsPerBlock >= 1);
        const rowBlocks = Math.ceil(length / rowsPerBlock);
        assert.equal(blocks, shape.outer * rowBlocks * Math.ceil(inner / columnsPerBlock));
        assert.ok(isSparse || rowsPerBlock * Math.min(inner, columnsPerBlock) <= tileElements(shape.dtype));
        assert.ok(!isSparse || rowsPerBlock <= maxSparseRows);
        assert.ok(!hasLists || (!isSparse && !partition && rowsPerBlock === 1 && count >= 32 * length));
        if (!partition) return;
        const { rowsPerBucket, segment, segments } = partition;
        assert.equal(rowsPerBucket % rowsPerBlock, 0);
        assert.ok(rowsPerBucket * buckets >= length);
        assert.ok(segment * segments >= count && segment * (segments - 1) < count);
      }),
    );
  });

  test("few entries are selected by every block, and many entries are partitioned, on devices of any size", () => {
    for (const parallelism of [1, 16, 132]) {
      const isPartitioned = [100, 1_000_000].map(
        (count) =>
          planScatter({ parallelism }, { ...shared, length: 1000, inner: 64, count }).partition !== undefined,
      );
      assert.deepEqual(isPartitioned, [false, true]);
    }
  });

  test("a table of few rows with many entries each has row lists, unless their blocks read more than a partition", () => {
    const hasLists = (length: number, count: number) =>
      planScatter({ parallelism: 132 }, { ...shared, length, inner: 384, count }).hasLists;
    assert.deepEqual([hasLists(65, 16_384), hasLists(256, 8192)], [true, true]);
    assert.deepEqual(
      [hasLists(65, 1000), hasLists(1024, 16_384), hasLists(65, 100_000)],
      [false, false, false],
      "one launch, few entries per row, and much to read",
    );
  });

  test("a scatter without its scratch memory is rejected", () => {
    runtime.step(() => {
      const storage = put(runtime, new Float32Array(35_001 * 33), "target");
      const scatter = { ...shared, length: 35_001, inner: 33, count: 601 };
      rejects(
        "BAD_ARGUMENT",
        () =>
          lowerScatterAddOnCuda(
            smallDevice,
            { ...scatter, index: storage, source: storage, target: storage },
            "scatterAdd",
          ),
        /0 scratch buffers, and needs 5/,
      );
    });
  });
});

describe("the gradient of an embedding", () => {
  const runtimes = [1, 2].map(openCpuKernelRuntime);

  for (const isIndexShared of [true, false]) {
    test(`has the same bits on one thread and on two, with an index per ${isIndexShared ? "row" : "element"}`, () => {
      const scatter: Scatter = {
        dtype: "f32",
        outer: 1,
        ...effort({
          quick: { length: 100, inner: 256, count: 512 },
          thorough: { length: 500, inner: 256, count: 3072 },
        }),
        isIndexShared,
      };
      for (const runtime of runtimes) proveScatter(runtime, scatter, 3, [0, 0, 0]);
    });
  }
});

describe("validation", () => {
  const runtime = openCpuKernelRuntime(1);

  test("an empty scan launches nothing, and a storage that is too small is rejected by name", () => {
    runtime.step(() => {
      const storage = put(runtime, Float32Array.of(7, 7), "small");
      const scan = { dtype: "f32", inner: 1, op: "add", input: storage, output: storage } as const;
      submit(runtime, scanCalls(backendOf(runtime), { ...scan, outer: 0, length: 5 }));
      submit(runtime, scanCalls(backendOf(runtime), { ...scan, outer: 5, length: 0 }));
      assert.deepEqual([...new Float32Array(runtime.read(storage).buffer)], [7, 7]);
      rejects(
        "BAD_ARGUMENT",
        () => submit(runtime, scanCalls(backendOf(runtime), { ...scan, outer: 1, length: 3 })),
        /scan: input takes 12 bytes \(\[1, 3, 1\] of f32\), and "small" has 8/,
      );
      rejects(
        "BAD_ARGUMENT",
        () => submit(runtime, scanCalls(backendOf(runtime), { ...scan, outer: 1, length: -1 })),
        /length is -1/,
      );
    });
  });

  test("an empty scatter launches nothing, and a storage that is too small is rejected by name", () => {
    runtime.step(() => {
      const target = put(runtime, Float32Array.of(7, 7), "target");
      const source = put(runtime, Float32Array.of(1, 1), "source");
      const index = put(runtime, Int32Array.of(0), "index");
      const scatter = {
        dtype: "f32",
        outer: 1,
        inner: 2,
        isIndexShared: true,
        index,
        source,
        target,
      } as const;
      submit(runtime, scatterAddCalls({ ...scatter, length: 1, count: 0 }));
      submit(runtime, scatterAddCalls({ ...scatter, length: 0, count: 1 }));
      assert.deepEqual([...new Float32Array(runtime.read(target).buffer)], [7, 7]);
      rejects(
        "BAD_ARGUMENT",
        () => submit(runtime, scatterAddCalls({ ...scatter, length: 2, count: 1 })),
        /target takes 16 bytes/,
      );
      rejects(
        "BAD_ARGUMENT",
        () => submit(runtime, scatterAddCalls({ ...scatter, length: 1, count: 2 })),
        /index takes 8 bytes/,
      );
      rejects(
        "BAD_ARGUMENT",
        () => submit(runtime, scatterAddCalls({ ...scatter, length: 1, count: 1, isIndexShared: false })),
        /index takes 8 bytes \(\[1, 1, 2\] of i32\)/,
      );
    });
  });
});
