/**
 * Prints column kernels as WebAssembly modules. A block is a strip of neighbouring columns with one accumulator per
 * column and value. Its rows are processed from top to bottom, so loads are whole vectors and additions follow the
 * order of the rows.
 */

import {
  type Code,
  encodeKernel,
  type KernelSource,
  type Local,
  type Parameter,
} from "../../../driver/index.js";
import {
  type ColumnKernel,
  checkColumnKernel,
  type Dtype,
  dtypes,
  identityOf,
  isUniform,
  passedType,
  uses64Bits,
} from "../../../ir/index.js";
import type { ColumnStride } from "../../launch-config.js";
import { type Lanes, pushElements, pushSplat, storeElements } from "./elements.js";
import {
  expressionPusher,
  type Leaves,
  pushBinary,
  pushConstant,
  pushLaneNumbers,
  required,
  splatOf,
} from "./expressions.js";
import { calledBy } from "./functions.js";
import { pushIndexed } from "./indexed-load.js";
import { advance, forRange, limitTo, setToElement } from "./loops.js";

/** Columns of a block: a cache line of f32s, in four accumulators. */
export const columnsPerBlock = 16;

interface Input {
  readonly dtype: Dtype;
  readonly stride: ColumnStride;
  readonly rowStride: Local;
  /** The address of the strip's first element in the current row. */
  readonly cursor: Local;
  readonly address: Local;
}

/**
 * The kernel's parameters, in order: the inputs and the outputs; then as u32 the rows, the columns and each input's row stride in elements;
 * then the kernel's scalars.
 */
export function printColumnKernel(kernel: ColumnKernel, strides: readonly ColumnStride[]): KernelSource {
  checkColumnKernel(kernel);
  const parameters: Parameter[] = [
    ...kernel.inputs.map(() => "in" as const),
    ...kernel.outputs.map(() => "inout" as const),
    ...Array.from({ length: 2 + kernel.inputs.length }, () => "u32" as const),
    ...kernel.scalars.map(passedType),
  ];
  return encodeKernel({
    name: kernel.name,
    parameters,
    ...calledBy(kernel.values),
    body: (code) => printBody(code, kernel, strides),
  });
}

function printBody(code: Code, kernel: ColumnKernel, strides: readonly ColumnStride[]): void {
  const isWide =
    [...kernel.inputs, ...kernel.outputs].some((dtype) => dtype === "f64" || dtype === "i64") ||
    kernel.values.some(uses64Bits);
  const lanes: Lanes = isWide ? 2 : 4;
  let next = 2;
  const parameter = (): Local => code.parameter(next++);
  const addresses = kernel.inputs.map(parameter);
  const targets = kernel.outputs.map(parameter);
  const [rows, columns] = [parameter(), parameter()];
  const inputs = kernel.inputs.map(
    (dtype, index): Input => ({
      dtype,
      stride: strides[index] ?? "unit",
      rowStride: parameter(),
      cursor: code.local("i32"),
      address: required(addresses[index], `input ${index}`, kernel.name),
    }),
  );
  const scalars = kernel.scalars.map((type) => splatOf(code, parameter(), type));
  const [column, end] = [code.local("i32"), code.local("i32")];
  code.get(code.parameter(0)).i32(columnsPerBlock).op("i32.mul").set(column);
  code.get(code.parameter(1)).i32(columnsPerBlock).op("i32.mul").set(end);
  limitTo(code, end, columns);

  // Strips of four vectors, then of one vector, then single columns.
  for (const [vectors, width] of [
    [4, lanes],
    [1, lanes],
    [1, 1],
  ] as const) {
    code.block((leave) => {
      code.loop((again) => {
        code
          .get(end)
          .get(column)
          .op("i32.sub")
          .i32(vectors * width)
          .op("i32.lt_s")
          .branchIf(leave);
        printStrip(vectors, width);
        advance(code, column, vectors * width);
        code.branch(again);
      });
    });
  }

  function printStrip(vectors: number, width: Lanes): void {
    const reductions = kernel.values.map((value) => {
      const accumulators = Array.from({ length: vectors }, () => code.local("v128"));
      for (const accumulator of accumulators) {
        pushConstant(code, value.type, identityOf(kernel.op, value.type));
        code.set(accumulator);
      }
      return { value, accumulators };
    });
    for (const { cursor, address, stride, dtype } of inputs) {
      if (stride === "unit") setToElement(code, cursor, address, column, dtypes[dtype].bytes);
      else code.get(address).set(cursor);
    }
    const [row, rowIndex] = [code.local("i32"), code.local("v128")];
    code.i32(0).set(row);
    forRange(code, row, rows, 1, () => {
      code.get(row).op("i32x4.splat").set(rowIndex);
      for (let vector = 0; vector < vectors; vector++) {
        const push = expressionPusher(code, kernel.values, leavesAt(vector, width, rowIndex));
        for (const { value, accumulators } of reductions) {
          const accumulator = required(accumulators[vector], `vector ${vector}`, kernel.name);
          code.get(accumulator);
          push(value);
          pushBinary(code, kernel.op, value.type);
          code.set(accumulator);
        }
      }
      for (const { cursor, rowStride, dtype } of inputs) {
        setToElement(code, cursor, cursor, rowStride, dtypes[dtype].bytes);
      }
    });
    const target = code.local("i32");
    for (const [index, { accumulators }] of reductions.entries()) {
      const dtype = required(kernel.outputs[index], `output ${index}`, kernel.name);
      const { bytes } = dtypes[dtype];
      setToElement(code, target, required(targets[index], `output ${index}`, kernel.name), column, bytes);
      for (const accumulator of accumulators) {
        storeElements(code, dtype, width, target, accumulator);
        advance(code, target, width * bytes);
      }
    }
  }

  function leavesAt(vector: number, width: Lanes, rowIndex: Local): Leaves {
    return {
      pushLoad: (index, at) => {
        const { dtype, cursor, stride } = required(inputs[index], `input ${index}`, kernel.name);
        const isVarying = stride === "unit";
        const first = isVarying ? vector * width : 0;
        if (at) {
          const uniform = isUniform(at, (other) => strides[other] === "none");
          pushIndexed(code, { dtype, cursor, first, isVarying, lanes: width, isUniform: uniform });
          return;
        }
        code.get(cursor);
        if (isVarying) pushElements(code, dtype, width, first * dtypes[dtype].bytes);
        else pushSplat(code, dtype);
      },
      pushScalar: (index) => code.get(required(scalars[index], `scalar ${index}`, kernel.name)),
      pushReduced: (stage) => required(undefined, `the reduction of a stage ${stage}`, kernel.name),
      pushPosition: () => {
        code
          .get(column)
          .i32(vector * width)
          .op("i32.add")
          .op("i32x4.splat");
        pushLaneNumbers(code, width);
        code.op("i32x4.add");
      },
      pushRow: () => code.get(rowIndex),
    };
  }
}
