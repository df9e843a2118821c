/** gridSample and affineGrid: gradients, compiled steps, half floats and errors. Values and gradients of PyTorch: test/oracle-layers.test.ts. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openStrictDevice } from "../../../test/support/devices.js";
import { isThorough } from "../../../test/support/effort.js";
import { rejects } from "../../../test/support/rejects.js";
import { sameBytes } from "../../../test/support/same-bytes.js";
import { autograd, type Tensor } from "../../tensor/index.js";
import { affineGrid, type GridSampleOptions, gridSample } from "./grid-sample.js";

const device = openStrictDevice();

const modes = ["bilinear", "nearest", "bicubic"] as const;
const paddingModes = ["zeros", "border", "reflection"] as const;
const allOptions: readonly GridSampleOptions[] = modes.flatMap((mode) =>
  paddingModes.flatMap((paddingMode) =>
    [false, true].map((alignCorners) => ({ mode, paddingMode, alignCorners })),
  ),
);

/** In a quick run, some of the options: each mode and each padding. */
const someOptions = allOptions.filter((_, index) => isThorough || index % 5 === 0);

/** Values without a pattern. */
const spread = (shape: readonly number[], scale: number, dtype: "f32" | "f64" | "bf16" = "f64"): Tensor => {
  const count = shape.reduce((product, size) => product * size, 1);
  const values = Float64Array.from({ length: count }, (_, at) => scale * Math.sin(1 + at * at * 0.7));
  const x = device.fromHost(values, shape, "f64").to(dtype).detach();
  x.requiresGrad = true;
  return x;
};

test("the gradients of images and grids are those of central differences", () => {
  for (const options of someOptions) {
    device.step(() => {
      const [x, grid] = [spread([1, 1, 2, 3], 1), spread([1, 1, 3, 2], 1.7)];
      const isExact =
        options.mode === "nearest"
          ? autograd.gradcheck((image) => gridSample(image, grid.detach(), options), [x])
          : autograd.gradcheck((image, positions) => gridSample(image, positions, options), [x, grid]);
      assert.ok(isExact, JSON.stringify(options));
    });
  }
  device.step(() => {
    assert.ok(autograd.gradcheck((theta) => affineGrid(theta, [2, 1, 2, 3]), [spread([2, 2, 3], 1)]));
    const [x, grid] = [spread([1, 1, 3, 3], 1), spread([1, 2, 2, 2], 0.9)];
    assert.ok(autograd.gradgradcheck((image, positions) => gridSample(image, positions), [x, grid]));
  });
});

test("compiled and eager calls have the same bits", () => {
  for (const dtype of ["f32", "bf16"] as const) {
    for (const options of someOptions) {
      const run = (): Tensor[] => {
        const [x, theta] = [spread([2, 3, 5, 4], 1, dtype), spread([2, 2, 3], 1.3, dtype)];
        const sampled = gridSample(x, affineGrid(theta, [2, 3, 4, 6]), options);
        sampled.mul(sampled).sum().backward();
        return [sampled, x.grad!, ...(options.mode === "nearest" ? [] : [theta.grad!])];
      };
      const eager = device.step(() => run().map((tensor) => tensor.dataSync()));
      const step = device.compile(run);
      for (const [index, tensor] of [...step()].entries())
        sameBytes(tensor.dataSync(), eager[index]!, `${dtype} ${JSON.stringify(options)}, result ${index}`);
      step.close();
    }
  }
});

test("an identity samples the image itself, in the promoted dtype, and nowhere is a position of no pixel", () => {
  device.step(() => {
    const x = spread([1, 2, 3, 4], 1, "bf16").detach();
    const identity = device.fromHost([1, 0, 0, 0, 1, 0], [1, 2, 3], "f32");
    for (const alignCorners of [false, true]) {
      const same = gridSample(x, affineGrid(identity, x.shape, { alignCorners }), {
        mode: "nearest",
        alignCorners,
      });
      assert.equal(same.dtype, "f32");
      assert.deepEqual(same.tolist(), x.tolist());
    }
    const nowhere = device.fromHost([Number.NaN, 0, Number.POSITIVE_INFINITY, 3e38], [1, 1, 2, 2], "f32");
    assert.deepEqual(gridSample(x, nowhere).flatten().tolist(), [0, 0, 0, 0]);
    const hole = device.fromHost([Number.NaN, 1], [1, 1, 1, 2], "f32");
    const right = device.fromHost([0.5, 0], [1, 1, 1, 2], "f32");
    assert.equal(
      gridSample(hole, right).item(),
      1,
      "a pixel with the weight 0 outside of the image counts as 0",
    );
    assert.deepEqual(gridSample(x, identity.newZeros([1, 0, 5, 2])).shape, [1, 2, 0, 5]);
  });
});

test("wrong shapes and names are errors with the right ones", () => {
  device.step(() => {
    const [x, grid] = [spread([1, 1, 2, 2], 1), spread([1, 3, 3, 2], 1)];
    rejects(
      "BAD_SHAPE",
      () => gridSample(x, grid.select(0, 0)),
      /an input \[1, 1, 2, 2\] with a grid \[3, 3, 2\]/,
    );
    rejects("BAD_SHAPE", () => gridSample(x.narrow(2, 0, 0), grid), /at least one pixel/);
    rejects("BAD_ARGUMENT", () => gridSample(x, grid, { mode: "linear" as never }), /mode is "linear"/);
    rejects("BAD_ARGUMENT", () => gridSample(x, grid, { paddingMode: "reflect" as never }), /reflection/);
    rejects("BAD_SHAPE", () => affineGrid(spread([2, 2, 3], 1), [1, 1, 2, 2]), /maps \[2, 2, 3\] for images/);
  });
});
