/** A column reduction over slices: its inputs, then its outputs. */

import type { ColumnKernel } from "../../../ir/index.js";
import { type ColumnLaunch, columnCalls, lowerCalls } from "../../../kernels/index.js";
import { accessOf } from "../access.js";
import type { BufferSlice } from "../buffer.js";
import type { Emission, Kind } from "./kind.js";

export interface ColumnCall extends Pick<ColumnLaunch, "rows" | "columns" | "strides" | "runs"> {
  readonly kind: "column";
  readonly kernel: ColumnKernel;
  readonly operands: readonly BufferSlice[];
  readonly scalars: readonly number[];
}

export const column: Kind<ColumnCall> = {
  accesses: ({ kernel: { inputs }, operands }) =>
    operands.map((slice, index) => accessOf(slice, index < inputs.length ? "in" : "out")),
  mapSlices: (work, to) => ({ ...work, operands: work.operands.map(to) }),
  key({ kernel, operands, ...rest }, { read, written, literal, identity }) {
    const slices = operands.map((slice, index) =>
      index < kernel.inputs.length ? read(slice) : written(slice),
    );
    return `${identity(kernel)} ${slices.join(" ")} ${literal(rest)}`;
  },
  name: ({ kernel }) => kernel.name,
  shape: ({ rows, columns }) => `${rows}×${columns}`,
  emit: (work, emission) => lowerCalls(emission.backend, columnCalls(columnLaunchOf(work, emission))),
};

export function columnLaunchOf(
  { kernel, rows, columns, strides, runs, operands, scalars }: ColumnCall,
  { resolve }: Pick<Emission, "resolve">,
): ColumnLaunch {
  return {
    ...{ kernel, rows, columns, strides, ...(runs && { runs }) },
    ...{ operands: operands.map(resolve), scalars },
  };
}
