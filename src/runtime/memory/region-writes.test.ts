/** The writes that a region counts: no byte of it changes without a count, whatever work a runtime does. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { add, copyValues, scale, setAll } from "../../../test/support/basic-ops.js";
import { effort } from "../../../test/support/effort.js";
import { withMethods } from "../../../test/support/replaced-methods.js";
import { withRuntime } from "../../../test/support/runtimes.js";
import type { Replayable } from "../capture/captures.js";
import { Work } from "../capture/work.js";
import type { Runtime } from "../runtime.js";
import type { Region } from "./persistent.js";
import type { Storage } from "./storage.js";

const elements = 100;
const regionNames = ["weights", "others"] as const;

interface Machine {
  readonly runtime: Runtime;
  readonly regions: readonly [Region, Region];
  readonly graphs: Replayable[];
}

/** Work on two storages of any regions, with a value. Views are as good as storages. */
const operations: Readonly<
  Record<string, (machine: Machine, target: Storage, source: Storage, value: number) => void>
> = {
  fill: ({ runtime }, target, _, value) => runtime.fill(target, value),
  copy: ({ runtime }, target, source) => runtime.copy(target, source),
  "launch, out": ({ runtime }, target, _, value) => setAll(runtime, target, value),
  "launch, in and out": ({ runtime }, target, source) => copyValues(runtime, target, source),
  "launch, inout": ({ runtime }, target, source) => add(runtime, target, source, target),
  "launch on a side stream": ({ runtime }, target, _, value) => {
    const [side] = runtime.sideStreams(1);
    if (!side) return;
    runtime.orderStreams(runtime.stream, side);
    setAll(runtime, target, value, side);
    runtime.orderStreams(side, runtime.stream);
  },
  "launch in a step": ({ runtime }, target, _, value) =>
    runtime.step(() => {
      const memory = runtime.arena.allocate(4 * elements, "step memory");
      setAll(runtime, memory, value);
      copyValues(runtime, target, memory);
    }),
  upload: ({ runtime }, target, _, value) =>
    void runtime.upload([{ source: new Float32Array(elements).fill(value), target }]),
  "upload to neighbours": ({ runtime, regions: [region] }, _, __, value) =>
    void runtime.upload(
      region.storages.map((target) => ({ source: new Float32Array(elements).fill(value), target })),
    ),
  capture: ({ runtime, graphs }, target, source) =>
    void graphs.push(runtime.capture("work", () => add(runtime, target, source, target))),
  "capture for timing": ({ runtime, graphs }, target, source) =>
    void graphs.push(runtime.captureForTiming("work", () => scale(runtime, target, source, target))),
  "rejected capture": ({ runtime }, target, _, value) => {
    assert.throws(() =>
      runtime.capture("rejected", () => {
        setAll(runtime, target, value);
        runtime.synchronize();
      }),
    );
  },
  replay: ({ graphs }, _, __, value) => graphs[value % Math.max(1, graphs.length)]?.replay(),
  read: ({ runtime }, target) => void runtime.read(target),
};

interface Operation {
  readonly name: string;
  /** Indices of storages. */
  readonly target: number;
  readonly source: number;
  readonly value: number;
}

const anyOperations: fc.Arbitrary<Operation[]> = fc.array(
  fc.record({
    name: fc.constantFrom(...Object.keys(operations)),
    target: fc.nat({ max: 5 }),
    source: fc.nat({ max: 5 }),
    value: fc.integer({ min: 1, max: 100 }),
  }),
  { minLength: 1, maxLength: 12 },
);

/** Runs operations; the first of them that changes a region without a count, or undefined. */
function uncounted(list: readonly Operation[]): string | undefined {
  return withRuntime({ capture: "on", memory: "256MiB" }, ({ runtime, device }) => {
    const regions = regionNames.map((label) =>
      runtime.persistent.place(
        "weights",
        label,
        ["a", "b"].map((name) => ({ name, size: 4 * elements })),
      ),
    ) as unknown as [Region, Region];
    for (const { whole } of regions) runtime.fill(whole, 0);
    const storages = regions.flatMap(({ storages: own, whole }) => [
      ...own,
      runtime.view(whole, 0, 4 * elements, "view"),
    ]);
    const machine: Machine = { runtime, regions, graphs: [] };
    const look = () =>
      regions.map(({ span, writes }) => {
        runtime.synchronize();
        return { bytes: Buffer.from(device.deviceBytes(span)).toString("hex"), writes };
      });
    let before = look();
    for (const { name, target, source, value } of list) {
      const [to, from] = [storages[target], storages[source]];
      // A copy to itself is not allowed, nor is a launch on two overlapping operands.
      if (!to || !from || to.span.address === from.span.address) continue;
      operations[name]?.(machine, to, from, value);
      const after = look();
      const isUncounted = after.some(
        ({ bytes, writes }, index) => bytes !== before[index]?.bytes && writes === before[index]?.writes,
      );
      if (isUncounted) return name;
      before = after;
    }
    for (const graph of machine.graphs) graph.close();
    return undefined;
  });
}

test("a region's bytes change only when its count of writes does", () => {
  fc.assert(
    fc.property(anyOperations, (list) => {
      assert.equal(uncounted(list), undefined);
    }),
    { numRuns: effort({ quick: 30, thorough: 300 }) },
  );
});

test("each operation but a read counts", () => {
  for (const name of Object.keys(operations)) {
    withRuntime({ capture: "on", memory: "256MiB" }, ({ runtime }) => {
      const regions = regionNames.map((label) =>
        runtime.persistent.place("weights", label, [{ name: "a", size: 4 * elements }]),
      ) as unknown as [Region, Region];
      const [region, other] = regions;
      for (const { whole } of regions) runtime.fill(whole, 0);
      const graph = runtime.capture("graph", () => setAll(runtime, region.storages[0]!, 1));
      const [target, source] = [region.storages[0]!, other.storages[0]!];
      const before = [region.writes, other.writes];
      operations[name]!({ runtime, regions, graphs: [graph] }, target, source, 7);
      assert.equal(region.writes > before[0]!, name !== "read", name);
      assert.equal(other.writes, before[1], `${name} only reads its source`);
    });
  }
});

test("red proof: launches that do not count are found", () => {
  const { launch } = Work.prototype;
  const silently: Partial<Work> = {
    launch(this: Work, request) {
      const counts = request.arguments.map((value) =>
        typeof value === "number" ? undefined : ([value.home, (value.home as Region).writes] as const),
      );
      launch.call(this, request);
      for (const count of counts) if (count?.[1] !== undefined) Object.assign(count[0], { writes: count[1] });
    },
  };
  const list = [{ name: "launch, out", target: 0, source: 3, value: 7 }];
  assert.equal(uncounted(list), undefined);
  assert.equal(
    withMethods(Work.prototype, silently, () => uncounted(list)),
    "launch, out",
  );
});
