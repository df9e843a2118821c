/** The WebAssembly kernels of scatterAdd: vectorised for an index per row, scalar for an index per element. */

import type { Code, KernelSource, Local } from "../../driver/index.js";
import { dtypes } from "../../ir/index.js";
import { advance, forRange, repeat, setToElement } from "../codegen/wasm/loops.js";
import { localsOf, wasmKernel } from "../codegen/wasm/wasm-function.js";
import { cachedSource } from "../source-cache.js";
import { columnsOf, forColumnGroups, type ScanDtype } from "./element.js";
import { forEachItem, setToElementAddress, stripParameters, type WorkItem } from "./strips.js";

/** Two cache lines of columns: narrow enough that a small table still occupies every thread. */
export const vectorsPerStrip = 8;

const indexBytes = dtypes.i32.bytes;

export const scatterParameters = {
  index: "in",
  source: "in",
  target: "inout",
  length: "u32",
  count: "u32",
  ...stripParameters,
} as const;

type Args = Readonly<Record<keyof typeof scatterParameters, Local>>;

/** One index per row, or one per element. */
export type Indexing = "shared" | "each";

export function scatterKernel(dtype: ScanDtype, indexing: Indexing): KernelSource {
  const printItem = indexing === "shared" ? printSharedItem : printEachItem;
  return cachedSource(`wasm scatterAdd ${dtype} ${indexing}`, () =>
    wasmKernel(`scatterAdd.${indexing}.${dtype}`, scatterParameters, [], (code, args) => {
      forEachItem(code, args, columnsOf(dtype, vectorsPerStrip), (item) =>
        printItem(code, dtype, args, item),
      );
    }),
  );
}

/** Processes the index once for every group of columns, adding a group's values together. */
function printSharedItem(code: Code, dtype: ScanDtype, args: Args, { outer, column, end }: WorkItem): void {
  const { length, count, inner } = args;
  const { bytes } = dtypes[dtype];
  // `target` is the index of the target's row, `element` its address.
  const { entry, target, element, from, to, left, rowBytes } = localsOf(
    code,
    "i32",
    "entry",
    "target",
    "element",
    "from",
    "to",
    "left",
    "rowBytes",
  );
  code.get(inner).i32(bytes).op("i32.mul").set(rowBytes);
  forColumnGroups(code, dtype, vectorsPerStrip, { column, end }, (group) => {
    const start = { outer, row: 0, inner, column, bytes };
    setToElementAddress(code, from, { ...start, base: args.source, length: count });
    setToElementAddress(code, to, { ...start, base: args.target, length });
    code.get(args.index).set(entry);
    code.get(count).set(left);
    repeat(code, left, () => {
      code.get(entry).memory("i32.load").tee(target).get(length).op("i32.lt_u");
      code.if(() => {
        setToElement(code, element, to, target, rowBytes);
        for (let value = 0; value < group.count; value++) {
          const offset = value * group.bytes;
          code.get(element).get(element).memory(group.load, offset);
          code.get(from).memory(group.load, offset).op(group.add).memory(group.store, offset);
        }
      });
      advance(code, entry, indexBytes);
      advance(code, from, rowBytes);
    });
  });
}

/** Processes the strip's elements row by row, in memory order. */
function printEachItem(code: Code, dtype: ScanDtype, args: Args, { outer, column, end }: WorkItem): void {
  const { length, count, inner } = args;
  const { bytes } = dtypes[dtype];
  // `target` is the index of the target's row, `element` the address of its element.
  const { row, first, entry, from, to, target, element } = localsOf(
    code,
    "i32",
    "row",
    "first",
    "entry",
    "from",
    "to",
    "target",
    "element",
  );
  code.get(column).set(first);
  code.i32(0).set(row);
  forRange(code, row, count, 1, () => {
    code.get(first).set(column);
    const start = { outer, inner, column };
    setToElementAddress(code, entry, { ...start, base: args.index, length: count, row, bytes: indexBytes });
    setToElementAddress(code, from, { ...start, base: args.source, length: count, row, bytes });
    setToElementAddress(code, to, { ...start, base: args.target, length, row: 0, bytes });
    forRange(code, column, end, 1, () => {
      code.get(entry).memory("i32.load").tee(target).get(length).op("i32.lt_u");
      code.if(() => {
        code.get(target).get(inner).op("i32.mul").i32(bytes).op("i32.mul").get(to).op("i32.add").tee(element);
        code.get(element).memory(`${dtype}.load`).get(from).memory(`${dtype}.load`);
        code.op(`${dtype}.add`).memory(`${dtype}.store`);
      });
      advance(code, entry, indexBytes);
      advance(code, from, bytes);
      advance(code, to, bytes);
    });
  });
}
