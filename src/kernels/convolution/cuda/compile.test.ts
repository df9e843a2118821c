/** The convolution kernels under NVIDIA's compiler: without a warning, without spilled registers, within the shared memory of every GPU. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { effort } from "../../../../test/support/effort.js";
import { compileWithNvcc, noCompiler } from "../../../../test/support/nvcc.js";
import { compileBatch } from "../../../../test/support/nvcc-batch.js";
import { directions } from "../../../../test/support/random-convolutions.js";
import { convolutionTiles, sharedBytesOf } from "./configs.js";
import { directKernel } from "./direct.js";
import { type ImplicitGemmVariant, implicitGemmKernel } from "./implicit-gemm.js";
import { sumPartialsKernel } from "./sum-partials.js";

/** The opt-in limit of a CTA on consumer GPUs (8.6, 8.9, 12.0), the lowest since Ampere. */
const maxSharedBytes = 99 * 1024;

test("every tile fits the shared memory of every GPU since Ampere", () => {
  for (const direction of directions) {
    for (const tile of convolutionTiles) {
      const bytes = sharedBytesOf(tile, direction);
      assert.ok(bytes.dynamic + bytes.static <= maxSharedBytes, `${direction} ${tile.tileM}×${tile.tileN}`);
    }
  }
});

const variants: readonly ImplicitGemmVariant[] = directions.flatMap((direction) =>
  (["f32", "tf32", "bf16"] as const).flatMap((math) =>
    convolutionTiles.map((tile): ImplicitGemmVariant => {
      const isSplit = direction === "weight-gradient";
      return {
        ...{ direction, dtype: "f32", math, tile, hasBias: direction === "forward", isSplit },
        ...{ copiesVectors: direction !== "input-gradient", access: "out" },
      };
    }),
  ),
);

const halves: readonly ImplicitGemmVariant[] = directions.map((direction) => ({
  ...{ direction, dtype: "bf16", math: "bf16", tile: convolutionTiles[0]!, hasBias: false, isSplit: false },
  ...{ copiesVectors: false, access: "out" },
}));

/** Every pair of direction and math, and every tile. */
const sample = variants.filter((_, index) => index % 5 === 0);

describe("under nvcc", { skip: noCompiler() }, () => {
  test("tiled kernels spill no registers", () => {
    const largest = variants.filter(({ tile }) => tile === convolutionTiles[0]);
    const compiled = effort({ quick: largest.filter((_, index) => index % 4 === 0), thorough: sample });
    for (const [index, cost] of compileWithNvcc(compiled.map(implicitGemmKernel), "sm_80").entries()) {
      const { direction, math, tile } = compiled[index]!;
      const text = `${direction} ${math} ${tile.tileM}×${tile.tileN}: ${cost.registers} registers`;
      assert.deepEqual([cost.stackBytes, cost.spillBytes], [0, 0], text);
    }
  });

  test("the other kernels compile without a warning", async () => {
    const direct = directions.map((direction) =>
      directKernel({
        ...{ direction, dtype: "bf16", hasBias: direction === "forward", access: "out" },
        isSplit: direction === "weight-gradient",
      }),
    );
    const others = [...direct, sumPartialsKernel("f16", "out", true), sumPartialsKernel("f32", "out", false)];
    await compileBatch(
      [...others, ...effort({ quick: [], thorough: [...sample, ...halves].map(implicitGemmKernel) })],
      effort({
        quick: ["sm_80"],
        thorough: ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120", "sm_121"],
      }),
    );
  });
});
