/** finfo and iinfo: the values of PyTorch 1.13, and errors. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { rejects } from "../../test/support/rejects.js";
import { finfo, iinfo } from "./dtype-limits.js";

test("floats have PyTorch's limits", () => {
  const limits = (["f64", "f32", "f16", "bf16"] as const).map((dtype) => finfo(dtype));
  assert.deepEqual(limits, [
    {
      bits: 64,
      eps: 2.220446049250313e-16,
      min: -1.7976931348623157e308,
      max: 1.7976931348623157e308,
      tiny: 2.2250738585072014e-308,
    },
    {
      bits: 32,
      eps: 1.1920928955078125e-7,
      min: -3.4028234663852886e38,
      max: 3.4028234663852886e38,
      tiny: 1.1754943508222875e-38,
    },
    { bits: 16, eps: 0.0009765625, min: -65504, max: 65504, tiny: 6.103515625e-5 },
    {
      bits: 16,
      eps: 0.0078125,
      min: -3.3895313892515355e38,
      max: 3.3895313892515355e38,
      tiny: 1.1754943508222875e-38,
    },
  ]);
  assert.deepEqual([finfo("f8e4m3").tiny, finfo("f8e5m2").max], [0.015625, 57344]);
});

test("integers have PyTorch's limits, and other dtypes are rejected", () => {
  assert.deepEqual(iinfo("i32"), { bits: 32, min: -2147483648, max: 2147483647 });
  assert.deepEqual(iinfo("u8"), { bits: 8, min: 0, max: 255 });
  assert.deepEqual(iinfo("i64").min, -9223372036854775808n);
  rejects("BAD_DTYPE", () => finfo("i32"), /i32 is not a float/);
  rejects("BAD_DTYPE", () => iinfo("bool"), /bool is not an integer/);
});
