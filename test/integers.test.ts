/** Tensors of i64 and i8: exact arithmetic, indices, casts, reading and printing, eager and compiled, on the CPU and the emulated GPU. */

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  arange,
  type Device,
  fromTyped,
  nn,
  oneHot,
  readSafetensors,
  type Tensor,
  tensor,
  where,
  writeSafetensors,
} from "holdfast";
import { openDevice } from "./support/devices.js";
import { emulatorGpuMissing, openEmulatorGpu } from "./support/emulator-gpu.js";
import { rejects } from "./support/rejects.js";
import { testDevice } from "./support/test-device.js";

const big = 2n ** 60n;
const left = BigInt64Array.of(big, -big, 3n, -4n, 2n ** 62n, 0n, 7n);
const right = BigInt64Array.of(big + 1n, 5n, -3n, -4n, 2n ** 62n, 9n, -1n);
const wrapped = (value: bigint): bigint => BigInt.asIntN(64, value);
const pairs = (combine: (a: bigint, b: bigint) => bigint): bigint[] =>
  Array.from(left, (a, index) => wrapped(combine(a, right[index]!)));

function floorDivide(a: bigint, b: bigint): bigint {
  const quotient = a / b;
  return a % b !== 0n && a < 0n !== b < 0n ? quotient - 1n : quotient;
}

function gcd(a: bigint, b: bigint): bigint {
  return b === 0n ? (a < 0n ? -a : a) : gcd(b, a % b);
}

function checkOn(device: Device): void {
  const long = (values: BigInt64Array) => tensor(values, { device });
  const program = (a: Tensor, b: Tensor): Tensor[] => [
    ...[a.add(b), a.sub(b), a.mul(b), a.neg(), a.abs(), a.maximum(b), a.minimum(b), where(a.gt(b), a, b)],
    ...[a.add(1), a.mul(-3), a.clamp(-5, 2 ** 40), a.to("i32"), a.to("i8"), a.gt(b).to("i64")],
    ...[a.bitwiseXor(b), a.bitwiseLeftShift(3), a.bitwiseRightShift(33), a.round()],
    ...[a.floorDivide(b), a.remainder(b), a.fmod(b), b.remainder(7), a.floorDivide(-10), a.gcd(b), a.lcm(9)],
    ...[a.eq(b), a.lt(b), a.sum(), a.amax(), a.amin(), a.prod(), a.argmax(), a.cumsum(0)],
    // Four rows are a column reduction, two lanes and a tail.
    ...[a.reshape([1, 7]).expand([4, 7]).contiguous().sum([0]), a.reshape([1, 7]).sum([1])],
  ];
  const read = (values: readonly Tensor[]) => values.map((value) => [...value.bigInts()]);
  const eager = device.step(() => read(program(long(left), long(right))));
  const [sum = 0n, product = 0n] = [left.reduce((x, y) => x + y), left.reduce((x, y) => x * y)];
  let running = 0n;
  const expected = [
    pairs((a, b) => a + b),
    pairs((a, b) => a - b),
    pairs((a, b) => a * b),
    pairs((a) => -a),
    pairs((a) => (a < 0n ? -a : a)),
    pairs((a, b) => (a > b ? a : b)),
    pairs((a, b) => (a < b ? a : b)),
    pairs((a, b) => (a > b ? a : b)),
    pairs((a) => a + 1n),
    pairs((a) => a * -3n),
    pairs((a) => (a < -5n ? -5n : a > 2n ** 40n ? 2n ** 40n : a)),
    pairs((a) => BigInt.asIntN(32, a)),
    pairs((a) => BigInt.asIntN(8, a)),
    pairs((a, b) => (a > b ? 1n : 0n)),
    pairs((a, b) => a ^ b),
    pairs((a) => a << 3n),
    pairs((a) => a >> 33n),
    pairs((a) => a),
    pairs(floorDivide),
    pairs((a, b) => a - b * floorDivide(a, b)),
    pairs((a, b) => a % b),
    pairs((_, b) => b - 7n * floorDivide(b, 7n)),
    pairs((a) => floorDivide(a, -10n)),
    pairs(gcd),
    pairs((a) => {
      const multiple = wrapped((a / gcd(a, 9n)) * 9n);
      return multiple < 0n ? -multiple : multiple;
    }),
    pairs((a, b) => (a === b ? 1n : 0n)),
    pairs((a, b) => (a < b ? 1n : 0n)),
    [sum],
    [2n ** 62n],
    [-big],
    [wrapped(product)],
    [4n],
    Array.from(left, (value) => (running += value)),
    pairs((a) => 4n * a),
    [sum],
  ];
  assert.deepEqual(eager, expected);
  const compiled = device.compile(program);
  assert.deepEqual(read(compiled(long(left), long(right))), expected);
}

function checkConversions(device: Device): void {
  device.step(() => {
    const floats = [2.9, -2.9, Number.NaN, 1e30, -1e30, 2 ** 40];
    const expected = [2n, -2n, 0n, 2n ** 63n - 1n, -(2n ** 63n)];
    for (const dtype of ["f32", "f64"] as const) {
      const x = tensor(floats, { device, dtype });
      assert.deepEqual([...x.to("i64").bigInts()], [...expected, 2n ** 40n]);
      assert.equal(x.to("i64").to(dtype).dataSync().at(-1), 2 ** 40);
    }
    const small = tensor(new Int8Array([-128, 127, -1]), { device });
    assert.deepEqual([small.dtype, small.add(1).tolist()], ["i8", [-127, -128, 0]]);
    assert.deepEqual(small.to("i64").tolist(), [-128, 127, -1]);
    assert.deepEqual(small.to("u8").tolist(), [128, 127, 255]);
    assert.deepEqual([small.sum().dtype, small.sum().item()], ["i32", -2]);
    assert.deepEqual(small.div(2).tolist(), [-64, 63.5, -0.5]);
  });
}

function checkIndices(device: Device): void {
  const table = new nn.Embedding(5, 3).to(device);
  const gradientsWith = (dtype: "i32" | "i64") =>
    device.step(() => {
      const words = tensor(
        [
          [4, 0],
          [4, 2],
        ],
        { device, dtype },
      );
      const logits = table.forward(words).reshape([4, 3]);
      const loss = nn.functional.crossEntropy(logits, tensor([0, 2, 1, -100], { device, dtype }));
      loss.backward();
      const gradient = table.weight.grad?.tolist();
      table.zeroGrad();
      return [loss.item(), gradient];
    });
  assert.deepEqual(gradientsWith("i64"), gradientsWith("i32"));
  device.step(() => {
    const index = (...values: bigint[]) => tensor(BigInt64Array.from(values), { device });
    const x = arange(5, undefined, 1, { device, dtype: "i64" });
    assert.deepEqual(x.indexSelect(0, index(4n, 1n)).tolist(), [4, 1]);
    assert.deepEqual(x.gather(0, index(3n, 3n)).tolist(), [3, 3]);
    assert.deepEqual(oneHot(index(1n, 0n), 2).tolist(), [
      [0, 1],
      [1, 0],
    ]);
    x.scatterAdd_(0, index(0n, 0n), index(big, 1n));
    assert.deepEqual([...x.bigInts()], [big + 1n, 1n, 2n, 3n, 4n]);
    // Its low 32 bits are a valid index.
    rejects("BAD_INDEX", () => x.indexSelect(0, index(2n ** 32n)), /indexSelect: index/);
  });
}

for (const [name, skip, open] of [
  [testDevice, false, () => openDevice({ threads: 1 })],
  ["the emulated GPU", emulatorGpuMissing, () => openEmulatorGpu()],
] as const) {
  test(`i64 and i8 compute exactly, and i64 selects as i32 does, on ${name}`, { skip }, () => {
    const device = open();
    checkOn(device);
    checkConversions(device);
    checkIndices(device);
  });
}

test("i64 beyond 2^53 prints exactly, is rejected as a number, and survives a file and a narrower buffer", () => {
  const cpu = openDevice({ threads: 1 });
  const x = fromTyped(BigInt64Array.of(2n ** 60n, -7n), [2], { device: cpu });
  assert.match(String(x), /1152921504606846976 +-7\], shape \[2\], i64/);
  rejects("BAD_DTYPE", () => x.tolist(), /Element 0 .* is 1152921504606846976; .*bigInts\(\)/);
  rejects("BAD_DTYPE", () => x.pow(2), /64 bits have no power/);
  rejects("BAD_DTYPE", () => tensor([0.5], { device: cpu }).bigInts(), /bigInts\(\) of .* f32/);
  rejects("BAD_DTYPE", () => tensor([2 ** 53], { device: cpu, dtype: "i64" }), /BigInt64Array/);
  class Counter extends nn.Module {
    readonly count: nn.Buffer;
    constructor(dtype: "i64" | "i32") {
      super();
      this.count = new nn.Buffer([2], nn.init.zeros(), { dtype });
    }
  }
  const [wide, narrow] = [new Counter("i64").to(cpu), new Counter("i32").to(cpu)];
  const bytes = new Uint8Array(x.bigInts().buffer);
  const { tensors } = readSafetensors(writeSafetensors({ count: { dtype: "i64", shape: [2], bytes } }));
  const stored = tensors.get("count")!;
  wide.loadStateDict({ count: stored });
  assert.deepEqual(wide.count.bigInts(), x.bigInts());
  rejects(
    "BAD_DTYPE",
    () => narrow.loadStateDict({ count: stored }),
    /data\[0\] is 1152921504606847000, but i32 holds/,
  );
  narrow.loadStateDict({ count: tensor([5, -7], { device: cpu, dtype: "i64" }) });
  assert.deepEqual(narrow.count.tolist(), [5, -7]);
});
