/** What the two ways to a direct product share: their functions' parameters, row addresses, sums. */

import type { Code, Local } from "../../../driver/index.js";
import { accumulateVector, type Element } from "./element.js";

/** What the row functions take: some rows of op(A) and of C, all of op(B). `along` is op(A)'s stride in k. */
export function rowsParameters({ dtype }: Element) {
  return {
    a: "i32",
    b: "i32",
    c: "i32",
    n: "i32",
    k: "i32",
    aAcross: "i32",
    aKMajor: "i32",
    bStride: "i32",
    cRowBytes: "i32",
    alpha: dtype,
    beta: dtype,
    readsC: "i32",
  } as const;
}

/** Fresh locals, one for each of `rows`, set to base + row · stride. */
export function rowAddresses(code: Code, rows: number, base: Local, stride: Local): Local[] {
  return Array.from({ length: rows }, (_, row) => {
    const address = code.local("i32");
    code.get(base).get(stride).i32(row).op("i32.mul").op("i32.add").set(address);
    return address;
  });
}

/** `sum += a · b`, a and b being on the stack: vectors or scalars, as the sum is. */
export function accumulate(code: Code, element: Element, sum: Local): void {
  if (sum.type === "v128") accumulateVector(code, element, sum);
  else code.op(element.multiply).get(sum).op(element.add).set(sum);
}

export function setZero(code: Code, element: Element, local: Local): void {
  code[element.dtype](0);
  if (local.type === "v128") code.op(element.splat);
  code.set(local);
}
