/**
 * The stages of several members one after another, where what an earlier member stores and a later one loads becomes the
 * value itself, or is loaded back from the very place where the same thread has just stored it.
 */

import { dtypes, type Expression, loadsOf, type Stage, subexpressionsOf } from "../../../ir/index.js";
import type { BufferSlice } from "../../program/program.js";
import { type Compacted, compact } from "./compact.js";
import { isCheap } from "./cost.js";
import type { Operand } from "./fusion-node.js";
import { forwardedValue, Interner } from "./interner.js";
import type { IterationSpace } from "./iteration-space.js";
import { isInvariantAlongRows } from "./strided-access.js";

/** One stage of one member, in the order of the fused kernel. */
export interface Flat {
  readonly member: number;
  readonly stage: Stage;
  /** What it stores to. */
  readonly output: Operand | undefined;
}

/** A stage whose value is rewritten; `isKept` says that it is part of the kernel. */
export interface Rewritten extends Flat {
  readonly value: Expression;
  isKept: boolean;
}

export class Combination {
  readonly #frame: IterationSpace;
  readonly #isNeeded: (slice: BufferSlice) => boolean;
  readonly #interner = new Interner();
  readonly #stages: readonly Flat[];
  readonly #done: Rewritten[] = [];
  /** Where each member's first stage and first scalar stand. */
  readonly #firstStage: readonly number[];
  readonly #firstScalar: readonly number[];
  /** What members read, each once. */
  readonly #inputs: Operand[] = [];
  readonly #inputByKey = new Map<string, number>();
  /** By what they store to, the places of the stages that do, ascending. */
  readonly #stores = new Map<string, number[]>();
  /** By the place of a store: the stages that load what it has stored, and what stands for such a load. */
  readonly #uses = new Map<number, Set<number>>();
  readonly #loaded = new Map<number, Expression>();

  constructor(frame: IterationSpace, isNeeded: (slice: BufferSlice) => boolean) {
    this.#frame = frame;
    this.#isNeeded = isNeeded;
    this.#firstStage = firsts(frame, ({ member }) => member.kernel.stages.length);
    this.#firstScalar = firsts(frame, ({ member }) => member.scalars.length);
    this.#stages = frame.seen.flatMap(({ member, outputs }, index) =>
      member.kernel.stages.map(
        (stage): Flat => ({
          member: index,
          stage,
          output: stage.kind === "store" ? outputs[stage.output] : undefined,
        }),
      ),
    );
    for (const [place, { output }] of this.#stages.entries()) {
      if (!output) continue;
      const known = this.#stores.get(output.key);
      if (known) known.push(place);
      else this.#stores.set(output.key, [place]);
    }
    for (const place of this.#stages.keys()) {
      for (const store of this.#storesReadBy(place)) {
        const uses = this.#uses.get(store) ?? new Set();
        this.#uses.set(store, uses.add(place));
      }
    }
  }

  rewrite(): Compacted | undefined {
    for (const [place, flat] of this.#stages.entries()) {
      const value = this.#rewriteValue(place, flat);
      const done: Rewritten = { ...flat, value, isKept: false };
      this.#done.push(done);
      if (flat.output && !this.#settle(place, done, flat.output)) return undefined;
    }
    return compact(this.#done, this.#inputs, this.#frame.seen.flatMap(scalarsOf));
  }

  #rewriteValue(place: number, { member, stage }: Flat): Expression {
    const interner = this.#interner;
    const inputs = this.#frame.seen[member]?.inputs ?? [];
    const firstStage = this.#firstStage[member] ?? 0;
    const firstScalar = this.#firstScalar[member] ?? 0;
    return interner.rewrite(stage.value, {
      load: (input, type, at) => {
        const operand = inputs[input];
        const store = operand && !at ? this.#storeBehind(operand, place) : undefined;
        const known = store === undefined ? undefined : this.#loaded.get(store);
        if (known) return known;
        const index = operand ? this.#inputOf(operand) : -1;
        return at ? { kind: "load", input: index, type, at } : { kind: "load", input: index, type };
      },
      scalar: (index, type) => ({ kind: "scalar", index: firstScalar + index, type }),
      reduced: (own, type) => ({ kind: "reduced", stage: firstStage + own, type }),
    });
  }

  #inputOf(operand: Operand): number {
    const known = this.#inputByKey.get(operand.key);
    if (known === undefined) {
      this.#inputByKey.set(operand.key, this.#inputs.length);
      return this.#inputs.push(operand) - 1;
    }
    const own = this.#inputs[known];
    // The same elements seen with other ends: the longer part holds both.
    if (own && own.slice.size < operand.slice.size) this.#inputs[known] = operand;
    return known;
  }

  #storesReadBy(place: number): readonly number[] {
    const flat = this.#stages[place];
    if (!flat) return [];
    const { inputs } = this.#frame.seen[flat.member] ?? { inputs: [] };
    return loadsOf(flat.stage.value).flatMap(({ input, at }) => {
      const operand = at ? undefined : inputs[input];
      return (operand && this.#storeBehind(operand, place)) ?? [];
    });
  }

  /** The store of this kernel whose value an operand has at a stage; none where it has what was there before. */
  #storeBehind({ key }: Operand, place: number): number | undefined {
    // No member reads a row's value after it has stored it itself, so that any earlier store is seen.
    return this.#stores.get(key)?.findLast((store) => store < place);
  }

  /** Decides what loads of a stored value become, and whether it is stored at all. False where there is no way. */
  #settle(place: number, done: Rewritten, output: Operand): boolean {
    const uses = [...(this.#uses.get(place) ?? [])];
    const isOverwritten = (this.#stores.get(output.key)?.at(-1) ?? place) > place;
    const isNeeded = this.#isNeeded(output.slice) && !isOverwritten;
    done.isKept = isNeeded;
    if (uses.length === 0) return true;
    const value = forwardedValue(
      this.#interner,
      done.value,
      output.dtype,
      (input) => this.#inputs[input]?.dtype,
    );
    const isGood = value !== undefined && uses.every((use) => this.#holdsAt(value, place, use, isNeeded));
    if (output.per === "row") return this.#settleRow(place, value, isGood, uses);
    const isLight =
      value !== undefined && isCheap(value, this.#reduces ? (slice) => this.#isOnceForRow(slice) : undefined);
    // In a kernel of elements a thread has what it has just stored at hand; where rows are reduced it goes and reads it.
    const isBetter = isNeeded ? isLight && this.#reduces : isLight || uses.length === 1;
    if (value !== undefined && isGood && isBetter) this.#loaded.set(place, value);
    else {
      done.isKept = true;
      this.#loaded.set(place, this.#interner.intern(this.#loadOf(output)));
    }
    return true;
  }

  #settleRow(
    place: number,
    value: Expression | undefined,
    isGood: boolean,
    uses: readonly number[],
  ): boolean {
    if (value === undefined || !isGood) return false;
    const isOfElements = uses.some((use) => this.#stages[use]?.output?.per !== "row");
    if (isOfElements && !this.#isRowInvariant(value)) return false;
    // With no reduction every element is computed for itself, and the row's value for each of them.
    if (isOfElements && !this.#reduces && !isCheap(value)) return false;
    this.#loaded.set(place, value);
    return true;
  }

  get #reduces(): boolean {
    return this.#frame.seen.some(({ member }) => member.reduces);
  }

  #loadOf(output: Operand): Expression {
    return {
      kind: "load",
      input: this.#inputOf({ ...output, per: "element" }),
      type: dtypes[output.dtype].compute,
    };
  }

  /** Does a value stay what it is from the stage that stores it to one that uses it: is nothing that it loads stored over? */
  #holdsAt(value: Expression, place: number, use: number, isStored: boolean): boolean {
    return loadsOf(value).every(({ input }) => {
      const stores = this.#stores.get(this.#inputs[input]?.key ?? "") ?? [];
      return !stores.some((store) => store < use && (store > place || (store === place && isStored)));
    });
  }

  /** Is a part of a value computed before a row's elements are gone through, for all of them? */
  #isOnceForRow(slice: Expression): boolean {
    return this.#isRowInvariant(slice) && loadsOf(slice).every(({ at }) => !at);
  }

  /** Has the value the same number for all of a row? */
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
