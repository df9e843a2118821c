/** Draws of large arrays: several launches give the bits of one. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openKernelRuntime } from "../../../test/support/kernel-runtime.js";
import { sameBytes } from "../../../test/support/same-bytes.js";
import { submit } from "../../kernels/index.js";
import { allocateArray } from "../device-array.js";
import { OpLowering } from "../lowering.js";
import { drawOnHost, lowerValues } from "./draw.js";

const runtime = openKernelRuntime();
const random = { kind: "normal", mean: 0, std: 1 } as const;
const stream = { seed: 3, id: 4 };

function drawIn(perLaunch: number, count: number): Float32Array {
  const array = allocateArray(runtime, [count], "f32", "values");
  const lowering = new OpLowering(runtime, "normal");
  lowerValues(lowering, array, random, stream, perLaunch);
  assert.equal(lowering.calls.length, Math.ceil(count / perLaunch));
  submit(runtime, lowering.calls);
  lowering.close();
  const values = new Float32Array(runtime.read(array.storage!).buffer);
  runtime.arena.free(array.storage!);
  return values;
}

test("an array that needs several launches has the bits of one launch", () => {
  const expected = drawOnHost(random, stream, 2051);
  for (const perLaunch of [2048, 1024, 256, 2052])
    sameBytes(drawIn(perLaunch, 2051), expected, `${perLaunch}`);
  // A part that does not begin at a counter's first word repeats words.
  assert.throws(() => sameBytes(drawIn(1022, 2051), expected, "1022"));
});
