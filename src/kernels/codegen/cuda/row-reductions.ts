/**
 * The reductions over the row of a row kernel. A thread has four accumulators, one for each element of a vector, and adds them up. Then the
 * threads' totals are combined in a fixed order (warp-reduce butterfly). A lane is a thread of the row.
 */

import { type Expression, identityOf, type Stage } from "../../../ir/index.js";
import { warpSize } from "../../cost-model.js";
import { teamBarrier, teamOf, teamsOf } from "./column-partials.js";
import { computeTypes } from "./element-types.js";
import { binary, literal } from "./expressions.js";
import {
  addOnline,
  declareElements,
  declareOnlineSums,
  onlineSoftmaxAt,
  rescaledSum,
} from "./online-softmax.js";
import { independentReductionsFrom, usesOnlineSoftmax } from "./row-passes.js";
import type { ReducingLayout, RowVectors } from "./row-vectors.js";
import { forEachElement, type StageContext } from "./vectors.js";

/** A reducing stage, and the names of its locals in the generated code. */
interface Reduction extends Extract<Stage, { kind: "reduce" }> {
  readonly stage: number;
  readonly real: string;
  readonly acc: string;
  readonly total: string;
  /** The shared memory for a value of each warp of the row. */
  readonly shared: string;
  combine(a: string, b: string): string;
}

interface ReductionSettings {
  readonly context: StageContext;
  readonly stages: readonly Stage[];
  readonly layout: ReducingLayout;
  readonly vectors: RowVectors;
  readonly reduced: Map<number, string>;
}

export class RowReductions {
  readonly #context: StageContext;
  readonly #stages: readonly Stage[];
  readonly #layout: ReducingLayout;
  readonly #vectors: RowVectors;
  /** The locals of the results, by stage. */
  readonly #reduced: Map<number, string>;

  constructor({ context, stages, layout, vectors, reduced }: ReductionSettings) {
    this.#context = context;
    this.#stages = stages;
    this.#layout = layout;
    this.#vectors = vectors;
    this.#reduced = reduced;
  }

  /** Prints the reductions of the pass that begins with a stage. */
  printFrom(first: number): void {
    const stages = this.#stages;
    const value = usesOnlineSoftmax(this.#layout) ? onlineSoftmaxAt(stages, first) : undefined;
    if (value) this.#printOnlineSoftmax(value, this.#namedReductions(stages.slice(first, first + 2), first));
    else this.#printReductions(this.#namedReductions(independentReductionsFrom(stages, first), first));
  }

  #printOnlineSoftmax(value: Expression, [max, sum]: readonly Reduction[]): void {
    if (!max || !sum) return;
    const { text } = this.#context;
    const sums = { max: max.acc, sum: sum.acc };
    declareOnlineSums(text, sums);
    this.#vectors.forEach([value], (vectors, computed) => {
      const elements = text.freshName();
      declareElements(text, elements, this.#vectors.width);
      forEachElement(this.#context, value, vectors, computed, (element, index) => {
        text.line(`${elements}[${index}] = ${element};`);
      });
      addOnline(text, sums, elements, this.#vectors.width);
    });
    text.line(`float ${max.total} = ${max.acc};`);
    this.#reduceThreads([max]);
    text.line(`float ${sum.total} = ${rescaledSum(text, sums, max.total)};`);
    this.#reduceThreads([sum]);
  }

  /** Reductions, with the names of their locals. */
  #namedReductions(stages: readonly Stage[], first: number): readonly Reduction[] {
    return stages.flatMap((stage, offset): Reduction | [] => {
      if (stage.kind !== "reduce") return [];
      const index = first + offset;
      const { type } = stage.value;
      const combine: Reduction["combine"] = (a, b) => binary(this.#context.text, stage.op, type, a, b);
      const names = { acc: `acc${index}`, total: `total${index}`, shared: `shared${index}` };
      return { ...stage, ...names, stage: index, real: computeTypes[type], combine };
    });
  }

  #printReductions(reductions: readonly Reduction[]): void {
    const { text } = this.#context;
    for (const { op, value, real, acc } of reductions) {
      const identity = literal(value.type, identityOf(op, value.type));
      text.line(`${real} ${acc}[4] = {${Array(4).fill(identity).join(", ")}};`);
    }
    this.#vectors.forEach(
      reductions.map(({ value }) => value),
      (vectors, computed) => {
        for (const { value, acc, combine } of reductions) {
          forEachElement(this.#context, value, vectors, computed, (element, index) => {
            const partial = this.#vectors.width === 4 ? `${acc}[${index}]` : `${acc}[${index} % 4u]`;
            text.line(`${partial} = ${combine(partial, element)};`);
          });
        }
      },
    );
    for (const { real, acc, total, combine } of reductions) {
      const [first, second] = [combine(`${acc}[0]`, `${acc}[1]`), combine(`${acc}[2]`, `${acc}[3]`)];
      text.line(`${real} ${total} = ${combine(first, second)};`);
    }
    this.#reduceThreads(reductions);
  }

  /** Combines the totals of the row's threads. */
  #reduceThreads(reductions: readonly Reduction[]): void {
    this.#printButterfly(Math.min(warpSize, this.#layout.lanes), reductions);
    if (this.#layout.lanes > warpSize) this.#reduceWarps(reductions);
    for (const { stage, total } of reductions) this.#reduced.set(stage, total);
  }

  /** Warp-reduce butterfly over neighbouring lanes: all of them get the result. */
  #printButterfly(lanes: number, reductions: readonly Reduction[]): void {
    for (let distance = lanes / 2; distance >= 1; distance /= 2) {
      for (const { total, combine } of reductions) {
        const other = `__shfl_xor_sync(0xffffffffu, ${total}, ${distance})`;
        this.#context.text.line(`${total} = ${combine(total, other)};`);
      }
    }
  }

  #reduceWarps(reductions: readonly Reduction[]): void {
    const { text } = this.#context;
    const { lanes, colsums } = this.#layout;
    const warps = lanes / warpSize;
    const team = colsums && teamsOf(colsums) > 1 ? `[${teamOf(colsums)}]` : "";
    const teams = team && colsums ? `[${teamsOf(colsums)}]` : "";
    // In a loop over rows, a warp may still read the values of a row when another one stores those of the next row.
    const [buffers, buffer] = colsums?.isLoop ? ["[2]", "[parity]"] : ["", ""];
    for (const { real, shared, total } of reductions) {
      text.line(`__shared__ ${real} ${shared}${buffers}${teams}[${warps}];`);
      text.line(`if (lane % ${warpSize}u == 0u) ${shared}${buffer}${team}[lane / ${warpSize}u] = ${total};`);
    }
    text.line(teamBarrier(text, colsums));
    for (const { shared, total } of reductions)
      text.line(`${total} = ${shared}${buffer}${team}[lane % ${warps}u];`);
    this.#printButterfly(warps, reductions);
  }
}
