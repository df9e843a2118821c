/**
 * Prints elementwise row kernels as CUDA C++: a thread takes one vector of elements through all stages. A later stage only reads elements
 * that the same thread has stored, so that program order suffices.
 */

import type { KernelSource } from "../../../driver/index.js";
import type { RowKernel } from "../../../ir/index.js";
import { checkRowKernel } from "../../../ir/index.js";
import type { BlockFunction } from "./combo/combo-kernel.js";
import { KernelText } from "./kernel-text.js";
import { type RowLayout, RowOperands } from "./row-operands.js";
import {
  invariantPrinter,
  keepInvariants,
  loadedVector,
  type StageContext,
  storeValues,
  type VectorShape,
  vectorsReadBy,
  vectorType,
} from "./vectors.js";

export const elementThreads = 256;

export interface ElementLayout extends RowLayout, VectorShape {}

/** The counts are all elements and, with outer axes, the elements of a row. */
export function printElementKernel(kernel: RowKernel, layout: ElementLayout): KernelSource {
  return printBody(kernel, layout, "blockIdx.x").toKernel(kernel.name, elementThreads);
}

/** The same as a device function, for combo kernels. */
export function printElementFunction(kernel: RowKernel, layout: ElementLayout, name: string): BlockFunction {
  const text = printBody(kernel, layout, "block");
  return {
    ...text.toFunction(name, ["const unsigned block"]),
    leadingArguments: ["block"],
    sharedDoubles: 0,
  };
}

/** `block`: the expression of the block's index. */
function printBody(kernel: RowKernel, layout: ElementLayout, block: string): KernelText {
  checkRowKernel(kernel);
  const text = new KernelText({ usesFastMath: layout.usesFastMath === true });
  const hasRows = layout.outerRank > 0;
  const operands = new RowOperands(text, kernel, layout, hasRows ? ["elements", "columns"] : ["elements"]);
  const index = hasRows ? "element" : "position";
  const scale = layout.width === 1 ? "" : ` * ${layout.width}u`;
  const thread = `${block} * ${elementThreads}u + threadIdx.x`;
  text.line(`const unsigned ${index} = ${scale ? `(${thread})${scale}` : thread};`);
  text.line(`if (${index} >= elements) return;`);
  if (hasRows) {
    text.define("const unsigned", "row", "element / columns");
    text.define("const unsigned", "position", "element - row * columns");
  }
  text.define("const unsigned", "remaining", "elements - position");
  operands.printRowAddresses("row");
  const row = hasRows ? "(int)row" : "0";
  printStages({ text, operands, shape: layout, row, reduced: new Map() }, kernel, layout);
  return text;
}

function printStages(context: StageContext, kernel: RowKernel, layout: RowLayout): void {
  const { aliases, prefetchable } = layout;
  /** Vectors in registers by input: loaded, and not overwritten by a store since. */
  const cached = new Map<number, string>();
  // Loads that no store can alias are issued together, at the start.
  const read = new Map(kernel.stages.flatMap(({ value }) => vectorsReadBy(context, value)));
  const upfront = [...read].filter(([input]) => aliases.get(input) !== "mixed");
  const loadInputs = (inputs: typeof upfront): void => {
    for (const [input, operand] of inputs)
      if (!cached.has(input)) cached.set(input, keepVector(context, operand));
  };
  if (prefetchable) {
    loadInputs(upfront.filter(([input]) => prefetchable[input]));
    context.text.line(`${context.text.call("gridDependencyWait")};`);
  }
  context.operands.loadInvariant();
  loadInputs(upfront);
  const printInvariant = invariantPrinter(context, kernel.stages);
  for (const stage of kernel.stages) {
    const output = stage.kind === "store" ? context.operands.outputs[stage.output] : undefined;
    if (stage.kind !== "store" || !output) continue;
    for (const [input, operand] of vectorsReadBy(context, stage.value)) {
      if (!cached.has(input)) cached.set(input, keepVector(context, operand));
    }
    const computed = keepInvariants(context, stage.value, printInvariant);
    const stored = storeValues(context, output, stage.value, cached, computed);
    for (const input of [...cached.keys()]) {
      const alias = aliases.get(input);
      if (alias === stage.output) cached.set(input, stored);
      else if (alias === "mixed") cached.delete(input);
    }
  }
}

function keepVector(context: StageContext, operand: StageContext["operands"]["inputs"][number]): string {
  return context.text.keep(vectorType(context, operand), loadedVector(context, operand));
}
