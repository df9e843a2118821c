/** Movement ops: their elements, views that share memory, rejections, and saved views that keep their owner alive. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openDevice, openStrictDevice } from "../../../test/support/devices.js";
import { checkElements } from "../../../test/support/element-reference.js";
import { movementCases } from "../../../test/support/op-cases/movement.js";
import { rejects } from "../../../test/support/rejects.js";
import * as ops from "../../ops/index.js";
import { cat, stack, tensor } from "../index.js";

const cpu = openDevice();
const strictCpu = openStrictDevice();
const fromFront = (axis: number, rank: number): number => (axis < 0 ? axis + rank : axis);

/** The indices of a Python slice: those of a JavaScript slice, every step-th of them. */
function rangeOf(size: number, range: ops.Range): readonly number[] {
  const [start, end, step] = range ?? [];
  return Array.from({ length: size }, (_, index) => index)
    .slice(start ?? 0, end ?? size)
    .filter((_, index) => index % (step ?? 1) === 0);
}

test("T and mT are views with the elements of transposes", () => {
  cpu.step(() => {
    const x = cpu.fromHost(
      Float32Array.from({ length: 24 }, (_, index) => index),
      [2, 3, 4],
      "f32",
      "x",
    );
    assert.deepEqual(x.T.tolist(), x.permute([2, 1, 0]).tolist());
    assert.deepEqual(x.mT.tolist(), x.transpose(1, 2).tolist());
    assert.equal(x.T.array.storage, x.array.storage);
    assert.deepEqual(tensor(3, { device: cpu }).T.shape, []);
    rejects("BAD_SHAPE", () => tensor([1], { device: cpu }).mT, /axis -2/);
  });
});

test("a slice has the elements of a Python slice", () => {
  checkElements(strictCpu, movementCases, ops.slice, ({ ranges }, x) => {
    const taken = x!.shape.map((size, axis) => rangeOf(size, ranges[axis] ?? null));
    return {
      shape: taken.map(({ length }) => length),
      at: (position) => x!.at(...position.map((coordinate, axis) => taken[axis]![coordinate]!)),
    };
  });
});

test("select has the elements of one index", () => {
  checkElements(strictCpu, movementCases, ops.select, ({ axis, index }, x) => {
    const axisIndex = fromFront(axis, x!.shape.length);
    return {
      shape: x!.shape.filter((_, other) => other !== axisIndex),
      at: (position) =>
        x!.at(
          ...position.slice(0, axisIndex),
          fromFront(index, x!.shape[axisIndex]!),
          ...position.slice(axisIndex),
        ),
    };
  });
});

test("cat concatenates its operands", () => {
  checkElements(strictCpu, movementCases, ops.cat, ({ axis }, ...all) => {
    const axisIndex = fromFront(axis, all[0]!.shape.length);
    const origins = all.flatMap((array) =>
      Array.from({ length: array.shape[axisIndex]! }, (_, index) => ({ array, index })),
    );
    return {
      shape: all[0]!.shape.with(axisIndex, origins.length),
      at: (position) => {
        const { array, index } = origins[position[axisIndex]!]!;
        return array.at(...position.with(axisIndex, index));
      },
    };
  });
});

test("stack has its operands along a new axis", () => {
  checkElements(strictCpu, movementCases, ops.stack, ({ axis }, ...all) => {
    const axisIndex = fromFront(axis, all[0]!.shape.length + 1);
    return {
      shape: all[0]!.shape.toSpliced(axisIndex, 0, all.length),
      at: (position) => all[position[axisIndex]!]!.at(...position.toSpliced(axisIndex, 1)),
    };
  });
});

test("flip has the elements in reverse", () => {
  checkElements(strictCpu, movementCases, ops.flip, ({ axes }, x) => {
    const flipped = [axes].flat().map((axis) => fromFront(axis, x!.shape.length));
    return {
      shape: x!.shape,
      at: (position) =>
        x!.at(
          ...position.map((coordinate, axis) =>
            flipped.includes(axis) ? x!.shape[axis]! - 1 - coordinate : coordinate,
          ),
        ),
    };
  });
});

test("pad has its value outside the operand", () => {
  checkElements(strictCpu, movementCases, ops.pad, ({ pads, value = 0 }, x) => {
    const rank = x!.shape.length;
    const before = x!.shape.map((_, axis) => pads[2 * (rank - 1 - axis)] ?? 0);
    const after = x!.shape.map((_, axis) => pads[2 * (rank - 1 - axis) + 1] ?? 0);
    return {
      shape: x!.shape.map((size, axis) => size + before[axis]! + after[axis]!),
      at: (position) => {
        const from = position.map((coordinate, axis) => coordinate - before[axis]!);
        return from.every((coordinate, axis) => coordinate >= 0 && coordinate < x!.shape[axis]!)
          ? x!.at(...from)
          : value;
      },
    };
  });
});

test("repeatInterleave and tile repeat each element by their counts", () => {
  checkElements(strictCpu, movementCases, ops.repeatInterleave, ({ repeats, axis }, x) => {
    const axisIndex = fromFront(axis, x!.shape.length);
    return {
      shape: x!.shape.with(axisIndex, x!.shape[axisIndex]! * repeats),
      at: (position) => x!.at(...position.with(axisIndex, Math.floor(position[axisIndex]! / repeats))),
    };
  });
  checkElements(strictCpu, movementCases, ops.tile, ({ repeats }, x) => {
    const rank = Math.max(repeats.length, x!.shape.length);
    const sizes = [...new Array<number>(rank - x!.shape.length).fill(1), ...x!.shape];
    const counts = [...new Array<number>(rank - repeats.length).fill(1), ...repeats];
    return {
      shape: sizes.map((size, axis) => size * counts[axis]!),
      at: (position) =>
        x!.at(...position.map((coordinate, axis) => coordinate % sizes[axis]!).slice(rank - x!.shape.length)),
    };
  });
});

test("invalid arguments are rejected, with the valid ones", () => {
  const x = tensor([
    [1, 2, 3],
    [4, 5, 6],
  ]);
  rejects("BAD_SHAPE", () => x.slice([0, 1], null, [0, 1]), /3 ranges for shape \[2, 3\], which has 2 axes/);
  rejects("BAD_SHAPE", () => x.slice([0, 2, 0]), /the step is 1 or more/);
  rejects("BAD_SHAPE", () => x.slice([0.5, 2]), /whole numbers or null/);
  rejects("BAD_INDEX", () => x.select(1, 3), /index 3 of axis 1 of \[2, 3\]; valid indices are -3 to 2/);
  rejects("BAD_INDEX", () => x.select(0, 0.5));
  rejects("BAD_INDEX", () => x.narrow(1, 1, 3), /axis 1 of \[2, 3\], which has 3/);
  rejects("BAD_SHAPE", () => x.split([1, 1], 1), /add up to 3/);
  rejects("BAD_SHAPE", () => x.split(0));
  rejects("BAD_ARGUMENT", () => x.chunk(0));
  rejects("BAD_SHAPE", () => cat([x, tensor([[1, 2]])]), /\[2, 3\] and \[1, 2\] along axis 0/);
  rejects("BAD_ARGUMENT", () => cat([]), /but got none/);
  rejects("BAD_SHAPE", () => stack([x, x.t()]), /\[2, 3\] and \[3, 2\]; they must be equal/);
  rejects("BAD_SHAPE", () => x.pad([1]), /pairs of whole numbers/);
  rejects("BAD_SHAPE", () => x.pad([-2, -2]), /has 3, and 4 would be cropped/);
  rejects("BAD_SHAPE", () => x.flip([0, -2]), /axis 0 is named twice/);
  rejects("BAD_SHAPE", () => x.tile([1, -1]));
  rejects("BAD_SHAPE", () => x.unsqueeze(0).t(), /transpose\(-2, -1\)/);
  rejects("BAD_SHAPE", () => x.flatten(1, 0));
  rejects("BAD_SHAPE", () => x.unflatten(1, [2, -1]), /has 3/);
  rejects("BAD_SHAPE", () => x.movedim([0, 1], 0));
});

test("chunks of an axis are views: they cover it, and writing to one writes to the tensor", () => {
  const x = cpu.fromHost(
    Array.from({ length: 10 }, (_, index) => index),
    [5, 2],
    "f32",
  );
  assert.deepEqual(
    x.split(2).map(({ shape }) => shape),
    [
      [2, 2],
      [2, 2],
      [1, 2],
    ],
  );
  assert.deepEqual(
    x.chunk(4).map(({ shape }) => shape[0]),
    [2, 2, 1],
    "as in PyTorch, 5 in 4 chunks are three of at most two",
  );
  const [, middle] = x.split([1, 3, 1]);
  middle!.fill_(-1);
  assert.deepEqual(x.tolist(), [
    [0, 1],
    [-1, -1],
    [-1, -1],
    [-1, -1],
    [8, 9],
  ]);
  assert.deepEqual(x.slice(-1, [1, null]).tolist(), [9]);
  assert.deepEqual(x.narrow(0, -1, 1).tolist(), [[8, 9]]);
});

test("axes are exchanged, moved, merged, split, added and removed without a copy", () => {
  const x = cpu.fromHost(
    Array.from({ length: 24 }, (_, index) => index),
    [2, 1, 3, 4],
    "f32",
  );
  const address = x.array.storage!.span.address;
  const views = {
    transposed: x.transpose(0, -1),
    moved: x.movedim([0, 1], [-1, 0]),
    squeezed: x.squeeze(),
    squeezedNone: x.squeeze(0),
    added: x.unsqueeze(-1),
    flat: x.flatten(1),
    split: x.unflatten(-1, [2, -1]),
  };
  assert.deepEqual(Object.fromEntries(Object.entries(views).map(([name, { shape }]) => [name, shape])), {
    transposed: [4, 1, 3, 2],
    moved: [1, 3, 4, 2],
    squeezed: [2, 3, 4],
    squeezedNone: [2, 1, 3, 4],
    added: [2, 1, 3, 4, 1],
    flat: [2, 12],
    split: [2, 1, 3, 2, 2],
  });
  for (const [name, { array }] of Object.entries(views)) {
    assert.equal(array.storage!.span.address, address, name);
  }
  assert.deepEqual(views.moved.select(-1, 1).flatten().tolist(), x.select(0, 1).flatten().tolist());
});

test("cat promotes operands of several dtypes, and each gets a gradient of its dtype", () => {
  const half = tensor([1, 2], { dtype: "bf16", requiresGrad: true });
  const double = tensor([3], { dtype: "f64", requiresGrad: true });
  const concatenated = cat([half, double, tensor([4], { dtype: "i32" })]);
  assert.equal(concatenated.dtype, "f64");
  concatenated
    .mul(tensor([10, 20, 30, 40], { dtype: "f64" }))
    .sum()
    .backward();
  assert.deepEqual([half.grad!.dtype, half.grad!.tolist()], ["bf16", [10, 20]]);
  assert.deepEqual([double.grad!.dtype, double.grad!.tolist()], ["f64", [30]]);
});

test("a slice that is saved for backward keeps its owner alive", () => {
  const weight = strictCpu.fromHost([1, 2, 3], [3], "f32");
  weight.requiresGrad = true;
  strictCpu.step(() => {
    const whole = strictCpu.fromHost([5, 6, 7, 8, 9], [5], "f32");
    const slice = whole.slice([1, 4]);
    const product = slice.mul(weight);
    const { arena } = strictCpu.runtime;
    assert.ok(slice.array.storage!.owner, "the slice is a view");
    assert.ok(arena.isPinned(slice.array.storage!), "mul has saved it");
    rejects("PINNED", () => arena.free(whole.array.storage!), /pinned by backward of mul/);
    product.sum().backward();
    assert.deepEqual(weight.grad!.tolist(), [6, 7, 8]);
    assert.equal(arena.isPinned(slice.array.storage!), false, "backward has unpinned it");
  });
});

test("tile and repeatInterleave copy, even where a view would have the same elements", () => {
  const x = tensor([1, 2]);
  const column = tensor([[1], [2]]);
  for (const copy of [
    x.tile([1]),
    column.tile([1, 3]),
    x.repeatInterleave(1),
    column.repeatInterleave(3, 1),
  ]) {
    copy.zero_();
  }
  assert.deepEqual(x.tolist(), [1, 2]);
  assert.deepEqual(column.tolist(), [[1], [2]]);
});

test("more ranges than axes are rejected, even if each takes a whole axis", () => {
  rejects("BAD_SHAPE", () => tensor([1, 2]).slice(null, null), /2 ranges for shape \[2\]/);
  rejects("BAD_SHAPE", () => tensor([1, 2]).slice(0, null), /2 ranges for shape \[2\]/);
});

test("padding integers with a fraction is rejected", () => {
  const x = tensor([1, 2], { dtype: "i32" });
  rejects("BAD_ARGUMENT", () => x.pad([1, 1], 1.5), /border of 1.5 around i32 \[2\]/);
  assert.deepEqual(x.pad([1, 1], 3).tolist(), [3, 1, 2, 3]);
});

test("repeatInterleave takes a count for each element", () => {
  const x = tensor([
    [1, 2],
    [3, 4],
  ]);
  assert.deepEqual(x.repeatInterleave([0, 2], 0).tolist(), [
    [3, 4],
    [3, 4],
  ]);
  assert.deepEqual(x.repeatInterleave(tensor([2, 1], { dtype: "i64" }), -1).tolist(), [
    [1, 1, 2],
    [3, 3, 4],
  ]);
  rejects(
    "BAD_ARGUMENT",
    () => x.repeatInterleave([1], 0),
    /repeats are \[1\], and axis 0 of \[2, 2\] has 2 elements/,
  );
  rejects("BAD_ARGUMENT", () => x.repeatInterleave([1, -1], 0), /repeats are \[1, -1\]/);
});
