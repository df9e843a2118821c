/** 8-bit floats: conversions on the device under test and on the host, compared with the standard's numbers (test/oracle/float8.py), and what stores them. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import {
  cat,
  noGrad,
  ones,
  promote,
  readSafetensors,
  type Tensor,
  tensor,
  writeSafetensors,
  zeros,
} from "holdfast";
import { narrowToFloat8, widenFloat8 } from "../src/ir/index.js";
import { openDevice } from "./support/devices.js";
import { rejects } from "./support/rejects.js";
import { repositoryRoot } from "./support/repository.js";

const formats = ["f8e4m3", "f8e5m2"] as const;
type Format = (typeof formats)[number];

interface Reference {
  readonly values: readonly (number | string)[];
  readonly narrowed: readonly (readonly [bits: number, byte: number])[];
}

const references = JSON.parse(
  readFileSync(join(repositoryRoot, "test/oracle/float8.json"), "utf8"),
) as Readonly<Record<Format, Reference>>;
const device = openDevice();

const number = (value: number | string): number =>
  typeof value === "number"
    ? value
    : value === "inf"
      ? Infinity
      : value === "-inf"
        ? -Infinity
        : Number(value);

/** The bytes of a tensor on the device. */
const bytesOf = (x: Tensor): number[] => [...device.runtime.read(x.array.storage!)];

for (const format of formats) {
  const { values, narrowed } = references[format];
  const numbers = values.map(number);
  const f32 = new Float32Array(Uint32Array.from(narrowed, ([bits]) => bits).buffer);
  const expected = narrowed.map(([, byte]) => byte);

  test(`${format}: the device and the host round to the nearest number, ties to even`, () => {
    assert.deepEqual([...narrowToFloat8(format, f32)], expected);
    device.step(() => {
      const x = tensor(f32, { device });
      assert.deepEqual(bytesOf(x.to(format)), expected);
      // At odd addresses, in another layout, and from the other floats, whose numbers of 8 bits are exact.
      assert.deepEqual(bytesOf(x.narrow(0, 1, 33).to(format)), expected.slice(1, 34));
      const table = x.narrow(0, 0, 30).reshape([5, 6]).t();
      assert.deepEqual(bytesOf(table.contiguous().to(format)), bytesOf(table.to(format).contiguous()));
      const exact = tensor(Float32Array.from(numbers.filter(Number.isFinite)), { device });
      for (const dtype of ["f64", "bf16", "f16"] as const)
        assert.deepEqual(bytesOf(exact.to(dtype).to(format)), bytesOf(exact.to(format)), dtype);
    });
  });

  test(`${format}: all bytes widen to their numbers, on the device and on the host`, () => {
    const all = Uint8Array.from({ length: 256 }, (_, byte) => byte);
    assert.deepEqual([...widenFloat8(format, all)], numbers);
    device.step(() => {
      const x = zeros([256], { device, dtype: format });
      device.runtime.upload([{ source: all, target: x.array.storage! }]);
      assert.deepEqual(x.tolist(), numbers);
      assert.deepEqual(x.to("f32").tolist(), numbers);
      assert.deepEqual(x.to("f64").narrow(0, 3, 9).tolist(), numbers.slice(3, 12));
    });
  });
}

test("8-bit floats are stored, moved, printed and compiled", () => {
  const run = (x: Tensor): Tensor => {
    const stored = x.mul(3).to("f8e4m3");
    const parts = cat([stored.narrow(0, 0, 1), stored.narrow(0, 1, 2).flip(0)]);
    return parts
      .indexSelect(0, tensor([2, 0], { device, dtype: "i32" }))
      .to("f32")
      .add(1);
  };
  const x = tensor(
    [
      [1, 2.1],
      [0.3, -4],
      [5, 6],
    ],
    { device },
  ); // prettier-ignore
  const step = device.compile(run);
  const eager = device.step(() => run(x).tolist());
  assert.deepEqual(step(x).tolist(), eager);
  step.close();
  device.step(() => {
    const stored = tensor([1.1, 1000, -0.001], { device, dtype: "f8e5m2" });
    assert.deepEqual(stored.tolist(), [1, 1024, -0.0009765625]);
    assert.match(String(stored), /f8e5m2/);
    assert.equal(stored.isFloatingPoint(), true);
    assert.deepEqual(stored.gather(0, tensor([1], { device, dtype: "i32" })).tolist(), [1024]);
    assert.equal(stored.array.storage?.span.size, 3);
    const target = zeros([3], { device, dtype: "f8e4m3" });
    noGrad(() => target.copy_(stored));
    assert.deepEqual(target.tolist(), [1, Number.NaN, -0]);
    target.zero_();
    assert.deepEqual(target.tolist(), [0, 0, 0]);
  });
});

test("a safetensors file has 8-bit floats by their names, and is read as bf16", () => {
  const bytes = Uint8Array.of(0x38, 0x7e, 0xc0);
  const file = readSafetensors(writeSafetensors({ x: { dtype: "f8e4m3", shape: [3], bytes } }));
  const { stored, dtype, bytes: widened } = file.tensors.get("x")!;
  assert.deepEqual([stored?.dtype, dtype, [...(stored?.bytes ?? [])]], ["F8_E4M3", "bf16", [...bytes]]);
  device.step(() => {
    const x = zeros([3], { device, dtype: "bf16" });
    device.runtime.upload([{ source: widened, target: x.array.storage! }]);
    assert.deepEqual(x.tolist(), [1, 448, -2]);
    assert.deepEqual(bytesOf(x.to("f8e4m3")), [...bytes]);
  });
});

test("ops reject 8-bit floats, and a cast to one ends a gradient", () => {
  device.step(() => {
    const x = ones([2, 2], { device, dtype: "f8e4m3" });
    for (const op of [
      () => x.add(1),
      () => x.add(x),
      () => x.exp(),
      () => x.sum(),
      () => x.matmul(x),
      () => x.gt(0),
      () => x.add_(1),
      () => x.add(x.to("f32")),
      () => promote("f8e4m3", "f8e5m2"),
    ])
      rejects("BAD_DTYPE", op, /8-bit floats only store|needs floats|takes floats/);
    const leaf = ones([2], { device, requiresGrad: true });
    assert.equal(leaf.to("f8e5m2").requiresGrad, false);
  });
});
