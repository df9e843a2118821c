/** Dropout: kept elements, their scale, and the random state. Its bits are regression N7. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openDevice } from "../../../test/support/devices.js";
import { rejects } from "../../../test/support/rejects.js";
import { sameBytes } from "../../../test/support/same-bytes.js";
import { decodeState, scaleOfKept } from "../../kernels/index.js";
import { dropout as dropoutOp } from "../../ops/index.js";
import { dropout } from "./layers.js";

const cpu = openDevice({ threads: 1 });

function counter(): bigint {
  return decodeState(cpu.runtime.read(cpu.randomState.array.storage!)).counter;
}

test("a draw advances the state by one, and p = 0 draws nothing", () => {
  cpu.step(() => {
    const x = cpu.fromHost([1, 2, 3], [3], "f32");
    const before = counter();
    cpu.apply(dropoutOp, [x, cpu.randomState], { p: 0.5 });
    assert.equal(counter(), before + 1n);
    cpu.apply(dropoutOp, [x, cpu.randomState], { p: 1 });
    assert.equal(counter(), before + 2n);
    const same = cpu.apply(dropoutOp, [x, cpu.randomState], { p: 0 });
    assert.equal(counter(), before + 2n);
    assert.deepEqual(same.tolist(), [1, 2, 3]);
  });
});

test("p = 1 gives zeros, also for infinities, and a gradient of 0", () => {
  cpu.step(() => {
    const x = cpu.fromHost([1, Number.POSITIVE_INFINITY, Number.NaN], [3], "f32");
    x.requiresGrad = true;
    const y = dropout(x, 1);
    assert.deepEqual(y.tolist(), [0, 0, 0]);
    y.sum().backward();
    assert.deepEqual(x.grad?.tolist(), [0, 0, 0]);
  });
});

test("kept elements are scaled so that the mean stays, and a share of about 1 − p is kept", () => {
  cpu.step(() => {
    const x = cpu.fromHost(new Float32Array(40_000).fill(1), [200, 200], "f32");
    cpu.reseed(3n);
    const y = dropout(x, 0.2);
    const values = new Set(y.dataSync());
    assert.deepEqual([...values].sort(), [0, Math.fround(scaleOfKept(0.2))].sort());
    // Five standard deviations of the mean of 40,000 draws.
    assert.ok(Math.abs(y.mean().item() - 1) < 5 * Math.sqrt(0.25 / 40_000));
  });
});

test("random numbers go to elements in row-major order, for any layout", () => {
  cpu.step(() => {
    const values = Float32Array.from({ length: 35 }, (_, index) => index + 1);
    const x = cpu.fromHost(values, [5, 7], "f32").transpose(0, 1);
    cpu.reseed(5n);
    const strided = dropout(x, 0.5).dataSync();
    cpu.reseed(5n);
    sameBytes(strided, dropout(x.contiguous(), 0.5).dataSync(), "a transposed operand");
  });
});

test("backward uses the mask of forward, also after later draws", () => {
  cpu.step(() => {
    const x = cpu.fromHost(new Float32Array(100).fill(1), [100], "f32");
    x.requiresGrad = true;
    const y = dropout(x, 0.5);
    dropout(x, 0.5);
    y.sum().backward();
    sameBytes(x.grad!.dataSync(), y.dataSync(), "the gradient of a sum over ones");
  });
});

test("rejects an invalid probability, an integer operand, and an invalid random state", () => {
  cpu.step(() => {
    const x = cpu.fromHost([1], [1], "f32");
    for (const p of [-0.1, 1.5, Number.NaN]) {
      rejects("BAD_ARGUMENT", () => dropout(x, p), /pass a probability from 0 to 1/);
    }
    rejects("BAD_DTYPE", () => dropout(x.to("i32"), 0.5), /it needs a float/);
    rejects("BAD_SHAPE", () => cpu.apply(dropoutOp, [x, x], { p: 0.5 }), /it must be i32 \[4\]/);
  });
});
