/** The depthwise kernels under NVIDIA's compiler: without a warning and without spilled registers. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { effort } from "../../../../../test/support/effort.js";
import { compileWithNvcc, noCompiler } from "../../../../../test/support/nvcc.js";
import { compileBatch } from "../../../../../test/support/nvcc-batch.js";
import { directions, geometry } from "../../../../../test/support/random-convolutions.js";
import type { CudaCode, KernelSource } from "../../../../driver/index.js";
import type { Storage } from "../../../../runtime/index.js";
import type { ConvolutionDirection, DepthwiseOperands } from "../../problem.js";
import { lowerDepthwise } from "./launch.js";

const storage = { label: "operand", span: { address: 2 ** 40, size: 2 ** 34 } } as unknown as Storage;
const h200 = { device: { parallelism: 132 }, settings: { precision: "bf16" } } as Parameters<
  typeof lowerDepthwise
>[0];

interface Tried {
  readonly kernel: readonly [number, number];
  readonly stride?: number;
  readonly direction: ConvolutionDirection;
  readonly depthwise: DepthwiseOperands;
}

/** The first kernel of a large convolution, with its longest runs. */
function kernelOf({
  kernel,
  stride = 1,
  direction,
  depthwise,
}: Tried): KernelSource & { readonly cuda: CudaCode } {
  const shape = geometry({
    ...{ batch: 256, groups: 96, channels: 1, outChannels: 1, size: [56, 56] as const },
    ...{ kernel, stride: [stride, stride] as const, padding: [kernel[0] >> 1, kernel[1] >> 1] as const },
  });
  const problem = {
    ...{ ...shape, direction, depthwise, dtype: "f32" as const },
    ...{ x: storage, weight: storage, y: storage, scratch: storage },
    ...(direction === "forward" && { bias: storage }),
  };
  const [launch] = lowerDepthwise(h200, problem, "convolution");
  const source = launch?.source;
  if (!source?.cuda) throw new Error("no kernel");
  return { ...source, cuda: source.cuda };
}

const halves = { x: "bf16", weight: "bf16", y: "bf16" } as const;
const tried: readonly Tried[] = directions.flatMap((direction) =>
  (
    [
      [3, 3],
      [7, 7],
      [1, 31],
    ] as const
  ).flatMap((kernel) =>
    [{ isChannelsLast: true }, { isChannelsLast: true, dtypes: halves }, {}].map((depthwise) => ({
      ...{ direction, kernel, depthwise },
    })),
  ),
);
const strided: Tried = {
  direction: "input-gradient",
  kernel: [3, 3],
  stride: 2,
  depthwise: { isChannelsLast: true },
};

describe("under nvcc", { skip: noCompiler() }, () => {
  test("depthwise kernels spill no registers", () => {
    const compiled = effort({ quick: [tried[0]!, tried[26]!], thorough: [...tried, strided] });
    for (const [index, cost] of compileWithNvcc(compiled.map(kernelOf), "sm_90").entries()) {
      const text = `${JSON.stringify(compiled[index])}: ${cost.registers} registers`;
      assert.deepEqual([cost.stackBytes, cost.spillBytes], [0, 0], text);
    }
  });

  test("depthwise kernels compile without a warning for every generation", async () => {
    await compileBatch(
      effort({ quick: [tried[2]!, tried[18]!], thorough: [...tried, strided] }).map(kernelOf),
      effort({
        quick: ["sm_80"],
        thorough: ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120", "sm_121"],
      }),
    );
  });
});
