/** The code of grouped row kernels: each is vectorised as in a launch of its own, and small members are first. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { isThorough } from "../../../../../test/support/effort.js";
import { compileWithNvcc, noCompiler } from "../../../../../test/support/nvcc.js";
import type { RowKernel } from "../../../../ir/index.js";
import { iterateElements, iterateRows, term } from "../../../../ir/index.js";
import type { Storage } from "../../../../runtime/index.js";
import { cudaRowConfig } from "../row-config.js";
import { type RowGroupMember, rowGroupConfig } from "./row-group.js";

const load = (input: number) => term.load(input, "f32");

/** A storage with an address: configs need nothing else. */
const storageAt = (address: number): Storage => ({ span: { address, size: 4 } }) as unknown as Storage;

const cast: RowKernel = {
  ...{ name: "cast", inputs: ["f32"], outputs: [{ dtype: "bf16", per: "element" }], scalars: [] },
  stages: [{ kind: "store", output: 0, value: load(0) }],
};
const mean: RowKernel = {
  ...{ name: "mean", inputs: ["f32", "f32"], outputs: [{ dtype: "f32", per: "row" }], scalars: ["f32"] },
  stages: [
    { kind: "reduce", op: "add", value: term.mul(load(0), load(1)) },
    { kind: "store", output: 0, value: term.mul(term.reduced(0, "f32"), term.scalar(0, "f32")) },
  ],
};
/** A kernel with as many operands as an optimizer's update. */
const update: RowKernel = {
  ...{ name: "update", inputs: ["f32", "f32", "f32", "f32"], scalars: ["f32", "f32"] },
  outputs: [0, 1, 2].map(() => ({ dtype: "f32", per: "element" })),
  stages: [
    { kind: "store", output: 0, value: term.add(load(1), term.mul(load(0), term.scalar(0, "f32"))) },
    { kind: "store", output: 1, value: term.add(load(2), term.mul(load(0), load(0))) },
    {
      ...{ kind: "store", output: 2 },
      value: term.sub(load(3), term.div(load(1), term.add(term.sqrt(load(2)), term.scalar(1, "f32")))),
    },
  ],
};

function ofElements(kernel: RowKernel, elements: number, address = 0): RowGroupMember {
  const operands = [...kernel.inputs, ...kernel.outputs].map((_, index) => storageAt(address + index * 4096));
  const strides = operands.map(() => [1]);
  return { kernel, iteration: iterateElements([elements], strides), operands, scalars: [1, 2] };
}

function ofRows(kernel: RowKernel, rows: number, columns: number): RowGroupMember {
  const operands = [...kernel.inputs, ...kernel.outputs].map((_, index) => storageAt(index * 4096));
  const strides = operands.map((_, index) => (index < kernel.inputs.length ? [columns, 1] : [1, 0]));
  return { kernel, iteration: iterateRows([rows, columns], strides, 1), operands, scalars: [1] };
}

const codeOf = (members: readonly RowGroupMember[]): string =>
  rowGroupConfig(members).print().cuda?.code ?? "";

test("a member is vectorised if its operands are aligned, independently of the others", () => {
  const [aligned, odd] = [ofElements(cast, 4096), ofElements(update, 4096, 4)];
  const functions = codeOf([aligned, odd]).split("static __device__ __forceinline__ void member").slice(1);
  assert.deepEqual(
    functions.map((text) => [/loadVec<4>\(in0/.test(text), /loadVec<1>\(in0/.test(text)]),
    // The first has fewer blocks.
    [
      [true, false],
      [false, true],
    ],
  );
});

test("members with few blocks come first, and members with the same code are printed once", () => {
  const large = ofElements(update, 2 ** 20);
  const casts = [2 ** 14, 2 ** 12].map((elements) => ofElements(cast, elements));
  const config = rowGroupConfig([large, casts[0]!, ofRows(mean, 1, 3072), casts[1]!]);
  const { name, cuda } = config.print();
  assert.equal(name, "mean + cast + update");
  assert.equal(cuda?.code.match(/static __device__ __forceinline__ void member/g)?.length, 3);
  assert.deepEqual(config.arguments.slice(-3), [1, 1 + 4, 1 + 4 + 16], "where blocks end");
  assert.equal(config.blocks, 1 + 4 + 16 + 1024);
  assert.equal(cuda?.threads, 256);
});

test("launches have the same key if their configs are the same", () => {
  const keyOf = (...members: readonly RowGroupMember[]): string => rowGroupConfig(members).key;
  const [first, two] = [ofElements(cast, 4096), ofElements(update, 8192)];
  assert.equal(keyOf(first, two), keyOf(ofElements(cast, 512, 64), ofElements(update, 2048, 64)));
  const keys = [keyOf(first, two), keyOf(first), keyOf(first, first), keyOf(ofElements(cast, 4096, 4), two)];
  assert.equal(new Set(keys).size, keys.length);
});

if (isThorough) {
  describe("under nvcc", { skip: noCompiler() }, () => {
    test("a combo kernel needs hardly more registers than its largest member, and no local memory", () => {
      const members = [ofElements(update, 2 ** 21), ofElements(cast, 2 ** 19), ofRows(mean, 1, 3072)];
      const separate = members.map(({ kernel, iteration, operands }) =>
        cudaRowConfig(kernel, iteration, operands).print(),
      );
      const [combo, ...others] = compileWithNvcc([rowGroupConfig(members).print(), ...separate], "sm_90");
      const maxRegisters = Math.max(...others.map(({ registers }) => registers));
      assert.ok(
        combo!.registers <= maxRegisters + 8,
        `${combo!.registers} registers, and ${maxRegisters} alone`,
      );
      assert.deepEqual([combo!.stackBytes, combo!.spillBytes], [0, 0]);
    });
  });
}
