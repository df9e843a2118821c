/** Elements in memory: all are f32, or 16-bit floats that are widened on load and rounded on store. */

import { elementTypes } from "../../codegen/cuda/element-types.js";
import { preludeOf } from "../../codegen/cuda/prelude.js";
import type { ConvolutionShape } from "../problem.js";

export type ConvolutionDtype = ConvolutionShape["dtype"];

/** The C++ type of an element in memory. */
export function typeOf(dtype: ConvolutionDtype): string {
  return elementTypes[dtype].type;
}

/** C++: `Element`, and `Conversion::widen` and `Conversion::narrow`: static members, because compilers do not warn about unused ones. */
export function declareElement(dtype: ConvolutionDtype): string {
  const { type, widen, narrow } = elementTypes[dtype];
  const prelude = new Set([widen, narrow].filter((name) => name !== undefined));
  return `${preludeOf(prelude).trim()}
typedef ${type} Element;
struct Conversion {
  static __device__ __forceinline__ float widen(Element value) { return ${widen ? `${widen}(value)` : "value"}; }
  static __device__ __forceinline__ Element narrow(float value) { return ${narrow ? `${narrow}(value)` : "value"}; }
};`.trimStart();
}
