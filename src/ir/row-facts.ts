/** What a launch has to know of a row kernel, found once for each. */

import { type Dtype, dtypes } from "./dtypes.js";
import { loadsOf, subexpressionsOf } from "./expression-walk.js";
import type { RowKernel } from "./kernels.js";

export interface RowFacts {
  /** Does it only store elements, so that each stands for itself and any cut into rows will do? */
  readonly isElementwise: boolean;
  /** Does a value follow from the element's position or the row's number? */
  readonly usesPlace: boolean;
  /** For each input: is it read at the present place, and is it read at an index? */
  readonly isReadPlainly: readonly boolean[];
  readonly isReadAtIndex: readonly boolean[];
  readonly readsAtIndex: boolean;
  /** The inputs that are read at the present place after something was stored, in order. */
  readonly readAfterStores: readonly number[];
  /** Is any input read at an index after something was stored? It may be what another element's turn has stored. */
  readonly readsAcrossStores: boolean;
  /** Of the inputs, then the outputs. */
  readonly dtypes: readonly Dtype[];
  readonly bytes: readonly number[];
}

const known = new WeakMap<RowKernel, RowFacts>();

export function factsOf(kernel: RowKernel): RowFacts {
  const found = known.get(kernel);
  if (found) return found;
  const facts = findFacts(kernel);
  known.set(kernel, facts);
  return facts;
}

function findFacts({ inputs, outputs, stages }: RowKernel): RowFacts {
  const loads = stages.map(({ value }) => loadsOf(value));
  const isRead = (input: number, atIndex: boolean, from = 0): boolean =>
    loads.slice(from).some((own) => own.some((load) => load.input === input && !load.at !== atIndex));
  const firstStore = stages.findIndex(({ kind }) => kind === "store");
  const numbers = inputs.map((_, input) => input);
  const all = [...inputs, ...outputs.map(({ dtype }) => dtype)];
  return {
    isElementwise: stages.every(
      (stage) => stage.kind === "store" && outputs[stage.output]?.per === "element",
    ),
    usesPlace: stages.some(({ value }) =>
      subexpressionsOf(value).some(({ kind }) => kind === "position" || kind === "row"),
    ),
    isReadPlainly: numbers.map((input) => isRead(input, false)),
    isReadAtIndex: numbers.map((input) => isRead(input, true)),
    readsAtIndex: numbers.some((input) => isRead(input, true)),
    readAfterStores: firstStore < 0 ? [] : numbers.filter((input) => isRead(input, false, firstStore + 1)),
    readsAcrossStores: firstStore >= 0 && numbers.some((input) => isRead(input, true, firstStore + 1)),
    dtypes: all,
    bytes: all.map((dtype) => dtypes[dtype].bytes),
  };
}
