/** The tiles of flash attention on wgmma: their code fits in the registers, and short visits have small blocks. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { effort } from "../../../../../test/support/effort.js";
import { compileWithNvcc, noCompiler } from "../../../../../test/support/nvcc.js";
import { sampleOfDay } from "../../../../../test/support/sample-of-day.js";
import { sm90BackwardKernel } from "./backward.js";
import { sm90ForwardKernel } from "./forward.js";
import { chooseBackwardTile, chooseForwardTile, chooseWholeTile } from "./tiles.js";
import { sm90WholeKernel } from "./whole-backward.js";

test("rows that visit few others are in small blocks, several per SM", () => {
  const config = {
    element: "bf16",
    width: 64,
    valueWidth: 64,
    isCausal: true,
    isGrouped: false,
    access: "out",
    mask: "none",
  } as const;
  const blocksOf = (rows: number) => {
    const work = { pairs: 384, rows, visited: rows / 2, sms: 132 };
    const forward = chooseForwardTile({ ...config, dropout: "stores" }, work);
    const sides = (["rows", "columns"] as const).map((side) =>
      chooseBackwardTile({ ...config, dropout: "loads", side }, work),
    );
    return [forward, ...sides].map((tile) => tile && [tile.warpgroups, tile.blocksPerSm]);
  };
  assert.deepEqual(blocksOf(256), [
    [1, 4],
    [1, 3],
    [1, 2],
  ]);
  assert.deepEqual(blocksOf(4096), [
    [2, 1],
    [3, 1],
    [1, 2],
  ]);
});

test("sequences whose gradients fit in shared memory twice per SM have one kernel, if there are enough of them", () => {
  const config = {
    ...({ element: "bf16", width: 64, valueWidth: 64, isCausal: true, isGrouped: false } as const),
    ...({ access: "out", mask: "none", dropout: "loads" } as const),
  };
  const tileOf = (rows: number, pairs = 384, width = 64) =>
    chooseWholeTile({ ...config, width, valueWidth: width }, { pairs, rows, sms: 132 });
  assert.deepEqual(tileOf(256), { warpgroups: 1, tileN: 64, stages: 2, blocksPerSm: 2, queryTiles: 4 });
  assert.equal(tileOf(100)?.stages, 4);
  assert.equal(tileOf(256, 96)?.queryTiles, 4);
  assert.equal(tileOf(256, 48), undefined);
  assert.equal(tileOf(512), undefined);
  assert.equal(tileOf(448, 384, 32)?.queryTiles, 7);
  assert.equal(tileOf(128, 384, 128), undefined);
  // Its code would need local memory.
  assert.equal(tileOf(64, 384, 80), undefined);
});

describe("the code of flash attention on wgmma", { skip: noCompiler() }, () => {
  const sizes = effort({ quick: [64, 128], thorough: [16, 64, 80, 96, 128] });
  const lengths = effort({ quick: [256, 4096], thorough: [256, 1024, 4096] });
  const works = lengths.map((rows) => ({ pairs: 96, rows, visited: rows / 2, sms: 132 }));
  const problems = sizes.flatMap((width) =>
    works.flatMap((work) =>
      (["none", "draws", "stores"] as const).flatMap((dropout) =>
        (width % 64 === 0 ? (["none", "keys", "pairs", "elements"] as const) : (["none"] as const)).map(
          (mask) => ({ width, work, dropout, mask }),
        ),
      ),
    ),
  );
  // The narrow heads over the long length without dropout, and the wide ones over the short length with stored bits and a mask of keys.
  const quickProblems = problems.filter(
    ({ width, work, dropout, mask }) =>
      (width === sizes[0] && dropout === "none" && mask === "none" && work === works[1]) ||
      (width === sizes.at(-1) && dropout === "stores" && mask === "keys" && work === works[0]),
  );
  const kernels = effort({ quick: quickProblems, thorough: problems }).flatMap(
    ({ width, work, dropout, mask }) => {
      const sizes = { width, valueWidth: width };
      const config = {
        element: "bf16",
        ...sizes,
        isCausal: true,
        isGrouped: width === 128,
        access: "out",
        dropout,
        mask,
      } as const;
      const sides = (["rows", "columns"] as const).map((side) => {
        const loads = dropout === "stores" ? ({ dropout: "loads" } as const) : {};
        const backward = { ...config, ...loads, side };
        const tile = chooseBackwardTile(backward, work);
        assert.ok(tile, `a tile of ${width} for ${side}`);
        return sm90BackwardKernel({ ...backward, tile });
      });
      const tile = chooseForwardTile(config, work);
      assert.ok(tile, `a tile of ${width}`);
      // A wide forward pass spills a few numbers around its loop.
      const forwardSpill = dropout === "stores" && width === 128 ? 40 : 0;
      // Some masks spill a number or two.
      const maskSpill = mask === "elements" || (dropout === "draws" && mask !== "none") ? 16 : 0;
      // One kernel of the same problem with short sequences.
      const wholeConfig = {
        ...config,
        dropout: dropout === "stores" ? "loads" : dropout,
        isGrouped: false,
      } as const;
      const wholeTile = chooseWholeTile(wholeConfig, { ...work, rows: 192 });
      const whole = wholeTile ? [sm90WholeKernel({ ...wholeConfig, tile: wholeTile })] : [];
      return [sm90ForwardKernel({ ...config, tile }), ...sides, ...whole].map((kernel, index) => ({
        ...{ kernel, maxSpillBytes: Math.max(maskSpill, index === 0 ? forwardSpill : 0) },
        what: `${kernel.name} of ${JSON.stringify({ ...sizes, dropout, mask, rows: work.rows })}`,
      }));
    },
  );

  test("needs no local memory, and does not serialise wgmma", (t) => {
    const { cases, note } = sampleOfDay(kernels, 3);
    t.diagnostic(`${note} kernels`);
    const costs = compileWithNvcc(
      cases.map(({ kernel }) => kernel),
      "sm_90a",
    );
    for (const [index, { stackBytes, spillBytes, isSerialized }] of costs.entries()) {
      const { what, maxSpillBytes = 0 } = cases[index] ?? {};
      assert.ok(Math.max(stackBytes, spillBytes) <= maxSpillBytes, `${what}: ${stackBytes}, ${spillBytes}`);
      assert.equal(isSerialized, false, what);
    }
  });

  test("red proof: accumulators that do not fit in the registers are found", () => {
    const tile = { warpgroups: 3, tileN: 128, stages: 2, blocksPerSm: 1 };
    const config = {
      element: "bf16",
      width: 128,
      valueWidth: 128,
      isCausal: true,
      isGrouped: false,
      access: "out",
      dropout: "none",
      mask: "none",
      tile,
    } as const;
    const [cost] = compileWithNvcc([sm90ForwardKernel(config)], "sm_90a");
    assert.equal(cost?.isSerialized, true);
  });
});
