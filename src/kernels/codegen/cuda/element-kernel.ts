/**
 * Prints a row kernel that only stores elements as CUDA C++: a thread takes one pack of elements through all stages. A
 * later stage reads what an earlier one has stored, by the same thread, so that program order is all the order it needs.
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
  type Surroundings,
  storeValues,
  type VectorShape,
  vectorsReadBy,
  vectorType,
} from "./vectors.js";

export const elementThreads = 256;

export interface ElementLayout extends RowLayout, VectorShape {}

/** The counts are: all elements and, where there are outer axes, those of a row. */
export function printElementKernel(kernel: RowKernel, layout: ElementLayout): KernelSource {
  return printBody(kernel, layout, "blockIdx.x").finish(kernel.name, elementThreads);
}

/** The same as a function of blocks with as many threads. */
export function printElementFunction(kernel: RowKernel, layout: ElementLayout, name: string): BlockFunction {
  const text = printBody(kernel, layout, "block");
  return { ...text.epilogueFunction(name, ["const unsigned block"]), before: ["block"], sharedDoubles: 0 };
}

/** `block`: the block's number, as text. */
function printBody(kernel: RowKernel, layout: ElementLayout, block: string): KernelText {
  checkRowKernel(kernel);
  const text = new KernelText();
  const hasRows = layout.outerRank > 0;
  const operands = new RowOperands(text, kernel, layout, hasRows ? ["elements", "columns"] : ["elements"]);
  const place = hasRows ? "element" : "position";
  const scale = layout.width === 1 ? "" : ` * ${layout.width}u`;
  const thread = `${block} * ${elementThreads}u + threadIdx.x`;
  text.line(`const unsigned ${place} = ${scale ? `(${thread})${scale}` : thread};`);
  text.line(`if (${place} >= elements) return;`);
  if (hasRows) {
    text.define("const unsigned", "row", "element / columns");
    text.define("const unsigned", "position", "element - row * columns");
  }
  text.define("const unsigned", "left", "elements - position");
  operands.place("row");
  const row = hasRows ? "(int)row" : "0";
  printStages({ text, operands, shape: layout, row, reduced: new Map() }, kernel, layout);
  return text;
}

function printStages(around: Surroundings, kernel: RowKernel, layout: RowLayout): void {
  const { aliases, early } = layout;
  /** The packs of inputs that are good: read, and not stored over since. */
  const held = new Map<number, string>();
  // What nothing stores over unseen is read at once, so that all of it is on its way together.
  const read = new Map(kernel.stages.flatMap(({ value }) => vectorsReadBy(around, value)));
  const atFirst = [...read].filter(([input]) => aliases.get(input) !== "mixed");
  const hold = (some: typeof atFirst): void => {
    for (const [input, operand] of some) if (!held.has(input)) held.set(input, keepVector(around, operand));
  };
  if (early) {
    hold(atFirst.filter(([input]) => early[input]));
    around.text.line(`${around.text.call("gridDependencyWait")};`);
  }
  around.operands.loadInvariant();
  hold(atFirst);
  const printInvariant = invariantPrinter(around, kernel.stages);
  for (const stage of kernel.stages) {
    const output = stage.kind === "store" ? around.operands.outputs[stage.output] : undefined;
    if (stage.kind !== "store" || !output) continue;
    for (const [input, operand] of vectorsReadBy(around, stage.value)) {
      if (!held.has(input)) held.set(input, keepVector(around, operand));
    }
    const known = keepInvariants(around, stage.value, printInvariant);
    const stored = storeValues(around, output, stage.value, held, known);
    for (const input of [...held.keys()]) {
      const alias = aliases.get(input);
      if (alias === stage.output) held.set(input, stored);
      else if (alias === "mixed") held.delete(input);
    }
  }
}

function keepVector(around: Surroundings, operand: Surroundings["operands"]["inputs"][number]): string {
  return around.text.keep(vectorType(around, operand), loadedVector(around, operand));
}
