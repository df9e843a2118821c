/**
 * Rows that a kernel leaves unchanged. Every store of such a kernel is `select(condition, value, old)`, where `old` is the output's
 * present value, and the condition is the same for all elements of a row. If the condition is false, the code skips the row's stores and
 * the loads that only they need. An optimizer of sparse gradients is such a kernel.
 */

import {
  type Expression,
  factsOf,
  type Iteration,
  innerStrideOf,
  isUniform,
  kernelKey,
  loadsOf,
  type RowKernel,
  term,
} from "../../ir/index.js";
import type { Storage } from "../../runtime/index.js";

/** A store that keeps the output's present value, which is `oldInputs`, unless all conditions hold. */
interface ConditionalStore {
  readonly output: number;
  readonly conditions: readonly Expression[];
  readonly oldInputs: readonly number[];
}

const conditionalStores = new WeakMap<RowKernel, readonly ConditionalStore[]>();

/** An i32 that is 0 for rows that the launch leaves unchanged; undefined if it may change every row. */
export function changeConditionOf(
  kernel: RowKernel,
  iteration: Iteration,
  operands: readonly Storage[],
): Expression | undefined {
  const stores = conditionalStoresOf(kernel);
  const [first, ...others] = stores;
  const isInPlace = stores.every(({ output, oldInputs }) =>
    oldInputs.every((input) => isSameMemory(kernel, iteration, operands, input, output)),
  );
  if (!first || !isInPlace) return undefined;
  const isInvariant = (input: number): boolean => innerStrideOf(iteration.row, input) === "none";
  const isShared = (condition: Expression): boolean =>
    others.every(({ conditions }) => conditions.some((other) => kernelKey(other) === kernelKey(condition)));
  const common = first.conditions.filter(
    (condition) =>
      isUniform(condition, isInvariant) && loadsOf(condition).every(({ at }) => !at) && isShared(condition),
  );
  return common.length > 0 ? common.reduce((all, condition) => term.min(all, condition)) : undefined;
}

/** The stores of a kernel that reduces first and then only stores conditionally; otherwise none. */
function conditionalStoresOf(kernel: RowKernel): readonly ConditionalStore[] {
  const cached = conditionalStores.get(kernel);
  if (cached) return cached;
  const stores = findConditionalStores(kernel);
  conditionalStores.set(kernel, stores);
  return stores;
}

function findConditionalStores({ stages, outputs }: RowKernel): readonly ConditionalStore[] {
  const firstStore = stages.findIndex(({ kind }) => kind === "store");
  if (firstStore <= 0) return [];
  const stores: ConditionalStore[] = [];
  for (const stage of stages.slice(firstStore)) {
    if (stage.kind !== "store" || outputs[stage.output]?.per !== "element") return [];
    const [conditions, oldInputs]: [Expression[], number[]] = [[], []];
    let { value } = stage;
    while (value.kind === "select" && value.b.kind === "load" && !value.b.at) {
      conditions.push(value.condition);
      oldInputs.push(value.b.input);
      value = value.a;
    }
    if (conditions.length === 0) return [];
    stores.push({ output: stage.output, conditions, oldInputs });
  }
  return stores;
}

function isSameMemory(
  kernel: RowKernel,
  { outer, row }: Iteration,
  operands: readonly Storage[],
  input: number,
  output: number,
): boolean {
  const { dtypes } = factsOf(kernel);
  const other = kernel.inputs.length + output;
  return (
    operands[input]?.span.address === operands[other]?.span.address &&
    dtypes[input] === dtypes[other] &&
    row.strides[input] === row.strides[other] &&
    outer.every(({ strides }) => strides[input] === strides[other])
  );
}
