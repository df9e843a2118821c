/** Elementwise work on a product's result as lines of the product's kernel: each thread does it for the neighbours that it stores. */

import type { Parameter } from "../../../driver/index.js";
import { loadsOf } from "../../../ir/index.js";
import { elementTypes } from "../../codegen/cuda/element-types.js";
import { expressionPrinter } from "../../codegen/cuda/expressions.js";
import { KernelText } from "../../codegen/cuda/kernel-text.js";
import { type PreludeName, preludeOf } from "../../codegen/cuda/prelude.js";
import { narrowed, widened } from "../../codegen/cuda/row-operands.js";
import type { Epilogue } from "./configs.js";

export interface PrintedEpilogue {
  readonly storesC: boolean;
  readonly parameters: Readonly<Record<string, Parameter>>;
  /** The C++ types that its memory parameters point to. */
  readonly pointers: Readonly<Record<string, string>>;
  /** What has to stand before the kernel. */
  readonly declarations: string;
  /** Declares what the operands of `rowsAtOnce` rows are held in. */
  readonly held: string;
  /** Fetches those of the `next` row, from `place` on. */
  readonly fetches: string;
  /** They find a thread's results of that row in `values`, which lie from `place` on in rows of `n`. */
  readonly lines: string;
  /** Declares the sums of columns over a thread's rows, before the first of them; and stores them behind the last, from `sumPlace` on. */
  readonly sums: string;
  readonly storesAccumulators: string;
}

/** The operands lie as the result does, without gaps. `others`: what else has to be declared. */
export function printEpilogue(
  { kernel, product, storesC, forwarded = [] }: Epilogue,
  others: readonly PreludeName[] = [],
): PrintedEpilogue {
  const { inputs, outputs, scalars, stages } = kernel;
  const parameters: Record<string, Parameter> = {};
  const pointers: Record<string, string> = {};
  // Products of half floats and TF32 have fewer bits than the quick functions leave.
  const text = new KernelText({ depth: 3, isQuick: true });
  const [held, fetching] = [new KernelText(), new KernelText()];
  const [sums, storeAccumulators] = [new KernelText(), new KernelText()];
  const read = new Set(stages.flatMap(({ value }) => loadsOf(value).map(({ input }) => input)));
  for (const [index, dtype] of inputs.entries()) {
    if (index === product || forwarded[index] !== undefined) continue;
    parameters[`in${index}`] = "in";
    const { type } = elementTypes[dtype];
    pointers[`in${index}`] = type;
    if (!read.has(index)) continue;
    held.line(`Vec<${type}, pack> pack${index}[rowsAtOnce];`);
    fetching.line(`pack${index}[next] = ${fetching.use("load")}<pack>(in${index} + place);`);
  }
  for (const [index, { dtype, per }] of outputs.entries()) {
    parameters[`out${index}`] = "out";
    const { type } = elementTypes[dtype];
    pointers[`out${index}`] = type;
    if (per === "column") {
      sums.line(`Vec<${type}, pack> sum${index} = {};`);
      storeAccumulators.line(`${storeAccumulators.call("store", `out${index} + sumPlace`, `sum${index}`)};`);
      continue;
    }
    text.use("store");
    text.line(`Vec<${type}, pack> result${index};`);
  }
  for (const [index, type] of scalars.entries()) parameters[`scalar${index}`] = type;
  text.line("#pragma unroll");
  text.block("for (unsigned e = 0; e < pack; e++)", () => {
    const print = expressionPrinter(
      text,
      stages.map(({ value }) => value),
      {
        load({ input }) {
          if (input === product) return "values[e]";
          const stored = forwarded[input];
          const pack = stored === undefined ? `pack${input}[next]` : `result${stored}`;
          return widened(text, inputs[input] ?? "f32", `${pack}.lane[e]`);
        },
        scalar: (index) => `scalar${index}`,
        ...{ reduced: () => "", position: () => "", row: () => "" },
      },
    );
    for (const stage of stages) {
      if (stage.kind !== "store") continue;
      const { dtype, per } = outputs[stage.output] ?? { dtype: "f32", per: "element" };
      if (per === "column") text.line(`sum${stage.output}.lane[e] += ${print(stage.value)};`);
      else text.line(`result${stage.output}.lane[e] = ${narrowed(text, dtype, print(stage.value))};`);
    }
  });
  for (const [index, { per }] of outputs.entries())
    if (per !== "column") text.line(`${text.call("store", `out${index} + place`, `result${index}`)};`);
  const [fetches, work, stored] = [fetching.fragment(), text.fragment(), storeAccumulators.fragment()];
  return {
    ...{
      storesC,
      parameters,
      pointers,
      declarations: preludeOf(new Set([...fetches.called, ...work.called, ...stored.called, ...others])),
    },
    ...{ held: held.fragment().lines, fetches: fetches.lines, lines: work.lines },
    ...{ sums: sums.fragment().lines, storesAccumulators: stored.lines },
  };
}
