/**
 * The delivery of gradients to the leaves: on a GPU many arrive in one launch, with the same values as on the
 * CPU.
 */

import assert from "node:assert/strict";
import test, { describe } from "node:test";
import { Device, type DeviceOptions, type Tensor, tensor } from "holdfast";
import { strict } from "holdfast/internals";
import { batchedLinear, type KernelOp, type NoAttributes } from "../src/ops/index.js";
import type { LoadedCommand } from "../src/runtime/index.js";
import { emulatorMissing } from "./support/emulator.js";
import { issuedBy } from "./support/issued-work.js";
import {
  openTestCpu,
  openTestGpu,
  type TestDriver,
  testDevice,
  testEnvironment,
} from "./support/test-device.js";

const quiet: DeviceOptions = {
  ...{ memory: "128MiB", arena: "32MiB", staging: "1MiB", stallAfter: "off", environment: testEnvironment },
  ...{ print: () => {}, poison: true },
};

const machines = [
  { machine: "the CPU", kind: "cpu", skip: false, open: () => openTestCpu(1) },
  { machine: "CUDA", kind: "cuda", skip: testDevice === "cuda" ? false : emulatorMissing, open: openTestGpu },
] as const satisfies readonly { kind: "cpu" | "cuda"; open: () => TestDriver; [key: string]: unknown }[];

/** Returns its operand, and has no gradient. */
const breaking: KernelOp<NoAttributes> = {
  kind: "kernel",
  name: "breaking",
  infer: ([x]) => [x as Exclude<typeof x, number | undefined>],
  lower: (lowering, [x], [out]) => {
    if (typeof x === "object") lowering.copy(out!.storage!, x.storage!);
  },
  gradient: () => {
    throw new Error("no gradient today");
  },
};

for (const { machine, kind, skip, open } of machines) {
  describe(`on ${machine}`, { skip }, () => {
    /** Runs a step on a fresh device, and checks that nothing of the step stays allocated. */
    function inStep<T>(body: (device: Device, launches: () => string[]) => T): T {
      const driver = open();
      const device = new Device(kind, { ...quiet, driver: strict(driver) });
      try {
        const { runtime } = device;
        let result: T | undefined;
        const before = device.runtime.diagnostics().arena.live;
        device.step(() =>
          issuedBy(runtime, (issued) => {
            let launches = 0;
            const nameOf = (command: LoadedCommand) =>
              command.kind === "launch" ? command.request.kernel.name : command.kind;
            result = body(device, () => {
              const names = issued.slice(launches).map(nameOf);
              launches = issued.length;
              return names;
            });
          }),
        );
        assert.deepEqual(
          [device.runtime.diagnostics().arena.live, device.runtime.diagnostics().arena.pins],
          [before, 0],
        );
        return result as T;
      } finally {
        device.close();
        driver.close();
      }
    }

    const leaf = (
      device: Device,
      values: readonly number[],
      dtype: "f32" | "f16" | "bf16" | "f64" = "f32",
    ): Tensor => tensor([...values], { device, dtype, requiresGrad: true });
    const gradientOf = (leafTensor: Tensor): unknown => leafTensor.grad?.tolist();

    test("first gradients arrive, in few launches on a GPU", () => {
      inStep((device, launches) => {
        const leaves = Array.from({ length: 70 }, (_, index) =>
          leaf(device, [index, 1, 2].slice(0, 1 + (index % 3))),
        );
        const scaled = leaves.map((leafTensor, index) => leafTensor.mul(index + 1).sum());
        const total = scaled.reduce((sum, term) => sum.add(term));
        launches();
        total.backward();
        const copies = launches().filter((name) => /copy/.test(name));
        for (const [index, leafTensor] of leaves.entries())
          assert.deepEqual(gradientOf(leafTensor), new Array(1 + (index % 3)).fill(index + 1));
        if (kind === "cuda") assert.deepEqual(copies, ["copy of 64", "copy of 8"]);
        else assert.equal(copies.length, 70);
      });
    });

    test("a leaf with several gradients gets their sum, whatever runs between them", () => {
      inStep((device) => {
        const [a, b, w] = [leaf(device, [1, 2, 3]), leaf(device, [5, 7, 11]), leaf(device, [2, 4, 8])];
        const first = w.mul(a).sum();
        const second = w.mul(b).add(w).sum();
        first.add(second).add(w.mul(w).sum()).backward();
        assert.deepEqual(gradientOf(w), [1 + 5 + 1 + 4, 2 + 7 + 1 + 8, 3 + 11 + 1 + 16]);
        assert.deepEqual(
          [gradientOf(a), gradientOf(b)],
          [
            [2, 4, 8],
            [2, 4, 8],
          ],
        );
        // A later backward adds to the gradient; after zeroGrad the first one replaces it.
        w.mul(10).sum().backward();
        assert.deepEqual(gradientOf(w), [21, 28, 41]);
        w.zeroGrad();
        w.mul(3).sum().backward();
        assert.deepEqual(gradientOf(w), [3, 3, 3]);
      });
    });

    test("a gradient that goes to several leaves and on through the graph is not overwritten", () => {
      inStep((device) => {
        const [a, b, c] = [leaf(device, [1, 2]), leaf(device, [3, 4]), leaf(device, [5, 6])];
        const inner = b.add(c); // its gradient is the same array as a's
        const sum = a.add(inner);
        const again = inner.mul(10).add(a); // and inner gets a second one, added in place to the first if allowed
        sum.mul(2).sum().add(again.sum()).backward();
        assert.deepEqual(
          [gradientOf(a), gradientOf(b), gradientOf(c)],
          [
            [3, 3],
            [12, 12],
            [12, 12],
          ],
        );
      });
    });

    test("gradients that share memory arrive at their leaves", () => {
      inStep((device, launches) => {
        const x = tensor(
          [
            [
              [1, 2],
              [3, 4],
              [5, 6],
            ],
          ],
          { device },
        ); // [1, 3, 2]
        const weights = [0, 1, 2].map((group) =>
          tensor([[group + 1], [group + 2]], { device, requiresGrad: true }),
        );
        const biases = [7, 8, 9].map((value) => leaf(device, [value]));
        const result = device.apply(batchedLinear, [x, ...weights, ...biases]);
        launches();
        result
          .mul(tensor([[[1], [10], [100]]], { device }))
          .sum()
          .backward();
        assert.deepEqual(weights.map(gradientOf), [
          [[1], [2]],
          [[30], [40]],
          [[500], [600]],
        ]);
        assert.deepEqual(biases.map(gradientOf), [[1], [10], [100]]);
        if (kind === "cuda") assert.equal(launches().filter((name) => /^copy of/.test(name)).length, 1);
      });
    });

    test("two gradients of one leaf may share one op's memory", () => {
      inStep((device) => {
        const x = tensor(
          [
            [
              [1, 2],
              [3, 4],
              [5, 6],
            ],
          ],
          { device },
        );
        const shared = tensor([[1], [1]], { device, requiresGrad: true });
        const alone = tensor([[2], [2]], { device, requiresGrad: true });
        const bias = leaf(device, [0]);
        const result = device.apply(batchedLinear, [x, shared, alone, shared, bias, bias, bias]);
        result
          .mul(tensor([[[1], [10], [100]]], { device }))
          .sum()
          .backward();
        assert.deepEqual(
          [gradientOf(shared), gradientOf(alone), gradientOf(bias)],
          [[[1 + 500], [2 + 600]], [[30], [40]], [111]],
        );
      });
    });

    test("broadcast, transposed and unaligned gradients arrive too", () => {
      inStep((device) => {
        const broadcast = leaf(device, [1, 2, 3]);
        const transposed = tensor(
          [
            [1, 2, 3],
            [4, 5, 6],
          ],
          { device, requiresGrad: true },
        );
        const halves = leaf(device, [1, 2, 3], "f16");
        const narrow = leaf(device, [4], "bf16");
        const wide = leaf(device, [1, 2], "f64");
        const factors = tensor(
          [
            [1, 4],
            [2, 5],
            [3, 6],
          ],
          { device },
        );
        const total = broadcast.sum().add(transposed.permute([1, 0]).mul(factors).sum());
        const other = halves.mul(2).sum().to("f32").add(narrow.mul(3).sum().to("f32"));
        total.add(other).add(wide.mul(7).sum().to("f32")).backward();
        assert.deepEqual([broadcast, transposed, halves, narrow, wide].map(gradientOf), [
          [1, 1, 1],
          [
            [1, 2, 3],
            [4, 5, 6],
          ],
          [2, 2, 2],
          [3],
          [7, 7],
        ]);
      });
    });

    test("if backward fails midway, the gradients that have arrived are right, and the next backward is too", () => {
      const driver = open();
      const device = new Device(kind, { ...quiet, driver: strict(driver) });
      try {
        const [before, after] = [leaf(device, [1, 2]), leaf(device, [3, 4])];
        device.step(() => {
          const broken = device.apply(breaking, [before.mul(5)]);
          const loss = broken.mul(after).sum();
          assert.throws(() => loss.backward(), /no gradient today/);
          assert.deepEqual([gradientOf(before), gradientOf(after)], [undefined, [5, 10]]);
        });
        // The only gradient, which lives as long as its leaf.
        assert.equal(device.runtime.diagnostics().arena.pins, 1);
        device.step(() => {
          before.mul(after).sum().backward();
          assert.deepEqual(
            [gradientOf(before), gradientOf(after)],
            [
              [3, 4],
              [5 + 1, 10 + 2],
            ],
          );
        });
      } finally {
        device.close();
        driver.close();
      }
    });
  });
}
