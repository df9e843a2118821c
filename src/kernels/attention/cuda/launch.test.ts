/** Attention on CUDA, small and tiled, against float64. Without a GPU under test the kernels run on the emulator. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { type Case, cases, plainCase } from "../../../../test/support/attention-cases.js";
import { checkCase, runCase } from "../../../../test/support/attention-check.js";
import { effort, isThorough } from "../../../../test/support/effort.js";
import { openEmulator } from "../../../../test/support/emulator.js";
import { cudaMissing, openCudaKernelRuntime } from "../../../../test/support/kernel-runtime.js";
import { sameBytes, sameNamedBytes } from "../../../../test/support/same-bytes.js";
import { testDevice } from "../../../../test/support/test-device.js";
import { narrowToBf16, narrowToF16 } from "../../../ir/index.js";
import { planSmall } from "./small-plan.js";

const isSmall = (testCase: Case): boolean => planSmall("backward", testCase.dtype, testCase) !== undefined;
const isLong = (testCase: Case): boolean => planSmall("forward", testCase.dtype, testCase) === undefined;

const skipOnGpu = testDevice === "cuda" ? "only the emulator can be told to run in reverse" : false;

describe("on CUDA", { skip: cudaMissing }, () => {
  const runtime = openCudaKernelRuntime();

  for (const dtype of ["f32", "f64"] as const) {
    // Every shape is a kernel of its own, which takes the emulator's compiler half a second.
    test(`short sequences of ${dtype} are correct for every shape, layout and mask, and write nothing else`, () => {
      fc.assert(
        fc.property(cases(dtype).filter(isSmall), (testCase) => checkCase(runtime, testCase)),
        { numRuns: effort({ quick: 1, thorough: 3 }), seed: 5 },
      );
    });

    test(`sequences of ${dtype} that do not fit into a block are correct for every shape, layout and mask, and write nothing else`, () => {
      const long = fc.record({
        rows: fc.constantFrom(...effort({ quick: [65], thorough: [1, 63, 64, 65, 90] })),
        columns: fc.constantFrom(...effort({ quick: [70], thorough: [64, 70, 129, 200] })),
        width: fc.constantFrom(...effort({ quick: [17], thorough: [15, 16, 17, 40, 70] })),
        valueWidth: fc.constantFrom(...effort({ quick: [33], thorough: [1, 33, 64, 65] })),
      });
      fc.assert(
        fc.property(
          fc
            .tuple(cases(dtype), long)
            .map(([testCase, sizes]) => ({ ...testCase, ...sizes, batch: 1, heads: 2 }))
            .filter(isLong),
          (testCase) => checkCase(runtime, testCase),
        ),
        { numRuns: effort({ quick: 1, thorough: 6 }), seed: 5 },
      );
    });
  }

  const transformer: Case = {
    ...{ ...plainCase, batch: 3, heads: 4, rows: 12, columns: 12, width: 64, valueWidth: 64, scale: 1 / 8 },
    order: "rows first",
  };
  const unaligned: Case = { ...transformer, heads: 2, offset: 1, padding: 3 };
  /** Too long for a block. */
  const tiled: Case = {
    ...{ ...plainCase, rows: 70, columns: effort({ quick: 70, thorough: 130 }) },
    ...{ width: 40, valueWidth: 33, scale: 0.2 },
    isCausal: true,
  };

  test("the shape that is too long for a block is tiled", () => {
    assert.ok(isLong(tiled));
  });

  test("the shape of a small transformer is correct, with aligned and with unaligned vectors", () => {
    const others = effort({ quick: [], thorough: [{ ...transformer, offset: 1 }] });
    for (const testCase of [transformer, unaligned, ...others]) checkCase(runtime, testCase);
  });

  test("a shape is correct in every layout, although strides are constants of the kernels", () => {
    for (const [order, padding] of [
      ["heads first", 0],
      ["rows first", 0],
      ["rows first", 4],
    ] as const) {
      checkCase(runtime, { ...transformer, order, padding });
    }
  });

  test("a shape whose gradients differ in rows, width and K is correct", () => {
    const testCase = { ...plainCase, heads: 2, rows: 9, columns: 30, width: 20, valueWidth: 43, scale: 0.3 };
    assert.ok(isSmall(testCase));
    for (const isCausal of effort({ quick: [true], thorough: [false, true] }))
      checkCase(runtime, { ...testCase, isCausal });
  });

  test("a shape that fits into a block only in the forward pass is correct", () => {
    const testCase = {
      ...plainCase,
      rows: 40,
      columns: 40,
      width: 64,
      valueWidth: 64,
      scale: 1 / 8,
      isCausal: true,
    };
    assert.ok(!isSmall(testCase) && !isLong(testCase));
    checkCase(runtime, testCase);
  });

  test("16-bit results are the f32 results, rounded once, and nothing else is written", () => {
    const forms: readonly Case[] = [
      transformer,
      unaligned,
      { ...plainCase, heads: 2, rows: 5, columns: 7, width: 3, valueWidth: 9, isCausal: true },
      tiled,
      ...effort({ quick: [], thorough: [{ ...tiled, isCausal: false }] }),
    ];
    for (const [index, testCase] of forms.entries()) {
      const plain = runCase(runtime, testCase);
      const tested = (["f16", "bf16"] as const).filter((_, which) => isThorough || which === index % 2);
      for (const resultDtype of tested) {
        const narrow = { f16: narrowToF16, bf16: narrowToBf16 }[resultDtype];
        const { written } = runCase(runtime, testCase, resultDtype);
        for (const name of ["probabilities", "scoreGradient"] as const) {
          sameBytes(written[name], plain.written[name], `${name} of form ${index}`);
        }
        for (const name of ["out", "queryGradient", "keyGradient", "valueGradient"] as const) {
          // Outside of the results both have the same old elements.
          const expected = narrow(plain.written[name] as Float32Array);
          sameBytes(written[name], expected, `${name} of form ${index} as ${resultDtype}`);
        }
      }
    }
  });

  test("16-bit inputs give the same bits as the same numbers in f32", () => {
    const forms: readonly Case[] = [transformer, { ...transformer, heads: 2, offset: 1, padding: 3 }, tiled];
    for (const [index, testCase] of forms.entries()) {
      const inputs = [
        ["bf16", ["query", "key", "value", "outGradient"]],
        ["f16", ["key", "outGradient"]],
      ] as const;
      for (const [dtype, names] of inputs.filter((_, which) => isThorough || which === index % 2)) {
        const isNarrow = effort({ quick: testCase === tiled, thorough: index === 0 || testCase === tiled });
        const resultDtype = isNarrow ? dtype : "f32";
        const plain = runCase(runtime, testCase, resultDtype, { dtype, names, areHalves: false });
        const halves = runCase(runtime, testCase, resultDtype, { dtype, names, areHalves: true });
        sameNamedBytes(halves.written, plain.written, `form ${index} of ${dtype}`);
      }
    }
  });

  test("bf16 inputs are correct against float64", () => {
    const names = ["query", "key", "value", "outGradient"];
    checkCase(runtime, transformer, { dtype: "bf16", names, areHalves: true });
  });

  test("the reverse order of blocks and threads gives the same bits", { skip: skipOnGpu }, () => {
    const emulator = openEmulator();
    for (const testCase of [transformer, tiled]) {
      const forwards = runCase(runtime, testCase).written;
      emulator.set("reversed", 1);
      try {
        sameNamedBytes(runCase(runtime, testCase).written, forwards, "in reverse");
      } finally {
        emulator.reset();
      }
    }
  });
});
