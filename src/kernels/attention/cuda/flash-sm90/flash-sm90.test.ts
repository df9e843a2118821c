/** Flash attention on wgmma, forward and backward, against float64. Without a GPU under test the kernels run on the emulator. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { type Case, plainCase } from "../../../../../test/support/attention-cases.js";
import { effort } from "../../../../../test/support/effort.js";
import { check, type Options, onGpu, type Run, refer } from "../../../../../test/support/flash-sm90-runs.js";
import { cudaMissing } from "../../../../../test/support/kernel-runtime.js";
import { testDevice } from "../../../../../test/support/test-device.js";

/** Views whose rows are interleaved with those of other heads, as in a packed projection. */
const packed = {
  ...{ ...plainCase, heads: 2, rows: 130, columns: 130, width: 32, valueWidth: 16, scale: 0.2 },
  ...{ isCausal: true, order: "rows first", padding: 8, offset: 8 },
} as const satisfies Case;

const wide = { rows: 20, columns: 20, width: 16, valueWidth: 128 } as const;

/** Two stages of queries, each of which is filled several times. */
const wideVisits = {
  ...{ heads: 1, rows: 330, columns: 20, isCausal: false, width: 128, valueWidth: 128, scale: 0.1 },
} as const;

/** A mask of padded keys that hides whole tiles, too. */
const padded = {
  ...{ rows: 20, columns: 140, width: 16 },
  mask: { shared: ["head", "row"], hides: true, lengths: [70, 137] },
} as const;
const ofRows = { shared: ["batch"], hides: true } as const;

const short = { tiles: "short", width: 16 } as const;

const whole = { tiles: "whole", width: 16, rows: 140, columns: 136 } as const;

const dropped = { rows: 70, columns: 68, width: 16, dropoutP: 0.4 } as const;
const stored = { ...dropped, rows: 140, storesBits: true } as const;

describe("flash attention on wgmma", { skip: cudaMissing }, () => {
  for (const element of ["bf16", "f16"] as const) {
    test(`in ${element} is right for strided operands, and writes nothing else`, () => {
      const loaded: string[] = [];
      onGpu({ loaded }, (runtime) => check(runtime, packed, { element, tiles: "own" }));
      assert.ok(loaded.includes(`attention.flash.sm90.${element}`), loaded.join(", "));
    });
  }

  for (const tiles of ["long", "short"] as const) {
    test(`with the tiles for ${tiles} visits is right for all lengths and widths, causal or not`, () => {
      onGpu({}, (runtime) => {
        const cases: readonly Partial<Case>[] = [
          { rows: 1, columns: 1, isCausal: false },
          { rows: 66, columns: 10, batch: 2, order: "heads first" },
          { heads: 4, keyHeads: 2, rows: 66, columns: 66, width: 16 },
          { heads: 1 },
          wideVisits,
          { rows: 65, columns: 193, width: 80, valueWidth: 48, shared: ["head", "batch"], batch: 2 },
          { rows: 70, columns: 300, isCausal: false, width: 128, valueWidth: 128, scale: 0.1 },
          { rows: 300, columns: 300, width: 128, valueWidth: 128, scale: 0.1 },
          { rows: 400, columns: 400, width: 64, valueWidth: 64, scale: 0.125 },
        ];
        for (const one of effort({ quick: cases.slice(0, 5), thorough: cases }))
          check(runtime, { ...packed, ...one }, { tiles });
        const numRuns = effort({ quick: 0, thorough: 25 });
        if (numRuns === 0) return;
        const size = fc.constantFrom(1, 15, 63, 64, 65, 127, 129, 193, 260);
        const wide = fc.constantFrom(16, 32, 64, 80, 96, 128);
        const sizes = { rows: size, columns: size, width: wide, valueWidth: wide, isCausal: fc.boolean() };
        fc.assert(
          fc.property(fc.record(sizes), (one) => check(runtime, { ...packed, heads: 1, ...one }, { tiles })),
          { numRuns, seed: 5 },
        );
      });
    });
  }

  for (const tiles of ["long", "short"] as const) {
    test(`with the tiles for ${tiles} visits drops the probabilities that the separate op drops`, () => {
      const cases: readonly Partial<Case>[] = [
        { rows: 140, columns: 136, width: 16 },
        { rows: 70, columns: 67, batch: 2, heads: 4, keyHeads: 2, width: 16 },
        { rows: 66, columns: 196, isCausal: false, width: 128, valueWidth: 128, scale: 0.1 },
        { rows: 300, columns: 300, width: 64, valueWidth: 64, scale: 0.125 },
      ];
      onGpu({}, (runtime) => {
        for (const one of effort({ quick: cases.slice(0, 2), thorough: cases })) {
          check(runtime, { ...packed, ...one }, { tiles, dropoutP: 0.3, storesBits: true });
          if (one === cases[0] || effort({ quick: false, thorough: true }))
            check(runtime, { ...packed, ...one }, { tiles, dropoutP: 0.3 });
        }
      });
    });
  }

  for (const tiles of ["long", "short"] as const) {
    test(`with the tiles for ${tiles} visits adds masks, with and without rows`, () => {
      const cases: readonly (Partial<Case> & Options)[] = [
        { ...padded, rows: 20, heads: 1, isCausal: false, batch: 2, dropoutP: 0.3, storesBits: true },
        { ...padded, batch: 2, rows: 70, columns: 67, keyHeads: 1, dropoutP: 0.3, mask: ofRows },
        { ...padded, heads: 1, rows: 18, columns: 134, mask: { shared: ["head"], hides: true } },
        { ...padded, rows: 140, columns: 136, dropoutP: 0.3, storesBits: true },
        { rows: 300, columns: 300, width: 64, valueWidth: 64, scale: 0.125, dropoutP: 0.3, storesBits: true },
        { rows: 130, columns: 70, width: 128, valueWidth: 128, scale: 0.1, isCausal: false, mask: ofRows },
        { mask: { shared: ["row", "column"], hides: false }, rows: 70, columns: 68 },
      ];
      onGpu({}, (runtime) => {
        for (const one of effort({ quick: cases.slice(0, tiles === "long" ? 3 : 1), thorough: cases })) {
          const { dropoutP, storesBits = false, ...sizes } = one;
          const options = { tiles, ...(dropoutP && { dropoutP, storesBits }) };
          check(runtime, { ...packed, ...padded, ...sizes }, options);
        }
        const numRuns = effort({ quick: 0, thorough: 25 });
        if (numRuns === 0) return;
        const size = fc.constantFrom(1, 15, 63, 64, 65, 130, 193);
        const shared = fc.subarray<"batch" | "head" | "row">(["batch", "head", "row"]);
        const mask = fc.record({ shared, hides: fc.boolean() });
        const drawn = fc.record({
          rows: size,
          columns: size,
          mask,
          isCausal: fc.boolean(),
          batch: fc.constantFrom(1, 2),
        });
        fc.assert(
          fc.property(drawn, (one) => check(runtime, { ...packed, ...padded, ...one }, { tiles })),
          { numRuns, seed: 7 },
        );
      });
    });
  }

  test("with backward in one kernel is right for lengths, widths, masks and dropout", () => {
    const cases: readonly (Partial<Case> & Pick<Options, "dropoutP" | "storesBits" | "element">)[] = [
      { rows: 140, columns: 136, width: 16, dropoutP: 0.3, storesBits: true },
      {
        rows: 20,
        columns: 140,
        batch: 2,
        isCausal: false,
        mask: padded.mask,
        dropoutP: 0.3,
        storesBits: true,
      },
      { rows: 193, columns: 65, width: 80, valueWidth: 48, shared: ["head", "batch"], batch: 2 },
      { rows: 65, columns: 193, width: 32, valueWidth: 80, element: "f16" },
      { rows: 70, columns: 67, width: 16, batch: 2, dropoutP: 0.3, mask: ofRows },
      { rows: 1, columns: 1, isCausal: false },
      { rows: 66, columns: 10, batch: 2, order: "heads first" },
      { rows: 256, columns: 256, width: 64, valueWidth: 64, scale: 0.125, dropoutP: 0.2, storesBits: true },
      { rows: 200, columns: 200, width: 64, valueWidth: 64, scale: 0.125, isCausal: false },
    ];
    const loaded: string[] = [];
    onGpu({ loaded }, (runtime) => {
      for (const { dropoutP, storesBits = false, element = "bf16", ...sizes } of effort({
        quick: cases.slice(0, 4),
        thorough: cases,
      }))
        check(
          runtime,
          { ...packed, ...sizes },
          { tiles: "whole", element, ...(dropoutP && { dropoutP, storesBits }) },
        );
    });
    const backward = loaded.filter((name) => name.includes("backward"));
    assert.ok(backward.length > 0 && backward.every((name) => name.includes("whole")), loaded.join(", "));
  });

  test("with a mask that hides all keys of a sequence has NaN for it, and right results for the others", () => {
    const loaded: string[] = [];
    const mask = { shared: ["head", "row"], hides: false, lengths: [70, 0] } as const;
    const testCase = { ...packed, ...padded, batch: 2, heads: 1, rows: 20, isCausal: false, mask } as const;
    const { out } = refer(testCase).expected;
    assert.ok(!Number.isNaN(out.at(0, 0, 0, 0)) && Number.isNaN(out.at(1, 0, 0, 0)));
    onGpu({ loaded }, (runtime) => check(runtime, testCase, { tiles: "own" }));
    assert.equal(loaded.filter((name) => name.includes("sm90")).length, 3, loaded.join(", "));
  });

  test("leaves what it can't compute to other kernels", () => {
    const loaded: string[] = [];
    onGpu({ loaded }, (runtime) => {
      const others = [
        { scale: -0.2 },
        { width: 24 },
        // Rows that are not aligned, and keys that all rows share.
        { padding: 4 },
        { shared: ["row"] },
        // A mask of rows without columns.
        { mask: { shared: ["column"], hides: false } },
      ] as const satisfies readonly Partial<Case>[];
      const small = { ...packed, heads: 2, rows: 9, columns: 9 };
      for (const other of others) check(runtime, { ...small, ...other }, { tiles: "own" });
      check(runtime, { ...small, width: 24 }, { tiles: "own", dropoutP: 0.3, storesBits: true });
    });
    assert.ok(loaded.length > 0);
    assert.deepEqual(
      loaded.filter((name) => name.includes("sm90")),
      [],
    );
  });

  /** What is wrong, the line of the code and what replaces it, and the problem that shows it. */
  const faults = [
    [
      "a tile does not scale what was accumulated before",
      "result[i] *= rescale",
      "result[i] *= 1.0f + 0 * rescale",
      { scale: 3 },
    ],
    [
      "powers are relative to the first tile's maximum only",
      "isRaised = isFirst ||",
      "isRaised = isFirst && ",
      { scale: 60 },
    ],
    [
      "the last column of a causal row is hidden",
      "row + 8 * (int)half + 1 < columns ? row + 8 * (int)half + 1 : columns",
      "row + 8 * (int)half < columns ? row + 8 * (int)half : columns",
    ],
    ["columns after the last one count", "firstColumn + (int)tileN > columns", "false", { isCausal: false }],
    ...(
      [
        ["keys", "visit + 1 - stages);", "visit + 2 - stages);"],
        ["values", "visit + 2 - stages);", "visit + 1 - stages);"],
      ] as const
    ).map(
      ([what, from, to]) =>
        [
          `a block without a producer loads other ${what}`,
          from,
          to,
          { ...short, rows: 260, columns: 260 },
        ] as const,
    ),
    [
      "the second box of values is read from the first",
      "smemOperand(b, Tile<n, width>::boxBytes)",
      "smemOperand(b, 0)",
      wide,
    ],
    [
      "all tiles of keys are read from the first stage",
      "myQueries, keys + keyAt.stage * KeyTile::bytes",
      "myQueries, keys",
    ],
    ["the delta is left out", "gradients[i] - delta[i / 2 % 2]", "gradients[i]"],
    [
      "gradients see hidden columns",
      "i % 2 < limit ? lowest : score",
      "i % 2 < limit - 999 ? lowest : score",
    ],
    [
      "only the first head of a group counts",
      "headOfGroup < groupHeads",
      "headOfGroup < groupHeads && headOfGroup < 1",
      { heads: 2, keyHeads: 1, rows: 66, columns: 66, width: 16 },
    ],
    [
      "two tiles of queries share their row statistics",
      "rowStatistics[at.stage * tileN + 32 * i + lane]",
      "rowStatistics[32 * i + lane]",
    ],
    [
      "more warps than stages load row statistics in turns",
      "loadingWarps = 2",
      "loadingWarps = 3",
      wideVisits,
    ],
    [
      "lanes keep the numbers of their own call",
      "exchangeBits<1, 2, 0x33333333u>(dropped)",
      "dropped",
      dropped,
    ],
    [
      "a stage is free while products still read it",
      "if (lastStage < stages) release(lastStage);\n      lastStage = at.stage;",
      "if (lastStage == stages) release(at.stage);",
      { heads: 1, rows: 330, columns: 20, isCausal: false, isReversed: true },
    ],
    [
      "the last warps of a causal tile draw no more than the first",
      "firstOfWarp + 15 + 1",
      "firstOfGroup + 16",
      dropped,
    ],
    [
      "both halves of a tile draw the same numbers",
      "visit * tileN + i * keptWidth",
      "visit * tileN",
      dropped,
    ],
    [
      "both halves of a word are the same number",
      "words[i] << 16, complement",
      "words[i], complement",
      dropped,
    ],
    ["two calls at a time have the same numbers", "| drawn[i];", "| drawn[0];", dropped],
    ["backward draws the numbers of other rows", "2 * member + group % 2", "2 * member", dropped],
    [
      "a dropped probability has a gradient",
      "kept.has(i) ? gradients[i] : 0",
      "kept.has(i) ? gradients[i] : 1",
      dropped,
    ],
    [
      "a dropped probability counts in the gradient of values",
      "packedPowers, scores, kept",
      "packedPowers, scores",
      dropped,
    ],
    ["bits of a tile are stored in that of another", "row / 16", "(row / 16 ^ 1)", stored],
    ["bits of the next tile are those of this one", "visit + tileN)", "visit)", stored],
    ["keys of odd numbers have the bits of even ones", "byte >> group % 2 & 0x55u", "byte & 0x55u", stored],
    ["the warps of a group have the same keys", "+ 4 * word + threadIdx.x % 128 / 32", "+ 4 * word", stored],
    ["all visited queries have the bits of the first", "+ visit * 8), bytes", "), bytes", stored],
    ["bits are those of another stage", "keptTiles[at.stage * keptBytes", "keptTiles[0 * keptBytes", stored],
    [
      "the heads of a group have the same bits",
      "from += pairBytes;",
      "",
      { ...stored, heads: 2, keyHeads: 1 },
    ],
    [
      "each key has the mask of its neighbour",
      "maskPair[offsetOf(column, maskColumn)]",
      "maskPair[offsetOf(column ^ 1, maskColumn)]",
      padded,
    ],
    [
      "the mask of a tile is that of the first",
      "visited + (int)(32 * i + lane)",
      "0 * visited + (int)(32 * i + lane)",
      { ...padded, isCausal: false },
    ],
    ["keys that stay have the mask of others", "ownMask[i / 2 % 2]);", "ownMask[i % 2]);", padded],
    [
      "keys that stay have the mask of the next query",
      "offsetOf(row, maskRow) + stayed",
      "offsetOf(row ^ 1, maskRow) + stayed",
      { ...padded, mask: ofRows },
    ],
    [
      "the heads of a group draw the same numbers",
      "(batch * heads + head * groupHeads + headOfGroup)",
      "(batch * heads + head * groupHeads)",
      { ...dropped, heads: 2, keyHeads: 1 },
    ],
    [
      "one kernel: the gradient of a query has the last keys only",
      "stay > 0 ? sum[consumers * i]",
      "stay > 9999 ? sum[consumers * i]",
      whole,
    ],
    [
      "one kernel: deltas are computed before the results of the forward pass have arrived",
      "mbarrierWait(outFull + visit / 64, 0);",
      "",
      { ...whole, isReversed: true },
    ],
    [
      "one kernel: columns after the last one count",
      "stay + 64 > columns",
      "false",
      { ...whole, rows: 20, columns: 2, isCausal: false, scale: 300 },
    ],
    [
      "one kernel: a stage is free while products still read it",
      "if (lastStage < stages) release(lastStage);\n        lastStage = at.stage;",
      "if (lastStage == stages) release(at.stage);",
      { ...whole, isReversed: true },
    ],
    [
      "one kernel: the gradients of scores are replaced while products read them",
      "namedBarrierSync(1, consumers);\n        float4*",
      "float4*",
      { ...whole, isReversed: true },
    ],
    [
      "one kernel: all tiles of keys have the bits of the first",
      "from += groupBytes;",
      "",
      { ...stored, tiles: "whole" },
    ],
    [
      "one kernel: queries have the results of others",
      "head * outHead, visit, outMatrix",
      "head * outHead, 0 * visit, outMatrix",
      whole,
    ],
  ] as readonly (readonly [
    string,
    string,
    string,
    (Partial<Case> & Pick<Options, "dropoutP" | "storesBits" | "tiles"> & Pick<Run, "isReversed">)?,
  ])[];

  /** Why a fault is not tried on a GPU; false where it is. */
  function emulatedOnly(what: string, { isReversed = false }: Pick<Run, "isReversed">): string | false {
    if (testDevice !== "cuda") return false;
    if (isReversed) return "only the emulator can be told to run in reverse";
    return (
      what.startsWith("more warps than stages") &&
      "this fault ends the GPU's context, and with it the tests after it"
    );
  }

  const tried = effort({ quick: faults.filter((_, index) => index % 6 === 0), thorough: faults });
  for (const [what, from, to, of = {}] of tried) {
    test(`red proof: ${what}`, { skip: emulatedOnly(what, of) }, () => {
      let isAltered = false;
      const alter = (code: string): string => {
        isAltered ||= code.includes(from);
        return code.replaceAll(from, to);
      };
      const { dropoutP, storesBits = false, tiles = "long", isReversed = false, ...sizes } = of;
      const testCase = { ...packed, heads: 1, ...sizes };
      const options = { tiles, ...(dropoutP && { dropoutP, storesBits }) };
      const run = () => onGpu({ alter, isReversed }, (runtime) => check(runtime, testCase, options));
      assert.throws(run, { code: "ERR_ASSERTION" });
      assert.ok(isAltered, "the code has the line");
    });
  }
});
