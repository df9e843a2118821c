/** S11: a bad index in a compiled step read another row, without an error. */

import assert from "node:assert/strict";
import { optim, type Tensor, tensor } from "holdfast";
import { indexSelect } from "../../src/ops/index.js";
import { openDevice } from "../support/devices.js";
import { regressionRow } from "../support/regressions.js";

const device = openDevice();

/** How rows of a table are read. */
type ReadRows = (table: Tensor, rows: Tensor) => Tensor;

regressionRow<ReadRows>({
  row: "S11",
  rule: "a bad index in a compiled step reads NaN, is counted and named, and the step changes no weights",
  sound: (table, rows) => table.indexSelect(0, rows),
  faults: {
    "indices are clamped to the table": (table, rows) => table.indexSelect(0, rows.clamp(0, 3)),
    "indices are not checked": (table, rows) =>
      device.apply(indexSelect, [table, rows], { axis: 0, isTrusted: true }),
  },
  check: (readRows) => {
    for (const bad of [50_257, 4, -1]) {
      const table = tensor([[1], [2], [3], [4]], { device, requiresGrad: true });
      const optimizer = new optim.SGD([table], { lr: 0.1 });
      const step = device.compile((rows: Tensor) => {
        const loss = readRows(table, rows).square().sum();
        loss.backward();
        optimizer.step();
        optimizer.zeroGrad();
        return loss;
      });
      const loss = step(tensor([1, bad], { device, dtype: "i32" })).item();
      const { calls, first } = step.badIndices;
      step.close();
      assert.ok(Number.isNaN(loss), `the loss is ${loss}`);
      assert.deepEqual(table.tolist(), [[1], [2], [3], [4]]);
      assert.deepEqual([calls, first?.index, first?.op, first?.call], [1, bad, "indexSelect", 1]);
    }
  },
});
