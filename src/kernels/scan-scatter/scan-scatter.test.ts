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
import {
  canGroupScatters,
  cudaScatterScratchBytes,
  lowerScatterAddOnCuda,
  lowerScatterGroup,
} from "./cuda-scatter.js";
import { buckets, chunksOf, maxRows, planScatters } from "./cuda-scatter-plan.js";
import type { ScanDtype as AnyScanDtype } from "./element.js";
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

/** Those of i64 are checked by the tests of tensors: its host array has bigints. */
type ScanDtype = Exclude<AnyScanDtype, "i64">;
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
function scanPlainly(
  scan: Omit<Scan, "input" | "output" | "op" | "dtype"> & { readonly dtype: ScanDtype },
  input: Values,
): Values {
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
  const scratch = cudaScatterScratchBytes(smallDevice, [scatter]).map((bytes, buffer) =>
    put(runtime, new Uint8Array(bytes).fill(0xc3), `scratch ${buffer}`),
  );
  return lowerScatterAddOnCuda(smallDevice, { ...scatter, scratch }, "scatterAdd");
}

/** A fault in the code of the kernels that have this text. */
const planting =
  (sound: string, planted: string) =>
  (command: Command): Command => {
    if (command.kind !== "launch" || !command.source.cuda?.code.includes(sound)) return command;
    const code = command.source.cuda.code.replace(sound, planted);
    return { ...command, source: { ...command.source, cuda: { ...command.source.cuda, code } } };
  };

describe("partitioned entries, on CUDA", { skip: cudaMissing }, () => {
  const runtime = openCudaKernelRuntime();
  const lower = (scatter: ScatterAdd) => lowerOnSmallDevice(runtime, scatter);
  const shared = { dtype: "f32", outer: 1, isIndexShared: true, overwrites: true } as const;

  /** Scatters of which every one is partitioned: a long axis makes many blocks. */
  const cases: Readonly<Record<string, { scatter: Scatter; index?: Int32Array<ArrayBuffer> }>> = {
    "several rows per block and several blocks per bucket": {
      scatter: { ...shared, length: 35_001, inner: 33, count: 1501 },
    },
    "one column": { scatter: { ...shared, length: 90_001, inner: 1, count: 2500 } },
    "several arrays, added to the target": {
      scatter: { ...shared, dtype: "f64", outer: 3, length: 2100, inner: 40, count: 2050, overwrites: false },
    },
    "more entries than rows, added to several arrays": {
      scatter: { ...shared, dtype: "f64", outer: 3, length: 800, inner: 40, count: 2700, overwrites: false },
    },
    "more entries than rows, in wide rows": {
      scatter: { ...shared, length: 501, inner: 130, count: 2800 },
    },
    "a single row for all of many rows": {
      scatter: { ...shared, length: 4000, inner: 65, count: 3601 },
      index: new Int32Array(3601).fill(3999),
    },
    "a single row for all entries, over several rounds": {
      scatter: { ...shared, dtype: "i32", length: 2000, inner: 32, count: 5001 },
      index: new Int32Array(5001).fill(1777),
    },
    "no entry inside of the axis": {
      scatter: { ...shared, length: 9000, inner: 32, count: 5601 },
      index: new Int32Array(5601).fill(-1),
    },
    "some rows with many entries, others with few, in vectors": {
      scatter: { ...shared, length: 3000, inner: 32, count: 5200 },
      index: Int32Array.from({ length: 5200 }, (_, entry) =>
        entry % 3 === 0 ? 2 + (entry % 2) : entry % 2999,
      ),
    },
  };

  for (const [name, { scatter, index = indicesFor(scatter, 7) }] of Object.entries(cases)) {
    test(`add in the order of the index: ${name}`, () => {
      assert.equal(cudaScatterScratchBytes(smallDevice, [scatter]).length, 5, "it is partitioned");
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
      assert.equal(cudaScatterScratchBytes(smallDevice, [scatter]).length, 2, "it has lists");
      proveScatter(runtime, scatter, 7, isAligned ? [1, 2, 0] : [1, 2, 3], { lower, index });
    });
  }

  const dense = { ...shared, length: 2000, inner: 32, count: 5201 };
  const few = (entry: number): number => (entry * 7) % 2000;
  const many = (entry: number): number => 17 + (entry % 2);
  type Row = (entry: number) => number;
  const faults: Readonly<
    Record<string, readonly [scatter: Scatter, rowOf: Row, sound: string, planted: string]>
  > = {
    "a partition that reverses the entries of a warp": [
      dense,
      many,
      "__popc(before);\n      rows[slot]",
      "__popc(lanes & ~before) - 1;\n      rows[slot]",
    ],
    "a block that swaps the entries of its warps": [dense, many, "if (i < warp) slot", "if (i > warp) slot"],
    "a list that reverses the entries of a warp": [
      dense,
      many,
      "__popc(owned & ((1u << lane) - 1))",
      "__popc(owned) - 1 - __popc(owned & ((1u << lane) - 1))",
    ],
    "sorting that reverses the entries of a warp": [
      dense,
      many,
      "__popc(before)] = listed",
      "__popc(lanes & ~before) - 1] = listed",
    ],
    "sorting that leaves out the rows of other warps": [
      dense,
      few,
      "if (i < warp) before +=",
      "if (i > warp) before +=",
    ],
    "sums that start at other values than zero": [dense, few, "Vector sum = {};", "Vector sum = {1};"],
    "sums of frequent rows that start at other values": [dense, many, "*toRow : 0;", "*toRow : 1;"],
    "frequent rows that are also added by a group of threads": [
      { ...dense, overwrites: false },
      many,
      "if (isFrequent(present, listed)) continue;",
      "",
    ],
    "copies to the stage that is being added": [dense, many, "(stage + 2) % 3", "stage"],
    "sums that start anew in the next list": [dense, many, "isFirstList = false", "isFirstList = true"],
    "rows without entries that keep their values": [dense, many, "if (isFirstList) *toRow = Vector{};", ""],
    "lists that reverse the entries of a warp": [
      wide,
      (entry: number) => entry % 2,
      "__popc(lanes & ((1u << lane) - 1))",
      "__popc(lanes) - 1 - __popc(lanes & ((1u << lane) - 1))",
    ],
    "copies to the round that is being added": [
      wide,
      (entry: number) => entry % 2,
      "copyRound(first + 192)",
      "copyRound(first + 256)",
    ],
  };

  for (const [fault, [scatter, rowOf, sound, planted]] of Object.entries(faults)) {
    test(`red proof: ${fault}`, () => {
      const index = Int32Array.from({ length: scatter.count }, (_, entry) => rowOf(entry));
      const lowerFaulty = (problem: ScatterAdd) => {
        const commands = lower(problem);
        const faulty = commands.map(planting(sound, planted));
        assert.notDeepEqual(faulty, commands, "the fault is planted");
        return faulty;
      };
      assert.throws(
        () => proveScatter(runtime, scatter, 7, [0, 0, 0], { index, lower: lowerFaulty }),
        /the target/,
      );
    });
  }

  test("the plan of a group covers all rows and entries, and each block's entries are in one bucket", () => {
    const member = {
      outer: fc.integer({ min: 1, max: 9 }),
      length: fc.integer({ min: 1, max: 3_000_000 }),
      inner: fc.integer({ min: 1, max: 4000 }),
      count: fc.integer({ min: 1, max: 2_000_000 }),
    };
    const groups = fc.record({
      parallelism: fc.integer({ min: 1, max: 200 }),
      dtype: dtypeOf,
      overwrites: fc.boolean(),
      members: fc.array(fc.record(member), { minLength: 1, maxLength: 9 }),
    });
    fc.assert(
      fc.property(groups, ({ parallelism, dtype, overwrites, members }) => {
        const shapes = members.map((shape) => ({ ...shape, dtype, overwrites }));
        const plan = planScatters({ parallelism }, shapes);
        assert.ok(plan.entries !== "list" || shapes.length === 1);
        for (const [index, shape] of shapes.entries()) {
          const { rowsPerBlock, blocks, rowsPerBucket, segments } = plan.members[index]!;
          assert.ok(rowsPerBlock >= 1 && rowsPerBlock <= maxRows);
          assert.equal(blocks, shape.outer * Math.ceil(shape.length / rowsPerBlock) * chunksOf(shape));
          assert.equal(rowsPerBucket % rowsPerBlock, 0);
          assert.ok(rowsPerBucket * buckets >= shape.length);
          assert.ok(plan.segment * segments >= shape.count && plan.segment * (segments - 1) < shape.count);
        }
      }),
    );
  });

  test("few entries are selected by every block, and many entries are partitioned, on devices of any size", () => {
    for (const parallelism of [1, 16, 132]) {
      const entries = [100, 1_000_000].map(
        (count) => planScatters({ parallelism }, [{ ...shared, length: 1000, inner: 64, count }]).entries,
      );
      assert.deepEqual(entries, ["all", "bucket"]);
    }
  });

  test("the blocks that a device holds at once are shared by all members, so that one launch serves many tables", () => {
    const table = { ...shared, length: 20_000, inner: 16, count: 8192 };
    const blocksOf = (tables: number): number =>
      planScatters({ parallelism: 132 }, new Array(tables).fill(table)).members.reduce(
        (sum, { blocks }) => sum + blocks,
        0,
      );
    assert.deepEqual([1, 26].map(blocksOf), [527, 546]);
    assert.equal(planScatters({ parallelism: 132 }, new Array(26).fill(table)).entries, "all");
  });

  test("a table of few rows with many entries each has row lists, unless their blocks read more than others", () => {
    const entriesOf = (length: number, count: number) =>
      planScatters({ parallelism: 132 }, [{ ...shared, length, inner: 384, count }]).entries;
    assert.deepEqual([entriesOf(65, 16_384), entriesOf(32, 16_384)], ["list", "list"]);
    assert.deepEqual(
      [entriesOf(65, 1000), entriesOf(1024, 16_384), entriesOf(65, 100_000)],
      ["all", "bucket", "bucket"],
      "few entries per row, and much to read",
    );
  });

  test("a scatter without its scratch memory is rejected", () => {
    runtime.step(() => {
      const storage = put(runtime, new Float32Array(35_001 * 33), "target");
      const scatter = { ...shared, length: 35_001, inner: 33, count: 1501 };
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

/** A member of a group: its rows, columns and entries, and the row of an entry. */
type MemberSizes = readonly [length: number, inner: number, count: number, rowOf?: (entry: number) => number];

describe("scatters in one launch, on CUDA", { skip: cudaMissing }, () => {
  const runtime = openCudaKernelRuntime();

  /** Compares the targets of a group with the plain loops. */
  function proveGroup(
    sizes: readonly MemberSizes[],
    kind: Pick<Scatter, "dtype" | "overwrites">,
    { parallelism = 132, entries = "all", plant = (command: Command): Command => command } = {},
  ): void {
    const { dtype } = kind;
    const shapes = sizes.map(([length, inner, count]) => ({
      ...{ ...kind, outer: 1, length, inner, count, isIndexShared: true },
    }));
    assert.ok(canGroupScatters(shapes));
    assert.equal(planScatters({ parallelism }, shapes).entries, entries);
    runtime.step(() => {
      const tables = shapes.map((shape, member) => {
        const { length, inner, count } = shape;
        const rowOf = sizes[member]?.[3];
        const index = rowOf
          ? Int32Array.from({ length: count }, (_, entry) => rowOf(entry))
          : indicesFor(shape, member);
        const source = valuesOf(dtype, count * inner, member + 3);
        const target = valuesOf(dtype, length * inner, member + 4);
        const expected = scatterPlainly(shape, index, source, target);
        return { shape, index, source, expected, to: put(runtime, target, "target") };
      });
      const members = tables.map(({ shape, index, source, to }) => ({
        ...{ ...shape, target: to, index: put(runtime, index, "index") },
        source: put(runtime, source, "source"),
      }));
      const scratch = cudaScatterScratchBytes({ parallelism }, shapes).map((bytes, buffer) =>
        put(runtime, new Uint8Array(bytes).fill(0xc3), `scratch ${buffer}`),
      );
      submit(runtime, lowerScatterGroup({ parallelism }, { members, scratch }, "scatterAdd").map(plant));
      for (const { expected, to } of tables)
        sameBytes(runtime.read(to), new Uint8Array(expected.buffer), "the target");
    });
  }

  const sum = { dtype: "f32", overwrites: true } as const;
  const tables: readonly MemberSizes[] = [
    [7, 4, 50],
    [300, 64, 33],
    [41, 132, 2100],
    [2100, 8, 700, (entry) => (entry % 10 === 0 ? entry : 5)],
    [1, 16, 90],
  ];
  const odd: readonly MemberSizes[] = [
    [90, 1, 3000],
    [11, 67, 200, () => 3],
    [1300, 33, 40],
  ];

  test("have the bits of separate scatters, for tables of different sizes and widths", () => {
    proveGroup(tables, sum);
    proveGroup(odd, sum);
    proveGroup(tables, { dtype: "f64", overwrites: false });
    proveGroup(odd, { dtype: "i32", overwrites: false });
    proveGroup(
      Array.from({ length: 37 }, (_, member) => [member + 1, 8, 20 + member]),
      sum,
    );
  });

  test("have the same bits if their entries are partitioned", () => {
    const options = { parallelism: 1, entries: "bucket" } as const;
    proveGroup([...tables, [9000, 4, 5000]], sum, options);
    proveGroup([...odd, [9000, 1, 5000]], { dtype: "f64", overwrites: false }, options);
  });

  const faults: Readonly<Record<string, readonly [sound: string, planted: string]>> = {
    "members with the first one's entries": ["index = index1;", "index = index1 ? index0 : index1;"],
    "members with the first one's buckets": ["member = 1u", "member = 0u"],
    "members whose entries are stored over the first one's": [
      "firstEntry = firstEntry1;",
      "firstEntry = 0 * firstEntry1;",
    ],
    "members that count in the first one's segments": [
      "firstSegment = firstSegment1;",
      "firstSegment = 0 * firstSegment1;",
    ],
  };
  for (const [fault, [sound, planted]] of Object.entries(faults)) {
    test(`red proof: ${fault}`, () => {
      let plantings = 0;
      const plant = (command: Command): Command => {
        const faulty = planting(sound, planted)(command);
        if (faulty !== command) plantings++;
        return faulty;
      };
      const options = { parallelism: 1, entries: "bucket", plant } as const;
      assert.throws(() => proveGroup([...tables, [9000, 4, 5000]], sum, options), /the target/);
      assert.ok(plantings > 0, "the fault is planted");
    });
  }

  test("are alike: of one dtype, all with or without sums that start at zero, with rows of vectors or not", () => {
    const shape = { ...sum, outer: 1, length: 9, inner: 8, count: 4, isIndexShared: true };
    const others = [
      { dtype: "f64" },
      { overwrites: false },
      { inner: 7 },
      { isIndexShared: false },
      { count: 0 },
    ] as const;
    for (const other of others) assert.ok(!canGroupScatters([shape, { ...shape, ...other }]));
    assert.ok(canGroupScatters(new Array(64).fill(shape)) && !canGroupScatters(new Array(65).fill(shape)));
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
