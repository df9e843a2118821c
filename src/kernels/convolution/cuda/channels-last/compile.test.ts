/** The channels-last kernels under NVIDIA's compiler: without a warning and without spilled registers. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { effort } from "../../../../../test/support/effort.js";
import { compileWithNvcc, noCompiler } from "../../../../../test/support/nvcc.js";
import type { KernelSource } from "../../../../driver/index.js";
import { dtypes, term } from "../../../../ir/index.js";
import { maxSharedBytesPerBlock } from "../../../cost-model.js";
import { sm90Capability } from "../../../gemm/sm90/index.js";
import type { ChannelsLastShape } from "../../problem.js";
import { channelsLastTiles, listChannelsLastConfigs } from "./configs.js";
import { gatherKernel } from "./gather-kernel.js";
import { mainloopVariant } from "./launch.js";
import type { MainloopVariant } from "./select-mainloop.js";
import { sharedBytesOf } from "./tiles.js";
import { weightGradientKernel, weightSumKernel } from "./weight-gradient-kernel.js";

const relu = { value: term.max(term.load(0, "f32"), 0), scalars: [] };

type Element = MainloopVariant["element"];

const shape = (element: Element, direction: ChannelsLastShape["direction"]): ChannelsLastShape => ({
  ...{ direction, dtype: "f32", batch: 8, groups: 1, channels: 64, outChannels: 64 },
  channelsLast: { operands: element === "tf32" ? "f32" : element, isExact: element === "f32" },
  ...{ size: [16, 16], outSize: [16, 16], kernel: [3, 3], stride: [1, 1], padding: [1, 1], dilation: [1, 1] },
});

/** Every kernel that a config of these shapes has. */
const kernelsOf = (element: Element): readonly KernelSource[] => {
  const variantsOf = (direction: ChannelsLastShape["direction"]): readonly MainloopVariant[] => {
    const tried = shape(element, direction);
    const variants = listChannelsLastConfigs({ parallelism: 132 }, tried).map((config) =>
      mainloopVariant(config, tried),
    );
    return [...new Map(variants.map((variant) => [variant.tile, variant])).values()];
  };
  const rounds = { image: element === "tf32", filter: element === "tf32" };
  return [
    ...variantsOf("forward").map((variant) =>
      gatherKernel({
        ...{ ...variant, resultDtype: element === "bf16" ? "bf16" : "f32", isFilterKMajor: true },
        ...{ hasBias: true, epilogue: relu, storesVectors: true, access: "out", hasWholeTaps: false, rounds },
      }),
    ),
    ...variantsOf("input-gradient").map((variant) =>
      gatherKernel({
        ...{ ...variant, resultDtype: "f32", isFilterKMajor: element === "tf32", hasBias: false },
        ...{ storesVectors: element === "tf32", access: "partial-out", hasWholeTaps: false, rounds },
      }),
    ),
    ...variantsOf("weight-gradient").map((variant) => weightGradientKernel({ ...variant, access: "out" })),
  ];
};

const kernels = [...kernelsOf("bf16"), ...kernelsOf("tf32")];
const exactKernels = kernelsOf("f32");

test("every tile fits the shared memory, with results of every dtype", () => {
  const maxBytes = maxSharedBytesPerBlock({ computeCapability: sm90Capability });
  for (const tile of channelsLastTiles) assert.ok(sharedBytesOf(tile, dtypes.f32.bytes) <= maxBytes);
  for (const { cuda } of [...kernels, ...exactKernels]) assert.ok((cuda?.sharedBytes ?? 0) <= maxBytes);
});

test("under nvcc, the kernels spill no registers", { skip: noCompiler() }, () => {
  const tried = effort({
    quick: [
      ...kernels.filter((_, index) => index % 17 === 0),
      ...exactKernels.filter((_, index) => index % 7 === 0),
    ],
    thorough: [...kernels, ...exactKernels],
  });
  for (const [index, cost] of compileWithNvcc(
    [...tried, weightSumKernel("bf16", "out", 8)],
    "sm_90a",
  ).entries()) {
    const text = `${tried[index]?.name}: ${cost.registers} registers`;
    assert.deepEqual([cost.stackBytes, cost.spillBytes], [0, 0], text);
  }
});
