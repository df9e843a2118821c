/** Row P3: small attention is one kernel in each direction, and not many GEMMs. */

import assert from "node:assert/strict";
import { nn, type Tensor } from "holdfast";
import { CallLog } from "../support/call-log.js";
import { withDevice } from "../support/devices.js";
import { regressionRow } from "../support/regressions.js";

/** The sizes of the application: 12 assets, heads of 64. */
const [batch, heads, rows, width] = [2, 4, 12, 64] as const;

type Attend = (query: Tensor, key: Tensor, value: Tensor) => Tensor;

/** The old way: a GEMM for each head, a softmax, and a GEMM for each head again. */
const inFanOut: Attend = (query, key, value) =>
  query
    .matmul(key.permute([0, 1, 3, 2]))
    .mul(1 / Math.sqrt(width))
    .softmax(-1)
    .matmul(value);

regressionRow<Attend>({
  row: "P3",
  rule: "attention of 12 × 12 in heads of 64 is one launch forward and one backward",
  sound: (query, key, value) => nn.functional.scaledDotProductAttention(query, key, value),
  faults: { "a GEMM for each head": inFanOut },
  check(attend) {
    const log = new CallLog();
    const launches = withDevice(
      { memory: "128MiB" },
      (device) =>
        device.step(() => {
          const [query, key, value] = [0, 1, 2].map((phase) => {
            const size = batch * heads * rows * width;
            const values = Float32Array.from({ length: size }, (_, at) => Math.sin(at + phase));
            // With the layouts of a projection's outputs and of their gradients.
            const operand = device.fromHost(values, [batch, rows, heads, width], "f32");
            operand.requiresGrad = true;
            return operand.permute([0, 2, 1, 3]);
          }) as [Tensor, Tensor, Tensor];
          const upstream = device.fromHost(new Float32Array(query.numel).fill(1), query.shape, "f32");
          const start = log.countKernels();
          const out = attend(query, key, value);
          const between = log.countKernels();
          out.backward(upstream);
          return { forward: between - start, backward: log.countKernels() - between };
        }),
      log.wrap,
    );
    assert.deepEqual(launches, { forward: 1, backward: 1 });
  },
});
