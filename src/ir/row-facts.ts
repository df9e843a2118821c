/** Properties of a row kernel that launches need, computed once per kernel. */

import { type InputDtype, inputDtypes } from "./dtypes.js";
import { loadsOf, subexpressionsOf } from "./expression-walk.js";
import type { RowKernel } from "./kernels.js";

export interface RowFacts {
  /** True if it only stores elements, so that any division into rows is valid. */
  readonly isElementwise: boolean;
  /** True if a value depends on the element's position or the row's index. */
  readonly usesPosition: boolean;
  /** For each input: true if the current element is read, and true if it is read at an index. */
  readonly isReadDirectly: readonly boolean[];
  readonly isReadAtIndex: readonly boolean[];
  readonly readsAtIndex: boolean;
  /** The inputs whose current element is read after a store, in order. */
  readonly readAfterStores: readonly number[];
  /** True if an input is read at an index after a store: another thread may have stored that element. */
  readonly readsAcrossStores: boolean;
  /** True if an input is a draw: its numbers follow from the points that the iteration visits, not from an address. */
  readonly hasDraws: boolean;
  /** Those of the inputs, then of the outputs. A draw has 0 bytes. */
  readonly dtypes: readonly InputDtype[];
  readonly bytes: readonly number[];
}

const factsByKernel = new WeakMap<RowKernel, RowFacts>();

export function factsOf(kernel: RowKernel): RowFacts {
  const cached = factsByKernel.get(kernel);
  if (cached) return cached;
  const facts = computeFacts(kernel);
  factsByKernel.set(kernel, facts);
  return facts;
}

function computeFacts({ inputs, outputs, stages }: RowKernel): RowFacts {
  const loads = stages.map(({ value }) => loadsOf(value));
  const isRead = (input: number, atIndex: boolean, from = 0): boolean =>
    loads
      .slice(from)
      .some((stageLoads) => stageLoads.some((load) => load.input === input && !load.at !== atIndex));
  const firstStore = stages.findIndex(({ kind }) => kind === "store");
  const numbers = inputs.map((_, input) => input);
  const all = [...inputs, ...outputs.map(({ dtype }) => dtype)];
  return {
    isElementwise: stages.every(
      (stage) => stage.kind === "store" && outputs[stage.output]?.per === "element",
    ),
    usesPosition: stages.some(({ value }) =>
      subexpressionsOf(value).some(({ kind }) => kind === "position" || kind === "row"),
    ),
    isReadDirectly: numbers.map((input) => isRead(input, false)),
    isReadAtIndex: numbers.map((input) => isRead(input, true)),
    readsAtIndex: numbers.some((input) => isRead(input, true)),
    readAfterStores: firstStore < 0 ? [] : numbers.filter((input) => isRead(input, false, firstStore + 1)),
    readsAcrossStores: firstStore >= 0 && numbers.some((input) => isRead(input, true, firstStore + 1)),
    hasDraws: inputs.includes("draw"),
    dtypes: all,
    bytes: all.map((dtype) => inputDtypes[dtype].bytes),
  };
}
