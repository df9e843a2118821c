/** Prints a fused epilogue for a GEMM kernel: each thread applies it to the elements of C that it stores. */

import type { Parameter } from "../../../driver/index.js";
import { loadsOf, passedType, type Stage } from "../../../ir/index.js";
import { elementTypes } from "../../codegen/cuda/element-types.js";
import { expressionPrinter } from "../../codegen/cuda/expressions.js";
import { KernelText } from "../../codegen/cuda/kernel-text.js";
import { type PreludeName, preludeOf } from "../../codegen/cuda/prelude.js";
import { narrowed, widenedElement } from "../../codegen/cuda/row-operands.js";
import type { Epilogue } from "./configs.js";

export interface PrintedEpilogue {
  readonly storesC: boolean;
  /** C++: the bytes of the registers that `operandDeclarations` and `resultDeclarations` declare for a row. */
  readonly rowBytes: string;
  readonly parameters: Readonly<Record<string, Parameter>>;
  /** The C++ types that its memory parameters point to. */
  readonly pointers: Readonly<Record<string, string>>;
  /** Device functions that the kernel has to declare. */
  readonly declarations: string;
  /** Declares registers for the operands of `rowCount` rows. */
  readonly operandDeclarations: string;
  /** Loads the operands of the row `next`, from element `offset` on. */
  readonly loads: string;
  /** Declares registers for the outputs of `rowCount` rows. */
  readonly resultDeclarations: string;
  /** Computes the outputs of the row `next`, with the thread's accumulators in `values`. */
  readonly lines: string;
  /** Stores the outputs of the row `next`, from element `offset` on. */
  readonly stores: string;
  /** Declares the column sums over a thread's rows before the first row, and stores them after the last, from `colsumOffset` on. */
  readonly colsumDeclarations: string;
  readonly colsumStores: string;
}

/** The operands are contiguous and have the shape of C. `others`: more prelude functions to declare. */
export function printEpilogue(epilogue: Epilogue, others: readonly PreludeName[] = []): PrintedEpilogue {
  const { kernel, gemmInput, storesC, forwarded = [] } = epilogue;
  const { inputs, outputs, scalars, stages } = kernel;
  const parameters: Record<string, Parameter> = {};
  const pointers: Record<string, string> = {};
  // The error of 16-bit and TF32 GEMMs is larger than that of the fast-math functions.
  const text = new KernelText({ depth: 3, usesFastMath: true });
  const [operands, loading] = [new KernelText(), new KernelText()];
  const [results, storing] = [new KernelText(), new KernelText()];
  const [colsums, colsumStoring] = [new KernelText(), new KernelText()];
  const inRegisters: string[] = [];
  const read = new Set(stages.flatMap(({ value }) => loadsOf(value).map(({ input }) => input)));
  for (const [index, dtype] of inputs.entries()) {
    if (index === gemmInput || forwarded[index] !== undefined) continue;
    parameters[`in${index}`] = "in";
    const { type, memory = type } = elementTypes[dtype];
    pointers[`in${index}`] = memory;
    if (!read.has(index)) continue;
    inRegisters.push(type);
    const vec = dtype === "draw" ? `${operands.use("Drawn")}<vecWidth>` : `Vec<${type}, vecWidth>`;
    operands.line(`${vec} vec${index}[rowCount];`);
    const loaded =
      dtype === "draw"
        ? `${loading.use("drawNumbers")}<vecWidth>(in${index}, offset)`
        : `${loading.use("loadVec")}<vecWidth>(in${index} + offset)`;
    loading.line(`vec${index}[next] = ${loaded};`);
  }
  for (const [index, { dtype, per }] of outputs.entries()) {
    parameters[`out${index}`] = "out";
    const { type } = elementTypes[dtype];
    pointers[`out${index}`] = type;
    if (per === "column") {
      colsums.line(`Vec<${type}, vecWidth> colsum${index} = {};`);
      colsumStoring.line(
        `${colsumStoring.call("storeVec", `out${index} + colsumOffset`, `colsum${index}`)};`,
      );
      continue;
    }
    inRegisters.push(type);
    results.line(`Vec<${type}, vecWidth> result${index}[rowCount];`);
    storing.line(`${storing.call("storeVec", `out${index} + offset`, `result${index}[next]`)};`);
  }
  for (const [index, type] of scalars.entries()) parameters[`scalar${index}`] = passedType(type);
  const pairs = new Set(forwarded.filter((output) => output !== undefined));
  printStages(text, epilogue, stages, pairs);
  const [loads, work] = [loading.fragment(), text.fragment()];
  const [stores, colsumStores] = [storing.fragment(), colsumStoring.fragment()];
  const called = [loads, work, stores, colsumStores].flatMap((fragment) => [...fragment.called]);
  return {
    ...{
      storesC,
      rowBytes: inRegisters.map((type) => `sizeof(Vec<${type}, vecWidth>)`).join(" + ") || "0",
      parameters,
      pointers,
      declarations: preludeOf(new Set([...called, ...others])),
    },
    ...{ operandDeclarations: operands.fragment().lines, loads: loads.lines, lines: work.lines },
    ...{ resultDeclarations: results.fragment().lines, stores: stores.lines },
    ...{ colsumDeclarations: colsums.fragment().lines, colsumStores: colsumStores.lines },
  };
}

type StoreStage = Extract<Stage, { kind: "store" }>;

/**
 * Prints stages for a vector of `vecWidth` elements: the GEMM's are in `values`, those of inputs in `vec0[next]`, … and of outputs in
 * `result0[next]`, … The outputs in `pairs` are rounded in pairs if they are bf16, so that both elements are in one register.
 */
export function printStages(
  text: KernelText,
  { kernel: { inputs, outputs }, gemmInput, forwarded = [] }: Epilogue,
  stages: readonly Stage[],
  pairs: ReadonlySet<number>,
): void {
  for (const segment of segmentsOf(stages, forwarded)) {
    const inPairs = new Set<number>();
    for (const { output } of segment)
      if (outputs[output]?.dtype === "bf16" && pairs.has(output)) inPairs.add(output);
    for (const output of inPairs) text.line(`float exact${output}[vecWidth];`);
    text.line("#pragma unroll");
    text.block("for (unsigned e = 0; e < vecWidth; e++)", () => {
      const print = expressionPrinter(
        text,
        segment.map(({ value }) => value),
        {
          load({ input }) {
            if (input === gemmInput) return "values[e]";
            const output = forwarded[input];
            const vec = output === undefined ? `vec${input}[next]` : `result${output}[next]`;
            return widenedElement(text, inputs[input] ?? "f32", vec, "e");
          },
          scalar: (index) => `scalar${index}`,
          ...{ reduced: () => "", position: () => "", row: () => "" },
        },
      );
      for (const { output, value } of segment) {
        const { dtype, per } = outputs[output] ?? { dtype: "f32", per: "element" };
        if (per === "column") text.line(`colsum${output}.element[e] += ${print(value)};`);
        else if (inPairs.has(output)) text.line(`exact${output}[e] = ${print(value)};`);
        else text.line(`result${output}[next].element[e] = ${narrowed(text, dtype, print(value))};`);
      }
    });
    for (const output of inPairs)
      text.line(`${text.call("narrowVec_bf16", `exact${output}`, `result${output}[next]`)};`);
  }
}

/** Stages in as few loops over a vector's elements as possible: a stage begins a new loop if it reads what the loop has stored. */
function segmentsOf(
  stages: readonly Stage[],
  forwarded: readonly (number | undefined)[],
): readonly (readonly StoreStage[])[] {
  const segments: StoreStage[][] = [[]];
  for (const stage of stages) {
    if (stage.kind !== "store") continue;
    const read = new Set(loadsOf(stage.value).map(({ input }) => forwarded[input]));
    if (segments.at(-1)?.some(({ output }) => read.has(output))) segments.push([]);
    segments.at(-1)?.push(stage);
  }
  return segments;
}
