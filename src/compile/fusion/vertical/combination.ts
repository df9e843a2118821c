/**
 * Concatenates the stages of several members. A load of a value that an earlier member stores becomes the value itself, or a load back
 * from memory that the same thread has just stored.
 */

import { type Dtype, dtypes, type Expression, loadsOf, subexpressionsOf } from "../../../ir/index.js";
import type { Capabilities } from "../../../kernels/index.js";
import type { BufferSlice } from "../../program/program.js";
import { type Compacted, compact, type FlatStage, type Rewritten } from "./compact.js";
import { isCheap } from "./cost.js";
import type { Operand } from "./fusion-node.js";
import { forwardedValue, Interner, withoutRounding } from "./interner.js";
import type { IterationSpace } from "./iteration-space.js";
import { isInvariantAlongRows } from "./strided-access.js";

export class Combination {
  readonly #frame: IterationSpace;
  readonly #isNeeded: (slice: BufferSlice) => boolean;
  readonly #sharesValues: boolean;
  readonly #interner = new Interner();
  readonly #stages: readonly FlatStage[];
  readonly #done: Rewritten[] = [];
  /** The index of each member's first stage and first scalar. */
  readonly #firstStage: readonly number[];
  readonly #firstScalar: readonly number[];
  /** The distinct inputs of all members. */
  readonly #inputs: Operand[] = [];
  readonly #inputByKey = new Map<string, number>();
  /** By operand, the indices of the stages that store to it, ascending. */
  readonly #stores = new Map<string, number[]>();
  /** By the index of a store: the stages that load the stored value, and the placeholder for such a load. */
  readonly #uses = new Map<number, Set<number>>();
  readonly #loaded = new Map<number, Expression>();

  constructor(
    frame: IterationSpace,
    isNeeded: (slice: BufferSlice) => boolean,
    { sharesValuesOfStages }: Pick<Capabilities, "sharesValuesOfStages">,
  ) {
    this.#frame = frame;
    this.#isNeeded = isNeeded;
    this.#sharesValues = sharesValuesOfStages && !this.#reduces;
    this.#firstStage = firsts(frame, ({ member }) => member.kernel.stages.length);
    this.#firstScalar = firsts(frame, ({ member }) => member.scalars.length);
    this.#stages = frame.seen.flatMap(({ member, outputs }, index) =>
      member.kernel.stages.map(
        (stage): FlatStage => ({
          member: index,
          stage,
          output: stage.kind === "store" ? outputs[stage.output] : undefined,
        }),
      ),
    );
    for (const [stageIndex, { output }] of this.#stages.entries()) {
      if (!output) continue;
      const known = this.#stores.get(output.key);
      if (known) known.push(stageIndex);
      else this.#stores.set(output.key, [stageIndex]);
    }
    for (const stageIndex of this.#stages.keys()) {
      for (const store of this.#storesReadBy(stageIndex)) {
        const uses = this.#uses.get(store) ?? new Set();
        this.#uses.set(store, uses.add(stageIndex));
      }
    }
  }

  rewrite(): Compacted | undefined {
    for (const [stageIndex, flat] of this.#stages.entries()) {
      const rewritten = this.#rewriteValue(stageIndex, flat);
      const value = flat.output ? withoutRounding(rewritten, flat.output.dtype) : rewritten;
      const done: Rewritten = { ...flat, value, isKept: false };
      this.#done.push(done);
      if (flat.output && !this.#resolveStore(stageIndex, done, flat.output)) return undefined;
    }
    return compact(this.#done, this.#inputs, this.#frame.seen.flatMap(scalarsOf));
  }

  #rewriteValue(stageIndex: number, { member, stage }: FlatStage): Expression {
    const interner = this.#interner;
    const inputs = this.#frame.seen[member]?.inputs ?? [];
    const firstStage = this.#firstStage[member] ?? 0;
    const firstScalar = this.#firstScalar[member] ?? 0;
    return interner.rewrite(stage.value, {
      load: (input, type, at) => {
        const operand = inputs[input];
        const store = operand && !at ? this.#visibleStore(operand, stageIndex) : undefined;
        const known = store === undefined ? undefined : this.#loaded.get(store);
        if (known) return known;
        const index = operand ? this.#inputOf(operand) : -1;
        return at ? { kind: "load", input: index, type, at } : { kind: "load", input: index, type };
      },
      scalar: (index, type) => ({ kind: "scalar", index: firstScalar + index, type }),
      reduced: (reduction, type) => ({ kind: "reduced", stage: firstStage + reduction, type }),
    });
  }

  #inputOf(operand: Operand): number {
    const known = this.#inputByKey.get(operand.key);
    if (known === undefined) {
      this.#inputByKey.set(operand.key, this.#inputs.length);
      return this.#inputs.push(operand) - 1;
    }
    const input = this.#inputs[known];
    // The same elements in slices of different sizes: the longer slice covers both.
    if (input && input.slice.size < operand.slice.size) this.#inputs[known] = operand;
    return known;
  }

  #storesReadBy(stageIndex: number): readonly number[] {
    const flat = this.#stages[stageIndex];
    if (!flat) return [];
    const { inputs } = this.#frame.seen[flat.member] ?? { inputs: [] };
    return loadsOf(flat.stage.value).flatMap(({ input, at }) => {
      const operand = at ? undefined : inputs[input];
      return (operand && this.#visibleStore(operand, stageIndex)) ?? [];
    });
  }

  /** The store of this kernel that an operand sees at a stage; undefined if it sees memory from before the kernel. */
  #visibleStore({ key }: Operand, stageIndex: number): number | undefined {
    // No member reads a row's value after it has stored it itself, so any earlier store is visible.
    return this.#stores.get(key)?.findLast((store) => store < stageIndex);
  }

  /** Resolves a store: how loads of the value are replaced, and whether it is stored at all. False if the members cannot be fused. */
  #resolveStore(stageIndex: number, done: Rewritten, output: Operand<Dtype>): boolean {
    const uses = [...(this.#uses.get(stageIndex) ?? [])];
    const isOverwritten = (this.#stores.get(output.key)?.at(-1) ?? stageIndex) > stageIndex;
    const isNeeded = this.#isNeeded(output.slice) && !isOverwritten;
    done.isKept = isNeeded;
    if (uses.length === 0) return true;
    const value = forwardedValue(
      this.#interner,
      done.value,
      output.dtype,
      (input) => this.#inputs[input]?.dtype,
    );
    const isGood =
      value !== undefined && uses.every((use) => this.#holdsAt(value, stageIndex, use, isNeeded));
    if (output.per === "row") return this.#resolveRowStore(stageIndex, value, isGood, uses);
    const isLight =
      value !== undefined && isCheap(value, this.#reduces ? (slice) => this.#isOnceForRow(slice) : undefined);
    // In an elementwise kernel a thread still has the value in a register; with row reductions it loads it again, or draws it again.
    const isBetter = isNeeded
      ? isLight && this.#reduces && !this.#isDrawn(value)
      : isLight || uses.length === 1 || this.#sharesValues;
    if (value !== undefined && isGood && isBetter) this.#loaded.set(stageIndex, value);
    else {
      done.isKept = true;
      this.#loaded.set(stageIndex, this.#interner.intern(this.#loadOf(output)));
    }
    return true;
  }

  #resolveRowStore(
    stageIndex: number,
    value: Expression | undefined,
    isGood: boolean,
    uses: readonly number[],
  ): boolean {
    if (value === undefined || !isGood) return false;
    const isOfElements = uses.some((use) => this.#stages[use]?.output?.per !== "row");
    if (isOfElements && !this.#isRowInvariant(value)) return false;
    // Without a reduction a row's value would be recomputed for every element.
    if (isOfElements && !this.#reduces && !isCheap(value)) return false;
    this.#loaded.set(stageIndex, value);
    return true;
  }

  get #reduces(): boolean {
    return this.#frame.seen.some(({ member }) => member.reduces);
  }

  #loadOf(output: Operand<Dtype>): Expression {
    return {
      kind: "load",
      input: this.#inputOf({ ...output, per: "element" }),
      type: dtypes[output.dtype].compute,
    };
  }

  /** True if a value is unchanged between its store and its use: nothing that it loads is overwritten. */
  #holdsAt(value: Expression, stageIndex: number, use: number, isStored: boolean): boolean {
    return loadsOf(value).every(({ input }) => {
      const stores = this.#stores.get(this.#inputs[input]?.key ?? "") ?? [];
      return !stores.some(
        (store) => store < use && (store > stageIndex || (store === stageIndex && isStored)),
      );
    });
  }

  #isDrawn(value: Expression): boolean {
    return loadsOf(value).some(({ input }) => this.#inputs[input]?.dtype === "draw");
  }

  /** True if a subexpression is loop-invariant in the row. */
  #isOnceForRow(slice: Expression): boolean {
    return this.#isRowInvariant(slice) && loadsOf(slice).every(({ at }) => !at);
  }

  /** True if the value is the same for the whole row. */
  #isRowInvariant(value: Expression): boolean {
    const rowSize = this.#frame.rowSize ?? 1;
    return subexpressionsOf(value).every((slice) => {
      if (slice.kind === "position") return false;
      return slice.kind !== "load" || isInvariantAlongRows(this.#inputs[slice.input]?.steps ?? [], rowSize);
    });
  }
}

function firsts(
  { seen }: IterationSpace,
  count: (one: IterationSpace["seen"][number]) => number,
): readonly number[] {
  let next = 0;
  return seen.map((one) => {
    const first = next;
    next += count(one);
    return first;
  });
}

function scalarsOf({ member }: IterationSpace["seen"][number]) {
  return member.scalars.map((value, index) => ({
    value,
    type: member.kernel.scalars[index] ?? ("f32" as const),
  }));
}
