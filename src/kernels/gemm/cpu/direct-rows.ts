/** Code that the direct GEMMs share: parameters, row addresses, accumulators. */

import type { Code, Local } from "../../../driver/index.js";
import { accumulateVector, type Element } from "./element.js";

/** The parameters of the row functions: some rows of op(A) and of C, all of op(B). `aMnBytes` and `aKBytes` are op(A)'s strides along M and K. */
export function rowsParameters({ dtype }: Element) {
  return {
    a: "i32",
    b: "i32",
    c: "i32",
    n: "i32",
    k: "i32",
    aMnBytes: "i32",
    aKBytes: "i32",
    bStride: "i32",
    cRowBytes: "i32",
    alpha: dtype,
    beta: dtype,
    readsC: "i32",
  } as const;
}

/** New locals, one per row, set to base + row · stride. */
export function rowAddresses(code: Code, rows: number, base: Local, stride: Local): Local[] {
  return Array.from({ length: rows }, (_, row) => {
    const address = code.local("i32");
    code.get(base).get(stride).i32(row).op("i32.mul").op("i32.add").set(address);
    return address;
  });
}

/** `acc += a · b` with a and b on the stack: vectors or scalars, like the accumulator. */
export function accumulate(code: Code, element: Element, acc: Local): void {
  if (acc.type === "v128") accumulateVector(code, element, acc);
  else code.op(element.multiply).get(acc).op(element.add).set(acc);
}

export function setZero(code: Code, element: Element, local: Local): void {
  code[element.dtype](0);
  if (local.type === "v128") code.op(element.splat);
  code.set(local);
}
