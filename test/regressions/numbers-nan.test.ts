/**
 * N12: the model was trained on a NaN in the data, and hours later every weight was NaN. It is found when the
 * data is loaded, with its row. A NaN that a step computes is found with the first op that computed it,
 * forward or backward.
 */

import assert from "node:assert/strict";
import { DataLoader, type Device, nn, type Tensor, TensorDataset, tensor } from "holdfast";
import { openDevice } from "../support/devices.js";
import { regressionRow } from "../support/regressions.js";
import { rejectionOf } from "../support/rejections.js";

const cpu = openDevice();
const watched = openDevice({ detectNaN: true });

const badRow = 1234;
const [rows, width] = [5000, 7];
const values = Float32Array.from({ length: rows * width }, (_, index) =>
  index === badRow * width + 3 ? Number.NaN : 1,
);

/** Loads rows of inputs and returns the first batch. */
type Load = (values: Float32Array) => Tensor;

regressionRow<Load>({
  row: "N12",
  rule: "a NaN in the data is found at load, with its row",
  sound(values) {
    const loader = new DataLoader(new TensorDataset({ values, shape: [rows, width] }), {
      batchSize: rows,
      device: cpu,
    });
    return loader[Symbol.iterator]().next().value![0];
  },
  faults: {
    "a loader without a check": (values) => cpu.fromHost(values, [rows, width], "f32"),
  },
  check(load) {
    const rejection = rejectionOf(() => load(values));
    assert.equal(rejection?.code, "NOT_FINITE");
    assert.match(rejection.message, /Row 1234 of column 0 has NaN as element 3/);
    assert.deepEqual(rejection.numbers, { row: badRow, column: 0, element: 3 });
  },
});

regressionRow<Device>({
  row: "N12",
  rule: "a NaN that a step computes is found with the first op that computed it",
  sound: watched,
  faults: { "a device without a check": cpu },
  check(device) {
    const rejection = rejectionOf(() =>
      device.step(() => {
        const layer = new nn.Linear(2, 2).to(device);
        const x = tensor([[-1, 4]], { device });
        return layer.forward(x.sqrt().mul(2)).sum().item();
      }),
    );
    assert.equal(rejection?.code, "NOT_FINITE");
    assert.match(
      rejection.message,
      /^sqrt is the first op with a NaN in its result: 1 of the elements of f32 \[1, 2\]/,
    );
  },
});

regressionRow<Device>({
  row: "N12",
  rule: "a NaN that backward computes is found with the op whose gradient it is",
  sound: watched,
  faults: { "a device without a check": cpu },
  check(device) {
    const rejection = rejectionOf(() =>
      device.step(() => {
        // √x has an infinite slope at 0: times the upstream gradient of 0, it is the first NaN.
        const x = tensor([0, 4], { device, requiresGrad: true });
        x.sqrt()
          .mul(tensor([0, 1], { device }))
          .sum()
          .backward();
      }),
    );
    assert.equal(rejection?.code, "NOT_FINITE");
    assert.match(rejection.message, /^backward, in sqrt/);
  },
});
