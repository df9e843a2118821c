/** Cases without oracle values and central differences: NaN, ties, zeros, no elements, half floats and long rows. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { openStrictDevice } from "../../../test/support/devices.js";
import { rejects } from "../../../test/support/rejects.js";

const cpu = openStrictDevice();
type Tensor = ReturnType<typeof cpu.fromHost>;

const { NaN: nan, POSITIVE_INFINITY: infinity } = Number;

function tensor(values: ArrayLike<number>, shape: readonly number[], dtype: Tensor["dtype"] = "f32"): Tensor {
  return cpu.fromHost(values, shape, dtype);
}

/** The gradient of the result's sum. */
function gradientOf(x: Tensor, reduce: (x: Tensor) => Tensor): unknown {
  x.requiresGrad = true;
  reduce(x).sum().backward();
  return x.grad?.tolist();
}

const list = (length: number, make: (index: number) => number): number[] =>
  Array.from({ length }, (_, index) => make(index));

/** Long enough to be split into chunks. */
const long = 100_003;

describe("amax and amin", () => {
  test("the result is NaN if an element is, in rows, in columns and in rows split into chunks", () => {
    cpu.step(() => {
      const x = tensor([1, nan, 3, 4, 5, 6, 7, 8], [2, 4]);
      assert.deepEqual(x.amax(1).tolist(), [nan, 8]);
      assert.deepEqual(x.amin(1).tolist(), [nan, 5]);
      assert.deepEqual(x.amax(0).tolist(), [5, nan, 7, 8]);
      const values = list(long, (index) => index % 1000);
      assert.equal(tensor(values, [long]).amax().item(), 999);
      values[70_001] = nan;
      assert.equal(tensor(values, [long]).amax().item(), nan);
    });
  });

  test("equal elements share the gradient", () => {
    cpu.step(() => {
      const x = [2, 1, 2, 0, 0, 0];
      assert.deepEqual(
        gradientOf(tensor(x, [2, 3]), (input) => input.amax(1)),
        [
          [0.5, 0, 0.5],
          [Math.fround(1 / 3), Math.fround(1 / 3), Math.fround(1 / 3)],
        ],
      );
      assert.deepEqual(
        gradientOf(tensor(x, [2, 3]), (input) => input.amin(0)),
        [
          [0, 0, 0],
          [1, 1, 1],
        ],
      );
    });
  });

  test("the maximum of negative integers is negative, for any number of lanes", () => {
    cpu.step(() => {
      for (const dtype of ["f32", "f64", "bf16", "f16", "i32"] as const) {
        for (const length of [1, 2, 3, 5, 6, 7]) {
          const values = list(length, (index) => -3 - index);
          assert.equal(tensor(values, [length], dtype).amax().item(), -3, `${dtype} ${length}`);
        }
      }
    });
  });

  test("an axis of size 0 is rejected, unless the result is empty too", () => {
    cpu.step(() => {
      rejects("BAD_SHAPE", () => tensor([], [2, 0]).amax(1), /amax: of \[2, 0\].*no element/);
      assert.deepEqual(tensor([], [2, 0]).amax(0).shape, [0]);
    });
  });
});

describe("argmax and argmin", () => {
  test("of equal elements the first is found, and a NaN before all others", () => {
    cpu.step(() => {
      for (const dtype of ["f32", "f64"] as const) {
        const x = tensor([1, 7, 7, 0, 0, nan, 9, nan], [2, 4], dtype);
        assert.deepEqual(x.argmax(1).tolist(), [1, 1]);
        assert.deepEqual(x.argmin(1).tolist(), [3, 1]);
        assert.equal(x.argmax().item(), 5);
        assert.deepEqual(x.argmax(0, { keepdim: true }).tolist(), [[0, 1, 1, 1]]);
        assert.equal(x.argmax().dtype, "i32");
      }
    });
  });

  test("without an axis the index counts in row-major order, not in memory order", () => {
    cpu.step(() => {
      const transposed = tensor([0, 1, 2, 9, 4, 5], [2, 3]).permute([1, 0]);
      assert.equal(transposed.argmax().item(), 1);
    });
  });
});

describe("prod", () => {
  test("with one zero only that zero has a gradient, with two no element has", () => {
    cpu.step(() => {
      const x = tensor([2, 3, 4, 2, 0, 4, 0, 3, 0], [3, 3]);
      assert.deepEqual(
        gradientOf(x, (input) => input.prod(1)),
        [
          [12, 8, 6],
          [0, 8, 0],
          [0, 0, 0],
        ],
      );
    });
  });

  test("the product of no elements is 1, and the product of booleans is i32", () => {
    cpu.step(() => {
      assert.deepEqual(tensor([], [2, 0]).prod(1).tolist(), [1, 1]);
      const products = tensor([1, 1, 1, 0], [2, 2], "bool").prod(1);
      assert.equal(products.dtype, "i32");
      assert.deepEqual(products.tolist(), [1, 0]);
      const values = list(long, (index) => (index % 50_000 === 0 ? 2 : 1));
      assert.equal(tensor(values, [long]).prod().item(), 8);
    });
  });
});

describe("var and std", () => {
  /** A standard deviation of 1 around 4096: in f32 the mean of squares minus the squared mean is wrong by more than 1. */
  const around4096 = (length: number): number[] => list(length, (index) => 4096 + (index % 2 === 0 ? 1 : -1));

  test("a small spread around a large mean keeps its digits, over rows, columns and long vectors", () => {
    cpu.step(() => {
      const x = tensor(around4096(512), [2, 256]);
      assert.deepEqual(x.var(1, { correction: 0 }).tolist(), [1, 1]);
      assert.deepEqual(x.permute([1, 0]).var(0, { correction: 0 }).tolist(), [1, 1]);
      assert.deepEqual(tensor(around4096(512), [512]).std([0], { correction: 0 }).item(), 1);
      const many = tensor(around4096(65_536), [65_536]).var(undefined, { correction: 0 });
      assert.ok(Math.abs(many.item() - 1) < 1e-4);
      const naive = x.square().mean().sub(x.mean().square()).item();
      assert.ok(Math.abs(naive - 1) > 0.1, `the naive formula gives ${naive}, so this test could not fail`);
    });
  });

  test("columns and rows agree for every correction", () => {
    cpu.step(() => {
      const values = list(60, (index) => Math.sin(index * 1.7));
      const x = tensor(values, [5, 12], "f64");
      for (const correction of [0, 1, 2]) {
        const columns = x.std(0, { correction }).dataSync();
        const rows = x.permute([1, 0]).mul(1).std(1, { correction }).dataSync();
        for (const [index, column] of columns.entries()) {
          assert.ok(
            Math.abs(column - rows[index]!) < 1e-14,
            `column ${index} with a correction of ${correction}`,
          );
        }
      }
    });
  });

  test("equal elements have a standard deviation of 0 even if their mean is rounded, in rows and in columns", () => {
    for (const value of [0.1, 0.3, 1 / 3, 1e20]) {
      const x = tensor(new Array(15).fill(value), [5, 3]);
      assert.deepEqual(x.std(1).tolist(), [0, 0, 0, 0, 0], `rows of ${value}`);
      assert.deepEqual(x.std(0).tolist(), [0, 0, 0], `columns of ${value}`);
      assert.equal(x.var().item(), 0, `all of ${value}`);
    }
  });

  test("std of equal elements has a gradient of 0; the variance of one element is NaN", () => {
    cpu.step(() => {
      assert.deepEqual(
        gradientOf(tensor([3, 3, 3], [3]), (input) => input.std()),
        [0, 0, 0],
      );
      assert.equal(tensor([3], [1]).var().item(), nan);
      assert.equal(tensor([3], [1]).var(undefined, { correction: 0 }).item(), 0);
      assert.deepEqual(tensor([], [2, 0]).var(1).tolist(), [nan, nan]);
    });
  });
});

describe("logsumexp", () => {
  test("finite elements do not overflow, and infinities give infinities", () => {
    cpu.step(() => {
      const x = tensor([1e4, 1e4, -infinity, -infinity, infinity, 0], [3, 2]);
      assert.deepEqual(x.logsumexp(1).tolist(), [Math.fround(1e4 + Math.LN2), -infinity, infinity]);
      assert.deepEqual(tensor([], [2, 0]).logsumexp(1).tolist(), [-infinity, -infinity]);
    });
  });

  test("a row of -∞ has a gradient of 0", () => {
    cpu.step(() => {
      const x = tensor([-infinity, -infinity, 1, 1], [2, 2]);
      assert.deepEqual(
        gradientOf(x, (input) => input.logsumexp(1)),
        [
          [0, 0],
          [0.5, 0.5],
        ],
      );
    });
  });
});

describe("norm", () => {
  test("the gradient of a norm of 0 is 0, for every p", () => {
    cpu.step(() => {
      for (const p of [1, 2, 3, 0.5, infinity]) {
        assert.deepEqual(
          gradientOf(tensor([0, 0], [2]), (input) => input.norm(undefined, { p })),
          [0, 0],
          `p = ${p}`,
        );
      }
    });
  });

  test("each p gives its norm, over rows, columns and long vectors", () => {
    cpu.step(() => {
      const x = tensor([3, -4, 0, 12], [2, 2], "f64");
      assert.deepEqual(x.norm(1).tolist(), [5, 12]);
      assert.deepEqual(x.norm(1, { p: 1 }).tolist(), [7, 12]);
      assert.deepEqual(x.norm(1, { p: infinity }).tolist(), [4, 12]);
      assert.deepEqual(x.norm(1, { p: -infinity }).tolist(), [3, 0]);
      assert.ok(Math.abs(x.norm(undefined, { p: 3 }).item() - (27 + 64 + 1728) ** (1 / 3)) < 1e-12);
      assert.deepEqual(
        tensor(
          list(12, (index) => index % 4),
          [3, 4],
        )
          .norm(0)
          .tolist(),
        [0, Math.fround(Math.sqrt(3)), Math.fround(Math.sqrt(12)), Math.fround(Math.sqrt(27))],
      );
      assert.equal(
        tensor(
          list(65_536, () => 2),
          [65_536],
        )
          .norm()
          .item(),
        512,
      );
    });
  });

  test("p = 0 is rejected, with advice how to count", () => {
    cpu.step(() => {
      rejects("BAD_ARGUMENT", () => tensor([1], [1]).norm(0, { p: 0 }), /p is 0.*ne\(0\)\.sum\(\)/);
    });
  });
});

describe("half floats", () => {
  test("intermediate sums may exceed the dtype's range, over rows and columns", () => {
    cpu.step(() => {
      // 400 · 300 is beyond f16, and so is the sum of the squares.
      const x = tensor(
        list(1600, () => 300),
        [400, 4],
        "f16",
      );
      assert.deepEqual(x.mean(0).tolist(), [300, 300, 300, 300]);
      assert.deepEqual(x.norm(0).tolist(), [6000, 6000, 6000, 6000]);
      assert.equal(x.mean().item(), 300);
      assert.equal(x.permute([1, 0]).mul(1).norm(1).amax().item(), 6000);
      assert.deepEqual(x.std(0).tolist(), [0, 0, 0, 0]);
    });
  });

  test("cumsum accumulates in f32 and rounds once", () => {
    cpu.step(() => {
      const sums = tensor(
        list(600, () => 1),
        [600],
        "bf16",
      )
        .cumsum(0)
        .dataSync();
      // bf16 alone would stay at 256: the next number is 258.
      assert.equal(sums[599], 600);
    });
  });
});

describe("cumsum", () => {
  test("works for any layout and any axis, and sums integers in i32", () => {
    cpu.step(() => {
      const x = tensor([1, 2, 3, 4, 5, 6], [2, 3], "u8");
      assert.equal(x.cumsum(0).dtype, "i32");
      assert.deepEqual(x.cumsum(1).tolist(), [
        [1, 3, 6],
        [4, 9, 15],
      ]);
      assert.deepEqual(x.permute([1, 0]).cumsum(-1).tolist(), [
        [1, 5],
        [2, 7],
        [3, 9],
      ]);
      assert.deepEqual(tensor([], [0, 2]).cumsum(0).shape, [0, 2]);
    });
  });
});

describe("all and any", () => {
  test("work for every dtype and length, for rows split into chunks, and for no elements", () => {
    cpu.step(() => {
      for (const dtype of ["f32", "f64", "f16", "i32", "u8", "bool"] as const) {
        for (const length of [1, 2, 3, 4, 5, 9]) {
          const ones = list(length, () => 1);
          assert.equal(tensor(ones, [length], dtype).all().item(), 1, `all ${dtype} ${length}`);
          assert.equal(tensor(ones, [length], dtype).eq(0).any().item(), 0, `any ${dtype} ${length}`);
          const last = list(length, (index) => (index === length - 1 ? 0 : 1));
          assert.equal(tensor(last, [length], dtype).all().item(), 0, `all but one ${dtype} ${length}`);
        }
      }
      const values = list(long, (index) => (index === 99_999 ? 0 : 1));
      assert.equal(tensor(values, [long], "f64").all().item(), 0);
      assert.deepEqual(tensor([], [2, 0]).all(1).tolist(), [true, true]);
      assert.deepEqual(tensor([], [2, 0]).any(1).tolist(), [false, false]);
      assert.equal(tensor([nan], [1]).all().item(), 1);
    });
  });
});

test("an expanded operand is reduced", () => {
  cpu.step(() => {
    const x = tensor([1, 2, 3], [3, 1]).expand([3, 1000]);
    assert.deepEqual(x.sum(1).tolist(), [1000, 2000, 3000]);
    assert.deepEqual(x.amax(1).tolist(), [1, 2, 3]);
    assert.deepEqual(x.softmax(1).sum(0).dataSync().length, 1000);
  });
});
