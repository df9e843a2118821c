/**
 * The division of a scan or scatter into blocks: a work item is one index of the outer axes and one strip of neighbouring columns; a block
 * has enough items to be worth a thread. The division does not change the order of any sum.
 */

import type { Code, Local, Parameter } from "../../driver/index.js";
import { HoldfastError } from "../../errors/index.js";
import { dtypes } from "../../ir/index.js";
import type { Storage } from "../../runtime/index.js";
import { elementsPerBlock, forRange, limitTo, push } from "../codegen/wasm/loops.js";
import { localsOf } from "../codegen/wasm/wasm-function.js";
import type { ScanDtype } from "./element.js";

/** The parameters of a kernel that works in strips. */
export const stripParameters = {
  inner: "u32",
  strips: "u32",
  items: "u32",
  itemsPerBlock: "u32",
} as const satisfies Record<string, Parameter>;

export interface StripPlan {
  readonly blocks: number;
  /** The arguments for `stripParameters`. */
  readonly arguments: Readonly<Record<keyof typeof stripParameters, number>>;
}

/** Divides `outer` × `inner` columns of `steps` elements into strips of `width`. */
export function planStrips(outer: number, inner: number, steps: number, width: number): StripPlan {
  const strips = Math.ceil(inner / width);
  const items = outer * strips;
  const elementsPerItem = Math.max(1, steps * Math.min(inner, width));
  const itemsPerBlock = Math.max(1, Math.floor(elementsPerBlock / elementsPerItem));
  return {
    blocks: Math.ceil(items / itemsPerBlock),
    arguments: { inner, strips, items, itemsPerBlock },
  };
}

type StripLocals = Readonly<Record<keyof typeof stripParameters | "firstBlock" | "endBlock", Local>>;

/** A work item: one index of the outer axes, and the columns from `column` up to `end`. */
export interface WorkItem {
  readonly outer: Local;
  readonly column: Local;
  readonly end: Local;
}

/** Runs the body for each work item of the kernel's blocks; it may advance `column`. */
export function forEachItem(
  code: Code,
  { firstBlock, endBlock, inner, strips, items, itemsPerBlock }: StripLocals,
  width: number,
  body: (item: WorkItem) => void,
): void {
  const {
    item: index,
    endItem,
    ...item
  } = localsOf(code, "i32", "item", "endItem", "outer", "column", "end");
  code.get(firstBlock).get(itemsPerBlock).op("i32.mul").set(index);
  code.get(endBlock).get(itemsPerBlock).op("i32.mul").set(endItem);
  limitTo(code, endItem, items);
  forRange(code, index, endItem, 1, () => {
    code.get(index).get(strips).op("i32.div_u").set(item.outer);
    code.get(index).get(strips).op("i32.rem_u").i32(width).op("i32.mul").tee(item.column);
    code.i32(width).op("i32.add").set(item.end);
    limitTo(code, item.end, inner);
    body(item);
  });
}

/** An element of an array [outer, length, inner]. */
interface ElementLocation {
  readonly base: Local;
  readonly outer: Local;
  readonly length: Local;
  readonly row: Local | number;
  readonly inner: Local;
  readonly column: Local;
  readonly bytes: number;
}

/** `local = base + ((outer · length + row) · inner + column) · bytes` */
export function setToElementAddress(code: Code, local: Local, location: ElementLocation): void {
  const { base, outer, length, row, inner, column, bytes } = location;
  push(code.get(outer).get(length).op("i32.mul"), row).op("i32.add");
  code.get(inner).op("i32.mul").get(column).op("i32.add");
  code.i32(bytes).op("i32.mul").get(base).op("i32.add").set(local);
}

/** Rejects invalid sizes, and storages that are too small for their shapes. */
export function requireAvailable(
  op: string,
  sizes: Readonly<Record<string, number>>,
  arrays: Readonly<Record<string, { storage: Storage; dtype: ScanDtype; shape: readonly number[] }>>,
): void {
  for (const [name, size] of Object.entries(sizes)) {
    if (Number.isSafeInteger(size) && size >= 0 && size < 2 ** 31) continue;
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `${op}: ${name} is ${size}; pass a whole number from 0 to 2³¹ − 1.`,
    );
  }
  for (const [name, { storage, dtype, shape }] of Object.entries(arrays)) {
    const neededBytes = shape.reduce((product, size) => product * size, dtypes[dtype].bytes);
    if (neededBytes <= storage.span.size) continue;
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `${op}: ${name} takes ${neededBytes} bytes ([${shape.join(", ")}] of ${dtype}), and "${storage.label}" has ${storage.span.size}. Pass a larger storage.`,
      { numbers: { neededBytes, size: storage.span.size } },
    );
  }
}
