/** The WebAssembly instructions of each element type: scalar, and for vectors of neighbouring columns. */

import type { Code, Local, MemoryOpcode, StackOpcode, ValueType } from "../../driver/index.js";
import { dtypes } from "../../ir/index.js";
import { forWholeSteps } from "../codegen/wasm/loops.js";

export type ScanDtype = "f32" | "f64" | "i32" | "i64";

const vectorBytes = 16;

/** Neighbouring columns that are processed together, as `count` values of one type. */
export interface Group {
  readonly columns: number;
  readonly count: number;
  readonly type: ValueType;
  /** Bytes of a value. */
  readonly bytes: number;
  readonly load: MemoryOpcode;
  readonly store: MemoryOpcode;
  readonly add: StackOpcode;
  /** Pushes the identity of addition: -0 for floats, because -0 + 0 would be 0. */
  readonly pushZero: (code: Code) => void;
}

function scalarGroup(dtype: ScanDtype): Group {
  return {
    columns: 1,
    count: 1,
    type: dtype,
    bytes: dtypes[dtype].bytes,
    load: `${dtype}.load`,
    store: `${dtype}.store`,
    add: `${dtype}.add`,
    pushZero: (code) => code[dtype](dtype === "i32" || dtype === "i64" ? 0 : -0),
  };
}

function vectorGroup(dtype: ScanDtype, count: number): Group {
  const shape = ({ f32: "f32x4", f64: "f64x2", i32: "i32x4", i64: "i64x2" } as const)[dtype];
  return {
    columns: (count * vectorBytes) / dtypes[dtype].bytes,
    count,
    type: "v128",
    bytes: vectorBytes,
    load: "v128.load",
    store: "v128.store",
    add: `${shape}.add`,
    pushZero: (code) => {
      scalarGroup(dtype).pushZero(code);
      code.op(`${shape}.splat`);
    },
  };
}

/** Runs the body for the columns up to the end: `vectors` vectors at a time, then one vector, then single columns. */
export function forColumnGroups(
  code: Code,
  dtype: ScanDtype,
  vectors: number,
  { column, end }: { readonly column: Local; readonly end: Local },
  body: (group: Group) => void,
): void {
  for (const group of [vectorGroup(dtype, vectors), vectorGroup(dtype, 1), scalarGroup(dtype)]) {
    forWholeSteps(code, column, end, group.columns, () => body(group));
  }
}

/** The number of columns of `vectors` vectors. */
export function columnsOf(dtype: ScanDtype, vectors: number): number {
  return vectorGroup(dtype, vectors).columns;
}
