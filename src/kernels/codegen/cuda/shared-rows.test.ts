/** Rows that a block keeps in shared memory, whole or in part, have the bits of rows that every pass loads again. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { cudaMissing, openCudaKernelRuntime, put } from "../../../../test/support/kernel-runtime.js";
import { compileWithNvcc, noCompiler } from "../../../../test/support/nvcc.js";
import type { DeviceInfo } from "../../../driver/index.js";
import { iterateRows, type RowKernel, term } from "../../../ir/index.js";
import type { LaunchCommand } from "../../../runtime/index.js";
import { lowerRowOnCuda } from "./lower.js";

const x = term.load(0, "f32");

/** Each element's distance from the row's maximum, as a share of their sum. */
const shares: RowKernel = {
  name: "shares",
  inputs: ["f32"],
  outputs: [{ dtype: "f32", per: "element" }],
  scalars: [],
  stages: [
    { kind: "reduce", op: "max", value: x },
    { kind: "reduce", op: "add", value: term.sub(term.reduced(0, "f32"), x) },
    {
      kind: "store",
      output: 0,
      value: term.div(term.sub(term.reduced(0, "f32"), x), term.reduced(1, "f32")),
    },
  ],
};

describe("long rows", { skip: cudaMissing }, () => {
  const runtime = openCudaKernelRuntime();
  const hopper = { computeCapability: "9.0" } as DeviceInfo;

  function run(columns: number, device: DeviceInfo | undefined, fault?: readonly [from: string, to: string]) {
    const values = Float32Array.from({ length: columns }, (_, index) => Math.sin(index * index));
    return runtime.step(() => {
      const operands = [put(runtime, values, "x"), put(runtime, new Float32Array(columns), "y")] as const;
      const strides = [columns, 1];
      const iteration = iterateRows([1, columns], [strides, strides], 1);
      const command = lowerRowOnCuda(
        { kernel: shares, iteration, operands },
        device && { device, settings: runtime.settings },
      );
      runtime.submit(runtime.load([fault ? withFault(command, fault) : command]));
      const { source } = command;
      return { bytes: runtime.read(operands[1]), sharedBytes: source.cuda?.sharedBytes ?? 0, source };
    });
  }

  function withFault(command: LaunchCommand, [from, to]: readonly [string, string]): LaunchCommand {
    const { source } = command;
    const cuda = source.cuda!;
    assert.ok(cuda.code.includes(from));
    return { ...command, source: { ...source, cuda: { ...cuda, code: cuda.code.replaceAll(from, to) } } };
  }

  for (const [columns, kept] of [
    [16_388, 5],
    [30_003, 7],
  ] as const) {
    test(`of ${columns} elements have the same bits with ${kept} vectors of each thread in shared memory`, () => {
      const [loaded, shared] = [run(columns, undefined), run(columns, hopper)];
      assert.deepEqual([loaded.sharedBytes, shared.sharedBytes], [0, kept * 1024 * 16]);
      assert.equal(Buffer.compare(shared.bytes, loaded.bytes), 0);
      const wrong = run(columns, hopper, ["loadVec<4>(sharedInput0 + position)", "loadVec<4>(sharedInput0)"]);
      assert.notEqual(Buffer.compare(wrong.bytes, loaded.bytes), 0);
    });
  }

  const desktop = { computeCapability: "12.1", sharedBytesPerBlock: 99 * 1024 } as DeviceInfo;

  test("are kept in part on a GPU with less shared memory", () => {
    const [loaded, shared] = [run(30_003, undefined), run(30_003, desktop)];
    assert.equal(shared.sharedBytes, 6 * 1024 * 16);
    assert.equal(Buffer.compare(shared.bytes, loaded.bytes), 0);
  });

  test("have code without local memory, whose shared memory fits that GPU", { skip: noCompiler() }, () => {
    const { source, sharedBytes } = run(30_003, desktop);
    const [cost] = compileWithNvcc([source], "sm_121");
    assert.deepEqual([cost?.stackBytes, cost?.spillBytes], [0, 0]);
    assert.ok((cost?.sharedBytes ?? 0) + sharedBytes <= (desktop.sharedBytesPerBlock ?? 0));
  });
});
