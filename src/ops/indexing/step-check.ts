/**
 * The check of indices inside a compiled step. A step can't stop for a bad index, so the device looks for the first one and
 * leaves it as a number: the step's changes to persistent memory are skipped, and the host is told at the next read-back.
 */

import { type Dtype, iterateRows, type RowKernel, term } from "../../ir/index.js";
import { type DeviceArray, isContiguous } from "../device-array.js";
import type { CheckContext } from "../op.js";
import { sizeOf } from "../shape.js";
import { asIndexList } from "./index-list.js";
import type { IndexRange } from "./index-values.js";

/** Lists up to this length are one row, which one block of a GPU looks through; longer ones are cut into rows. */
const maxOneRow = 8192;
const rowLength = 1024;
/** Where no index is bad: a place that no list has. */
const nowhere = 2 ** 31 - 1;

/** Has the step look for an index outside 0 … size − 1 that is not the ignored one. */
export function checkInStep(context: CheckContext, given: DeviceArray, limits: IndexRange): void {
  const { runtime } = context;
  const index = isContiguous(given) ? given : asIndexList(context, given);
  const count = sizeOf(index.shape);
  if (!index.storage || count === 0) return;
  const found = runtime.arena.allocate(8, "first bad index"); // f64
  // Without an ignored index, use a value that is never reported as bad.
  const { size, ignored = size > 0 ? 0 : -(2 ** 31) } = limits;
  if (count <= maxOneRow) {
    context.row({
      kernel: kernelsFor(index.dtype).whole,
      iteration: iterateRows([count], [[1], [0]], 1),
      operands: [index.storage, found],
      scalars: [size, ignored],
    });
  } else {
    const rows = Math.ceil(count / rowLength);
    const places = context.scratch(4 * rows); // i32
    const element = index.storage.span.size / count;
    const whole = Math.floor(count / rowLength);
    const look = (first: number, shape: readonly [number, number]): void => {
      const [start, length] = [first * rowLength, shape[0] * shape[1]];
      if (length === 0 || !index.storage) return;
      context.row({
        kernel: kernelsFor(index.dtype).rows,
        iteration: iterateRows(
          shape,
          [
            [rowLength, 1],
            [1, 0],
          ],
          1,
        ),
        operands: [
          context.view(index.storage, start * element, length * element),
          context.view(places, 4 * first, 4 * shape[0]),
        ],
        scalars: [size, ignored, start],
      });
    };
    look(0, [whole, rowLength]);
    look(whole, [1, count - whole * rowLength]);
    context.row({
      kernel: kernelsFor(index.dtype).joined,
      iteration: iterateRows([rows], [[1], [0], [0]], 1),
      operands: [places, index.storage, found],
    });
  }
  context.submit();
  runtime.traceSink?.checkIndices(found, { op: context.op, ...limits });
}

interface CheckKernels {
  /** The first bad index of a list, as f64; Infinity where there is none. */
  readonly whole: RowKernel;
  /** The place of each row's first bad index in the list. */
  readonly rows: RowKernel;
  /** The bad index at the first of several places. */
  readonly joined: RowKernel;
}

const kernels = new Map<Dtype, CheckKernels>();

function kernelsFor(dtype: Dtype): CheckKernels {
  const known = kernels.get(dtype);
  if (known) return known;
  const index = term.load(0, "i32");
  const isOutside = term.max(term.lt(index, 0), term.ge(index, term.scalar(0, "i32")));
  const isBad = term.min(isOutside, term.ne(index, term.scalar(1, "i32")));
  const firstOf = term.select(isBad, term.position, term.constant(nowhere, "i32"));
  const place = term.reduced(0, "i32");
  const isFound = term.lt(place, nowhere);
  const valueIn = (input: number) =>
    term.select(
      isFound,
      term.convert(term.load(input, "i32", term.select(isFound, place, 0)), "f64"),
      term.constant(Infinity, "f64"),
    );
  const made: CheckKernels = {
    whole: {
      name: "check of indices",
      inputs: [dtype],
      outputs: [{ dtype: "f64", per: "row" }],
      scalars: ["i32", "i32"],
      stages: [
        { kind: "reduce", op: "min", value: firstOf },
        { kind: "store", output: 0, value: valueIn(0) },
      ],
    },
    rows: {
      name: "check of indices by rows",
      inputs: [dtype],
      outputs: [{ dtype: "i32", per: "row" }],
      scalars: ["i32", "i32", "i32"],
      stages: [
        { kind: "reduce", op: "min", value: firstOf },
        {
          kind: "store",
          output: 0,
          value: term.select(
            isFound,
            term.add(
              term.add(place, term.scalar(2, "i32")),
              term.mul(term.row, term.constant(rowLength, "i32")),
            ),
            term.constant(nowhere, "i32"),
          ),
        },
      ],
    },
    joined: {
      name: "first bad index",
      inputs: ["i32", dtype],
      outputs: [{ dtype: "f64", per: "row" }],
      scalars: [],
      stages: [
        { kind: "reduce", op: "min", value: index },
        { kind: "store", output: 0, value: valueIn(1) },
      ],
    },
  };
  kernels.set(dtype, made);
  return made;
}
