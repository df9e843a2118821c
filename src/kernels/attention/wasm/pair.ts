/** Code that the forward and backward kernels share: strides of operands, addresses of a (batch, head), and causal limits. */

import type { Code, Local } from "../../../driver/index.js";
import { forRange, forWholeSteps, limitTo, push, setToElement } from "../../codegen/wasm/loops.js";

/** A kernel's arguments by name, and its range of blocks. */
export type Args<Parameters> = Readonly<Record<keyof Parameters | "firstBlock" | "endBlock", Local>>;

type Stride<Name extends string> = `${Name}BatchBytes` | `${Name}HeadBytes` | `${Name}RowBytes`;

/** The kernel parameters for the strides of these operands, in bytes. */
export function strideParameters<Name extends string>(
  ...names: readonly Name[]
): Readonly<Record<Stride<Name>, "u32">> {
  return Object.fromEntries(
    names.flatMap((name) =>
      [`${name}BatchBytes`, `${name}HeadBytes`, `${name}RowBytes`].map((key) => [key, "u32"]),
    ),
  ) as Record<Stride<Name>, "u32">;
}

/** `local = a · b` */
export function setToProduct(code: Code, local: Local, a: Local, b: Local | number): void {
  push(code.get(a), b).op("i32.mul").set(local);
}

/** `address` = the address of the operand's first element for one (batch, head). */
export function setToPair<Name extends string>(
  code: Code,
  address: Local,
  args: Readonly<Record<Name | Stride<Name>, Local>>,
  name: Name,
  { batch, head }: { readonly batch: Local; readonly head: Local },
): void {
  const strides: Readonly<Record<Stride<Name>, Local>> = args;
  setToElement(code, address, args[name], batch, strides[`${name}BatchBytes`]);
  setToElement(code, address, address, head, strides[`${name}HeadBytes`]);
}

/** `limit` = the maximum number of columns that one of the `count` rows from `row` on attends to. */
export function setLimit(
  code: Code,
  limit: Local,
  row: Local,
  count: number,
  { columns, isCausal }: { readonly columns: Local; readonly isCausal: Local },
): void {
  code.get(columns).set(limit);
  code.get(isCausal).if(() => {
    code.get(row).i32(count).op("i32.add").set(limit);
    limitTo(code, limit, columns);
  });
}

/** Loops from `at` to `end` in groups of `groupSize`, then one by one. */
export function inGroups(
  code: Code,
  at: Local,
  end: Local,
  groupSize: number,
  body: (count: number) => void,
): void {
  forWholeSteps(code, at, end, groupSize, () => body(groupSize));
  forRange(code, at, end, 1, () => body(1));
}
