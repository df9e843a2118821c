/**
 * The check of indices in a compiled step. A step can't stop at a bad index, so the device writes the first one to memory. The step
 * then skips its writes to persistent memory, and the next read-back reports the index.
 */

import { type Dtype, iterateRows, type RowKernel, term } from "../../ir/index.js";
import { type DeviceArray, isContiguous } from "../device-array.js";
import type { CheckContext } from "../op.js";
import { sizeOf } from "../shape.js";
import { asIndexList } from "./index-list.js";

/** The valid indices: 0 … size − 1, and the ignored index. */
export interface IndexRange {
  readonly size: number;
  readonly ignored?: number;
  /** The limit in words, for messages: "axis 0 has 7". */
  readonly range: string;
}

/**
 * Lists up to this length are one row, for one block of 256 threads on a GPU. Longer lists are split into rows that one warp reduces.
 * The CUDA row kernels have the same limits for such blocks and warps, on every device.
 */
const maxOneRow = 8192;
const rowLength = 1024;
/** The position of the first bad index if there is none: larger than any list. */
const noPosition = 2 ** 31 - 1;

/** Emits a check for indices outside 0 … size − 1 that are not the ignored index. */
export function checkInStep(context: CheckContext, indices: DeviceArray, limits: IndexRange): void {
  const { runtime } = context;
  const index = isContiguous(indices) ? indices : asIndexList(context, indices);
  const count = sizeOf(index.shape);
  if (!index.storage || count === 0) return;
  const firstBad = runtime.arena.allocate(8, "first bad index"); // f64
  // Without an ignored index, use a value that is never reported as bad.
  const { size, ignored = size > 0 ? 0 : -(2 ** 31) } = limits;
  if (count <= maxOneRow) {
    context.row({
      kernel: kernelsFor(index.dtype).whole,
      iteration: iterateRows([count], [[1], [0]], 1),
      operands: [index.storage, firstBad],
      scalars: [size, ignored],
    });
  } else {
    const rows = Math.ceil(count / rowLength);
    const positions = context.scratch(4 * rows); // i32
    const elementBytes = index.storage.span.size / count;
    const fullRows = Math.floor(count / rowLength);
    const checkRows = (first: number, shape: readonly [number, number]): void => {
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
          context.view(index.storage, start * elementBytes, length * elementBytes),
          context.view(positions, 4 * first, 4 * shape[0]),
        ],
        scalars: [size, ignored, start],
      });
    };
    checkRows(0, [fullRows, rowLength]);
    checkRows(fullRows, [1, count - fullRows * rowLength]);
    context.row({
      kernel: kernelsFor(index.dtype).combine,
      iteration: iterateRows([rows], [[1], [0], [0]], 1),
      operands: [positions, index.storage, firstBad],
    });
  }
  context.submit();
  runtime.traceSink?.checkIndices(firstBad, { op: context.op, ...limits });
}

interface CheckKernels {
  /** The first bad index of a list, as f64; Infinity if there is none. */
  readonly whole: RowKernel;
  /** The position in the list of each row's first bad index. */
  readonly rows: RowKernel;
  /** The bad index at the first of several positions. */
  readonly combine: RowKernel;
}

const kernels = new Map<Dtype, CheckKernels>();

function kernelsFor(dtype: Dtype): CheckKernels {
  const cached = kernels.get(dtype);
  if (cached) return cached;
  const index = term.load(0, "i32");
  const isOutside = term.max(term.lt(index, 0), term.ge(index, term.scalar(0, "i32")));
  const isBad = term.min(isOutside, term.ne(index, term.scalar(1, "i32")));
  const badPosition = term.select(isBad, term.position, term.constant(noPosition, "i32"));
  const firstPosition = term.reduced(0, "i32");
  const isFound = term.lt(firstPosition, noPosition);
  const indexAtFirst = (input: number) =>
    term.select(
      isFound,
      term.convert(term.load(input, "i32", term.select(isFound, firstPosition, 0)), "f64"),
      term.constant(Infinity, "f64"),
    );
  const checkKernels: CheckKernels = {
    whole: {
      name: "check of indices",
      inputs: [dtype],
      outputs: [{ dtype: "f64", per: "row" }],
      scalars: ["i32", "i32"],
      stages: [
        { kind: "reduce", op: "min", value: badPosition },
        { kind: "store", output: 0, value: indexAtFirst(0) },
      ],
    },
    rows: {
      name: "check of indices by rows",
      inputs: [dtype],
      outputs: [{ dtype: "i32", per: "row" }],
      scalars: ["i32", "i32", "i32"],
      stages: [
        { kind: "reduce", op: "min", value: badPosition },
        {
          kind: "store",
          output: 0,
          value: term.select(
            isFound,
            term.add(
              term.add(firstPosition, term.scalar(2, "i32")),
              term.mul(term.row, term.constant(rowLength, "i32")),
            ),
            term.constant(noPosition, "i32"),
          ),
        },
      ],
    },
    combine: {
      name: "first bad index",
      inputs: ["i32", dtype],
      outputs: [{ dtype: "f64", per: "row" }],
      scalars: [],
      stages: [
        { kind: "reduce", op: "min", value: index },
        { kind: "store", output: 0, value: indexAtFirst(1) },
      ],
    },
  };
  kernels.set(dtype, checkKernels);
  return checkKernels;
}
