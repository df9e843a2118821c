/** Gathers rows on the device: the rows that an index lists, one behind the other. */

import { type Dtype, dtypes, iterateElements, launchRows, type RowKernel, term } from "../kernels/index.js";
import type { Runtime, Storage } from "../runtime/index.js";

const kernels = new Map<Dtype, RowKernel>();

/** (values, index) → the index's rows of the values; the scalar is a row's length. */
function gatherKernel(dtype: Dtype): RowKernel {
  const known = kernels.get(dtype);
  if (known) return known;
  const start = term.mul(term.load(1, "i32"), term.scalar(0, "i32"));
  const kernel: RowKernel = {
    name: "gather rows",
    inputs: [dtype, "i32"],
    outputs: [{ dtype, per: "element" }],
    scalars: ["i32"],
    stages: [{ kind: "store", output: 0, value: term.load(0, dtypes[dtype].compute, start) }],
  };
  kernels.set(dtype, kernel);
  return kernel;
}

export interface RowGathering {
  readonly dtype: Dtype;
  /** Elements in a row. */
  readonly width: number;
  /** How many rows are gathered. */
  readonly count: number;
  /** [rows, width] */
  readonly values: Storage;
  /** [count], i32, every number below the values' rows: nothing checks that on the device. */
  readonly index: Storage;
  /** [count, width] */
  readonly target: Storage;
}

export function gatherRows(runtime: Runtime, { dtype, width, count, ...storages }: RowGathering): void {
  launchRows(runtime, {
    kernel: gatherKernel(dtype),
    iteration: iterateElements(
      [count, width],
      [
        [0, 1],
        [1, 0],
        [width, 1],
      ],
    ),
    operands: [storages.values, storages.index, storages.target],
    scalars: [width],
  });
}
