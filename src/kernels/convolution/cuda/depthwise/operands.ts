/** C++: vectors of neighbouring channels in memory, as floats. */

import { elementTypes } from "../../../codegen/cuda/element-types.js";
import { preludeOf } from "../../../codegen/cuda/prelude.js";
import type { ConvolutionDtype } from "../element.js";

/** An operand's dtype, and how many neighbouring elements a thread loads or stores at once. */
interface Operand {
  readonly dtype: ConvolutionDtype;
  readonly vector: number;
}

/** C++: for each name a struct with `Element`, `load(values, source)` and `store(destination, values)`. */
export function declareOperands(operands: Readonly<Record<string, Operand>>): string {
  const prelude = new Set(
    Object.values(operands).flatMap(({ dtype, vector }) => {
      const { narrow } = elementTypes[dtype];
      const widen = widenerOf(dtype, vector);
      return [...(widen ? [widen.name] : []), ...(narrow ? [narrow] : [])];
    }),
  );
  const structs = Object.entries(operands).map(([name, operand]) => declareOperand(name, operand));
  return [preludeOf(new Set([...prelude, "loadVec", "storeVec"])).trim(), ...structs].join("\n");
}

/** Two bf16 share a register, from which one instruction widens each. */
function widenerOf(dtype: ConvolutionDtype, vector: number) {
  const { widen } = elementTypes[dtype];
  if (!widen) return undefined;
  const sharesRegister = dtype === "bf16" && vector > 1;
  return sharesRegister
    ? ({ name: "widenElement_bf16", of: "vec, k" } as const)
    : { name: widen, of: "vec.element[k]" };
}

function declareOperand(name: string, { dtype, vector }: Operand): string {
  const { type, narrow } = elementTypes[dtype];
  const widen = widenerOf(dtype, vector);
  return `struct ${name} {
  typedef ${type} Element;
  static __device__ __forceinline__ void load(float (&values)[${vector}], const Element* source) {
    const Vec<Element, ${vector}> vec = loadVec<${vector}>(source);
#pragma unroll
    for (unsigned k = 0; k < ${vector}; k++) values[k] = ${widen ? `${widen.name}(${widen.of})` : "vec.element[k]"};
  }
  static __device__ __forceinline__ void store(Element* destination, const float (&values)[${vector}]) {
    Vec<Element, ${vector}> vec;
#pragma unroll
    for (unsigned k = 0; k < ${vector}; k++) vec.element[k] = ${narrow ? `${narrow}(values[k])` : "values[k]"};
    storeVec(destination, vec);
  }
};`;
}
