/** The C++ type of each dtype in memory, and the conversions to and from its compute type. */

import type { Compute, InputDtype } from "../../../ir/index.js";
import type { PreludeName } from "./prelude.js";

/** The C++ types of arithmetic. */
export const computeTypes: Readonly<Record<Compute, string>> = {
  f32: "float",
  f64: "double",
  i32: "int",
  i64: "long long",
};

interface ElementCode {
  /** The type of an element in memory, or in registers for a draw. */
  readonly type: string;
  /** The type of the memory, if it is not that of the elements: a draw's is a random state. */
  readonly memory?: string;
  readonly widen?: PreludeName;
  readonly narrow?: PreludeName;
}

export const elementTypes: Readonly<Record<InputDtype, ElementCode>> = {
  f32: { type: "float" },
  f64: { type: "double" },
  bf16: { type: "unsigned short", widen: "widen_bf16", narrow: "narrow_bf16" },
  f16: { type: "unsigned short", widen: "widen_f16", narrow: "narrow_f16" },
  f8e4m3: { type: "unsigned char", widen: "widen_f8e4m3", narrow: "narrow_f8e4m3" },
  f8e5m2: { type: "unsigned char", widen: "widen_f8e5m2", narrow: "narrow_f8e5m2" },
  i32: { type: "int" },
  i64: { type: "long long" },
  i8: { type: "signed char", widen: "widen_i8", narrow: "narrow_i8" },
  u8: { type: "unsigned char", widen: "widen_u8", narrow: "narrow_u8" },
  bool: { type: "unsigned char", widen: "widen_u8", narrow: "narrow_u8" },
  draw: { type: "int", memory: "unsigned" },
};
