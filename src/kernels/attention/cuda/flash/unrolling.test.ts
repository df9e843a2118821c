/** Loops of flash attention are unrolled as far as the registers allow. `test/gpu-generations.long.test.ts` counts spills with nvcc. */

import assert from "node:assert/strict";
import { test } from "node:test";
import type { FlashConfig } from "./config.js";
import type { FlashElement } from "./fragments.js";
import { unrollingOf } from "./unrolling.js";

const whole = "#pragma unroll";
const four = "#pragma unroll 4";

function config(
  element: FlashElement,
  width: number,
  tileN: number,
  dropout: FlashConfig["dropout"] = "none",
): FlashConfig {
  const tile = { warps: 4, blocksM: 1, tileN, stages: 1 };
  const sizes = { depth: width, valueDepth: width };
  return {
    ...{ element, tile, ...sizes, dropout, sources: {} },
    ...{ isCausal: false, hasMask: false, isGrouped: false },
  };
}

test("in TF32, a forward pass that copies a wide tile in many vectors unrolls four of them", () => {
  const kept = { accumulators: 128, results: 1 };
  const copies = (width: number, tileN: number) =>
    unrollingOf(config("tf32", width, tileN), "forward", kept).copies;
  assert.deepEqual([copies(192, 64), copies(96, 64), copies(192, 32)], [four, four, four]);
  assert.deepEqual([copies(80, 64), copies(96, 32)], [whole, whole]);
});

test("widths whose rows are a whole share of the threads, and 16-bit elements, keep their unrolled loops", () => {
  const kept = { accumulators: 160, results: 2 };
  for (const width of [16, 32, 64, 128, 256])
    assert.deepEqual(unrollingOf(config("tf32", width, 64, "loads"), "backward", kept), {
      copies: whole,
      products: whole,
    });
  assert.equal(unrollingOf(config("bf16", 192, 64), "forward", kept).copies, whole);
});

test("in TF32, the backward pass of columns with dropout unrolls four copies and four products", () => {
  const kept = { accumulators: 160, results: 2 };
  const dropped = unrollingOf(config("tf32", 96, 64, "loads"), "backward", kept);
  assert.deepEqual(dropped, { copies: four, products: four });
  assert.deepEqual(unrollingOf(config("tf32", 96, 64), "backward", kept), { copies: whole, products: whole });
  const wide = { accumulators: 192, results: 2 };
  const square = unrollingOf(config("tf32", 128, 64, "loads"), "backward", wide);
  assert.deepEqual(square, { copies: whole, products: four });
  assert.deepEqual(unrollingOf(config("tf32", 128, 64), "backward", wide), {
    copies: whole,
    products: whole,
  });
  assert.deepEqual(unrollingOf(config("tf32", 160, 32), "backward", wide), { copies: four, products: whole });
});
