/** Ops whose elements are functions of the index: random calls, compared with that function. */

import assert from "node:assert/strict";
import fc from "fast-check";
import type { Attributes, Op, Shape } from "../../src/ops/index.js";
import type { Device } from "../../src/tensor/index.js";
import type { CaseCall, OpCase } from "./op-cases/op-case.js";
import { describeCall, runCase } from "./op-runs.js";

/** An operand on the host: its shape, and its element at an index. */
export interface HostArray {
  readonly shape: Shape;
  at(...place: readonly number[]): number;
}

/** The result's shape, and its element at each index. */
export interface Expected {
  readonly shape: Shape;
  readonly at: (place: readonly number[]) => number;
}

/** Generates every case of an op, and compares each element of the result with the expected one, exactly. */
export function holdElements<A extends Attributes>(
  device: Device,
  cases: readonly OpCase[],
  op: Op<A>,
  expected: (attributes: A, ...operands: readonly HostArray[]) => Expected,
): void {
  const own = cases.filter((one) => one.op === (op as unknown as Op));
  assert.ok(own.length > 0, `no case generates ${op.name}`);
  for (const one of own) {
    fc.assert(
      fc.property(one.draw(60), (call) => {
        const { shape, at } = expected(call.attributes as A, ...call.operands.map(hostArray));
        device.step(() => {
          const run = runCase(device, one.op, call, { float: "f64", wanted: [] });
          const what = describeCall(one.op, call);
          assert.deepEqual(run.outputTypes[0]?.shape, shape, what);
          const found = run.outputs[0]!;
          const places = placesIn(shape);
          assert.equal(found.length, places.length, what);
          for (const [index, place] of places.entries()) {
            assert.equal(found[index], at(place), `${what} at [${place.join(", ")}]`);
          }
        });
      }),
      { seed: 20_240_611, numRuns: 150 },
    );
  }
}

function hostArray(operand: CaseCall["operands"][number]): HostArray {
  if (typeof operand !== "object") return { shape: [], at: () => Number(operand) };
  const { shape, values } = operand;
  return {
    shape,
    at: (...place) => {
      for (const [axis, one] of place.entries())
        assert.ok(one >= 0 && one < shape[axis]!, "inside the operand");
      assert.equal(place.length, shape.length);
      return values[place.reduce((index, one, axis) => index * shape[axis]! + one, 0)]!;
    },
  };
}

/** Every index of a shape, the last axis fastest. */
export function placesIn(shape: Shape): readonly (readonly number[])[] {
  return shape.reduce<readonly (readonly number[])[]>(
    (places, size) => places.flatMap((place) => Array.from({ length: size }, (_, one) => [...place, one])),
    [[]],
  );
}
