/** One call of an op on members, as the batching rules see it. */

import { type Attributes, expand, type Op, reshape, type Shape, type ValueType } from "../../ops/index.js";
import type { Device } from "../device.js";
import type { Tensor } from "../tensor.js";
import { BatchedTensor } from "./batched-tensor.js";
import type { Level } from "./level.js";

export type Operand = Tensor | number;

/** Returns the outputs with the members along the first axis; undefined: the rule does not cover this call. */
export type BatchingRule = (call: BatchCall) => readonly Tensor[] | undefined;

/** A call of an op. `wantsAll`: of all outputs, not of the first alone. */
export interface OpCall {
  readonly op: Op;
  readonly operands: readonly Operand[];
  readonly attributes: Attributes;
  readonly wantsAll: boolean;
}

export class BatchCall {
  readonly #wantsAll: boolean;
  readonly device: Device;
  readonly level: Level;
  readonly op: Op;
  /** What the function called the op on: operands as members. */
  readonly operands: readonly Operand[];
  readonly attributes: Attributes;
  /** The types of one member's outputs. */
  readonly types: readonly ValueType[];

  constructor(device: Device, level: Level, { op, operands, attributes, wantsAll }: OpCall) {
    this.device = device;
    this.level = level;
    this.op = op;
    this.operands = operands;
    this.attributes = attributes;
    this.#wantsAll = wantsAll;
    this.types = op.infer(operands.map(typeOf), attributes);
  }

  get size(): number {
    return this.level.size;
  }

  isBatched(index: number): boolean {
    return this.#batchOf(index) !== undefined;
  }

  /** The axes of a member of an operand. */
  rankOf(index: number): number {
    return this.shapeOf(index).length;
  }

  shapeOf(index: number): Shape {
    const operand = this.operands[index];
    return typeof operand === "object" ? operand.shape : [];
  }

  /** An operand with the members along its first axis, or as it is if it is the same for all members. */
  raw(index: number): Operand {
    return this.#batchOf(index)?.batch ?? this.operands[index] ?? 0;
  }

  /** An operand with the members along its first axis. */
  whole(index: number): Tensor {
    const raw = this.raw(index);
    const tensor = typeof raw === "object" ? raw : this.device.fromHost([raw], [], "f32");
    return this.isBatched(index) ? tensor : this.expand(tensor, [this.size, ...tensor.shape]);
  }

  wholes(): readonly Tensor[] {
    return this.operands.map((_, index) => this.whole(index));
  }

  /** An operand whose member has this many axes: new ones come after that of the members. `isWhole`: also if it is the same for all members. */
  aligned(index: number, rank: number, isWhole = false): Operand {
    const raw = isWhole ? this.whole(index) : this.raw(index);
    const missing = rank - this.rankOf(index);
    if (typeof raw === "number" || !(isWhole || this.isBatched(index)) || missing <= 0) return raw;
    return this.reshape(raw, [this.size, ...new Array<number>(missing).fill(1), ...raw.shape.slice(1)]);
  }

  expand(x: Tensor, shape: Shape): Tensor {
    return this.device.apply(expand, [x], { shape });
  }

  reshape(x: Tensor, shape: Shape): Tensor {
    return this.device.apply(reshape, [x], { shape });
  }

  /** Runs the op on whole operands. */
  run(operands: readonly Operand[], attributes: Attributes = this.attributes): readonly Tensor[] {
    const { device, op } = this;
    return this.#wantsAll
      ? device.applyAll(op, operands, attributes)
      : [device.apply(op, operands, attributes)];
  }

  /** The result of member-level ops, with the members along the first axis. */
  unwrap(result: Tensor): Tensor {
    if (result instanceof BatchedTensor && result.level === this.level) return result.batch;
    return this.expand(result, [this.size, ...result.shape]);
  }

  #batchOf(index: number): BatchedTensor | undefined {
    const operand = this.operands[index];
    return operand instanceof BatchedTensor && operand.level === this.level ? operand : undefined;
  }
}

export function typeOf(operand: Operand): ValueType | number {
  return typeof operand === "number" ? operand : { shape: operand.shape, dtype: operand.dtype };
}

/** An axis of a member as an axis of the whole. */
export function shifted(axis: number, rank: number): number {
  return (axis < 0 ? axis + rank : axis) + 1;
}
