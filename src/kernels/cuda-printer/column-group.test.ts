/** How column kernels of one launch are spread over a GPU: full sectors, all multiprocessors, and two blocks on each. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { compileWithNvcc, noCompiler } from "../../../test/support/nvcc.js";
import { type Dtype, dtypes } from "../dtypes.js";
import type { ColumnKernel } from "../ir.js";
import { term } from "../term.js";
import { type ColumnGroupMember, cudaColumnGroupForm } from "./column-group.js";

/** Multiprocessors of an H200. */
const parallelism = 132;

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
/** A norm's two gradients; and the weight's of a head of three. */
const pulls: ColumnKernel = {
  ...{ name: "pulls", inputs: ["f32", "f32", "f32", "f32"], outputs: ["f32", "f32"], scalars: [], op: "add" },
  values: [term.mul(load(0), term.mul(term.sub(load(1), load(2)), load(3))), load(0)],
};
const head: ColumnKernel = {
  ...{ name: "head", inputs: ["f32", "f32", "f32", "f32"], outputs: ["f32", "f32", "f32"], scalars: [] },
  ...{ op: "add", values: [1, 2, 3].map((input) => term.mul(load(0), load(input))) },
};

function member(kernel: ColumnKernel, rows: number, columns: number): ColumnGroupMember {
  const wide = kernel === head ? 1 : 2;
  const strides = kernel.inputs.map((_, input) =>
    input < wide ? ({ row: columns, column: "unit" } as const) : ({ row: 1, column: "none" } as const),
  );
  return { kernel, rows, columns, strides };
}

/** How many blocks each member has, in the members' own order. */
function blocksOf(members: readonly ColumnGroupMember[]): number[] {
  const { members: placed, ends, blocks } = cudaColumnGroupForm(members, parallelism);
  const found: number[] = [];
  for (const [place, { index }] of placed.entries())
    found[index] = (ends[place] ?? blocks) - (ends[place - 1] ?? 0);
  return found;
}

/** What a training step of a small transformer reduces together. */
const ofStep = [
  member(head, 3072, 256),
  member(sum, 3072, 3),
  member(pulls, 3072, 256),
  member(sum, 3072, 256),
  member(sum, 3072, 1024),
  member(pulls, 3072, 256),
  member(sum, 256, 3072),
];

test("a block takes what fills a sector of floats", () => {
  assert.deepEqual(blocksOf(ofStep), [32, 1, 32, 32, 128, 32, 192]);
  const [single, half, double] = (["f32", "bf16", "f64"] as const).map((dtype) => sumOf(dtype));
  const members = [single!, half!, double!].map((kernel) => member(kernel, 3072, 1024));
  assert.deepEqual(blocksOf(members), [128, 128, 256]);
});

test("few columns are spread over more blocks, but for those of few rows, which are soon read", () => {
  assert.deepEqual(
    blocksOf([member(sum, 3072, 64), member(sum, 3072, 64)]),
    [16, 16].map((one) => 2 * one),
  );
  assert.deepEqual(blocksOf([member(sum, 3072, 1), member(sum, 64, 64)]), [1, 4]);
});

test("what takes longest comes first, and kernels of one text stand side by side and are printed once", () => {
  const { members, print } = cudaColumnGroupForm(ofStep, parallelism);
  assert.deepEqual(
    members.map(({ index }) => index),
    [2, 5, 0, 3, 4, 1, 6],
  );
  const { code = "", threads } = print().cuda ?? {};
  assert.equal(threads, 512);
  assert.equal(code.match(/__forceinline__ void columns\d/g)?.length, 5);
});

describe("under nvcc", { skip: noCompiler() }, () => {
  test("two blocks of a step's reductions have room on a multiprocessor, their partial results in registers", () => {
    const groups = [
      ofStep,
      [member(sumOf("f64"), 3072, 64), member(sumOf("bf16"), 3072, 64), member(sum, 64, 8)],
    ];
    const sources = groups.map((group) => cudaColumnGroupForm(group, parallelism).print());
    for (const architecture of ["sm_80", "sm_90"]) {
      for (const [index, cost] of compileWithNvcc(sources, architecture).entries()) {
        const { registers, stackBytes } = cost;
        // Loads take what registers there are: a few numbers that only the end needs may wait outside, and no array.
        assert.ok(stackBytes < 64, `${stackBytes} bytes: ${architecture}, group ${index}`);
        assert.ok(registers * 512 * 2 <= 65_536, `${registers} registers`);
      }
    }
  });
});
