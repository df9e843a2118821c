/** Removes unused stages, inputs and scalars of a fused kernel, and renumbers the rest. */

import type { Compute, Dtype, Expression, Stage } from "../../../ir/index.js";
import { subexpressionsOf } from "../../../ir/index.js";
import type { Operand } from "./fusion-node.js";
import { Interner } from "./interner.js";

/** One stage of one member, in the order of the fused kernel. */
export interface FlatStage {
  readonly member: number;
  readonly stage: Stage;
  /** The operand that it stores to. */
  readonly output: Operand<Dtype> | undefined;
}

/** A stage with its rewritten value; `isKept`: it is part of the kernel. */
export interface Rewritten extends FlatStage {
  readonly value: Expression;
  isKept: boolean;
}

export interface Scalar {
  readonly value: number;
  readonly type: Compute;
}

export interface Compacted {
  readonly inputs: readonly Operand[];
  readonly outputs: readonly Operand<Dtype>[];
  readonly scalars: readonly Scalar[];
  readonly stages: readonly Stage[];
  /** The stages as text; equal for equal stages. */
  readonly structure: string;
}

/** Numbers items in the order of first use. */
class Numbered<T> {
  readonly list: T[] = [];
  readonly #known = new Map<unknown, number>();

  numberOf(key: unknown, thing: () => T): number {
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    this.#known.set(key, this.list.length);
    return this.list.push(thing()) - 1;
  }
}

/** Undefined if nothing is stored. */
export function compact(
  stages: readonly Rewritten[],
  inputs: readonly Operand[],
  scalars: readonly Scalar[],
): Compacted | undefined {
  keepReductions(stages);
  const interner = new Interner();
  const [ofInputs, ofScalars] = [new Numbered<Operand>(), new Numbered<Scalar>()];
  const [ofOutputs, ofReductions] = [new Numbered<Operand<Dtype>>(), new Map<number, number>()];
  const kept: Stage[] = [];
  const lines: string[] = [];
  const leaves = {
    load(input: number, type: Compute, at: Expression | undefined): Expression {
      const number = ofInputs.numberOf(input, () => defined(inputs[input]));
      return at ? { kind: "load", input: number, type, at } : { kind: "load", input: number, type };
    },
    scalar: (index: number, type: Compute): Expression => ({
      kind: "scalar",
      index: ofScalars.numberOf(index, () => defined(scalars[index])),
      type,
    }),
    reduced: (stage: number, type: Compute): Expression => ({
      kind: "reduced",
      stage: ofReductions.get(stage) ?? -1,
      type,
    }),
  };
  for (const [index, { stage, value, output, isKept }] of stages.entries()) {
    if (!isKept) continue;
    const rewritten = interner.rewrite(value, leaves);
    if (stage.kind === "reduce") {
      ofReductions.set(index, kept.length);
      kept.push({ kind: "reduce", op: stage.op, value: rewritten });
      lines.push(`reduce ${stage.op} ${interner.numberOf(rewritten)}`);
    } else if (output) {
      const number = ofOutputs.numberOf(output.key, () => output);
      kept.push({ kind: "store", output: number, value: rewritten });
      lines.push(`store ${number} ${interner.numberOf(rewritten)}`);
    }
  }
  if (ofOutputs.list.length === 0) return undefined;
  return {
    inputs: ofInputs.list,
    outputs: ofOutputs.list,
    scalars: ofScalars.list,
    stages: kept,
    structure: `${interner.text}\n${lines.join("\n")}`,
  };
}

/** Keeps the reductions that kept stages use, from the last to the first. */
function keepReductions(stages: readonly Rewritten[]): void {
  const used = new Set<number>();
  for (const [index, rewritten] of [...stages.entries()].toReversed()) {
    if (rewritten.stage.kind === "reduce") rewritten.isKept = used.has(index);
    if (!rewritten.isKept) continue;
    for (const slice of subexpressionsOf(rewritten.value))
      if (slice.kind === "reduced") used.add(slice.stage);
  }
}

function defined<T>(operand: T | undefined): T {
  if (operand === undefined) throw new Error("A fused kernel uses an operand that none of its calls has.");
  return operand;
}
