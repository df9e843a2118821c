/** What oracle values and central differences don't reach: NaN, ties, zeros, nothing, half floats and long rows. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { openStrictDevice } from "../../../test/support/devices.js";
import { rejects } from "../../../test/support/rejects.js";

const cpu = openStrictDevice();
type Tensor = ReturnType<typeof cpu.fromHost>;

const { NaN: nan, POSITIVE_INFINITY: infinity } = Number;

function place(values: ArrayLike<number>, shape: readonly number[], dtype: Tensor["dtype"] = "f32"): Tensor {
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

/** Long enough to be cut into parts. */
const long = 100_003;

describe("amax and amin", () => {
  test("NaN wins, in rows, in columns and in rows cut into parts", () => {
    cpu.step(() => {
      const x = place([1, nan, 3, 4, 5, 6, 7, 8], [2, 4]);
      assert.deepEqual(x.amax(1).tolist(), [nan, 8]);
      assert.deepEqual(x.amin(1).tolist(), [nan, 5]);
      assert.deepEqual(x.amax(0).tolist(), [5, nan, 7, 8]);
      const values = list(long, (index) => index % 1000);
      assert.equal(place(values, [long]).amax().item(), 999);
      values[70_001] = nan;
      assert.equal(place(values, [long]).amax().item(), nan);
    });
  });

  test("equal elements share the gradient", () => {
    cpu.step(() => {
      const x = [2, 1, 2, 0, 0, 0];
      assert.deepEqual(
        gradientOf(place(x, [2, 3]), (one) => one.amax(1)),
        [
          [0.5, 0, 0.5],
          [Math.fround(1 / 3), Math.fround(1 / 3), Math.fround(1 / 3)],
        ],
      );
      assert.deepEqual(
        gradientOf(place(x, [2, 3]), (one) => one.amin(0)),
        [
          [0, 0, 0],
          [1, 1, 1],
        ],
      );
    });
  });

  test("of negative integers the largest is below 0, whatever the dtype's lanes", () => {
    cpu.step(() => {
      for (const dtype of ["f32", "f64", "bf16", "f16", "i32"] as const) {
        for (const length of [1, 2, 3, 5, 6, 7]) {
          const values = list(length, (index) => -3 - index);
          assert.equal(place(values, [length], dtype).amax().item(), -3, `${dtype} ${length}`);
        }
      }
    });
  });

  test("over an axis of size 0 there is nothing to choose, unless there is no result either", () => {
    cpu.step(() => {
      rejects("BAD_SHAPE", () => place([], [2, 0]).amax(1), /amax: of \[2, 0\].*no element/);
      assert.deepEqual(place([], [2, 0]).amax(0).shape, [0]);
    });
  });
});

describe("argmax and argmin", () => {
  test("the first of equals is found, and the first NaN before anything else", () => {
    cpu.step(() => {
      for (const dtype of ["f32", "f64"] as const) {
        const x = place([1, 7, 7, 0, 0, nan, 9, nan], [2, 4], dtype);
        assert.deepEqual(x.argmax(1).tolist(), [1, 1]);
        assert.deepEqual(x.argmin(1).tolist(), [3, 1]);
        assert.equal(x.argmax().item(), 5);
        assert.deepEqual(x.argmax(0, { keepdim: true }).tolist(), [[0, 1, 1, 1]]);
        assert.equal(x.argmax().dtype, "i32");
      }
    });
  });

  test("over everything the place is counted in the tensor's order, not in the memory's", () => {
    cpu.step(() => {
      const turned = place([0, 1, 2, 9, 4, 5], [2, 3]).permute([1, 0]);
      assert.equal(turned.argmax().item(), 1);
    });
  });
});

describe("prod", () => {
  test("with one zero only that zero has a gradient, with two nothing has", () => {
    cpu.step(() => {
      const x = place([2, 3, 4, 2, 0, 4, 0, 3, 0], [3, 3]);
      assert.deepEqual(
        gradientOf(x, (one) => one.prod(1)),
        [
          [12, 8, 6],
          [0, 8, 0],
          [0, 0, 0],
        ],
      );
    });
  });

  test("the product of nothing is 1, and of truth values a whole number", () => {
    cpu.step(() => {
      assert.deepEqual(place([], [2, 0]).prod(1).tolist(), [1, 1]);
      const truths = place([1, 1, 1, 0], [2, 2], "bool").prod(1);
      assert.equal(truths.dtype, "i32");
      assert.deepEqual(truths.tolist(), [1, 0]);
      const values = list(long, (index) => (index % 50_000 === 0 ? 2 : 1));
      assert.equal(place(values, [long]).prod().item(), 8);
    });
  });
});

describe("var and std", () => {
  /** Spread 1 around 4096: a mean of squares less a square of the mean is off by more than the variance in f32. */
  const around4096 = (length: number): number[] => list(length, (index) => 4096 + (index % 2 === 0 ? 1 : -1));

  test("a small spread around a large mean keeps its digits, over rows, columns and long vectors", () => {
    cpu.step(() => {
      const x = place(around4096(512), [2, 256]);
      assert.deepEqual(x.var(1, { correction: 0 }).tolist(), [1, 1]);
      assert.deepEqual(x.permute([1, 0]).var(0, { correction: 0 }).tolist(), [1, 1]);
      assert.deepEqual(place(around4096(512), [512]).std([0], { correction: 0 }).item(), 1);
      const many = place(around4096(65_536), [65_536]).var(undefined, { correction: 0 });
      assert.ok(Math.abs(many.item() - 1) < 1e-4);
      const oneWay = x.square().mean().sub(x.mean().square()).item();
      assert.ok(Math.abs(oneWay - 1) > 0.1, `the other formula gives ${oneWay}: this test would not see it`);
    });
  });

  test("columns and rows agree, whatever the correction", () => {
    cpu.step(() => {
      const values = list(60, (index) => Math.sin(index * 1.7));
      const x = place(values, [5, 12], "f64");
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

  test("equal elements have no spread, also where their mean is not exact, along rows and down columns", () => {
    for (const value of [0.1, 0.3, 1 / 3, 1e20]) {
      const x = place(new Array(15).fill(value), [5, 3]);
      assert.deepEqual(x.std(1).tolist(), [0, 0, 0, 0, 0], `rows of ${value}`);
      assert.deepEqual(x.std(0).tolist(), [0, 0, 0], `columns of ${value}`);
      assert.equal(x.var().item(), 0, `all of ${value}`);
    }
  });

  test("where nothing differs std has a gradient of 0; of one element there is no variance", () => {
    cpu.step(() => {
      assert.deepEqual(
        gradientOf(place([3, 3, 3], [3]), (one) => one.std()),
        [0, 0, 0],
      );
      assert.equal(place([3], [1]).var().item(), nan);
      assert.equal(place([3], [1]).var(undefined, { correction: 0 }).item(), 0);
      assert.deepEqual(place([], [2, 0]).var(1).tolist(), [nan, nan]);
    });
  });
});

describe("logsumexp", () => {
  test("no finite element overflows, and infinities come through", () => {
    cpu.step(() => {
      const x = place([1e4, 1e4, -infinity, -infinity, infinity, 0], [3, 2]);
      assert.deepEqual(x.logsumexp(1).tolist(), [Math.fround(1e4 + Math.LN2), -infinity, infinity]);
      assert.deepEqual(place([], [2, 0]).logsumexp(1).tolist(), [-infinity, -infinity]);
    });
  });

  test("a row of -∞ has a gradient of 0", () => {
    cpu.step(() => {
      const x = place([-infinity, -infinity, 1, 1], [2, 2]);
      assert.deepEqual(
        gradientOf(x, (one) => one.logsumexp(1)),
        [
          [0, 0],
          [0.5, 0.5],
        ],
      );
    });
  });
});

describe("norm", () => {
  test("at 0 the norm of every p has a gradient of 0", () => {
    cpu.step(() => {
      for (const p of [1, 2, 3, 0.5, infinity]) {
        assert.deepEqual(
          gradientOf(place([0, 0], [2]), (one) => one.norm(undefined, { p })),
          [0, 0],
          `p = ${p}`,
        );
      }
    });
  });

  test("each p is what it says, over rows, columns and long vectors", () => {
    cpu.step(() => {
      const x = place([3, -4, 0, 12], [2, 2], "f64");
      assert.deepEqual(x.norm(1).tolist(), [5, 12]);
      assert.deepEqual(x.norm(1, { p: 1 }).tolist(), [7, 12]);
      assert.deepEqual(x.norm(1, { p: infinity }).tolist(), [4, 12]);
      assert.deepEqual(x.norm(1, { p: -infinity }).tolist(), [3, 0]);
      assert.ok(Math.abs(x.norm(undefined, { p: 3 }).item() - (27 + 64 + 1728) ** (1 / 3)) < 1e-12);
      assert.deepEqual(
        place(
          list(12, (index) => index % 4),
          [3, 4],
        )
          .norm(0)
          .tolist(),
        [0, Math.fround(Math.sqrt(3)), Math.fround(Math.sqrt(12)), Math.fround(Math.sqrt(27))],
      );
      assert.equal(
        place(
          list(65_536, () => 2),
          [65_536],
        )
          .norm()
          .item(),
        512,
      );
    });
  });

  test("p = 0 is rejected, with the way to count", () => {
    cpu.step(() => {
      rejects("BAD_ARGUMENT", () => place([1], [1]).norm(0, { p: 0 }), /p is 0.*ne\(0\)\.sum\(\)/);
    });
  });
});

describe("half floats", () => {
  test("what a sum passes through may be larger than the dtype holds, over rows and columns", () => {
    cpu.step(() => {
      // 400 · 300 is beyond f16, and so is the sum of the squares.
      const x = place(
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

  test("cumsum adds up in f32 and rounds once", () => {
    cpu.step(() => {
      const sums = place(
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
  test("any layout and any axis, whole numbers in i32", () => {
    cpu.step(() => {
      const x = place([1, 2, 3, 4, 5, 6], [2, 3], "u8");
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
      assert.deepEqual(place([], [0, 2]).cumsum(0).shape, [0, 2]);
    });
  });
});

describe("all and any", () => {
  test("every dtype and length, rows cut into parts, and nothing", () => {
    cpu.step(() => {
      for (const dtype of ["f32", "f64", "f16", "i32", "u8", "bool"] as const) {
        for (const length of [1, 2, 3, 4, 5, 9]) {
          const ones = list(length, () => 1);
          assert.equal(place(ones, [length], dtype).all().item(), 1, `all ${dtype} ${length}`);
          assert.equal(place(ones, [length], dtype).eq(0).any().item(), 0, `any ${dtype} ${length}`);
          const last = list(length, (index) => (index === length - 1 ? 0 : 1));
          assert.equal(place(last, [length], dtype).all().item(), 0, `all but one ${dtype} ${length}`);
        }
      }
      const values = list(long, (index) => (index === 99_999 ? 0 : 1));
      assert.equal(place(values, [long], "f64").all().item(), 0);
      assert.deepEqual(place([], [2, 0]).all(1).tolist(), [true, true]);
      assert.deepEqual(place([], [2, 0]).any(1).tolist(), [false, false]);
      assert.equal(place([nan], [1]).all().item(), 1);
    });
  });
});

test("a stretched operand is reduced as it lies, without its copies", () => {
  cpu.step(() => {
    const x = place([1, 2, 3], [3, 1]).expand([3, 1000]);
    assert.deepEqual(x.sum(1).tolist(), [1000, 2000, 3000]);
    assert.deepEqual(x.amax(1).tolist(), [1, 2, 3]);
    assert.deepEqual(x.softmax(1).sum(0).dataSync().length, 1000);
  });
});
