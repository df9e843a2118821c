/**
 * The rules of memory once more, for tensors. C3: filling, reshaping or gathering into a tensor moved it. C6:
 * a view was saved and not pinned, and its source was allocated again.
 */

import assert from "node:assert/strict";
import { type Device, nn, noGrad, Tensor, tensor } from "holdfast";
import { SavedSet, type Storage } from "holdfast/internals";
import { inPlaceElementwiseMethods } from "../../src/tensor/methods/in-place/elementwise.js";
import { openStrictDevice } from "../support/devices.js";
import { regressionRow } from "../support/regressions.js";
import { withMethods } from "../support/replaced-methods.js";

const indexed = (x: Tensor, values: readonly number[] = [5, 7]): [index: Tensor, values: Tensor] => [
  tensor([2, 0], { device: x.device, dtype: "i32" }),
  tensor(values, { device: x.device }),
];
const one = (x: Tensor): Tensor => tensor([[2]], { device: x.device });

/** In-place ops, with their results for [1, 4, 9]. Those that are made from the methods of their names have a test beside them. */
const inPlaceMethods: Readonly<
  Record<string, readonly [run: (x: Tensor) => Tensor, expected: readonly number[]]>
> = {
  add_: [(x) => x.add_(1), [2, 5, 10]],
  sub_: [(x) => x.sub_(1), [0, 3, 8]],
  mul_: [(x) => x.mul_(2), [2, 8, 18]],
  div_: [(x) => x.div_(2), [0.5, 2, 4.5]],
  pow_: [(x) => x.pow_(2), [1, 16, 81]],
  neg_: [(x) => x.neg_(), [-1, -4, -9]],
  abs_: [(x) => x.abs_(), [1, 4, 9]],
  exp_: [(x) => x.zero_().exp_(), [1, 1, 1]],
  sqrt_: [(x) => x.sqrt_(), [1, 2, 3]],
  sign_: [(x) => x.sub_(4).sign_(), [-1, 0, 1]],
  floor_: [(x) => x.div_(4).floor_(), [0, 1, 2]],
  ceil_: [(x) => x.div_(4).ceil_(), [1, 1, 3]],
  expm1_: [(x) => x.zero_().expm1_(), [0, 0, 0]],
  log_: [(x) => x.fill_(1).log_(), [0, 0, 0]],
  log1p_: [(x) => x.zero_().log1p_(), [0, 0, 0]],
  rsqrt_: [(x) => x.fill_(4).rsqrt_(), [0.5, 0.5, 0.5]],
  square_: [(x) => x.square_(), [1, 16, 81]],
  reciprocal_: [(x) => x.fill_(4).reciprocal_(), [0.25, 0.25, 0.25]],
  sin_: [(x) => x.zero_().sin_(), [0, 0, 0]],
  cos_: [(x) => x.zero_().cos_(), [1, 1, 1]],
  erf_: [(x) => x.zero_().erf_(), [0, 0, 0]],
  leakyRelu_: [(x) => x.sub_(4).leakyRelu_(0.5), [-1.5, 0, 5]],
  silu_: [(x) => x.zero_().silu_(), [0, 0, 0]],
  clamp_: [(x) => x.clamp_(2, 5), [2, 4, 5]],
  relu_: [(x) => x.sub_(4).relu_(), [0, 0, 5]],
  tanh_: [(x) => x.mul_(1e4).tanh_(), [1, 1, 1]],
  sigmoid_: [(x) => x.mul_(1e4).sigmoid_(), [1, 1, 1]],
  copy_: [(x) => x.copy_(tensor([7], { device: x.device })), [7, 7, 7]],
  scatterAdd_: [
    (x) =>
      x.scatterAdd_(
        0,
        tensor([2, 2], { device: x.device, dtype: "i32" }),
        tensor([1, 2], { device: x.device }),
      ),
    [1, 4, 12],
  ],
  scatter_: [(x) => x.scatter_(0, ...indexed(x)), [7, 4, 5]],
  scatterReduce_: [(x) => x.scatterReduce_(0, ...indexed(x), "sum"), [8, 4, 14]],
  indexAdd_: [(x) => x.indexAdd_(0, ...indexed(x)), [8, 4, 14]],
  indexCopy_: [(x) => x.indexCopy_(0, ...indexed(x)), [7, 4, 5]],
  indexPut_: [(x) => x.indexPut_([indexed(x)[0]], indexed(x)[1]), [7, 4, 5]],
  indexFill_: [(x) => x.indexFill_(0, indexed(x)[0], 5), [5, 4, 5]],
  maskedScatter_: [(x) => x.maskedScatter_(x.gt(2), indexed(x)[1]), [1, 5, 7]],
  put_: [(x) => x.put_(...indexed(x)), [7, 4, 5]],
  tril_: [(x) => x.reshape([1, 3]).tril_(), [1, 0, 0]],
  triu_: [(x) => x.reshape([3, 1]).triu_(), [1, 0, 0]],
  fillDiagonal_: [(x) => x.reshape([1, 3]).fillDiagonal_(7), [7, 4, 9]],
  cumsum_: [(x) => x.cumsum_(0), [1, 5, 14]],
  cumprod_: [(x) => x.cumprod_(0), [1, 4, 36]],
  renorm_: [(x) => x.reshape([3, 1]).renorm_(2, 0, 5), [1, 4, 5]],
  addmm_: [(x) => x.reshape([3, 1]).addmm_(x.reshape([3, 1]), one(x)), [3, 12, 27]],
  addmv_: [(x) => x.addmv_(x.reshape([3, 1]), one(x).select(0, 0)), [3, 12, 27]],
  addr_: [(x) => x.reshape([3, 1]).addr_(x, one(x).select(0, 0)), [3, 12, 27]],
  addbmm_: [(x) => x.reshape([3, 1]).addbmm_(x.reshape([1, 3, 1]), one(x).reshape([1, 1, 1])), [3, 12, 27]],
  baddbmm_: [
    (x) => x.reshape([1, 3, 1]).baddbmm_(x.reshape([1, 3, 1]), one(x).reshape([1, 1, 1])),
    [3, 12, 27],
  ],
  uniform_: [(x) => x.uniform_(3, 3), [3, 3, 3]],
  normal_: [(x) => x.normal_(3, 0), [3, 3, 3]],
  logNormal_: [(x) => x.logNormal_(0, 0), [1, 1, 1]],
  exponential_: [(x) => x.exponential_().sub_(x).add_(1), [1, 1, 1]],
  cauchy_: [(x) => x.cauchy_().sub_(x).add_(1), [1, 1, 1]],
  geometric_: [(x) => x.geometric_(1), [1, 1, 1]],
  bernoulli_: [(x) => x.bernoulli_(1), [1, 1, 1]],
  random_: [(x) => x.random_(7, 8), [7, 7, 7]],
  maskedFill_: [(x) => x.maskedFill_(x.gt(2), 7), [1, 7, 7]],
  requiresGrad_: [(x) => x.requiresGrad_(false), [1, 4, 9]],
  fill_: [(x) => x.fill_(3), [3, 3, 3]],
  zero_: [(x) => x.fill_(Number.NaN).zero_(), [0, 0, 0]],
};

class Held extends nn.Module {
  readonly x = new nn.Parameter([3], () => [1, 4, 9]);
}

const addressOf = ({ array }: Tensor): number | undefined => array.storage?.span.address;

regressionRow<{ readonly apply: (x: Tensor, run: (x: Tensor) => Tensor) => Tensor }>({
  row: "C3",
  rule: "every in-place method writes to the tensor's memory, persistent or of a step, and returns the tensor",
  sound: { apply: (x, run) => run(x) },
  faults: { "the result is a new tensor": { apply: (x, run) => run(x.clone()) } },
  check: ({ apply }) => {
    const device = openStrictDevice();
    const methods = Object.getOwnPropertyNames(Tensor.prototype).filter((name) => name.endsWith("_"));
    const known = Object.keys({ ...inPlaceMethods, ...inPlaceElementwiseMethods });
    assert.deepEqual(methods.sort(), known.sort(), "a method has no row in this test");
    for (const [name, [run, expected]] of Object.entries(inPlaceMethods)) {
      device.step(() => {
        const parameter = new Held().to(device).x;
        for (const x of [parameter, tensor([1, 4, 9], { device })]) {
          const before = addressOf(x);
          const result = noGrad(() => apply(x, run));
          assert.deepEqual(x.tolist(), expected, name);
          assert.equal(addressOf(result), before, `${name} moved the tensor`);
        }
      });
    }
  },
});

regressionRow<{ readonly save: SavedSet["save"] }>({
  row: "C6",
  rule: "a saved view keeps its owner: after a reset and reuse, backward through it is unchanged",
  sound: { save: SavedSet.prototype.save },
  faults: {
    "the view is not pinned": {
      save(this: SavedSet, storage: Storage): void {
        if (!storage.owner) sound.call(this, storage);
      },
    },
  },
  check: ({ save }) => {
    const gradient = (between: (device: Device) => void): unknown => {
      const device = openStrictDevice();
      const weight = tensor([1, 2, 3, 4], { device, requiresGrad: true });
      device.keep(weight);
      const base = tensor([[9, 8, 7, 6, 5, 4, 3, 2]], { device });
      // Half of the tensor's memory, from its fifth element on.
      const view = base.reshape([2, 4]).expand([2, 4]).slice(1);
      const loss = weight.mul(view).sum();
      device.keep(loss);
      between(device);
      loss.backward();
      return weight.grad?.tolist();
    };
    const expected = gradient(() => {});
    const gradients = withMethods(SavedSet.prototype, { save }, () =>
      gradient((device) => {
        device.runtime.arena.reset();
        for (let index = 0; index < 8; index++) device.fromHost(new Float32Array(8), [8], "f32");
      }),
    );
    assert.deepEqual(gradients, expected);
  },
});

const sound = SavedSet.prototype.save;
