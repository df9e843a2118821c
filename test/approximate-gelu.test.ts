/** GELU and its derivative, as the ops state them, are single approximate functions in TF32 and bf16. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Device, randn } from "holdfast";
import { openPrintingDriver } from "./support/source-recording-driver.js";
import { testEnvironment } from "./support/test-device.js";

/** The approximate functions that the kernels of a GELU and of its gradient call. */
function calledBy(approximate: "none" | "tanh", precision: "f32" | "tf32"): readonly string[] {
  const { driver, sources } = openPrintingDriver();
  const device = new Device("cuda", {
    ...{ driver, precision, memory: "64MiB", staging: "4MiB", stallAfter: "off" },
    ...{ environment: testEnvironment, print: () => {} },
  });
  try {
    device.step(() => randn([64, 64], { device, requiresGrad: true }).gelu(approximate).sum().backward());
    const code = [...sources.keys()].join();
    return [...new Set(code.match(/\bfast_\w+|\berff(?=\()/g))].sort();
  } finally {
    device.close();
    driver.close();
  }
}

test("the derivative of each GELU is one approximate function, and f32 has none", () => {
  assert.deepEqual(calledBy("none", "tf32"), ["fast_gelu_derivative_f32", "fast_normal_cdf_f32"]);
  assert.deepEqual(calledBy("tanh", "tf32"), ["fast_gelu_tanh_derivative_f32", "fast_tanh_cdf_f32"]);
  assert.deepEqual(calledBy("none", "f32"), ["erff"]);
});
