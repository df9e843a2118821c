/** Sorting of rows of many lengths, against a stable sort on the host: on the CPU and on a GPU, eager and in a compiled step. */

import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { openStrictDevice } from "../../../test/support/devices.js";
import { cudaMissing } from "../../../test/support/kernel-runtime.js";
import { rejects } from "../../../test/support/rejects.js";
import { openTestGpu, testEnvironment } from "../../../test/support/test-device.js";
import { dtypeNames, isFloat8 } from "../../ir/index.js";
import { Device, fromTyped, gradient, type Tensor, tensor, where } from "../index.js";

const cpu = openStrictDevice();

/** Few different numbers, so that there are ties; some NaN, infinities and zeros of both signs. */
function keys(count: number): Float32Array<ArrayBuffer> {
  const special = [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, -0, 0];
  return Float32Array.from({ length: count }, (_, index) => {
    const hash = Math.imul(index + 1, 0x9e3779b1) >>> 8;
    return hash % 11 === 0 ? special[hash % 5]! : (hash % 37) - 18;
  });
}

/** The indices of a stable sort: NaN is the largest number. */
function expectedOrder(row: Float32Array, isDescending: boolean): number[] {
  const rank = (x: number): number => (Number.isNaN(x) ? Number.POSITIVE_INFINITY : x);
  const isAfter = (a: number, b: number): number => Number(Number.isNaN(a)) - Number(Number.isNaN(b));
  const compare = (a: number, b: number): number => (rank(a) === rank(b) ? isAfter(a, b) : rank(a) - rank(b));
  const sign = isDescending ? -1 : 1;
  return Array.from(row.keys()).sort((i, j) => sign * compare(row[i]!, row[j]!) || i - j);
}

function checkSorted(
  device: Device,
  length: number,
  isDescending: boolean,
  sort: (x: Tensor) => readonly Tensor[],
): void {
  const rows = 3;
  const all = keys(rows * length);
  const [values, indices] = sort(fromTyped(all, [rows, length], { device })).map((x) => x.dataSync());
  for (let row = 0; row < rows; row++) {
    const own = all.subarray(row * length, (row + 1) * length);
    const order = expectedOrder(own, isDescending);
    assert.deepEqual(
      Array.from(indices!.subarray(row * length, (row + 1) * length)),
      order,
      `row ${row} of ${length}`,
    );
    const sorted = order.map((index) => own[index]);
    assert.deepEqual(Array.from(values!.subarray(row * length, (row + 1) * length)), sorted);
  }
}

const sorter = (descending: boolean) => (x: Tensor) => {
  const { values, indices } = x.sort(-1, { descending });
  return [values, indices];
};

test("rows of any length are sorted stably in both directions, with NaN as the largest number", () => {
  for (const length of [1, 2, 7, 8, 9, 16, 17, 63, 100, 1025, 2500]) {
    for (const descending of [false, true]) checkSorted(cpu, length, descending, sorter(descending));
  }
});

test("keys of every dtype are sorted to the order of float64", () => {
  const numbers = Float32Array.from(
    { length: 200 },
    (_, index) => (Math.imul(index + 1, 0x9e3779b1) >>> 8) % 90,
  );
  for (const dtype of dtypeNames.filter((name) => !isFloat8(name))) {
    const shift = ["u8", "bool"].includes(dtype) ? 0 : 45;
    const x = fromTyped(numbers, [200], { dtype: "f64", device: cpu }).sub(shift).to(dtype);
    const order = expectedOrder(Float32Array.from(x.to("f32").dataSync()), false);
    assert.deepEqual(Array.from(x.argsort().dataSync()), order, dtype);
    assert.equal(x.sort().values.equal(x.indexSelect(0, x.argsort())), true, dtype);
  }
  const tiny = tensor(
    Array.from({ length: 40 }, (_, index) => (index % 2 ? 1 : -1) * (1 + index * 2 ** -50)),
    {
      dtype: "f64",
      device: cpu,
    },
  );
  assert.deepEqual(
    tiny.sort().values.tolist(),
    (tiny.tolist() as number[]).toSorted((a, b) => a - b),
  );
});

test("a compiled step sorts to the same bits, and its gradient goes to the sorted elements", () => {
  const step = cpu.compile((x: Tensor) => {
    const { values, indices } = x.sort(-1, { descending: true });
    return [values, indices];
  });
  for (const length of [9, 100]) checkSorted(cpu, length, true, step);
  const w = tensor([3, 1, 2], { requiresGrad: true });
  const top = cpu.compile(() => {
    w.topk(2)
      .values.mul(tensor([5, 7]))
      .sum()
      .backward();
  });
  top();
  assert.deepEqual(w.grad?.tolist(), [5, 0, 7]);
});

describe("on CUDA", { skip: cudaMissing }, () => {
  test("rows are sorted to the same bits, eager and compiled", () => {
    const driver = openTestGpu();
    const gpu = new Device("cuda", {
      driver,
      memory: "1GiB",
      stallAfter: "off",
      environment: testEnvironment,
      print: () => {},
    });
    after(() => {
      gpu.close();
      driver.close();
    });
    for (const length of [5, 130, 1025]) checkSorted(gpu, length, false, sorter(false));
    checkSorted(gpu, 130, false, gpu.compile(sorter(false)));
  });
});

test("a k beyond the axis, and a quantile outside of 0 to 1, are rejected with the numbers", () => {
  const x = tensor([1, 2, 3]);
  rejects("BAD_ARGUMENT", () => x.topk(4), /k is 4, but axis -1 has 3 elements/);
  rejects("BAD_ARGUMENT", () => x.kthvalue(0), /from 1 to 3/);
  rejects("BAD_ARGUMENT", () => x.quantile(1.5), /1.5/);
  rejects("BAD_ARGUMENT", () => x.histogram(0), /number of intervals/);
  rejects("BAD_ARGUMENT", () => x.indexPut([], x), /indices of 0 axes/);
  const outside = tensor([3], { dtype: "i32" });
  rejects(
    "BAD_INDEX",
    () =>
      tensor([
        [1, 2],
        [3, 4],
      ]).indexPut([outside.sub(3), outside], tensor([5])),
    /4/,
  );
  rejects("BAD_ARGUMENT", () => gradient(x, { spacing: [1, 2] }), /along 1 axes: spacing has 2/);
  rejects("BAD_SHAPE", () => gradient(x.narrow(0, 0, 2), { edgeOrder: 2 }), /needs 3 or more/);
  rejects("BAD_ARGUMENT", () => where(x, 1, undefined as never), /the other value/);
});

test("a selection whose size depends on values is rejected in a compiled step", () => {
  const x = tensor([1, -2, 3]);
  const calls: readonly ((x: Tensor) => Tensor)[] = [
    (y) => y.maskedSelect(y.gt(0)),
    (y) => y.nonzero(),
    (y) => where(y)[0]!,
    (y) => y.unique().values,
  ];
  for (const call of calls)
    rejects("NOT_TRACEABLE", () => cpu.compile(call)(x), /read the values of a tensor/);
});

test("a median of no elements is NaN, and along an empty axis an error", () => {
  assert.ok(Number.isNaN(fromTyped(new Float32Array(), [0, 3]).median().item()));
  rejects("BAD_SHAPE", () => fromTyped(new Float32Array(), [0, 3]).median(0), /axis 0 of \[0, 3\]/);
});
