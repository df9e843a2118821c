/**
 * Flash attention on wgmma with any tile, also those that no problem has: sizes near the multiples of tiles, groups, dropout and masks,
 * against float64. On the emulator, copies and products complete as early or as late as they can.
 */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { type Case, plainCase } from "../../../../../test/support/attention-cases.js";
import { effort } from "../../../../../test/support/effort.js";
import { fixDraws } from "../../../../../test/support/fixed-seed.js";
import { check, type Options, onGpu, type SweptTiles } from "../../../../../test/support/flash-sm90-runs.js";
import { cudaMissing } from "../../../../../test/support/kernel-runtime.js";
import { maxSharedBytesPerBlock } from "../../../cost-model.js";
import { minStagesOf, sm90BackwardBytes, sm90BackwardKernel } from "./backward.js";
import type { Sm90BackwardTile, Sm90FlashTile } from "./config.js";
import { sm90ForwardBytes } from "./forward.js";
import { sm90WholeBytes, sm90WholeKernel } from "./whole-backward.js";

const ring = {
  warpgroups: fc.integer({ min: 1, max: 3 }),
  tileN: fc.constantFrom(64, 128),
  blocksPerSm: fc.constant(1),
};
const stages = fc.integer({ min: 1, max: 3 });
/** Products in flight read one stage while the next is loaded. */
const overlappedStages = fc.integer({ min: 2, max: 3 });

const forwardTiles: fc.Arbitrary<Sm90FlashTile> = fc.oneof(
  fc.record({ ...ring, stages }),
  fc.record({
    ...{ ...ring, warpgroups: fc.constant(1), stages: overlappedStages, loadsOwnTiles: fc.constant(true) },
  }),
);
const issuesEarly = fc.boolean();
const backwardTiles: fc.Arbitrary<Sm90BackwardTile> = fc.oneof(
  fc.record({ ...ring, stages, issuesEarly, drains: fc.constant(true) }),
  fc.record({ ...ring, stages: overlappedStages, issuesEarly, drains: fc.constant(false) }),
);

/** From 1 to 600, near multiples of a warpgroup's rows. */
const length = fc
  .tuple(fc.integer({ min: 0, max: effort({ quick: 5, thorough: 9 }) }), fc.integer({ min: -2, max: 2 }))
  .map(([tiles, more]) => Math.min(600, Math.max(1, 64 * tiles + more)));
/**
 * One of both may be short, so that float64 is fast. With few columns and many rows, what remains of a gradient is the rounding of sums that
 * cancel.
 */
const lengths = fc
  .tuple(length, fc.integer({ min: 24, max: 200 }), fc.constantFrom("long rows", "long columns", "equal"))
  .map(([long, short, which]) => {
    if (which === "equal") return { rows: Math.min(long, 330), columns: Math.max(24, Math.min(long, 330)) };
    return which === "long rows"
      ? { rows: long, columns: short }
      : { rows: short, columns: Math.max(24, long) };
  });

const width = fc.constantFrom(16, 64, 80, 96, 128, 144);

const masks = fc.record({
  shared: fc.subarray<"batch" | "head" | "row">(["batch", "head", "row"]),
  hides: fc.boolean(),
});

interface Swept {
  readonly tiles: SweptTiles;
  readonly options: Pick<Options, "element" | "dropoutP" | "storesBits">;
  readonly testCase: Case;
  readonly isReversed: boolean;
}

const swept: fc.Arbitrary<Swept> = fc
  .record({
    tiles: fc.record({
      forward: forwardTiles,
      backward: fc.record({ rows: backwardTiles, columns: backwardTiles }),
      wholeStages: fc.option(overlappedStages, { freq: 2, nil: undefined }),
    }),
    options: fc
      .tuple(fc.constantFrom("bf16", "f16"), fc.constantFrom("none", "draws", "stores"))
      .map(([element, dropout]) => ({
        element,
        ...(dropout !== "none" && { dropoutP: 0.3, storesBits: dropout === "stores" }),
      })),
    sizes: fc.record({ width, valueWidth: width, isCausal: fc.boolean() }),
    lengths,
    heads: fc.constantFrom(
      ...[{ heads: 1 }, { batch: 2 }, { heads: 2 }, { heads: 2, keyHeads: 1 }, { heads: 4, keyHeads: 2 }],
    ),
    mask: fc.option(masks, { freq: 2 }),
    isReversed: fc.boolean(),
  })
  .map(({ tiles, options, sizes, lengths, heads, mask, isReversed }) => ({
    ...{ tiles, options, isReversed },
    testCase: {
      ...{ ...plainCase, ...sizes, ...lengths, ...heads, scale: sizes.width ** -0.5, order: "rows first" },
      ...(mask && { mask }),
    },
  }));

/** True if the tiles fit in shared memory, and have enough stages. */
function fits({ tiles, testCase, options }: Swept): boolean {
  const { width, valueWidth, isCausal, heads, keyHeads = heads } = testCase;
  const { element = "bf16", dropoutP, storesBits } = options;
  const config = {
    ...({ element, width, valueWidth, isCausal, isGrouped: keyHeads < heads } as const),
    ...({ access: "out", mask: "keys" } as const),
    dropout: dropoutP === undefined ? "none" : storesBits ? "loads" : "draws",
  } as const;
  const sides = (["rows", "columns"] as const).map((side) => ({
    ...config,
    ...{ side, tile: tiles.backward[side] },
  }));
  const { wholeStages } = tiles;
  const whole = wholeStages !== undefined && {
    ...({ warpgroups: 1, tileN: 64, stages: wholeStages, blocksPerSm: 1 } as const),
    queryTiles: Math.ceil(testCase.rows / 64),
  };
  const sharedBytes = [
    sm90ForwardBytes({ ...config, tile: tiles.forward }),
    ...sides.map(sm90BackwardBytes),
    ...(whole ? [sm90WholeBytes({ ...config, isGrouped: false, tile: whole })] : []),
  ];
  return (
    Math.max(...sharedBytes) <= maxSharedBytesPerBlock({ computeCapability: "9.0" }) &&
    sides.every((side) => side.tile.stages >= minStagesOf(side))
  );
}

describe("flash attention on wgmma", { skip: cudaMissing }, () => {
  fixDraws();

  test("is right with every tile, for all lengths and widths, groups, dropout and masks", () => {
    const property = fc.property(swept.filter(fits), ({ tiles, testCase, options, isReversed }) =>
      onGpu({ isReversed }, (runtime) => check(runtime, testCase, { ...options, tiles })),
    );
    // A smaller case would need other kernels.
    fc.assert(property, { numRuns: effort({ quick: 4, thorough: 150 }), endOnFailure: true });
  });

  test("rejects a tile whose stages are all held while a block waits for another", () => {
    const tile = { warpgroups: 2, tileN: 64, blocksPerSm: 1, issuesEarly: true, drains: false } as const;
    const config = {
      ...({ element: "bf16", width: 64, valueWidth: 64, isCausal: true, isGrouped: true } as const),
      ...({ dropout: "none", mask: "none", access: "out", side: "columns" } as const),
    };
    sm90BackwardKernel({ ...config, tile: { ...tile, stages: 3 } });
    assert.throws(
      () => sm90BackwardKernel({ ...config, tile: { ...tile, stages: 2 } }),
      /has 2 stages, and needs 3/,
    );
    const whole = { warpgroups: 1, tileN: 64, blocksPerSm: 1, queryTiles: 2 } as const;
    sm90WholeKernel({ ...config, isGrouped: false, tile: { ...whole, stages: 2 } });
    assert.throws(
      () => sm90WholeKernel({ ...config, isGrouped: false, tile: { ...whole, stages: 1 } }),
      /has 1 stages, and needs 2/,
    );
  });
});
