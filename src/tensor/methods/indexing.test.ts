/** Indexing ops: their elements, rejected indices, and in-place writes at a constant address. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openDevice, openStrictDevice } from "../../../test/support/devices.js";
import { checkElements, indicesIn } from "../../../test/support/element-reference.js";
import { indexingCases } from "../../../test/support/op-cases/indexing.js";
import { rejects } from "../../../test/support/rejects.js";
import type { HoldfastError } from "../../errors/index.js";
import * as ops from "../../ops/index.js";
import { oneHot, type Tensor, tensor } from "../index.js";

const cpu = openDevice();
const strictCpu = openStrictDevice();
const fromFront = (axis: number, rank: number): number => (axis < 0 ? axis + rank : axis);
const indices = (values: Parameters<typeof tensor>[0]): Tensor => tensor(values, { dtype: "i32" });
const embedding = (table: Tensor, index: Tensor, options: { paddingIdx?: number } = {}): Tensor =>
  table.device.apply(ops.embedding, [table, index], options);

test("indexSelect, gather and embedding return the elements at their indices", () => {
  checkElements(strictCpu, indexingCases, ops.indexSelect, ({ axis }, x, index) => {
    const axisIndex = fromFront(axis, x!.shape.length);
    return {
      shape: x!.shape.with(axisIndex, index!.shape[0]!),
      at: (position) => x!.at(...position.with(axisIndex, index!.at(position[axisIndex]!))),
    };
  });
  checkElements(strictCpu, indexingCases, ops.gather, ({ axis }, x, index) => ({
    shape: index!.shape,
    at: (position) => x!.at(...position.with(fromFront(axis, x!.shape.length), index!.at(...position))),
  }));
  checkElements(strictCpu, indexingCases, ops.embedding, (_, table, index) => ({
    shape: [...index!.shape, table!.shape[1]!],
    at: (position) => table!.at(index!.at(...position.slice(0, -1)), position.at(-1)!),
  }));
});

test("scatterAdd adds every source element that the index covers, in ascending order", () => {
  checkElements(strictCpu, indexingCases, ops.scatterAdd, ({ axis }, x, index, source) => {
    const axisIndex = fromFront(axis, x!.shape.length);
    const covered = indicesIn(index!.shape);
    return {
      shape: x!.shape,
      at: (position) =>
        covered
          .filter((from) =>
            position.every((at, other) => at === (other === axisIndex ? index!.at(...from) : from[other])),
          )
          .reduce((sum, from) => sum + source!.at(...from), x!.at(...position)),
    };
  });
});

test("oneHot is 1 at the label, and maskedFill has the value where the mask is true", () => {
  checkElements(strictCpu, indexingCases, ops.oneHot, ({ classes }, labels) => ({
    shape: [...labels!.shape, classes],
    at: (position) => Number(labels!.at(...position.slice(0, -1)) === position.at(-1)),
  }));
  checkElements(strictCpu, indexingCases, ops.maskedFill, (_, x, mask, value) => {
    const shape = ops.broadcastShapes("maskedFill", [x!.shape, mask!.shape]);
    const elementAt = (array: typeof x, position: readonly number[]): number => {
      const coordinates = position.slice(position.length - array!.shape.length);
      return array!.at(...coordinates.map((coordinate, axis) => (array!.shape[axis] === 1 ? 0 : coordinate)));
    };
    return { shape, at: (position) => (elementAt(mask, position) ? value!.at() : elementAt(x, position)) };
  });
});

test("an index outside its axis is rejected with the first such index, its position and the valid range", () => {
  const x = tensor([
    [1, 2],
    [3, 4],
    [5, 6],
  ]);
  rejects(
    "BAD_INDEX",
    () => x.indexSelect(0, indices([0, 3, -1])),
    /indexSelect: index 3 at \[1\], but axis 0 of \[3, 2\] has 3; indices are 0 to 2/,
  );
  rejects("BAD_INDEX", () => x.indexSelect(1, indices([-1])), /index -1 at \[0\]/);
  rejects(
    "BAD_INDEX",
    () =>
      x.gather(
        1,
        indices([
          [0, 1],
          [1, 2],
        ]),
      ),
    /gather: index 2 at \[1, 1\], but axis 1/,
  );
  rejects(
    "BAD_INDEX",
    () =>
      x.gather(
        1,
        indices([
          [0, 9],
          [7, 0],
        ]).t(),
      ),
    /index 7 at \[0, 1\]/,
  );
  rejects(
    "BAD_INDEX",
    () => embedding(x, indices([[[0], [5]]])),
    /index 5 at \[0, 1, 0\], but the table has 3 rows/,
  );
  rejects("BAD_INDEX", () => x.scatterAdd(0, indices([[3, 0]]), x), /scatterAdd: index 3 at \[0, 0\]/);
  rejects("BAD_INDEX", () => oneHot(indices([0, 4]), 4), /index 4 at \[1\], but there are 4 classes/);
  rejects("BAD_INDEX", () => oneHot(tensor(200, { dtype: "u8" }), 4), /index 200 at \[\]/);
  assert.throws(
    () => x.indexSelect(0, indices([1, 8])),
    ({ numbers }: HoldfastError) => {
      assert.deepEqual(numbers, { op: "indexSelect", index: 8, place: 1, size: 3 });
      return true;
    },
  );
});

test("a rejected in-place scatterAdd leaves its tensor unchanged", () => {
  const x = tensor([1, 2, 3]);
  rejects("BAD_INDEX", () => x.scatterAdd_(0, indices([0, 3]), tensor([10, 10])));
  assert.deepEqual(x.tolist(), [1, 2, 3]);
});

test("without its check, an op accesses nothing outside its operands, and a bad index reads NaN", () => {
  const { check: _, ...unchecked } = ops.indexSelect;
  const { check: __, ...scattering } = ops.scatterAdd;
  strictCpu.step(() => {
    const x = strictCpu.fromHost([1, 2, 3], [3], "f32");
    const wild = strictCpu.fromHost([-2_000_000_000, 1, 2_000_000_000], [3], "i32");
    assert.deepEqual(strictCpu.apply(unchecked, [x, wild], { axis: 0 }).tolist(), [
      Number.NaN,
      2,
      Number.NaN,
    ]);
    const added = strictCpu.fromHost([7, 7, 7], [3], "f32");
    assert.deepEqual(strictCpu.apply(scattering, [x, wild, added], { axis: 0 }).tolist(), [1, 9, 3]);
  });
});

test("an index of a wrong shape or dtype is rejected", () => {
  const x = tensor([
    [1, 2],
    [3, 4],
  ]);
  rejects("BAD_DTYPE", () => x.indexSelect(0, tensor([0, 1])), /index of f32; indices are integers/);
  rejects("BAD_DTYPE", () => x.gather(0, x.gt(1)), /index of bool/);
  rejects("BAD_SHAPE", () => x.indexSelect(0, indices([[0]])), /it must have one axis/);
  rejects("BAD_SHAPE", () => x.gather(0, indices([0])), /an index of \[1\] for shape \[2, 2\]/);
  rejects("BAD_SHAPE", () => x.gather(0, indices([[0, 0, 0]])));
  rejects("BAD_SHAPE", () => embedding(tensor([1, 2]), indices([0])), /\[rows, width\]/);
  rejects(
    "BAD_INDEX",
    () => embedding(x, indices([0]), { paddingIdx: 2 }),
    /paddingIdx 2 of a table of 2 rows/,
  );
  rejects(
    "BAD_SHAPE",
    () => x.scatterAdd(0, indices([[0, 1]]), tensor([[1]])),
    /every index needs an element/,
  );
  rejects("BAD_DTYPE", () => x.scatterAdd(0, indices([[0, 1]]), x.to("f64")), /scatterAdd of f64 into f32/);
  rejects("BAD_DTYPE", () => x.maskedFill(x, 0), /a mask of f32/);
  rejects("BAD_SHAPE", () => oneHot(indices([0]), -1));
});

test("the padding row gets no gradient, and other rows get the sum of their gradients", () => {
  for (const paddingIdx of [1, -2]) {
    const table = tensor([[1], [2], [3]], { requiresGrad: true });
    const rows = embedding(table, indices([0, 1, 2, 2, 1]), { paddingIdx });
    assert.deepEqual(rows.tolist(), [[1], [2], [3], [3], [2]]);
    rows.sum().backward();
    assert.deepEqual(table.grad!.tolist(), [[1], [0], [2]]);
  }
});

test("scatterAdd_ and maskedFill_ write in place, and gradients flow through them", () => {
  cpu.step(() => {
    const source = cpu.fromHost([1, 2, 3], [3], "f32");
    source.requiresGrad = true;
    const x = cpu.fromHost([10, 20], [2], "f32").mul(1);
    const address = x.array.storage!.span.address;
    x.scatterAdd_(0, cpu.fromHost([1, 1, 0], [3], "i32"), source);
    assert.deepEqual(x.tolist(), [13, 23]);
    x.maskedFill_(cpu.fromHost([1, 0], [2], "bool"), -1);
    assert.deepEqual(x.tolist(), [-1, 23]);
    assert.equal(x.array.storage!.span.address, address);
    x.sum().backward();
    assert.deepEqual(source.grad!.tolist(), [1, 1, 0]);
  });
});

test("scatterAdd_ with its own tensor as the source reads the values from before the write", () => {
  const x = tensor([1, 2, 3]);
  x.scatterAdd_(0, indices([1, 2, 0]), x);
  assert.deepEqual(x.tolist(), [4, 3, 5]);
});

test("scatterAdd_ on a view writes only the elements of the view", () => {
  const x = tensor([
    [1, 1, 1],
    [1, 1, 1],
  ]);
  x.slice(null, [0, null, 2]).scatterAdd_(
    1,
    indices([
      [1, 1],
      [0, 1],
    ]),
    tensor([
      [2, 3],
      [4, 5],
    ]),
  );
  assert.deepEqual(x.tolist(), [
    [1, 1, 6],
    [5, 1, 6],
  ]);
});

test("half floats are accumulated in f32, so small gradients are not lost", () => {
  const count = 512;
  const index = cpu.fromHost(new Int32Array(count), [count], "i32");
  for (const dtype of ["bf16", "f16"] as const) {
    const table = cpu.fromHost([0], [1, 1], dtype);
    table.requiresGrad = true;
    embedding(table, index).sum().backward();
    // A sum in bf16 would stop at 256.
    assert.equal(table.grad!.item(), count, dtype);
  }
});

test("maskedFill_ keeps the dtype and shape of its tensor for any value and mask", () => {
  const truths = tensor([true, false]);
  truths.maskedFill_(tensor([true, true]), 0);
  assert.deepEqual(truths.tolist(), [false, false]);
  const x = tensor([1, 2]);
  const mask = tensor([
    [true, false],
    [false, true],
  ]);
  rejects("BAD_SHAPE", () => x.maskedFill_(mask, 0), /\[2, 2\] and the tensor is f32 \[2\]/);
  assert.deepEqual(x.tolist(), [1, 2]);
});

test("max and min along an axis return the first extreme and its index, and only that element gets the gradient", () => {
  cpu.step(() => {
    const x = tensor(
      [
        [1, 5, 5],
        [7, 2, 2],
      ],
      { device: cpu, requiresGrad: true },
    );
    const { values, indices } = x.max(1);
    assert.deepEqual(
      [values.tolist(), indices.tolist()],
      [
        [5, 7],
        [1, 0],
      ],
    );
    values.sum().backward();
    assert.deepEqual(x.grad?.tolist(), [
      [0, 1, 0],
      [1, 0, 0],
    ]);
    const smallest = x.min(-1, { keepdim: true });
    assert.deepEqual(
      [smallest.values.tolist(), smallest.indices.tolist()],
      [
        [[1], [2]],
        [[0], [1]],
      ],
    );
    assert.deepEqual([x.max().item(), x.min().item()], [7, 1]);
  });
});

test("oneHot counts the classes if their number is not given", () => {
  assert.deepEqual(oneHot(indices([0, 2])).tolist(), [
    [1, 0, 0],
    [0, 0, 1],
  ]);
  assert.deepEqual(oneHot(indices([])).shape, [0, 0]);
});

test("scatter rejects a reduction that it does not have", () => {
  const x = tensor([1, 2]);
  const wrong = { reduce: "mean" as never };
  rejects("BAD_ARGUMENT", () => x.scatter(0, indices([0]), 5, wrong), /reduce is mean; pass "add"/);
});
