/** Ops whose elements are functions of the index: random calls, compared with that function. */

import assert from "node:assert/strict";
import fc from "fast-check";
import type { Attributes, Op, Shape } from "../../src/ops/index.js";
import type { Device } from "../../src/tensor/index.js";
import { effort } from "./effort.js";
import type { CaseCall, OpCase } from "./op-cases/op-case.js";
import { describeCall, runCase } from "./op-runs.js";

/** An operand on the host: its shape, and its element at an index. */
export interface HostArray {
  readonly shape: Shape;
  at(...indices: readonly number[]): number;
}

/** The result's shape, and its element at each index. */
export interface Expected {
  readonly shape: Shape;
  readonly at: (indices: readonly number[]) => number;
}

/** Generates every case of an op, and compares each element of the result with the expected one, exactly. */
export function checkElements<A extends Attributes>(
  device: Device,
  cases: readonly OpCase[],
  op: Op<A>,
  expected: (attributes: A, ...operands: readonly HostArray[]) => Expected,
): void {
  const opCases = cases.filter((opCase) => opCase.op === (op as unknown as Op));
  assert.ok(opCases.length > 0, `no case generates ${op.name}`);
  for (const opCase of opCases) {
    fc.assert(
      fc.property(opCase.draw(60), (call) => {
        const { shape, at } = expected(call.attributes as A, ...call.operands.map(hostArray));
        device.step(() => {
          const run = runCase(device, opCase.op, call, { float: "f64", wanted: [] });
          const what = describeCall(opCase.op, call);
          assert.deepEqual(run.outputTypes[0]?.shape, shape, what);
          const actual = run.outputs[0]!;
          const allIndices = indicesIn(shape);
          assert.equal(actual.length, allIndices.length, what);
          for (const [index, indices] of allIndices.entries()) {
            assert.equal(actual[index], at(indices), `${what} at [${indices.join(", ")}]`);
          }
        });
      }),
      { seed: 20_240_611, numRuns: effort({ quick: 40, thorough: 150 }) },
    );
  }
}

function hostArray(operand: CaseCall["operands"][number]): HostArray {
  if (typeof operand !== "object") return { shape: [], at: () => Number(operand) };
  const { shape, values } = operand;
  return {
    shape,
    at: (...indices) => {
      for (const [axis, position] of indices.entries())
        assert.ok(position >= 0 && position < shape[axis]!, "inside the operand");
      assert.equal(indices.length, shape.length);
      return values[indices.reduce((index, position, axis) => index * shape[axis]! + position, 0)]!;
    },
  };
}

/** Every index of a shape, the last axis fastest. */
export function indicesIn(shape: Shape): readonly (readonly number[])[] {
  return shape.reduce<readonly (readonly number[])[]>(
    (all, size) =>
      all.flatMap((prefix) => Array.from({ length: size }, (_, position) => [...prefix, position])),
    [[]],
  );
}
