/** cast: converts to another dtype. Floats are truncated to integers. Every value except 0 becomes true. */

import { HoldfastError } from "../../errors/index.js";
import { type Dtype, dtypes } from "../../ir/index.js";
import { copyArray } from "../copy.js";
import { keptStrides } from "../device-array.js";
import { arrayAt, type KernelOp, typeAt } from "../op.js";

export const cast: KernelOp<{ readonly dtype: Dtype }> = {
  kind: "kernel",
  name: "cast",
  infer(operands, { dtype }) {
    requireDtype("to", dtype);
    return [{ shape: typeAt("cast", operands, 0).shape, dtype }];
  },
  gradient: (rule) => [rule.apply(cast, [rule.upstream], { dtype: rule.typeOf(0).dtype })],
  outputStrides: (_, operands, [type]) => [type && keptStrides(operands, type.shape)],
  lower(lowering, operands, [output]) {
    if (output) copyArray(lowering, arrayAt(operands, 0), output);
  },
};

/** contiguous: a copy in row-major order. */
export const contiguous: KernelOp = {
  kind: "kernel",
  name: "contiguous",
  infer: (operands) => [typeAt("contiguous", operands, 0)].map(({ shape, dtype }) => ({ shape, dtype })),
  gradient: (rule) => [rule.upstream],
  lower(lowering, operands, [output]) {
    if (output) copyArray(lowering, arrayAt(operands, 0), output);
  },
};

/** The dtypes of PyTorch by its names; of i16 by the nearest one. */
const dtypesOfNames: Readonly<Record<string, Dtype>> = {
  ...{
    float: "f32",
    float32: "f32",
    double: "f64",
    float64: "f64",
    half: "f16",
    float16: "f16",
    bfloat16: "bf16",
  },
  ...{
    long: "i64",
    int64: "i64",
    int: "i32",
    int32: "i32",
    short: "i32",
    int16: "i32",
    char: "i8",
    int8: "i8",
  },
  ...{ byte: "u8", uint8: "u8", boolean: "bool", float8_e4m3fn: "f8e4m3", float8_e5m2: "f8e5m2" },
};

/** Rejects unknown dtypes, for callers in JavaScript. */
export function requireDtype(op: string, dtype: Dtype): void {
  const given: unknown = dtype;
  if (typeof given === "string" && Object.hasOwn(dtypes, given)) return;
  const text = typeof given === "string" ? `"${given}"` : given === null ? "null" : `of type ${typeof given}`;
  const name = typeof given === "string" ? dtypesOfNames[given.replace(/^torch\./, "")] : undefined;
  const advice = name ? ` Pass "${name}".` : "";
  throw new HoldfastError(
    "BAD_DTYPE",
    `${op}: unknown dtype ${text}.${advice} The dtypes are ${Object.keys(dtypes).join(", ")}.`,
    { numbers: { op, dtype: text } },
  );
}
