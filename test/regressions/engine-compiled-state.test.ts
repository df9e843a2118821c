/**
 * Rows S2 and S3: a compiled step does what its function would do now, or is rejected; a result belongs to
 * its own call or is an error.
 */

import assert from "node:assert/strict";
import { type Device, nn, optim, type Tensor, tensor, zeros } from "holdfast";
import { Guards } from "../../src/autograd/index.js";
import { PersistentMemory } from "../../src/runtime/index.js";
import { AuditTimes } from "../../src/tensor/compiled/audit-times.js";
import { withDevice } from "../support/devices.js";
import { regressionRow } from "../support/regressions.js";
import { rejectionOf } from "../support/rejections.js";
import { withMethods } from "../support/replaced-methods.js";

type Candidate = (check: () => void) => void;

const unchanged: Candidate = (check) => check();

/** The old compiler: later calls ignore changes of what a trace read. */
const unguarded: Candidate = (check) => withMethods(Guards.prototype, { noteRead: () => undefined }, check);

const unaudited: Candidate = (check) => withMethods(AuditTimes.prototype, { isDue: () => false }, check);

/** Weights, byte for byte, after six calls of a step with changes between them; compiled or eager. */
function train(device: Device, isCompiled: boolean): unknown {
  const layers = [new nn.Linear(3, 4), new nn.Linear(4, 2)] as const;
  const dropout = new nn.Dropout(0.5);
  const model = new nn.Sequential(layers[0], dropout, layers[1]).to(device);
  for (const [index, parameter] of model.parameters().entries()) {
    parameter.initialize((shape) =>
      Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, at) => (at % 3) - index / 4),
    );
  }
  const optimizer = new optim.AdamW(model.parameters(), { lr: 0.1 });
  const body = (x: Tensor): void => {
    model.forward(x).square().mean().backward();
    optimizer.step();
    optimizer.zeroGrad();
  };
  const step = isCompiled ? device.compile(body) : (x: Tensor) => device.step(() => body(x));
  const x = tensor([[1, 2, 3]], { device });
  device.reseed(3n);
  for (const change of [
    () => undefined,
    () => void model.eval(),
    () => void layers[0].requiresGrad_(false),
    () => void model.train(),
    () => void layers[0].requiresGrad_(true),
    () => undefined,
  ]) {
    change();
    step(x);
  }
  return model.parameters().map((parameter) => parameter.tolist());
}

regressionRow<Candidate>({
  row: "S2",
  rule: "eval(), train() and freezing between the calls of a compiled step change it as they change eager code",
  sound: unchanged,
  faults: { "the state that the trace read is not guarded": unguarded },
  check: (candidate) =>
    withDevice({}, (device) => {
      const eager = train(device, false);
      candidate(() => assert.deepEqual(train(device, true), eager));
    }),
});

regressionRow<Candidate>({
  row: "S2",
  rule: "a counter in a compiled step that lets the optimizer step at every fourth call is rejected, with the line",
  sound: unchanged,
  faults: { "the step is never traced again": unaudited },
  check: (candidate) =>
    withDevice({}, (device) => {
      const w = tensor([1], { device, requiresGrad: true });
      const sgd = new optim.SGD([w], { lr: 0.5 });
      let calls = 0;
      const step = device.compile((x: Tensor) => {
        w.mul(x).sum().backward();
        if (++calls % 4 === 0) {
          sgd.step();
          sgd.zeroGrad();
        }
      });
      candidate(() => {
        const error = rejectionOf(() => {
          for (let call = 0; call < 40; call++) step(zeros([1], { device }).add(1));
        });
        assert.equal(error?.code, "STEP_CHANGED");
        assert.match(String(error?.numbers["line"]), /engine-compiled-state\.test\.[jt]s:\d+$/);
      });
    }),
});

regressionRow<Candidate>({
  row: "S3",
  rule: "a compiled step's result is its own call's, or an error with a name once the next call has overwritten it",
  sound: unchanged,
  faults: {
    "all calls return the same tensors": (check) =>
      withMethods(PersistentMemory.prototype, { renew: (storage) => storage as never }, check),
  },
  check: (candidate) =>
    withDevice({}, (device) => {
      const step = device.compile((x: Tensor) => x.mul(10));
      candidate(() => {
        const [first, second] = [1, 2].map((value) => step(tensor([value], { device })));
        assert.equal(rejectionOf(() => first?.tolist())?.code, "DEAD_TENSOR");
        assert.deepEqual(second?.tolist(), [20]);
      });
    }),
});
