/** Attention on CUDA, in both of its forms, against float64: where no GPU is under test the kernels run on the emulator. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { type Case, cases, plainCase } from "../../../../test/support/attention-cases.js";
import { checkCase, runCase } from "../../../../test/support/attention-check.js";
import { effort } from "../../../../test/support/effort.js";
import { openEmulator } from "../../../../test/support/emulator.js";
import { cudaMissing, openCudaKernelRuntime } from "../../../../test/support/kernel-runtime.js";
import { sameBytes, sameNamedBytes } from "../../../../test/support/same-bytes.js";
import { testDevice } from "../../../../test/support/test-device.js";
import { narrowToBf16, narrowToF16 } from "../../../ir/index.js";
import { planSmall } from "./small-plan.js";

const isSmall = (one: Case): boolean => planSmall("backward", one.dtype, one) !== undefined;
const isLong = (one: Case): boolean => planSmall("forward", one.dtype, one) === undefined;

const skipOnGpu = testDevice === "cuda" ? "only the emulator can be told to run in reverse" : false;

describe("on CUDA", { skip: cudaMissing }, () => {
  const runtime = openCudaKernelRuntime();

  for (const dtype of ["f32", "f64"] as const) {
    // Every shape is a kernel of its own, which takes the emulator's compiler half a second.
    test(`short sequences of ${dtype} are right for any shape, layout and mask, and write nothing beside`, () => {
      fc.assert(
        fc.property(cases(dtype).filter(isSmall), (one) => checkCase(runtime, one)),
        { numRuns: 3, seed: 5 },
      );
    });

    test(`sequences of ${dtype} that fit no block are right for any shape, layout and mask, and write nothing beside`, () => {
      const long = fc.record({
        rows: fc.constantFrom(1, 63, 64, 65, 90),
        columns: fc.constantFrom(64, 70, 129, 200),
        width: fc.constantFrom(15, 16, 17, 40, 70),
        valueWidth: fc.constantFrom(1, 33, 64, 65),
      });
      fc.assert(
        fc.property(
          fc
            .tuple(cases(dtype), long)
            .map(([one, sizes]) => ({ ...one, ...sizes, batch: 1, heads: 2 }))
            .filter(isLong),
          (one) => checkCase(runtime, one),
        ),
        { numRuns: effort({ quick: 3, thorough: 6 }), seed: 5 },
      );
    });
  }

  const transformer: Case = {
    ...{ ...plainCase, batch: 3, heads: 4, rows: 12, columns: 12, width: 64, valueWidth: 64, scale: 1 / 8 },
    order: "rows first",
  };

  test("the shape of a small transformer is right, with vectors and where they don't lie on their boundaries", () => {
    for (const offset of [0, 1]) checkCase(runtime, { ...transformer, offset });
  });

  test("one shape is right in every layout, though its kernels know where rows lie", () => {
    for (const [order, padding] of [
      ["heads first", 0],
      ["rows first", 0],
      ["rows first", 4],
    ] as const) {
      checkCase(runtime, { ...transformer, order, padding });
    }
  });

  test("a shape is right whose gradients differ in rows, in width and in how many terms they sum", () => {
    const one = { ...plainCase, heads: 2, rows: 9, columns: 30, width: 20, valueWidth: 43, scale: 0.3 };
    assert.ok(isSmall(one));
    for (const isCausal of [false, true]) checkCase(runtime, { ...one, isCausal });
  });

  test("a shape whose rows fit a block on the way forward and not on the way back is right", () => {
    const one = {
      ...plainCase,
      rows: 40,
      columns: 40,
      width: 64,
      valueWidth: 64,
      scale: 1 / 8,
      isCausal: true,
    };
    assert.ok(!isSmall(one) && !isLong(one));
    checkCase(runtime, one);
  });

  test("results that are stored as half floats are those of f32, rounded once, and nothing beside is written", () => {
    const forms: readonly Case[] = [
      transformer,
      { ...transformer, heads: 2, offset: 1, padding: 3 },
      { ...plainCase, heads: 2, rows: 5, columns: 7, width: 3, valueWidth: 9, isCausal: true },
      { ...plainCase, rows: 70, columns: 130, width: 40, valueWidth: 33, scale: 0.2 },
    ];
    for (const [index, one] of forms.entries()) {
      const plain = runCase(runtime, one);
      for (const resultDtype of ["f16", "bf16"] as const) {
        const narrow = { f16: narrowToF16, bf16: narrowToBf16 }[resultDtype];
        const { written } = runCase(runtime, one, resultDtype);
        for (const name of ["probabilities", "scoreGradient"] as const) {
          sameBytes(written[name], plain.written[name], `${name} of form ${index}`);
        }
        for (const name of ["out", "queryGradient", "keyGradient", "valueGradient"] as const) {
          // Beside the results both have the same elements from before.
          const expected = narrow(plain.written[name] as Float32Array);
          sameBytes(written[name], expected, `${name} of form ${index} as ${resultDtype}`);
        }
      }
    }
  });

  test("inputs that lie there as half floats have the bits of the same numbers as f32, whichever they are", () => {
    const forms: readonly Case[] = [
      transformer,
      { ...transformer, heads: 2, offset: 1, padding: 3 },
      { ...plainCase, rows: 70, columns: 130, width: 40, valueWidth: 33, scale: 0.2, isCausal: true },
    ];
    for (const [index, one] of forms.entries()) {
      for (const [dtype, names] of [
        ["bf16", ["query", "key", "value", "outGradient"]],
        ["f16", ["key", "outGradient"]],
      ] as const) {
        const resultDtype = index === 0 ? dtype : "f32";
        const plain = runCase(runtime, one, resultDtype, { dtype, names, areHalves: false });
        const halves = runCase(runtime, one, resultDtype, { dtype, names, areHalves: true });
        sameNamedBytes(halves.written, plain.written, `form ${index} of ${dtype}`);
      }
    }
  });

  test("inputs that lie there as bf16 are right against float64", () => {
    const names = ["query", "key", "value", "outGradient"];
    checkCase(runtime, transformer, { dtype: "bf16", names, areHalves: true });
  });

  test("blocks and threads in reverse give the same bits", { skip: skipOnGpu }, () => {
    const emulator = openEmulator();
    const long: Case = {
      ...plainCase,
      rows: 70,
      columns: 130,
      width: 40,
      valueWidth: 33,
      scale: 0.2,
      isCausal: true,
    };
    for (const one of [transformer, long]) {
      const forwards = runCase(runtime, one).written;
      emulator.set("reversed", 1);
      try {
        sameNamedBytes(runCase(runtime, one).written, forwards, "in reverse");
      } finally {
        emulator.reset();
      }
    }
  });
});
