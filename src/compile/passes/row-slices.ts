/**
 * Calls that can run on a range of their rows: for each operand, the bytes that belong to those rows. Rows of a GEMM are the rows of its
 * result (M), or the rows that it sums over (K). A GEMM that sums over its rows adds each range to the result of those before; a column sum stores partials.
 */

import { dtypes, factsOf, staysInRow, subexpressionsOf } from "../../ir/index.js";
import { isF32Sum, secondPhaseOf } from "../fusion/column-reductions.js";
import {
  type BufferSlice,
  type ColumnCall,
  forwardedOutput,
  type GemmCall,
  type GemmEpilogueCall,
  type RowCall,
  type Work,
} from "../program/program.js";

/** How an operand's memory belongs to rows. */
export interface RowSlice {
  readonly slice: BufferSlice;
  readonly writes: boolean;
  /** The distance between two steps of rows; 0 if all rows use the same memory. */
  readonly stepBytes: number;
  /** From the first byte of a step to its last. */
  readonly extentBytes: number;
  /** True for a result that each range has partials of, as large as the result. */
  readonly isPartial?: true;
}

export interface RowSliced {
  /** Ranges of rows begin at multiples of this. */
  readonly rowsPerStep: number;
  readonly slices: readonly RowSlice[];
  /** True if the ranges are summed, so that they have to run in order. */
  readonly isSum: boolean;
  /** The work on `count` rows from row `from` on. `at` maps every slice to the memory of those rows. */
  select(from: number, count: number, at: (slice: RowSlice) => BufferSlice): Work;
  /** The work that combines the partials of so many ranges; `at` maps a result to all of its partials. */
  combine?(ranges: number, at: (slice: RowSlice) => BufferSlice): Work;
}

type Problem = GemmCall["problem"];

/** The ways to run a call on ranges of `rows` rows; none if it cannot. */
export function rowSlicesOf(work: Work, rows: number): readonly RowSliced[] {
  switch (work.kind) {
    case "gemm":
      return [...(sliceM(work, rows) ?? []), ...(sliceK(work, rows) ?? [])];
    case "gemm-epilogue":
      return sliceM(work, rows) ?? [];
    case "row":
      return sliceRows(work, rows) ?? [];
    case "column":
      return sliceColumnSum(work, rows) ?? [];
    default:
      return [];
  }
}

/** The memory of `count` rows from row `from` on, in the operand's own buffer. */
export function sliceOfRows(
  { slice, stepBytes, extentBytes }: RowSlice,
  rowsPerStep: number,
  from: number,
  count: number,
): BufferSlice {
  if (stepBytes === 0) return slice;
  const [first, steps] = [from / rowsPerStep, count / rowsPerStep];
  return {
    buffer: slice.buffer,
    offset: slice.offset + first * stepBytes,
    size: (steps - 1) * stepBytes + extentBytes,
  };
}

/** A stored matrix whose rows, or columns, are the rows of the range. */
function matrixSlice(
  { slice, rowStride }: Problem["c"],
  elementBytes: number,
  along: "rows" | "columns",
  length: number,
  writes = false,
): RowSlice {
  const [step, extent] = along === "rows" ? [rowStride, length] : [1, (length - 1) * rowStride + 1];
  return { slice, writes, stepBytes: step * elementBytes, extentBytes: extent * elementBytes };
}

function sharedSlice(slice: BufferSlice, writes = false): RowSlice {
  return { slice, writes, stepBytes: 0, extentBytes: slice.size };
}

function sliceM(work: GemmCall | GemmEpilogueCall, rows: number): readonly RowSliced[] | undefined {
  const { problem } = work;
  const { m, n, k, batch = 1, beta = 0, dtype, resultDtype = dtype } = problem;
  if (m !== rows || batch !== 1 || beta !== 0 || n === 0 || k === 0) return undefined;
  const a = matrixSlice(problem.a, dtypes[dtype].bytes, problem.a.isTransposed ? "columns" : "rows", k);
  const b = sharedSlice(problem.b.slice);
  const c = matrixSlice(problem.c, dtypes[resultDtype].bytes, "rows", n, true);
  const bias = problem.bias && sharedSlice(problem.bias);
  const shared = [a, b, ...(bias ? [bias] : [])];
  const problemOf = (count: number, at: (slice: RowSlice) => BufferSlice): Problem => ({
    ...problem,
    m: count,
    ...{
      a: { ...problem.a, slice: at(a) },
      b: { ...problem.b, slice: at(b) },
      c: { ...problem.c, slice: at(c) },
    },
    ...(bias && { bias: at(bias) }),
  });
  if (work.kind === "gemm") {
    const select: RowSliced["select"] = (_, count, at) => ({ kind: "gemm", problem: problemOf(count, at) });
    return [{ rowsPerStep: 1, slices: [...shared, c], isSum: false, select }];
  }
  const { kernel, gemmInput, storesC, forwarded = [] } = work.epilogue;
  if (kernel.outputs.some(({ per }) => per !== "element")) return undefined;
  const { bytes, hasDraws } = factsOf(kernel);
  if (hasDraws) return undefined;
  const operands = work.operands.map((slice, index) => {
    const rowBytes = n * (bytes[index] ?? 1);
    return { slice, writes: index >= kernel.inputs.length, stepBytes: rowBytes, extentBytes: rowBytes };
  });
  const accessed = operands.filter((_, index) => index !== gemmInput && forwarded[index] === undefined);
  return [
    {
      ...{ rowsPerStep: 1, slices: [...shared, ...(storesC ? [c] : []), ...accessed], isSum: false },
      select: (_, count, at) => ({ ...work, problem: problemOf(count, at), operands: operands.map(at) }),
    },
  ];
}

/** Sums are f32 or f64: a narrower result would round every range. */
function sliceK({ problem }: GemmCall, rows: number): readonly RowSliced[] | undefined {
  const { m, n, k, batch = 1, dtype, resultDtype = dtype, bias, activation } = problem;
  if (k !== rows || batch !== 1 || bias || activation || m === 0 || n === 0) return undefined;
  if (resultDtype !== "f32" && resultDtype !== "f64") return undefined;
  const { bytes } = dtypes[dtype];
  const a = matrixSlice(problem.a, bytes, problem.a.isTransposed ? "rows" : "columns", m);
  const b = matrixSlice(problem.b, bytes, problem.b.isTransposed ? "columns" : "rows", n);
  const c = sharedSlice(problem.c.slice, true);
  const select: RowSliced["select"] = (from, count, at) => ({
    kind: "gemm",
    problem: {
      ...problem,
      k: count,
      ...{
        a: { ...problem.a, slice: at(a) },
        b: { ...problem.b, slice: at(b) },
        c: { ...problem.c, slice: at(c) },
      },
      ...(from > 0 && { beta: 1 }),
    },
  });
  return [{ rowsPerStep: 1, slices: [a, b, c], isSum: true, select }];
}

/** A row kernel, along its first axis. Kernels that know the row's index, sum columns or have draws need all rows. */
function sliceRows(work: RowCall, rows: number): readonly RowSliced[] | undefined {
  const { kernel, iteration, operands, scalars } = work;
  const { outer, row } = iteration;
  const facts = factsOf(kernel);
  const usesRow = kernel.stages.some(({ value }) =>
    subexpressionsOf(value).some(({ kind }) => kind === "row"),
  );
  if (usesRow || facts.hasDraws || kernel.outputs.some(({ per }) => per === "column")) return undefined;
  const [axis, ...inner] = outer;
  // Elementwise work over one long row has no rows of its own.
  const isFlat = axis === undefined && iteration.kind === "elements" && row.size % rows === 0;
  const steps = isFlat ? rows : (axis?.size ?? 0);
  if (steps === 0 || rows % steps !== 0) return undefined;
  const rowSize = isFlat ? row.size / rows : row.size;
  const slices = operands.map((slice, operand): RowSlice | undefined => {
    const bytes = facts.bytes[operand] ?? 1;
    const output = operand - kernel.inputs.length;
    const along = row.strides[operand] ?? 0;
    const step = isFlat ? along * rowSize : (axis?.strides[operand] ?? 0);
    const isPerRow = kernel.outputs[output]?.per === "row";
    const axes = [...inner, ...(isPerRow ? [] : [{ size: rowSize, strides: row.strides }])];
    if ([step, ...axes.map(({ strides }) => strides[operand] ?? 0)].some((stride) => stride < 0))
      return undefined;
    if (output >= 0 && step === 0 && steps > 1) return undefined;
    const isIndexed = output < 0 && facts.isReadAtIndex[operand] === true;
    if (
      isIndexed &&
      step > 0 &&
      !(inner.length === 0 && staysInRow(kernel, operand, (rowSize - 1) * along + 1, scalars))
    )
      return undefined;
    const last = axes.reduce((sum, { size, strides }) => sum + (size - 1) * (strides[operand] ?? 0), 0);
    return { slice, writes: output >= 0, stepBytes: step * bytes, extentBytes: (last + 1) * bytes };
  });
  if (!slices.every((slice) => slice !== undefined)) return undefined;
  const accessed = slices.filter(
    (_, operand) => operand >= kernel.inputs.length || forwardedOutput(work, operand) === undefined,
  );
  const rowsPerStep = rows / steps;
  const select: RowSliced["select"] = (_, count, at) => {
    const size = count / rowsPerStep;
    const selected = isFlat
      ? { ...iteration, row: { ...row, size: size * rowSize }, elements: size * rowSize }
      : {
          ...{ ...iteration, outer: [{ size, strides: axis?.strides ?? [] }, ...inner] },
          ...{ rows: (iteration.rows / steps) * size, elements: (iteration.elements / steps) * size },
        };
    return { ...work, iteration: selected, operands: slices.map(at) };
  };
  return [{ rowsPerStep, slices: accessed, isSum: false, select }];
}

function sliceColumnSum(work: ColumnCall, rows: number): readonly RowSliced[] | undefined {
  const { kernel, columns, strides } = work;
  const { inputs, outputs, outputLayout } = kernel;
  if (work.rows !== rows || !isF32Sum(work) || outputLayout || outputs.some((dtype) => dtype !== "f32"))
    return undefined;
  if (work.operands.slice(inputs.length).some(({ size }) => size !== columns * dtypes.f32.bytes))
    return undefined;
  const slices = work.operands.map((slice, operand): RowSlice => {
    const dtype = inputs[operand];
    if (dtype === undefined) return { ...sharedSlice(slice, true), isPartial: true };
    const { row = 0, column } = strides[operand] ?? {};
    const { bytes } = dtypes[dtype];
    const length = column === "unit" ? columns : 1;
    return { slice, writes: false, stepBytes: row * bytes, extentBytes: length * bytes };
  });
  return [
    {
      ...{ rowsPerStep: 1, slices, isSum: true },
      select: (_, count, at) => ({ ...work, rows: count, operands: slices.map(at) }),
      combine: (ranges, at) => secondPhaseOf(work, slices.slice(inputs.length).map(at), ranges),
    },
  ];
}
