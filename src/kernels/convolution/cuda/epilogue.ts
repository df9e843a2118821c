/** C++: the function that a convolution applies to each of its results. */

import type { Parameter } from "../../../driver/index.js";
import { expressionPrinter } from "../../codegen/cuda/expressions.js";
import { KernelText } from "../../codegen/cuda/kernel-text.js";
import { preludeOf } from "../../codegen/cuda/prelude.js";
import type { ConvolutionEpilogue } from "../problem.js";

export function epilogueParameters(
  epilogue: ConvolutionEpilogue | undefined,
): Readonly<Record<string, Parameter>> {
  return Object.fromEntries(
    (epilogue?.scalars ?? []).map((_, index): [string, Parameter] => [`scalar${index}`, "f32"]),
  );
}

export function epilogueArguments(
  epilogue: ConvolutionEpilogue | undefined,
): Readonly<Record<string, number>> {
  return Object.fromEntries((epilogue?.scalars ?? []).map((value, index) => [`scalar${index}`, value]));
}

/** `applyEpilogue(value, scalars…)`, in f32; empty if there is none. `usesFastMath`: as in row kernels, in TF32 and bf16. */
export function declareEpilogue(epilogue: ConvolutionEpilogue | undefined, usesFastMath: boolean): string {
  if (!epilogue) return "";
  const text = new KernelText({ usesFastMath });
  const print = expressionPrinter(text, [epilogue.value], {
    ...{ load: () => "value", scalar: (index) => `scalar${index}` },
    ...{ reduced: () => "", position: () => "", row: () => "" },
  });
  text.line(`return ${print(epilogue.value)};`);
  const { lines, called } = text.fragment();
  const parameters = ["float value", ...epilogue.scalars.map((_, index) => `float scalar${index}`)];
  return `${preludeOf(called)}
static __device__ __forceinline__ float applyEpilogue(${parameters.join(", ")}) {
${lines}
}`;
}

/** C++: a result after the epilogue. */
export function applyEpilogue(epilogue: ConvolutionEpilogue | undefined, value: string): string {
  if (!epilogue) return value;
  return `applyEpilogue(${[value, ...epilogue.scalars.map((_, index) => `scalar${index}`)].join(", ")})`;
}
