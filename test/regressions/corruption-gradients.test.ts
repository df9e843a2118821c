/**
 * C1: a reset between forward and backward let the next forward overwrite memory that backward still needed,
 * and gradients became zero under a correct loss. C10: the seed of the loss was in step memory, and drifted.
 */

import assert from "node:assert/strict";
import { type Device, full, HoldfastError, nn, type Tensor } from "holdfast";
import { SavedSet } from "holdfast/internals";
import { openStrictDevice } from "../support/devices.js";
import { regressionRow } from "../support/regressions.js";
import { withMethods } from "../support/replaced-methods.js";
import { sameNamedBytes } from "../support/same-bytes.js";

const [batch, features, width, classes] = [6, 5, 7, 3] as const;

/** Two layers with a tanh between: tanh saves its output, the GEMMs their operands. */
class Net extends nn.Module {
  readonly first = new nn.Parameter([features, width], (shape) => wave(shape, 1)); // [F, D]
  readonly second = new nn.Parameter([width, classes], (shape) => wave(shape, 2)); // [D, C]

  forward(x: Tensor): Tensor {
    return x.matmul(this.first).tanh().matmul(this.second);
  }
}

function wave(shape: readonly number[], phase: number): Float32Array {
  const size = shape.reduce((count, extent) => count * extent, 1);
  return Float32Array.from({ length: size }, (_, index) => Math.sin(index * 1.7 + phase));
}

const batchOf = (device: Device, number: number): Tensor =>
  device.fromHost(wave([batch, features], 10 + number), [batch, features], "f32", "x"); // [B, F]

/** What may happen between a batch's forward and its backward. */
type Between = (device: Device) => void;

const doNothing: Between = () => {};
/** The arena is reset, and the next forward allocates the freed memory. */
const resetAndReuse: Between = (device) => {
  device.runtime.arena.reset();
  for (let index = 0; index < 16; index++) {
    device.runtime.fill(device.runtime.arena.allocate(4 * batch * width, "the next forward"), 0);
  }
};

/** Trains four batches; the gradients of each, and the losses. */
function gradientsOf(between: Between): { gradients: Record<string, Uint8Array>; losses: number[] } {
  const device = openStrictDevice();
  const model = new Net().to(device);
  const gradients: Record<string, Uint8Array> = {};
  const losses: number[] = [];
  for (let number = 0; number < 4; number++) {
    const loss = model.forward(batchOf(device, number)).square().mean();
    losses.push(loss.item());
    // Kept: this tests that the arena keeps backward's inputs, not the loss itself.
    device.keep(loss);
    between(device);
    loss.backward();
    for (const [name, parameter] of model.namedParameters()) {
      const values = parameter.grad?.dataSync();
      assert.ok(values, `${name} has no gradient`);
      gradients[`batch ${number}, ${name}`] = new Uint8Array(values.buffer);
    }
    model.zeroGrad();
  }
  return { gradients, losses };
}

/** The same gradients in plain float64. */
function plainGradients(number: number): Record<string, number[]> {
  const x = wave([batch, features], 10 + number);
  const [first, second] = [wave([features, width], 1), wave([width, classes], 2)];
  const at = (array: ArrayLike<number>, index: number): number => array[index] ?? Number.NaN;
  const hidden = Array.from({ length: batch * width }, (_, index) => {
    const [b, d] = [Math.floor(index / width), index % width];
    let sum = 0;
    for (let f = 0; f < features; f++) sum += at(x, b * features + f) * at(first, f * width + d);
    return Math.tanh(sum);
  });
  const upstream = Array.from({ length: batch * classes }, (_, index) => {
    const [b, c] = [Math.floor(index / classes), index % classes];
    let sum = 0;
    for (let d = 0; d < width; d++) sum += at(hidden, b * width + d) * at(second, d * classes + c);
    return (2 * sum) / (batch * classes);
  });
  const ofSecond = Array.from({ length: width * classes }, (_, index) => {
    const [d, c] = [Math.floor(index / classes), index % classes];
    let sum = 0;
    for (let b = 0; b < batch; b++) sum += at(hidden, b * width + d) * at(upstream, b * classes + c);
    return sum;
  });
  const ofFirst = Array.from({ length: features * width }, (_, index) => {
    const [f, d] = [Math.floor(index / width), index % width];
    let sum = 0;
    for (let b = 0; b < batch; b++) {
      const y = at(hidden, b * width + d);
      let back = 0;
      for (let c = 0; c < classes; c++) back += at(upstream, b * classes + c) * at(second, d * classes + c);
      sum += at(x, b * features + f) * back * (1 - y * y);
    }
    return sum;
  });
  return { first: ofFirst, second: ofSecond };
}

regressionRow<{ readonly run: () => ReturnType<typeof gradientsOf> }>({
  row: "C1",
  rule: "four batches with a reset before each backward, poison on: every gradient equals the run without, bit for bit",
  sound: { run: () => gradientsOf(resetAndReuse) },
  faults: {
    "backward's inputs are not pinned": {
      run: () => withMethods(SavedSet.prototype, { save: () => {} }, () => gradientsOf(resetAndReuse)),
    },
    "the reset frees backward's inputs": {
      run: () =>
        gradientsOf((device) => {
          device.tape.release();
          resetAndReuse(device);
        }),
    },
  },
  check: ({ run }) => {
    const { gradients, losses } = run();
    const plain = gradientsOf(doNothing);
    assert.deepEqual(losses, plain.losses);
    sameNamedBytes(gradients, plain.gradients, "the gradients");
    for (let number = 0; number < 4; number++) {
      for (const [name, expected] of Object.entries(plainGradients(number))) {
        const bytes = gradients[`batch ${number}, ${name}`];
        const actual = new Float32Array(bytes?.buffer ?? new ArrayBuffer(0));
        for (const [index, value] of expected.entries()) {
          const error = Math.abs((actual[index] ?? Number.NaN) - value);
          assert.ok(
            error <= 1e-5 * Math.max(1, Math.abs(value)),
            `${name}[${index}] of batch ${number}: off by ${error}`,
          );
        }
      }
    }
  },
});

regressionRow<{ readonly backward: (loss: Tensor, seed: Tensor) => void }>({
  row: "C10",
  rule: "the seed of the loss is persistent: steps, resets and poison between losses change no gradient",
  sound: { backward: (loss) => loss.backward() },
  faults: { "the seed is in step memory": { backward: (loss, seed) => loss.backward(seed) } },
  check: ({ backward }) => {
    const device = openStrictDevice();
    const x = full([4], 3, { device, requiresGrad: true });
    device.keep(x);
    const seed = full([], 1, { device });
    for (let step = 0; step < 4; step++) {
      device.runtime.arena.reset();
      device.step(() => {
        for (let index = 0; index < 8; index++) full([4], 7, { device });
        const loss = x.square().sum();
        try {
          backward(loss, seed);
        } catch (error) {
          assert.fail(error instanceof HoldfastError ? error.message : String(error));
        }
        assert.deepEqual(x.grad?.tolist(), [6, 6, 6, 6]);
        x.zeroGrad();
      });
    }
  },
});
