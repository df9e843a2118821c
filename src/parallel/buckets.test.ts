/** Which gradients are exchanged together, and when. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Linear } from "../nn/index.js";
import { device, type Tensor, tensor } from "../tensor/index.js";
import { MiB } from "../units/index.js";
import { BucketPacker, cutBuckets } from "./buckets.js";
import type { Slot } from "./packed.js";

const slot = (length: number, dtype: Slot["dtype"] = "f32"): Slot => ({ shape: [length], dtype });
const lengths = (slots: readonly Slot[], maxBytes: number): number[][] =>
  cutBuckets(slots, maxBytes).map(({ layout }) => layout.slots.map(({ shape: [length = 0] }) => length));

test("buckets have consecutive gradients up to a limit, and larger gradients a bucket each", () => {
  assert.deepEqual(lengths([], 16), []);
  assert.deepEqual(
    lengths(
      [1, 2, 1, 9, 1, 3, 1].map((length) => slot(length)),
      16,
    ),
    [[1, 2, 1], [9], [1, 3], [1]],
  );
  // 16-bit gradients are packed as float32.
  assert.deepEqual(lengths([slot(2, "bf16"), slot(2, "bf16"), slot(1)], 16), [[2, 2], [1]]);
  const large = Array.from({ length: 6 }, () => slot(MiB / 8));
  assert.deepEqual(
    cutBuckets(large, 2 * MiB).map(({ first }) => first),
    [0, 2],
  );
});

test("a bucket is packed while backward has work left, in the order of buckets, with zeros for what is missing", async () => {
  const cpu = await device("cpu");
  try {
    const layers = Array.from({ length: 3 }, () => new Linear(3, 3).to(cpu));
    const unused = new Linear(1, 1, { bias: false }).to(cpu);
    const expected = [unused, ...layers].flatMap((layer) => layer.parameters()).toReversed();
    const buckets = cutBuckets(expected, 48); // 12 elements: a layer
    const events: string[] = [];
    const values: unknown[] = [];
    cpu.step(() => {
      const packer = new BucketPacker(cpu, buckets, (bucket, packed) => {
        events.push(`bucket ${bucket}`);
        values.push(packed.tolist());
      });
      const receivers = expected.map(
        (parameter, index) =>
          [parameter.accumulator(), (gradient: Tensor) => packer.put(index, gradient)] as const,
      );
      let x = tensor([[1, 2, 3]]);
      for (const [index, layer] of layers.entries()) {
        x = layer.forward(x);
        x.registerHook(() => void events.push(`output ${index}`));
      }
      cpu.deliverGradients(x.sum(), new Map(receivers));
      packer.finish();
    });
    assert.equal(events.join(", "), "output 2, bucket 0, output 1, bucket 1, output 0, bucket 2, bucket 3");
    const [first, , , last] = values as readonly (readonly number[])[];
    assert.deepEqual([first?.slice(0, 3), last], [[1, 1, 1], [0]]);
  } finally {
    cpu.close();
  }
});
