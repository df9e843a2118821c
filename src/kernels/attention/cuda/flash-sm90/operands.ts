/**
 * Inputs as tensor maps. The heads of an operand are ranges of its columns, one head stride apart: columns and rows of a map may overlap
 * in memory, so one map of three dimensions describes every layout of [batch, heads, rows, width].
 */

import type { Parameter } from "../../../../driver/index.js";
import type { NamedTensorMap } from "../../../codegen/cuda/cuda-function.js";
import type { HalfElement } from "./config.js";

/** Columns of a box: 128 bytes. */
const boxColumns = 64;

/** The parameters of these inputs: memory, the size and the strides of the map, and the head stride. */
export function inputParameters(...names: readonly string[]): Readonly<Record<string, Parameter>> {
  return Object.fromEntries(
    names.flatMap((name): readonly (readonly [string, Parameter])[] => [
      [name, "in"],
      [`${name}Columns`, "i32"],
      [`${name}Row`, "i32"],
      [`${name}Batches`, "i32"],
      [`${name}Batch`, "i32"],
      [`${name}Head`, "i32"],
    ]),
  );
}

/** The parameters of the sizes. */
export function sizeParameters(needsGroupHeads: boolean): Readonly<Record<string, Parameter>> {
  return {
    ...{ pairs: "u32", sectionPairs: "u32", heads: "u32" },
    ...(needsGroupHeads && { groupHeads: "u32" as const }),
    ...{ tiles: "u32", rows: "i32", columns: "i32" },
  };
}

/** The tensor map of an input whose number of rows is the parameter `rows`. */
export function inputMap(
  name: string,
  element: HalfElement,
  rows: string,
  boxRows: number,
): NamedTensorMap<string> {
  return {
    ...{ dtype: element, columns: `${name}Columns`, rows, rowStride: `${name}Row` },
    ...{ matrices: `${name}Batches`, matrixStride: `${name}Batch` },
    box: { columns: boxColumns, rows: boxRows },
  };
}
