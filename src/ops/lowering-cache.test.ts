/** The lowering cache: a call with the signature of an earlier call is not lowered again; any other call is. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, test } from "node:test";
import { readF32, withRuntime, writeF32 } from "../../test/support/runtimes.js";
import { basicKernels, blockCount, type Driver, interceptCalls, strict } from "../driver/index.js";
import { HoldfastError } from "../errors/index.js";
import type { Region, Runtime, Storage } from "../runtime/index.js";
import { contiguousStrides, type DeviceArray, viewArray } from "./device-array.js";
import { loweringCacheOf } from "./lowering-cache.js";
import { type Attributes, arrayAt, type KernelOp, type Lowering, type ViewOp } from "./op.js";
import { runInto, runOp } from "./run.js";

/** How often each rule of an entry was called. */
const counts = { infer: 0, check: 0, lower: 0 };
beforeEach(() => {
  counts.infer = 0;
  counts.check = 0;
  counts.lower = 0;
});

const elementsOf = (array: DeviceArray): number => array.shape.reduce((product, size) => product * size, 1);

function launch(
  lowering: Lowering,
  name: keyof typeof basicKernels,
  storages: readonly (Storage | number)[],
  count: number,
) {
  const source = basicKernels[name];
  lowering.launch({ op: name, source, blocks: blockCount(count), arguments: [...storages, count] });
}

/** `a + b` of contiguous f32 arrays. It ignores its attributes. */
const plus: KernelOp<Attributes> = {
  kind: "kernel",
  name: "plus",
  inPlace: 0,
  infer([a]) {
    counts.infer += 1;
    return [a as DeviceArray];
  },
  check() {
    counts.check += 1;
  },
  lower(lowering, operands, [out]) {
    counts.lower += 1;
    const [a, b] = [arrayAt(operands, 0), arrayAt(operands, 1)];
    launch(lowering, "add", [a.storage!, b.storage!, out!.storage!], elementsOf(a));
  },
};

/** `2 · (a + 1)` with scratch memory, views of it, a fill and copies. */
const withScratch: KernelOp<Attributes> = {
  kind: "kernel",
  name: "withScratch",
  infer: ([a]) => [a as DeviceArray],
  lower(lowering, operands, [out]) {
    counts.lower += 1;
    const a = arrayAt(operands, 0);
    const [count, size] = [elementsOf(a), 4 * elementsOf(a)];
    const scratch = lowering.scratch(2 * size);
    const [ones, sum] = [lowering.view(scratch, 0, size), lowering.view(scratch, size, size)];
    lowering.fill(scratch, 0);
    launch(lowering, "fill", [ones, 1], count);
    launch(lowering, "add", [a.storage!, ones, sum], count);
    lowering.copy(out!.storage!, sum);
    const doubled = lowering.scratchArray(a.shape, "f32");
    launch(lowering, "add", [sum, out!.storage!, doubled.storage!], count);
    lowering.copy(out!.storage!, doubled.storage!);
  },
};

function allocate(runtime: Runtime, values: readonly number[], label = "operand"): DeviceArray {
  const storage = runtime.arena.allocate(4 * values.length, label);
  writeF32(runtime, storage, values);
  return { shape: [values.length], strides: [1], dtype: "f32", storage };
}

const read = (runtime: Runtime, array: DeviceArray | undefined): number[] => [
  ...readF32(runtime, array!.storage!),
];

describe("a call with the signature of an earlier call", () => {
  test("is checked and does the same work, without inference and lowering", () => {
    withRuntime({}, ({ runtime }) => {
      for (let iteration = 0; iteration < 4; iteration++) {
        runtime.step(() => {
          const [a, b] = [allocate(runtime, [iteration, 2, 3]), allocate(runtime, [10, 20, 30])];
          const [out] = runOp(runtime, plus, [a, b], { iteration: "same" });
          assert.deepEqual(read(runtime, out), [iteration + 10, 22, 33]);
          assert.deepEqual([out!.shape, out!.strides, out!.dtype], [[3], [1], "f32"]);
        });
      }
      assert.deepEqual(counts, { infer: 1, check: 4, lower: 1 });
    });
  });

  test("frees its scratch memory and views, like the first call", () => {
    withRuntime({}, ({ runtime }) => {
      for (let iteration = 0; iteration < 3; iteration++) {
        runtime.step(() => {
          const a = allocate(runtime, [1, 2, iteration]);
          const before = runtime.arena.figures.live;
          const [out] = runOp(runtime, withScratch, [a], {});
          assert.deepEqual(read(runtime, out), [4, 6, 2 * (iteration + 1)]);
          assert.equal(runtime.arena.figures.live - before, 256);
          // A storage that still had views could not be freed.
          runtime.arena.free(out!.storage!);
          runtime.arena.free(a.storage!);
        });
      }
      assert.equal(counts.lower, 1);
    });
  });

  test("is recorded by a capture like the first call", () => {
    withRuntime({ capture: "on" }, ({ runtime }) => {
      const region = runtime.persistent.place("weights", "weights", [
        { name: "a", size: 12 },
        { name: "b", size: 12 },
        { name: "out", size: 12 },
      ]);
      const [a, b, out] = region.storages.map(
        (storage): DeviceArray => ({ shape: [3], strides: [1], dtype: "f32", storage }),
      );
      writeF32(runtime, a!.storage!, [1, 2, 3]);
      writeF32(runtime, b!.storage!, [1, 1, 1]);
      const run = () => runInto(runtime, plus, out!, [a!, b!], {});
      run();
      const graph = runtime.capture("plus", run);
      assert.deepEqual([graph.mode, graph.nodes?.kernel], ["graph", 1]);
      writeF32(runtime, a!.storage!, [5, 6, 7]);
      graph.replay();
      assert.deepEqual(read(runtime, out), [6, 7, 8]);
      assert.equal(counts.lower, 1);
    });
  });

  test("runs in place if the earlier call did; a call with another target has another signature", () => {
    withRuntime({}, ({ runtime }) =>
      runtime.step(() => {
        for (let iteration = 0; iteration < 2; iteration++) {
          const [a, b] = [allocate(runtime, [1, 2]), allocate(runtime, [10, 20])];
          const address = a.storage!.span.address;
          runInto(runtime, plus, a, [a, b], {});
          assert.deepEqual([read(runtime, a), a.storage!.span.address], [[11, 22], address]);
        }
        assert.equal(counts.lower, 1);
        const [a, b, target] = [
          allocate(runtime, [1, 2]),
          allocate(runtime, [10, 20]),
          allocate(runtime, [0, 0]),
        ];
        runInto(runtime, plus, target, [a, b], {});
        assert.deepEqual(
          [read(runtime, target), read(runtime, a)],
          [
            [11, 22],
            [1, 2],
          ],
        );
        assert.equal(counts.lower, 2);
        runOp(runtime, plus, [a, b], {});
        assert.equal(counts.lower, 3);
      }),
    );
  });

  test("frees its output and its scratch memory if it fails on the device", () => {
    let isFailing = false;
    const failing = (driver: Driver): Driver =>
      strict(
        interceptCalls(driver, (call, _args, proceed) => {
          if (isFailing && call === "launch") throw new HoldfastError("DRIVER_FAILED", "injected");
          return proceed();
        }),
      );
    withRuntime(
      {},
      ({ runtime }) =>
        runtime.step(() => {
          const a = allocate(runtime, [1, 2, 3]);
          runOp(runtime, withScratch, [a], {});
          const before = runtime.arena.figures.live;
          isFailing = true;
          assert.throws(() => runOp(runtime, withScratch, [a], {}), /injected/);
          isFailing = false;
          assert.equal(runtime.arena.figures.live, before);
          assert.deepEqual(read(runtime, runOp(runtime, withScratch, [a], {})[0]), [4, 6, 8]);
          assert.equal(counts.lower, 1);
        }),
      failing,
    );
  });

  test("is lowered again on another runtime", () => {
    for (let iteration = 1; iteration <= 2; iteration++) {
      withRuntime({}, ({ runtime }) =>
        runtime.step(() => {
          const [out] = runOp(runtime, plus, [allocate(runtime, [1]), allocate(runtime, [2])], {});
          assert.deepEqual(read(runtime, out), [3]);
        }),
      );
      assert.equal(counts.lower, iteration);
    }
  });

  test("is lowered again for another op with the same operands", () => {
    withRuntime({}, ({ runtime }) =>
      runtime.step(() => {
        const other = {
          ...plus,
          lower: (lowering, [a], [out]) => copyOf(lowering, a, out),
        } as KernelOp<Attributes>;
        const [a, b] = [allocate(runtime, [1]), allocate(runtime, [2])];
        assert.deepEqual(read(runtime, runOp(runtime, plus, [a, b], {})[0]), [3]);
        assert.deepEqual(read(runtime, runOp(runtime, other, [a, b], {})[0]), [1]);
        assert.deepEqual(read(runtime, runOp(runtime, plus, [a, b], {})[0]), [3]);
      }),
    );
  });
});

function copyOf(lowering: Lowering, a: DeviceArray | number | undefined, out: DeviceArray | undefined): void {
  if (typeof a === "object") lowering.copy(out!.storage!, a.storage!);
}

describe("a lowering is not cached", () => {
  test("if it fails", () => {
    withRuntime({}, ({ runtime }) =>
      runtime.step(() => {
        let isFailing = true;
        const failing: KernelOp<Attributes> = {
          ...plus,
          lower(...parameters) {
            plus.lower(...parameters);
            if (isFailing) throw new Error("injected");
          },
        };
        const [a, b] = [allocate(runtime, [1]), allocate(runtime, [2])];
        assert.throws(() => runOp(runtime, failing, [a, b], {}), /injected/);
        isFailing = false;
        for (let iteration = 0; iteration < 2; iteration++)
          assert.deepEqual(read(runtime, runOp(runtime, failing, [a, b], {})[0]), [3]);
        assert.equal(counts.lower, 2);
      }),
    );
  });

  test("if it uses memory that is no operand", () => {
    withRuntime({}, ({ runtime }) =>
      runtime.step(() => {
        const hidden = allocate(runtime, [100]);
        const usesHidden: KernelOp<Attributes> = {
          ...plus,
          lower(lowering, [a], [out]) {
            counts.lower += 1;
            launch(lowering, "add", [(a as DeviceArray).storage!, hidden.storage!, out!.storage!], 1);
          },
        };
        for (let iteration = 1; iteration <= 3; iteration++) {
          const [out] = runOp(runtime, usesHidden, [allocate(runtime, [iteration])], {});
          assert.deepEqual([read(runtime, out), counts.lower], [[iteration + 100], iteration]);
        }
      }),
    );
  });

  test("while the cache is off, and is cached by the next call when it is on", () => {
    withRuntime({}, ({ runtime }) =>
      runtime.step(() => {
        const [a, b] = [allocate(runtime, [1]), allocate(runtime, [2])];
        const cache = loweringCacheOf(runtime);
        cache.isOn = false;
        for (let iteration = 0; iteration < 2; iteration++) runOp(runtime, plus, [a, b], {});
        assert.equal(counts.lower, 2);
        cache.isOn = true;
        for (let iteration = 0; iteration < 3; iteration++) runOp(runtime, plus, [a, b], {});
        assert.equal(counts.lower, 3);
      }),
    );
  });
});

describe("the neighbours of persistent operands in their region", () => {
  afterEach(() => {
    addNeighbour.dependsOnAddresses = true;
  });

  /** `a` plus the next array of its region, which is no operand. */
  const addNeighbour: { -readonly [K in keyof KernelOp<Attributes>]: KernelOp<Attributes>[K] } = {
    ...plus,
    name: "addNeighbour",
    dependsOnAddresses: true,
    lower(lowering, [operand], [out]) {
      counts.lower += 1;
      const a = operand as DeviceArray;
      const { whole } = a.storage!.home as Region;
      const next = lowering.view(
        whole,
        a.storage!.span.address - whole.span.address + 256,
        a.storage!.span.size,
      );
      launch(lowering, "add", [a.storage!, next, out!.storage!], elementsOf(a));
    },
  };

  const placeWeights = (
    runtime: Runtime,
    values: readonly number[],
  ): { region: Region; arrays: readonly DeviceArray[] } => {
    const region = runtime.persistent.place(
      "weights",
      "weights",
      values.map((_, index) => ({ name: `w${index}`, size: 4 })),
    );
    for (const [index, storage] of region.storages.entries()) writeF32(runtime, storage, [values[index]!]);
    const arrays = region.storages.map(
      (storage): DeviceArray => ({ shape: [1], strides: [1], dtype: "f32", storage }),
    );
    return { region, arrays };
  };

  test("are in a cached lowering if the op depends on addresses", () => {
    withRuntime({}, ({ runtime }) =>
      runtime.step(() => {
        const { arrays } = placeWeights(runtime, [1, 10, 100]);
        for (const [index, sum] of [11, 110, 11, 110].entries()) {
          const [out] = runOp(runtime, addNeighbour, [arrays[index % 2]!], {});
          assert.deepEqual(read(runtime, out), [sum]);
        }
        // One for each address.
        assert.equal(counts.lower, 2);
      }),
    );
  });

  test("prevent caching if the op does not declare that it depends on addresses", () => {
    addNeighbour.dependsOnAddresses = false;
    withRuntime({}, ({ runtime }) =>
      runtime.step(() => {
        const { arrays } = placeWeights(runtime, [1, 10, 100]);
        for (const [index, sum] of [11, 110, 11, 110].entries())
          assert.deepEqual(read(runtime, runOp(runtime, addNeighbour, [arrays[index % 2]!], {})[0]), [sum]);
        assert.equal(counts.lower, 4);
      }),
    );
  });

  test("are not taken from a released region, even if a new region has its address", () => {
    withRuntime({}, ({ runtime }) => {
      const addresses = new Set<number>();
      for (let iteration = 1; iteration <= 3; iteration++) {
        const { region, arrays } = placeWeights(runtime, [iteration, 10]);
        addresses.add(region.span.address);
        for (let again = 0; again < 2; again++) {
          runtime.step(() =>
            assert.deepEqual(read(runtime, runOp(runtime, addNeighbour, [arrays[0]!], {})[0]), [
              iteration + 10,
            ]),
          );
        }
        assert.equal(counts.lower, iteration);
        runtime.persistent.release(region);
      }
      assert.ok(addresses.size < 3, "the test needs an address that is used twice");
    });
  });
});

describe("a shape that a caller modifies afterwards", () => {
  /** Its result has the shape in the attributes. */
  const shaped: KernelOp<{ readonly shape: readonly number[] }> = {
    kind: "kernel",
    name: "shaped",
    infer(_, { shape }) {
      counts.infer += 1;
      return [{ shape, dtype: "f32" }];
    },
    lower: (lowering, _, [out]) => lowering.fill(out!.storage!, 0),
  };

  test("changes neither earlier nor later results", () => {
    withRuntime({}, ({ runtime }) =>
      runtime.step(() => {
        const shape = [2, 3];
        const [first] = runOp(runtime, shaped, [], { shape });
        shape[0] = 7;
        const [second] = runOp(runtime, shaped, [], { shape: [2, 3] });
        assert.deepEqual(
          [first!.shape, second!.shape],
          [
            [2, 3],
            [2, 3],
          ],
        );
        const [third] = runOp(runtime, shaped, [], { shape });
        assert.deepEqual(third!.shape, [7, 3]);
        assert.equal(counts.infer, 2);
      }),
    );
  });

  test("changes no views either", () => {
    const reshaped: ViewOp<{ readonly shape: readonly number[] }> = {
      kind: "view",
      name: "reshaped",
      infer(_, { shape }) {
        counts.infer += 1;
        return [{ shape, dtype: "f32" }];
      },
      view: (_, { shape }) => ({ shape, strides: contiguousStrides(shape) }),
    };
    withRuntime({}, ({ runtime }) =>
      runtime.step(() => {
        const array = allocate(runtime, [1, 2, 3, 4, 5, 6]);
        const shape = [2, 3];
        const [first] = runOp(runtime, reshaped, [array], { shape });
        shape[0] = 1;
        shape[1] = 6;
        const [second] = runOp(runtime, reshaped, [array], { shape: [2, 3] });
        const [third] = runOp(runtime, reshaped, [array], { shape });
        assert.deepEqual(
          [first!.shape, second!.shape, third!.shape],
          [
            [2, 3],
            [2, 3],
            [1, 6],
          ],
        );
        assert.equal(counts.infer, 2);
      }),
    );
  });
});

test("each layout of operands is lowered once", () => {
  withRuntime({}, ({ runtime }) =>
    runtime.step(() => {
      const whole = allocate(
        runtime,
        Array.from({ length: 64 }, (_, index) => index),
      );
      const viewAt = (offset: number, size: number): DeviceArray =>
        viewArray(runtime, whole, { shape: [size], strides: [1], offset }, "view");
      const layouts: readonly (() => readonly DeviceArray[])[] = [
        () => [viewAt(0, 4), viewAt(8, 4)],
        () => [viewAt(1, 4), viewAt(8, 4)],
        () => [viewAt(0, 4), viewAt(9, 4)],
        () => [viewAt(0, 4), viewAt(0, 4)],
        () => [viewAt(0, 5), viewAt(8, 5)],
      ];
      for (let iteration = 0; iteration < 3; iteration++) {
        for (const [index, layout] of layouts.entries()) {
          const operands = layout();
          const expected = read(runtime, operands[0]).map(
            (value, element) => value + read(runtime, operands[1])[element]!,
          );
          assert.deepEqual(read(runtime, runOp(runtime, plus, operands, {})[0]), expected);
          assert.equal(counts.lower, iteration === 0 ? index + 1 : layouts.length);
        }
      }
    }),
  );
});

test("hundreds of different calls are right, and the cache does not keep all of them", () => {
  withRuntime({}, ({ runtime }) => {
    const call = (number: number) =>
      runtime.step(() => {
        const [out] = runOp(runtime, plus, [allocate(runtime, [1]), allocate(runtime, [2])], { number });
        assert.deepEqual(read(runtime, out), [3]);
      });
    for (let number = 0; number < 700; number++) call(number);
    assert.equal(counts.lower, 700);
    call(699);
    assert.equal(counts.lower, 700);
    call(0);
    assert.equal(counts.lower, 701);
  });
});
