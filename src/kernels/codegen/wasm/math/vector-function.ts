/** What a function of vectors is: a function of the module to call, or instructions to write in place. */

import type { Code, Local, WasmFunction } from "../../../../driver/index.js";
import type { Expression } from "./expression.js";

export interface VectorFunction extends WasmFunction {
  /** What it calls, called or in place: the module must hold these too. */
  readonly needs: readonly WasmFunction[];
  /**
   * Writes the function's instructions here, with its result left on the stack. In a loop this is faster than a call,
   * as the engine then keeps the constants outside.
   */
  readonly inline: (code: Code, ...inputs: Local[]) => void;
}

/** Makes a function of `arity` vectors from its formula. */
export function vectorFunction(
  name: string,
  arity: 1 | 2,
  formula: (code: Code, ...inputs: Local[]) => Expression,
  needs: readonly WasmFunction[] = [],
): VectorFunction {
  const inline = (code: Code, ...inputs: Local[]) => formula(code, ...inputs)(code);
  const indices = Array.from({ length: arity }, (_, index) => index);
  return {
    name,
    parameters: indices.map(() => "v128"),
    results: ["v128"],
    needs,
    inline,
    body: (code) => inline(code, ...indices.map((index) => code.parameter(index))),
  };
}
