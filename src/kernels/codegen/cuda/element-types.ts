/** Elements in CUDA C++: how each dtype lies in memory, and how it is widened to what it computes in and narrowed back. */

import type { Compute, Dtype } from "../../../ir/index.js";
import type { PreludeName } from "./prelude.js";

/** What arithmetic is done in. */
export const computeTypes: Readonly<Record<Compute, string>> = { f32: "float", f64: "double", i32: "int" };

interface ElementCode {
  /** The type that holds an element in memory. */
  readonly type: string;
  readonly widen?: PreludeName;
  readonly narrow?: PreludeName;
}

export const elementTypes: Readonly<Record<Dtype, ElementCode>> = {
  f32: { type: "float" },
  f64: { type: "double" },
  bf16: { type: "unsigned short", widen: "widen_bf16", narrow: "narrow_bf16" },
  f16: { type: "unsigned short", widen: "widen_f16", narrow: "narrow_f16" },
  i32: { type: "int" },
  u8: { type: "unsigned char", widen: "widen_u8", narrow: "narrow_u8" },
  bool: { type: "unsigned char", widen: "widen_u8", narrow: "narrow_u8" },
};
