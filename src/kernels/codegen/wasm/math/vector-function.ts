/** A vector function: a function of the module that can be called, or inlined. */

import type { Code, Local, WasmFunction } from "../../../../driver/index.js";
import type { Expression } from "./expression.js";

export interface VectorFunction extends WasmFunction {
  /** Its callees: the module must contain them, also if the function is inlined. */
  readonly needs: readonly WasmFunction[];
  /**
   * Prints the function's instructions, which push the result. In a loop this is faster than a call, because the engine hoists the
   * constants.
   */
  readonly inline: (code: Code, ...inputs: Local[]) => void;
}

/** A function of `arity` vectors from its formula. */
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
