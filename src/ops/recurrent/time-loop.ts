/** The loop over the steps of a recurrent layer: arrays that move with time, and the kernel of a cell over their parts. */

import { dtypes, iterateElements } from "../../ir/index.js";
import { type DeviceArray, extentOf } from "../device-array.js";
import type { Loop, Lowering, ViewOfOperand } from "../op.js";
import type { CellKernel } from "./cells.js";

/** Operands of a loop over time: arrays whose first axis is time, and others that every step shares. */
export class TimeLoop {
  readonly #operands: Record<string, Loop["operands"][string]> = {};
  readonly #arrays = new Map<string, { readonly array: DeviceArray; readonly first: number }>();
  readonly #sign: 1 | -1;

  constructor(isReversed: boolean) {
    this.#sign = isReversed ? -1 : 1;
  }

  get operands(): Loop["operands"] {
    return this.#operands;
  }

  /** An array [rows of time, …], of which the first step sees the row `first`. */
  move(name: string, array: DeviceArray, access: "in" | "out" | "inout", first: number): void {
    this.#add(name, array, access, first, this.#sign * (array.strides[0] ?? 0) * dtypes[array.dtype].bytes);
  }

  /** An array that all steps share. */
  share(name: string, array: DeviceArray, access: "in" | "out" | "inout"): void {
    this.#add(name, { ...array, shape: [1, ...array.shape], strides: [0, ...array.strides] }, access, 0, 0);
  }

  /** The part of an array that a step sees, `rowsOff` rows from its own. `plane`: one of several next to each other along `axis`. */
  at(
    view: ViewOfOperand,
    name: string,
    { rowsOff = 0, plane }: { readonly rowsOff?: number; readonly plane?: Plane } = {},
  ): DeviceArray {
    const entry = this.#arrays.get(name);
    if (!entry) throw new Error(`The loop over time has no array "${name}".`);
    const { array, first } = entry;
    const { bytes } = dtypes[array.dtype];
    const rowStride = array.strides[0] ?? 0;
    const shape = array.shape.slice(1);
    const strides = array.strides.slice(1);
    let offset = (first + rowsOff) * rowStride;
    if (plane) {
      const { axis, index, size } = plane;
      offset += index * size * (strides[axis] ?? 0);
      shape[axis] = size;
    }
    const layout = { shape, strides };
    return { ...array, ...layout, storage: view(name, offset * bytes, extentOf(layout) * bytes) };
  }

  #add(
    name: string,
    array: DeviceArray,
    access: "in" | "out" | "inout",
    first: number,
    stride: number,
  ): void {
    if (!array.storage) return;
    this.#arrays.set(name, { array, first });
    this.#operands[name] = { storage: array.storage, access, stride };
  }
}

/** One of several equal parts of an axis. */
export interface Plane {
  readonly axis: number;
  readonly index: number;
  readonly size: number;
}

/** One row of an array's first axis, as a view of the lowering. */
export function rowOf(lowering: Lowering, array: DeviceArray, row: number): DeviceArray {
  const { dtype, storage } = array;
  const layout = { shape: array.shape.slice(1), strides: array.strides.slice(1) };
  if (!storage) return { ...layout, dtype, storage };
  const { bytes } = dtypes[dtype];
  const offset = row * (array.strides[0] ?? 0) * bytes;
  return { ...layout, dtype, storage: lowering.view(storage, offset, extentOf(layout) * bytes) };
}

/** The launch of a cell's kernel over [batch, hidden]. `partOf`: the part of an array that a plane is. */
export function lowerCell(
  lowering: Lowering,
  { kernel, inputs, outputs }: CellKernel,
  shape: readonly number[],
  partOf: (array: string, index: number) => DeviceArray,
): void {
  const planes = [...inputs, ...outputs].map((plane) => {
    const array = plane.replace(/\d+$/, "");
    return partOf(array, Number(plane.slice(array.length)));
  });
  lowering.row({
    kernel,
    iteration: iterateElements(
      shape,
      planes.map(({ strides }) => strides),
    ),
    operands: planes.flatMap(({ storage }) => storage ?? []),
  });
}

/** [1, batch, hidden] as [batch, hidden]. */
export function withoutFirstAxis(array: DeviceArray): DeviceArray {
  return { ...array, shape: array.shape.slice(1), strides: array.strides.slice(1) };
}

/** [batch] as [batch, hidden], every column the same. */
export function overHidden(array: DeviceArray, hidden: number): DeviceArray {
  return { ...array, shape: [...array.shape, hidden], strides: [...array.strides, 0] };
}
