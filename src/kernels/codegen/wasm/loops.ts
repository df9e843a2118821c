/** Loops and address arithmetic for hand-written WebAssembly kernels. */

import type { Code, Local } from "../../../driver/index.js";

/** The approximate number of elements of a block: enough work for a thread. */
export const elementsPerBlock = 4096;

/** Pushes a local or an i32 constant. */
export function push(code: Code, value: Local | number): Code {
  return typeof value === "number" ? code.i32(value) : code.get(value);
}

export function call(code: Code, name: string, ...values: readonly (Local | number)[]): void {
  for (const value of values) push(code, value);
  code.call(name);
}

/** `local += by` */
export function advance(code: Code, local: Local, by: Local | number): void {
  push(code.get(local), by).op("i32.add").set(local);
}

/** `local = base + index · stride`, in 32 bits. */
export function setToElement(
  code: Code,
  local: Local,
  base: Local,
  index: Local,
  stride: Local | number,
): void {
  push(code.get(base).get(index), stride).op("i32.mul").op("i32.add").set(local);
}

/** `for (; at < end; at += step) body()`, unsigned. */
export function forRange(code: Code, at: Local, end: Local, step: Local | number, body: () => void): void {
  code.block((leave) => {
    code.loop((again) => {
      code.get(at).get(end).op("i32.ge_u").branchIf(leave);
      body();
      advance(code, at, step);
      code.branch(again);
    });
  });
}

/** `while (left != 0) { body(); left -= 1; }` */
export function repeat(code: Code, left: Local, body: () => void): void {
  // The test is at the loop's end: one branch per iteration.
  code.get(left).if(() => {
    code.loop((again) => {
      body();
      code.get(left).i32(-1).op("i32.add").tee(left).branchIf(again);
    });
  });
}

/** `while (at + step <= end) { body(); at += step; }`, unsigned. */
export function forWholeSteps(code: Code, at: Local, end: Local, step: number, body: () => void): void {
  code.block((leave) => {
    code.loop((again) => {
      code.get(end).get(at).op("i32.sub").i32(step).op("i32.lt_u").branchIf(leave);
      body();
      advance(code, at, step);
      code.branch(again);
    });
  });
}

/** `local = min(local, limit)`, unsigned. */
export function limitTo(code: Code, local: Local, limit: Local | number): void {
  push(code.get(local), limit);
  push(code.get(local), limit).op("i32.lt_u").op("select").set(local);
}
