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
import { sharedBytesOf } from "./tiles.js";
import { weightGradientKernel, weightSumKernel } from "./weight-gradient-kernel.js";

const relu = { value: term.max(term.load(0, "f32"), 0), scalars: [] };

const shape = (operands: "bf16" | "f32", direction: ChannelsLastShape["direction"]): ChannelsLastShape => ({
  ...{
    direction,
    dtype: "f32",
    channelsLast: { operands },
    batch: 8,
    groups: 1,
    channels: 64,
    outChannels: 64,
  },
  ...{ size: [16, 16], outSize: [16, 16], kernel: [3, 3], stride: [1, 1], padding: [1, 1], dilation: [1, 1] },
});

/** Every kernel that a config of these shapes has. */
const kernels: readonly KernelSource[] = (["bf16", "f32"] as const).flatMap((operands) => {
  const element = operands === "f32" ? "tf32" : operands;
  const rounds = { image: operands === "f32", filter: operands === "f32" };
  const tilesOf = (direction: ChannelsLastShape["direction"]) => [
    ...new Set(
      listChannelsLastConfigs({ parallelism: 132 }, shape(operands, direction)).map(({ tile }) => tile),
    ),
  ];
  return [
    ...tilesOf("forward").map((tile) =>
      gatherKernel({
        ...{ element, tile, resultDtype: operands, isFilterKMajor: true, hasBias: true, epilogue: relu },
        ...{ storesVectors: true, access: "out", hasWholeTaps: false, rounds },
      }),
    ),
    ...tilesOf("input-gradient").map((tile) =>
      gatherKernel({
        ...{ element, tile, resultDtype: "f32", isFilterKMajor: operands === "f32", hasBias: false },
        ...{ storesVectors: operands === "f32", access: "partial-out", hasWholeTaps: false, rounds },
      }),
    ),
    ...tilesOf("weight-gradient").map((tile) => weightGradientKernel({ element, tile, access: "out" })),
  ];
});

test("every tile fits the shared memory, with results of every dtype", () => {
  const maxBytes = maxSharedBytesPerBlock({ computeCapability: sm90Capability });
  for (const tile of channelsLastTiles) assert.ok(sharedBytesOf(tile, dtypes.f32.bytes) <= maxBytes);
  for (const { cuda } of kernels) assert.ok((cuda?.sharedBytes ?? 0) <= maxBytes);
});

test("under nvcc, the kernels spill no registers", { skip: noCompiler() }, () => {
  const tried = effort({ quick: kernels.filter((_, index) => index % 17 === 0), thorough: kernels });
  for (const [index, cost] of compileWithNvcc(
    [...tried, weightSumKernel("bf16", "out", 8)],
    "sm_90a",
  ).entries()) {
    const text = `${tried[index]?.name}: ${cost.registers} registers`;
    assert.deepEqual([cost.stackBytes, cost.spillBytes], [0, 0], text);
  }
});
