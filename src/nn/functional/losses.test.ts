/** Losses against plain sums on the host, and their errors. Their gradients are tested with those of all ops. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { CallLog } from "../../../test/support/call-log.js";
import { openDevice } from "../../../test/support/devices.js";
import { effort } from "../../../test/support/effort.js";
import { rejects } from "../../../test/support/rejects.js";
import { openTestDriver } from "../../../test/support/test-device.js";
import type { Tensor } from "../../tensor/index.js";
import { ctcLoss } from "./ctc-loss.js";
import { bceWithLogits, crossEntropy, huberLoss, l1Loss, mseLoss, nllLoss, smoothL1Loss } from "./losses.js";

const cpu = openDevice({ threads: 1 });

const f64 = (values: readonly number[], shape: readonly number[] = [values.length]): Tensor =>
  cpu.fromHost(values, shape, "f64");
const i32 = (values: readonly number[], shape: readonly number[] = [values.length]): Tensor =>
  cpu.fromHost(values, shape, "i32");

function near(actual: ArrayLike<number>, expected: readonly number[], name: string): void {
  assert.equal(actual.length, expected.length, name);
  for (const [index, value] of expected.entries()) {
    assert.ok(
      Math.abs(actual[index]! - value) <= 1e-12 * Math.max(1, Math.abs(value)),
      `${name}, at ${index}: ${actual[index]}`,
    );
  }
}

interface LossCase {
  readonly logits: readonly (readonly number[])[];
  readonly labels: readonly number[];
  readonly weight: readonly number[];
  readonly smoothing: number;
}

const lossCases: fc.Arbitrary<LossCase> = fc
  .tuple(fc.integer({ min: 1, max: 6 }), fc.integer({ min: 1, max: 7 }))
  .chain(([rows, classes]) => {
    const number = fc.double({ min: -30, max: 30, noNaN: true });
    return fc.record({
      logits: fc.array(fc.array(number, { minLength: classes, maxLength: classes }), {
        minLength: rows,
        maxLength: rows,
      }),
      labels: fc.array(fc.integer({ min: -1, max: classes - 1 }), { minLength: rows, maxLength: rows }),
      weight: fc.array(fc.double({ min: 0.1, max: 3, noNaN: true }), {
        minLength: classes,
        maxLength: classes,
      }),
      smoothing: fc.constantFrom(0, 0.1, 1),
    });
  });

/** Each row's loss and weight, by the definition. */
function expectedRows({ logits, labels, weight, smoothing }: LossCase, ignored: number) {
  return logits.map((row, index) => {
    const label = labels[index]!;
    if (label === ignored) return { loss: 0, counts: 0 };
    const maximum = Math.max(...row);
    const logSum = maximum + Math.log(row.reduce((sum, x) => sum + Math.exp(x - maximum), 0));
    const smoothed = row.reduce((sum, x, c) => sum + weight[c]! * (logSum - x), 0) / row.length;
    const unsmoothed = weight[label]! * (logSum - row[label]!);
    return { loss: (1 - smoothing) * unsmoothed + smoothing * smoothed, counts: weight[label]! };
  });
}

describe("crossEntropy", () => {
  test("is the weighted, smoothed sum over the rows that are not ignored, in each reduction", () => {
    fc.assert(
      fc.property(lossCases, (lossCase) => {
        const { logits, labels, weight, smoothing } = lossCase;
        const rows = expectedRows(lossCase, -1);
        cpu.step(() => {
          const input = f64(logits.flat(), [logits.length, weight.length]);
          const options = { weight: f64(weight), ignoreIndex: -1, labelSmoothing: smoothing };
          const target = i32(labels);
          const losses = crossEntropy(input, target, { ...options, reduction: "none" });
          near(
            losses.dataSync(),
            rows.map(({ loss }) => loss),
            "each",
          );
          const sum = rows.reduce((total, { loss }) => total + loss, 0);
          near([crossEntropy(input, target, { ...options, reduction: "sum" }).item()], [sum], "the sum");
          const count = rows.reduce((total, { counts }) => total + counts, 0);
          const mean = crossEntropy(input, target, options).item();
          if (count === 0) assert.ok(Number.isNaN(mean));
          else near([mean], [sum / count], "the mean");
        });
      }),
      { numRuns: effort({ quick: 30, thorough: 100 }) },
    );
  });

  test("has its classes on axis 1, however many axes follow", () => {
    cpu.step(() => {
      const values = Array.from({ length: 2 * 5 * 3 * 2 }, (_, index) => Math.sin(index));
      const images = f64(values, [2, 5, 3, 2]);
      const labels = i32(
        Array.from({ length: 12 }, (_, index) => index % 5),
        [2, 3, 2],
      );
      const rows = images.permute([0, 2, 3, 1]).contiguous().reshape([12, 5]);
      const actual = crossEntropy(images, labels, { reduction: "none" });
      assert.deepEqual(actual.shape, [2, 3, 2]);
      const expected = crossEntropy(rows, labels.reshape([12]), { reduction: "none" });
      near(actual.dataSync(), [...expected.dataSync()].map(Number), "losses");
    });
  });

  test("takes one prediction without a batch, and labels of u8", () => {
    cpu.step(() => {
      const logits = f64([1, 2, 3]);
      const single = crossEntropy(logits, i32([2], []));
      const batched = crossEntropy(logits.reshape([1, 3]), cpu.fromHost([2], [1], "u8"));
      assert.deepEqual(single.shape, []);
      assert.equal(single.item(), batched.item());
    });
  });

  test("with one-hot probabilities as targets is the same as with labels", () => {
    cpu.step(() => {
      const logits = f64([0.5, -1, 2, 3, 0, 1], [2, 3]);
      const [labels, probabilities] = [i32([2, 0]), f64([0, 0, 1, 1, 0, 0], [2, 3])];
      for (const labelSmoothing of [0, 0.3]) {
        const expected = crossEntropy(logits, labels, { labelSmoothing }).item();
        near(
          [crossEntropy(logits, probabilities, { labelSmoothing }).item()],
          [expected],
          `smoothed by ${labelSmoothing}`,
        );
      }
    });
  });

  test("gives ignored rows a gradient of 0, even if they hold NaN", () => {
    cpu.step(() => {
      const logits = f64([Number.NaN, 1, 0, 0], [2, 2]);
      logits.requiresGrad = true;
      const loss = crossEntropy(logits, i32([-100, 1]));
      assert.equal(loss.item(), Math.LN2);
      loss.backward();
      assert.deepEqual(logits.grad?.tolist(), [
        [0, 0],
        [0.5, -0.5],
      ]);
    });
  });

  test("of ignored rows only is NaN, and its gradient is 0", () => {
    cpu.step(() => {
      const logits = f64([1, 2], [1, 2]);
      logits.requiresGrad = true;
      const loss = crossEntropy(logits, i32([-100]));
      assert.ok(Number.isNaN(loss.item()));
      loss.backward();
      assert.deepEqual(logits.grad?.tolist(), [[0, 0]]);
    });
  });

  test("rejects a label that is not a class, and names its row", () => {
    cpu.step(() => {
      const logits = cpu.fromHost(new Float32Array(15), [5, 3], "f32");
      const message =
        /crossEntropy: the target of row 3 is 3, but there are 3 classes, 0 to 2\..*ignoreIndex \(-100\)/s;
      rejects("BAD_INDEX", () => crossEntropy(logits, i32([0, 2, -100, 3, 9])), message);
      rejects("BAD_INDEX", () => crossEntropy(logits, i32([0, -1, 1, 1, 1])), /row 1 is -1/);
      rejects("BAD_INDEX", () => nllLoss(logits, i32([0, 0, 0, 0, 3])), /nllLoss: the target of row 4 is 3/);
    });
  });

  test("in a compiled step, which can't reject it, is NaN for a label that is not a class", () => {
    for (const loss of [crossEntropy, nllLoss]) {
      for (const reduction of ["mean", "sum"] as const) {
        for (const weight of [undefined, f64([1, 2, 3])]) {
          const logits = f64([1, 2, 3, 4, 5, 6], [2, 3]);
          logits.requiresGrad = true;
          const step = cpu.compile((labels: Tensor) => {
            const value = loss(logits, labels, { reduction, ...(weight && { weight }) });
            value.backward();
            return { value };
          });
          const lossOf = (...labels: number[]): number => {
            logits.zeroGrad();
            return step(i32(labels)).value.item();
          };
          const good = lossOf(2, 0);
          assert.ok(Number.isFinite(good));
          for (const bad of [3, -1, 2 ** 31 - 1, -(2 ** 31)])
            assert.ok(Number.isNaN(lossOf(0, bad)), `${bad}`);
          // The gradient of such a batch is NaN too.
          if (loss === crossEntropy) assert.ok([...(logits.grad?.dataSync() ?? [])].some(Number.isNaN));
          assert.equal(lossOf(2, 0), good);
          step.close();
        }
      }
    }
  });

  test("rejects shapes, dtypes and smoothings that do not fit, and names valid ones", () => {
    cpu.step(() => {
      const logits = f64([1, 2, 3, 4, 5, 6], [2, 3]);
      rejects("BAD_SHAPE", () => crossEntropy(logits, i32([0, 1, 2])), /the target must be \[2\]/);
      rejects("BAD_SHAPE", () => crossEntropy(logits, f64([0, 1, 2])), /Labels are whole numbers/);
      rejects("BAD_SHAPE", () => crossEntropy(f64([], [2, 0]), i32([0, 1])), /no classes/);
      rejects("BAD_DTYPE", () => crossEntropy(logits, i32([0, 1]).to("bool")), /indices are integers/);
      rejects("BAD_DTYPE", () => crossEntropy(logits.to("i32"), i32([0, 1])), /it needs a float/);
      const weight = f64([1, 2]);
      rejects("BAD_SHAPE", () => crossEntropy(logits, i32([0, 1]), { weight }), /it must be \[3\]/);
      rejects("BAD_ARGUMENT", () => crossEntropy(logits, i32([0, 1]), { labelSmoothing: 2 }), /from 0 to 1/);
    });
  });

  test("rejects class weights that require a gradient", () => {
    cpu.step(() => {
      const [logits, weight] = [f64([1, 2], [1, 2]), f64([1, 2])];
      weight.requiresGrad = true;
      for (const loss of [crossEntropy, nllLoss]) {
        rejects(
          "NO_GRADIENT",
          () => loss(logits, i32([0]), { weight }).backward(),
          /class weights no gradient/,
        );
      }
    });
  });

  test("is two launches forward, after the check of its labels, and two backward", () => {
    const log = new CallLog();
    const driver = openTestDriver();
    const device = openDevice({ driver: log.wrap(driver) });
    device.step(() => {
      const logits = device.fromHost(new Float32Array(64), [8, 8], "f32");
      logits.requiresGrad = true;
      const target = device.fromHost(new Int32Array(8), [8], "i32");
      const before = log.countKernels();
      const loss = crossEntropy(logits, target);
      assert.equal(log.countKernels() - before, 3);
      loss.backward();
      assert.equal(log.countKernels() - before, 5);
    });
    device.close();
    driver.close();
  });
});

test("nllLoss of logSoftmax is crossEntropy", () => {
  cpu.step(() => {
    const logits = f64([0.5, -1, 2, 3, 0, 1], [2, 3]);
    const weight = f64([1, 2, 0.5]);
    for (const reduction of ["mean", "sum", "none"] as const) {
      const options = { weight, reduction };
      const expected = crossEntropy(logits, i32([2, 0]), options).dataSync();
      const actual = nllLoss(logits.logSoftmax(1), i32([2, 0]), options).dataSync();
      near(actual, [...expected].map(Number), reduction);
    }
  });
});

test("the loss of 16-bit logits has the digits of its dtype", () => {
  cpu.step(() => {
    const logits = f64([0.5, -1, 2, 3, 0, 1], [2, 3]).to("bf16");
    const probabilities = f64([0, 0.5, 0.5, 1, 0, 0], [2, 3]).to("bf16");
    for (const target of [i32([2, 0]), probabilities]) {
      const exact = crossEntropy(logits.to("f64"), target, { dtype: "f64" }).item();
      const loss = crossEntropy(logits, target, { dtype: "f32" });
      assert.equal(loss.dtype, "f32");
      assert.ok(Math.abs(loss.item() - exact) < 1e-6 * exact);
      assert.ok(Math.abs(crossEntropy(logits, target).item() - exact) > 1e-4 * exact, "rounded to bf16");
    }
    const narrow = crossEntropy(logits.to("f64"), i32([2, 0]), { dtype: "f32" });
    const wide = crossEntropy(logits.to("f32"), i32([2, 0]), { dtype: "f64" });
    assert.deepEqual([narrow.dtype, wide.dtype], ["f32", "f64"]);
    assert.ok(Math.abs(narrow.item() - wide.item()) < 1e-6);
    const detached = logits.detach().requiresGrad_();
    crossEntropy(detached, i32([2, 0]), { dtype: "f32" }).backward();
    assert.equal(detached.grad?.dtype, "bf16");
    rejects("BAD_DTYPE", () => crossEntropy(logits, i32([2, 0]), { dtype: "i32" }), /crossEntropy/);
  });
});

describe("elementwise losses", () => {
  test("have their textbook values", () => {
    cpu.step(() => {
      const [input, target] = [f64([0, 1, 5]), f64([0.5, 1, 2])];
      const none = { reduction: "none" } as const;
      assert.deepEqual(mseLoss(input, target, none).tolist(), [0.25, 0, 9]);
      assert.equal(mseLoss(input, target, { reduction: "sum" }).item(), 9.25);
      assert.deepEqual(l1Loss(input, target, none).tolist(), [0.5, 0, 3]);
      near([l1Loss(input, target).item()], [3.5 / 3], "the mean");
      assert.deepEqual(huberLoss(input, target, { ...none, delta: 2 }).tolist(), [0.125, 0, 4]);
      assert.deepEqual(smoothL1Loss(input, target, { ...none, beta: 2 }).tolist(), [0.0625, 0, 2]);
      assert.deepEqual(smoothL1Loss(input, target, { ...none, beta: 0 }).tolist(), [0.5, 0, 3]);
    });
  });

  test("reject shapes that would broadcast", () => {
    cpu.step(() => {
      const [column, row] = [f64([1, 2, 3], [3, 1]), f64([1, 2, 3])];
      for (const loss of [mseLoss, l1Loss, huberLoss, smoothL1Loss, bceWithLogits]) {
        rejects("BAD_SHAPE", () => loss(column, row), /input \[3, 1\] and target \[3\] differ\. Reshape/);
      }
    });
  });

  test("reject an invalid delta and beta", () => {
    cpu.step(() => {
      const x = f64([1]);
      rejects("BAD_ARGUMENT", () => huberLoss(x, x, { delta: 0 }), /delta is 0; pass a number above 0/);
      rejects("BAD_ARGUMENT", () => smoothL1Loss(x, x, { beta: -1 }), /beta is -1; pass a number, 0 or more/);
    });
  });
});

describe("bceWithLogits", () => {
  test("is finite and keeps its digits for logits of any size", () => {
    cpu.step(() => {
      const logits = [-1e30, -1e4, -20, 0, 20, 1e4, 1e30];
      for (const target of [0, 1]) {
        const input = f64(logits);
        input.requiresGrad = true;
        const losses = bceWithLogits(input, f64(logits.map(() => target)), { reduction: "none" });
        const expected = logits.map((x) => {
          const signedLogit = target === 1 ? -x : x;
          return Math.max(signedLogit, 0) + Math.log1p(Math.exp(-Math.abs(x)));
        });
        near(losses.dataSync(), expected, `target ${target}`);
        // Small losses have a small relative error too.
        const small = losses.dataSync()[target === 1 ? 4 : 2]!;
        assert.ok(Math.abs(small / Math.log1p(Math.exp(-20)) - 1) < 1e-12);
        losses.sum().backward();
        assert.ok([...input.grad!.dataSync()].every((slope) => Math.abs(slope) <= 1));
      }
    });
  });

  test("applies the weights of elements and of the positive class", () => {
    cpu.step(() => {
      const [input, target] = [f64([0, 0], [1, 2]), f64([1, 0], [1, 2])];
      const options = { weight: f64([1, 10]), posWeight: f64([3, 3]), reduction: "none" } as const;
      near(bceWithLogits(input, target, options).dataSync(), [3 * Math.LN2, 10 * Math.LN2], "weighted");
      const tall = { weight: f64([1, 2, 3], [3, 1]) };
      rejects(
        "BAD_SHAPE",
        () => bceWithLogits(input, target, tall),
        /broadcast the input \[1, 2\] to \[3, 2\]/,
      );
    });
  });
});

test("ctcLoss takes lengths as lists and as tensors", () => {
  const logProbs = f64(
    Array.from({ length: 24 }, (_, index) => Math.sin(index)),
    [4, 2, 3],
  ).logSoftmax(-1);
  const targets = i32([1, 2, 2, 0], [2, 2]);
  const expected = ctcLoss(logProbs, targets, i32([4, 3]), i32([2, 1])).item();
  assert.equal(ctcLoss(logProbs, targets, [4, 3], [2, 1]).item(), expected);
});
