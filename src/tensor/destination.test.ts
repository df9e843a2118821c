/** to: PyTorch's forms, copies on another device, and what the errors say to write instead. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openCpuDevice, openDevice } from "../../test/support/devices.js";
import { rejects } from "../../test/support/rejects.js";
import { noGrad } from "../autograd/index.js";
import { type Dtype, dtypeNames } from "../ir/index.js";
import { type TensorDestination, tensor, vmap, zeros } from "./index.js";

const here = openDevice();
const other = openCpuDevice();
const as = (destination: unknown) => destination as TensorDestination;

test("a tensor is converted, copied to another device, or both", () => {
  const x = tensor([1.7, -2, 300], { device: here });
  assert.equal(x.to(here), x);
  assert.equal(x.to("f32"), x);
  assert.equal(x.to(x), x);
  for (const y of [
    x.to("i32"),
    x.to(here, "i32"),
    x.to({ dtype: "i32" }),
    x.to(zeros([1], { dtype: "i32" })),
  ])
    assert.deepEqual([y.device, y.dtype, y.tolist()], [here, "i32", [1, -2, 300]]);
  const like = zeros([1], { device: other, dtype: "i32" });
  for (const y of [x.to(other, "i32"), x.to({ device: other, dtype: "i32" }), x.to(like)])
    assert.deepEqual([y.device, y.dtype, y.tolist()], [other, "i32", [1, -2, 300]]);
});

test("a copy on another device has the same elements in every dtype and layout, and cuts the graph", () => {
  for (const dtype of dtypeNames) {
    const x = tensor(
      [
        [1, 0, 7],
        [2, 3, 1],
      ],
      { device: here },
    )
      .to(dtype)
      .t();
    const y = x.to(other);
    assert.deepEqual([y.dtype, y.shape, y.tolist()], [dtype, [3, 2], x.tolist()]);
  }
  const long = tensor(BigInt64Array.of(2n ** 60n + 1n), { device: here }).to(other);
  assert.deepEqual(long.bigInts(), BigInt64Array.of(2n ** 60n + 1n));
  const weight = tensor([3], { device: here, requiresGrad: true });
  rejects("NO_GRADIENT", () => weight.to(other), /do not pass between devices.*detach\(\)/);
  assert.equal(weight.detach().to(other).item(), 3);
  assert.equal(noGrad(() => weight.to(other)).requiresGrad, false);
  rejects(
    "UNSUPPORTED",
    () => vmap((member) => member.to(other))(zeros([2, 2], { device: here })),
    /Copy before/,
  );
});

test("names of devices, names of PyTorch's dtypes and arguments in another order say what to write", () => {
  const x = tensor([1], { device: here });
  const errors: readonly (readonly [unknown, unknown, RegExp])[] = [
    ["cpu", "i32", /the device is "cpu".*const cpu = await device\("cpu"\)/],
    ["cuda:0", undefined, /the device is "cuda:0".*await device\("cuda"\)/],
    ["i32", here, /open device: x\.to\(gpu, "i32"\)\. The first one is "i32"/],
    [undefined, undefined, /the argument is undefined.*x\.to\(gpu\)/],
    [{ device: "cuda" }, undefined, /the device is "cuda"/],
    [{ dtyp: "i32" }, undefined, /Did you mean dtype/],
  ];
  for (const [destination, dtype, message] of errors)
    rejects("BAD_ARGUMENT", () => x.to(as(destination), dtype as Dtype), message);
  rejects("BAD_DTYPE", () => x.to(as("float32")), /unknown dtype "float32"\. Pass "f32"\./);
  rejects("BAD_DTYPE", () => x.to(as("torch.long")), /Pass "i64"/);
  rejects("BAD_DTYPE", () => x.to(here, as(7) as Dtype), /unknown dtype of type number/);
  rejects("BAD_ARGUMENT", () => zeros([1], { device: "cuda" as never }), /The option device is "cuda"/);
});
