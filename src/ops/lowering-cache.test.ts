/** The lowering cache: a call like an earlier one is not lowered again; a call that differs in anything is. */

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

/** How often the rules were asked, and what was sent to the device. */
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
  given: readonly (Storage | number)[],
  count: number,
) {
  const source = basicKernels[name];
  lowering.launch({ op: name, source, blocks: blockCount(count), arguments: [...given, count] });
}

/** `a + b` of f32 arrays that lie in order; with an attribute that nobody looks at. */
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

/** `2 · (a + 1)` by way of scratch memory, a view of it, a fill and a copy. */
const winding: KernelOp<Attributes> = {
  kind: "kernel",
  name: "winding",
  infer: ([a]) => [a as DeviceArray],
  lower(lowering, operands, [out]) {
    counts.lower += 1;
    const a = arrayAt(operands, 0);
    const [count, size] = [elementsOf(a), 4 * elementsOf(a)];
    const room = lowering.scratch(2 * size);
    const [ones, sum] = [lowering.view(room, 0, size), lowering.view(room, size, size)];
    lowering.fill(room, 0);
    launch(lowering, "fill", [ones, 1], count);
    launch(lowering, "add", [a.storage!, ones, sum], count);
    lowering.copy(out!.storage!, sum);
    const doubled = lowering.scratchArray(a.shape, "f32");
    launch(lowering, "add", [sum, out!.storage!, doubled.storage!], count);
    lowering.copy(out!.storage!, doubled.storage!);
  },
};

function place(runtime: Runtime, values: readonly number[], label = "operand"): DeviceArray {
  const storage = runtime.arena.allocate(4 * values.length, label);
  writeF32(runtime, storage, values);
  return { shape: [values.length], strides: [1], dtype: "f32", storage };
}

const read = (runtime: Runtime, array: DeviceArray | undefined): number[] => [
  ...readF32(runtime, array!.storage!),
];

describe("a call like one before", () => {
  test("is checked and does the same work, and neither its type nor its lowering is asked for again", () => {
    withRuntime({}, ({ runtime }) => {
      for (let turn = 0; turn < 4; turn++) {
        runtime.step(() => {
          const [a, b] = [place(runtime, [turn, 2, 3]), place(runtime, [10, 20, 30])];
          const [out] = runOp(runtime, plus, [a, b], { turn: "same" });
          assert.deepEqual(read(runtime, out), [turn + 10, 22, 33]);
          assert.deepEqual([out!.shape, out!.strides, out!.dtype], [[3], [1], "f32"]);
        });
      }
      assert.deepEqual(counts, { infer: 1, check: 4, lower: 1 });
    });
  });

  test("gives scratch memory and views back, as the first one did", () => {
    withRuntime({}, ({ runtime }) => {
      for (let turn = 0; turn < 3; turn++) {
        runtime.step(() => {
          const a = place(runtime, [1, 2, turn]);
          const before = runtime.arena.figures.live;
          const [out] = runOp(runtime, winding, [a], {});
          assert.deepEqual(read(runtime, out), [4, 6, 2 * (turn + 1)]);
          assert.equal(runtime.arena.figures.live - before, 256);
          // A storage that still had views could not be freed.
          runtime.arena.free(out!.storage!);
          runtime.arena.free(a.storage!);
        });
      }
      assert.equal(counts.lower, 1);
    });
  });

  test("is recorded by a capture as the first one would be", () => {
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
      const act = () => runInto(runtime, plus, out!, [a!, b!], {});
      act();
      const graph = runtime.capture("plus", act);
      assert.deepEqual([graph.mode, graph.nodes?.kernel], ["graph", 1]);
      writeF32(runtime, a!.storage!, [5, 6, 7]);
      graph.replay();
      assert.deepEqual(read(runtime, out), [6, 7, 8]);
      assert.equal(counts.lower, 1);
    });
  });

  test("in place is followed in place, and one with another target is not the same", () => {
    withRuntime({}, ({ runtime }) =>
      runtime.step(() => {
        for (let turn = 0; turn < 2; turn++) {
          const [a, b] = [place(runtime, [1, 2]), place(runtime, [10, 20])];
          const address = a.storage!.span.address;
          runInto(runtime, plus, a, [a, b], {});
          assert.deepEqual([read(runtime, a), a.storage!.span.address], [[11, 22], address]);
        }
        assert.equal(counts.lower, 1);
        const [a, b, target] = [place(runtime, [1, 2]), place(runtime, [10, 20]), place(runtime, [0, 0])];
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

  test("that fails on the device gives back its output and its scratch memory", () => {
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
          const a = place(runtime, [1, 2, 3]);
          runOp(runtime, winding, [a], {});
          const before = runtime.arena.figures.live;
          isFailing = true;
          assert.throws(() => runOp(runtime, winding, [a], {}), /injected/);
          isFailing = false;
          assert.equal(runtime.arena.figures.live, before);
          assert.deepEqual(read(runtime, runOp(runtime, winding, [a], {})[0]), [4, 6, 8]);
          assert.equal(counts.lower, 1);
        }),
      failing,
    );
  });

  test("on another runtime is worked out there", () => {
    for (let turn = 1; turn <= 2; turn++) {
      withRuntime({}, ({ runtime }) =>
        runtime.step(() => {
          const [out] = runOp(runtime, plus, [place(runtime, [1]), place(runtime, [2])], {});
          assert.deepEqual(read(runtime, out), [3]);
        }),
      );
      assert.equal(counts.lower, turn);
    }
  });

  test("of another op with the same operands is another op's", () => {
    withRuntime({}, ({ runtime }) =>
      runtime.step(() => {
        const other = {
          ...plus,
          lower: (lowering, [a], [out]) => copyOf(lowering, a, out),
        } as KernelOp<Attributes>;
        const [a, b] = [place(runtime, [1]), place(runtime, [2])];
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
  test("of a lowering that fails", () => {
    withRuntime({}, ({ runtime }) =>
      runtime.step(() => {
        let isFailing = true;
        const moody: KernelOp<Attributes> = {
          ...plus,
          lower(...given) {
            plus.lower(...given);
            if (isFailing) throw new Error("not today");
          },
        };
        const [a, b] = [place(runtime, [1]), place(runtime, [2])];
        assert.throws(() => runOp(runtime, moody, [a, b], {}), /not today/);
        isFailing = false;
        for (let turn = 0; turn < 2; turn++)
          assert.deepEqual(read(runtime, runOp(runtime, moody, [a, b], {})[0]), [3]);
        assert.equal(counts.lower, 2);
      }),
    );
  });

  test("of a lowering that uses memory which no call could name", () => {
    withRuntime({}, ({ runtime }) =>
      runtime.step(() => {
        const hidden = place(runtime, [100]);
        const secretive: KernelOp<Attributes> = {
          ...plus,
          lower(lowering, [a], [out]) {
            counts.lower += 1;
            launch(lowering, "add", [(a as DeviceArray).storage!, hidden.storage!, out!.storage!], 1);
          },
        };
        for (let turn = 1; turn <= 3; turn++) {
          const [out] = runOp(runtime, secretive, [place(runtime, [turn])], {});
          assert.deepEqual([read(runtime, out), counts.lower], [[turn + 100], turn]);
        }
      }),
    );
  });

  test("while the cache is off, and is from the next call on", () => {
    withRuntime({}, ({ runtime }) =>
      runtime.step(() => {
        const [a, b] = [place(runtime, [1]), place(runtime, [2])];
        const cache = loweringCacheOf(runtime);
        cache.isOn = false;
        for (let turn = 0; turn < 2; turn++) runOp(runtime, plus, [a, b], {});
        assert.equal(counts.lower, 2);
        cache.isOn = true;
        for (let turn = 0; turn < 3; turn++) runOp(runtime, plus, [a, b], {});
        assert.equal(counts.lower, 3);
      }),
    );
  });
});

describe("what lies beside persistent operands", () => {
  afterEach(() => {
    beside.looksAtAddresses = true;
  });

  /** `a + the next of its region`: the region's whole is no operand. */
  const beside: { -readonly [K in keyof KernelOp<Attributes>]: KernelOp<Attributes>[K] } = {
    ...plus,
    name: "beside",
    looksAtAddresses: true,
    lower(lowering, [given], [out]) {
      counts.lower += 1;
      const a = given as DeviceArray;
      const { whole } = a.storage!.home as Region;
      const next = lowering.view(
        whole,
        a.storage!.span.address - whole.span.address + 256,
        a.storage!.span.size,
      );
      launch(lowering, "add", [a.storage!, next, out!.storage!], elementsOf(a));
    },
  };

  const placed = (
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

  test("is named by a cached lowering where the op says that it looks there", () => {
    withRuntime({}, ({ runtime }) =>
      runtime.step(() => {
        const { arrays } = placed(runtime, [1, 10, 100]);
        for (const [index, sum] of [11, 110, 11, 110].entries()) {
          const [out] = runOp(runtime, beside, [arrays[index % 2]!], {});
          assert.deepEqual(read(runtime, out), [sum]);
        }
        // One for each place.
        assert.equal(counts.lower, 2);
      }),
    );
  });

  test("prevents caching where the op does not say so", () => {
    beside.looksAtAddresses = false;
    withRuntime({}, ({ runtime }) =>
      runtime.step(() => {
        const { arrays } = placed(runtime, [1, 10, 100]);
        for (const [index, sum] of [11, 110, 11, 110].entries())
          assert.deepEqual(read(runtime, runOp(runtime, beside, [arrays[index % 2]!], {})[0]), [sum]);
        assert.equal(counts.lower, 4);
      }),
    );
  });

  test("is not looked for where its region was released, though another lies in its place", () => {
    withRuntime({}, ({ runtime }) => {
      const addresses = new Set<number>();
      for (let turn = 1; turn <= 3; turn++) {
        const { region, arrays } = placed(runtime, [turn, 10]);
        addresses.add(region.span.address);
        for (let again = 0; again < 2; again++) {
          runtime.step(() =>
            assert.deepEqual(read(runtime, runOp(runtime, beside, [arrays[0]!], {})[0]), [turn + 10]),
          );
        }
        assert.equal(counts.lower, turn);
        runtime.persistent.release(region);
      }
      assert.ok(addresses.size < 3, "the test needs a place that is taken twice");
    });
  });
});

describe("lists that a caller changes afterwards", () => {
  /** Its result has the shape that the attributes say. */
  const shaped: KernelOp<{ readonly shape: readonly number[] }> = {
    kind: "kernel",
    name: "shaped",
    infer(_, { shape }) {
      counts.infer += 1;
      return [{ shape, dtype: "f32" }];
    },
    lower: (lowering, _, [out]) => lowering.fill(out!.storage!, 0),
  };

  test("change neither what was made of them nor what is made later", () => {
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

  test("do no harm to views either", () => {
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
        const array = place(runtime, [1, 2, 3, 4, 5, 6]);
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

test("operands that lie differently are worked out each, and each once", () => {
  withRuntime({}, ({ runtime }) =>
    runtime.step(() => {
      const whole = place(
        runtime,
        Array.from({ length: 64 }, (_, index) => index),
      );
      const at = (offset: number, size: number): DeviceArray =>
        viewArray(runtime, whole, { shape: [size], strides: [1], offset }, "part");
      const forms: readonly (() => readonly DeviceArray[])[] = [
        () => [at(0, 4), at(8, 4)],
        () => [at(1, 4), at(8, 4)],
        () => [at(0, 4), at(9, 4)],
        () => [at(0, 4), at(0, 4)],
        () => [at(0, 5), at(8, 5)],
      ];
      for (let turn = 0; turn < 3; turn++) {
        for (const [index, form] of forms.entries()) {
          const operands = form();
          const expected = read(runtime, operands[0]).map(
            (value, place) => value + read(runtime, operands[1])[place]!,
          );
          assert.deepEqual(read(runtime, runOp(runtime, plus, operands, {})[0]), expected);
          assert.equal(counts.lower, turn === 0 ? index + 1 : forms.length);
        }
      }
    }),
  );
});

test("thousands of different calls are all right, and not all of them kept", () => {
  withRuntime({}, ({ runtime }) => {
    const call = (number: number) =>
      runtime.step(() => {
        const [out] = runOp(runtime, plus, [place(runtime, [1]), place(runtime, [2])], { number });
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
