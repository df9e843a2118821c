/** How groups of column kernels use a GPU: vector loads, all SMs, and several blocks on each. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { isThorough } from "../../../../../test/support/effort.js";
import { compileWithNvcc, noCompiler } from "../../../../../test/support/nvcc.js";
import type { ColumnKernel } from "../../../../ir/index.js";
import { type Dtype, dtypes, term } from "../../../../ir/index.js";
import type { Storage } from "../../../../runtime/index.js";
import {
  type ColumnGroupMember,
  columnGroupConfig,
  columnScratchBytes,
  splitColumnConfig,
} from "./column-group.js";
import type { ComboLaunch } from "./combo-kernel.js";

const load = (input: number) => term.load(input, "f32");
const sumOf = (dtype: Dtype): ColumnKernel => ({
  name: "sum",
  inputs: [dtype],
  outputs: [dtype],
  scalars: [],
  op: "add",
  values: [term.load(0, dtypes[dtype].compute)],
});
const sum = sumOf("f32");
/** The two gradients of a norm, and the weight gradient of a head with three outputs. */
const normGradients: ColumnKernel = {
  ...{
    name: "norm gradients",
    inputs: ["f32", "f32", "f32", "f32"],
    outputs: ["f32", "f32"],
    scalars: [],
    op: "add",
  },
  values: [term.mul(load(0), term.mul(term.sub(load(1), load(2)), load(3))), load(0)],
};
const head: ColumnKernel = {
  ...{ name: "head", inputs: ["f32", "f32", "f32", "f32"], outputs: ["f32", "f32", "f32"], scalars: [] },
  ...{ op: "add", values: [1, 2, 3].map((input) => term.mul(load(0), load(input))) },
};

/** A storage with an address: configs need nothing else. */
const storageAt = (address: number): Storage => ({ span: { address, size: 0 } }) as unknown as Storage;
const scratch = storageAt(0);

function member(kernel: ColumnKernel, rows: number, columns: number, address = 0): ColumnGroupMember {
  const wide = kernel === head ? 1 : 2;
  const strides = kernel.inputs.map((_, input) =>
    input < wide ? ({ row: columns, column: "unit" } as const) : ({ row: 1, column: "none" } as const),
  );
  const operands = [...kernel.inputs, ...kernel.outputs].map(() => storageAt(address));
  return { kernel, rows, columns, strides, operands };
}

const configOf = (members: readonly ColumnGroupMember[]): readonly ComboLaunch[] =>
  columnGroupConfig(members, columnScratchBytes(members) > 0 ? scratch : undefined);

/** The number of blocks of the first launch of a single member. */
const blocksOf = (kernel: ColumnKernel, rows: number, columns: number, address?: number): number =>
  configOf([member(kernel, rows, columns, address)])[0]!.blocks;

/** The grouped reductions of a small transformer's training step. */
const stepReductions = [
  member(head, 3072, 256),
  member(sum, 3072, 3),
  member(normGradients, 3072, 256),
  member(sum, 3072, 256),
  member(sum, 3072, 1024),
  member(normGradients, 3072, 256),
  member(sum, 256, 3072),
];

test("32 blocks split the rows of the columns that a warp loads at once, each with every 32nd row", () => {
  const sums = (["f32", "bf16", "f64"] as const).map(sumOf);
  assert.deepEqual(
    sums.map((kernel) => blocksOf(kernel, 3072, 1024)),
    // 4, 8 and 2 columns per thread.
    [8, 4, 16].map((runs) => 32 * runs),
  );
  assert.deepEqual(
    [normGradients, head].map((kernel) => blocksOf(kernel, 3072, 256)),
    [64, 128],
    "with three values a thread has two columns, so that their partials fit into registers",
  );
});

test("one block reduces a short column, if it has registers for the partials", () => {
  assert.deepEqual([blocksOf(sum, 3072, 3), blocksOf(sum, 3072, 4), blocksOf(sum, 1024, 12)], [1, 1, 2]);
  assert.deepEqual([blocksOf(sum, 3072, 6), blocksOf(sum, 16_385, 1)], [32, 64]);
  assert.deepEqual([blocksOf(normGradients, 3072, 3), blocksOf(sumOf("f64"), 3072, 3)], [32, 32]);
});

test("more blocks split many rows of few columns, until they fill a large GPU", () => {
  const rowCounts = [16_383, 16_384, 32_768, 65_536, 1 << 20];
  assert.deepEqual(
    rowCounts.map((rows) => blocksOf(sum, rows, 64)),
    [32, 64, 128, 256, 256],
  );
  assert.deepEqual(
    [128, 256, 512, 1024].map((columns) => blocksOf(sum, 1 << 20, columns)),
    [256, 256, 256, 256],
  );
  assert.equal(blocksOf(sum, 1 << 20, 24), 256, "rows of fewer columns than a block has threads along them");
});

test("one block reduces all of a few rows, for the columns of a cache line", () => {
  assert.deepEqual(
    (["f32", "bf16", "f64"] as const).map((dtype) => blocksOf(sumOf(dtype), 256, 3072)),
    [96, 48, 192],
  );
});

test("a thread loads as many columns at once as the alignment of every row allows", () => {
  const runs = (columns: number, address = 0): number => blocksOf(sum, 3072, columns, address) / 32;
  assert.deepEqual([runs(256), runs(254), runs(257)], [2, 4, 9]);
  assert.deepEqual([runs(256, 16), runs(256, 8), runs(256, 4)], [2, 4, 8], "by address");
});

test("a second launch combines the partials of the first, and there is none without partials", () => {
  const few = [member(sum, 256, 3072), member(normGradients, 1023, 8)];
  assert.equal(configOf(few).length, 1);
  const [first, second] = configOf([...few, member(normGradients, 3072, 100), member(sum, 1024, 17)]);
  assert.equal(second?.blocks, 2 + 2 + 1);
  assert.equal(columnScratchBytes([member(normGradients, 3072, 100), member(sum, 1024, 17)]), 32 * 4 * 217);
  for (const { arguments: args, print } of [first!, second!]) {
    assert.ok(args.includes(scratch));
    assert.equal(args.length, print().parameters.length);
  }
});

test("earlier partials are combined in the first launch, unless the group stores new partials", () => {
  const earlier = { members: [member(normGradients, 3072, 100)], scratch: storageAt(64) };
  const shapesOf = (members: readonly ColumnGroupMember[]): number[] =>
    columnGroupConfig(members, scratch, earlier).map(({ blocks }) => blocks);
  assert.deepEqual(shapesOf([]), [2 + 2]);
  assert.deepEqual(shapesOf([member(sum, 256, 3072)]), [96 + 2 + 2]);
  assert.deepEqual(shapesOf([member(sum, 1024, 17)]), [32, 1 + 2 + 2]);
  const step = splitColumnConfig(earlier);
  assert.equal(step.blocks, 32);
  assert.equal(step.arguments.length, step.print().parameters.length);
  const [, combined] = columnGroupConfig([member(sum, 1024, 17)], scratch, earlier);
  const scratches = combined!.arguments.filter(
    (argument) => argument === scratch || argument === earlier.scratch,
  );
  assert.deepEqual(new Set(scratches), new Set([scratch, earlier.scratch]), "each combines its own partials");
});

test("the longest work comes first, and members with the same code are neighbours and printed once", () => {
  const group = stepReductions.map((member, index) => ({
    ...member,
    operands: member.operands.map(() => storageAt(16 * index)),
  }));
  const [first, second] = configOf(group);
  const members = first!.arguments.flatMap((argument) =>
    typeof argument === "object" && argument !== scratch ? argument.span.address / 16 : [],
  );
  assert.deepEqual([...new Set(members)], [2, 5, 1, 3, 4, 6, 0]);
  const { code = "", threads } = first!.print().cuda ?? {};
  assert.equal(threads, 256);
  assert.equal(code.match(/__forceinline__ void member\d/g)?.length, 5);
  // Among members with the same code, the one with more rows.
  const [rows] = configOf([member(normGradients, 3072, 256, 16), member(normGradients, 9216, 256, 32)]);
  assert.deepEqual(
    rows!.arguments.flatMap((argument) => (typeof argument === "object" ? argument.span.address : [])),
    [32, 32, 32, 32, 0, 16, 16, 16, 16, 0],
  );
  assert.equal(second!.print().cuda?.code.match(/__forceinline__ void member\d/g)?.length, 1);
});

if (isThorough) {
  describe("under nvcc", { skip: noCompiler() }, () => {
    test("two blocks of a step's reductions fit on an SM without spills", () => {
      const groups = [
        stepReductions,
        [member(sumOf("f64"), 3072, 64), member(sumOf("bf16"), 3072, 64), member(sum, 64, 8)],
      ];
      const sources = groups.flatMap((group) => configOf(group).map((member) => member.print()));
      for (const architecture of ["sm_80", "sm_90"]) {
        for (const [index, cost] of compileWithNvcc(sources, architecture).entries()) {
          const { registers, stackBytes } = cost;
          assert.equal(stackBytes, 0, `${architecture}, group ${index}`);
          assert.ok(registers * (sources[index]?.cuda?.threads ?? 0) * 2 <= 65_536, `${registers} registers`);
        }
      }
    });
  });
}
