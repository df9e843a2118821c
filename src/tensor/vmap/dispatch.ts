/** Runs ops on tensors inside vmap: by their batching rules, once for all members. */

import { noGrad } from "../../autograd/index.js";
import { HoldfastError } from "../../errors/index.js";
import { capabilitiesOf } from "../../kernels/index.js";
import {
  attentionWithDropout,
  dropout,
  functions,
  mul,
  type Op,
  type RandomAttributes,
  random,
} from "../../ops/index.js";
import type { Device } from "../device.js";
import { Tensor } from "../tensor.js";
import { BatchCall, type OpCall, type Operand, typeOf } from "./batch-call.js";
import { BatchedTensor } from "./batched-tensor.js";
import { hasSameLevel, innermostLevel, type Level, outside } from "./level.js";
import { batchingRuleOf } from "./rules/table.js";

/** The outputs of an op inside vmap; undefined if the op runs as outside, because no operand differs between members. */
export function applyToMembers(device: Device, opCall: OpCall): readonly Tensor[] | undefined {
  const { op, operands, attributes } = opCall;
  const innermost = innermostLevel();
  if (!innermost) return undefined;
  if (op.kind !== "composite" && operands.some((operand) => isRandomState(device, operand)))
    return randomOutputs(device, innermost, opCall);
  const level = levelOf(operands);
  if (!level) return undefined;
  const call = new BatchCall(device, level, opCall);
  const outputs = batchingRuleOf(op)?.(call);
  if (outputs) return members(level, outputs);
  if (op.kind !== "composite") throw unsupported(op.name);
  return op.compose<Tensor>(
    {
      apply: (inner, innerOperands, innerAttributes) => device.apply(inner, innerOperands, innerAttributes),
      capabilities: capabilitiesOf(device.runtime),
      typeOf: (operand) => asType(operand),
    },
    operands,
    // Members that share random numbers share those of one probability: no kernel of a whole does this.
    op === (attentionWithDropout as Op) && hasSameLevel()
      ? { ...attributes, keeps: "probabilities" }
      : attributes,
  );
}

/** Rejects in-place ops whose operands stand for several members. */
export function rejectInPlace(op: string, operands: readonly Operand[]): void {
  if (!innermostLevel() || !levelOf(operands)) return;
  throw new HoldfastError(
    "UNSUPPORTED",
    `vmap: ${op} can't write in place where members differ. Use the op that returns a new tensor.`,
    { numbers: { op } },
  );
}

/** Rejects random numbers that are the same for all members, or would have to differ. */
export function rejectRandom(op: string, level: Level | undefined = innermostLevel()): void {
  if (level?.randomness !== "error") return;
  throw new HoldfastError(
    "UNSUPPORTED",
    `vmap: ${op} draws random numbers. Pass randomness: "different" for numbers of each member, or "same"; or draw them before vmap and ` +
      "pass them as an argument.",
    { numbers: { op } },
  );
}

/** Rejects draws into memory that exists: it has no members. */
export function rejectDraw(): void {
  const level = innermostLevel();
  rejectRandom("a function that draws into a tensor", level);
  if (level?.randomness === "different")
    throw unsupported("a draw into a tensor that is the same for all members");
}

/** Rejects a tensor that differs between members, for what can't. */
export function rejectMembers(operands: readonly Operand[], what: string, advice: string): void {
  if (!innermostLevel() || !levelOf(operands)) return;
  throw new HoldfastError("UNSUPPORTED", `vmap: ${what} where members differ. ${advice}`);
}

/** The innermost level that an operand belongs to. */
export function levelOf(operands: readonly Operand[]): Level | undefined {
  let level: Level | undefined;
  for (const operand of operands)
    if (operand instanceof BatchedTensor && operand.level.depth > (level?.depth ?? 0)) level = operand.level;
  return level;
}

function members(level: Level, outputs: readonly Tensor[]): readonly Tensor[] {
  return outputs.map((output) => new BatchedTensor(output, level));
}

function isRandomState(device: Device, operand: Operand): boolean {
  return (
    operand instanceof Tensor &&
    !(operand instanceof BatchedTensor) &&
    operand.name === "random state" &&
    operand.value === device.randomValue
  );
}

/** A draw inside vmap. It runs again outside of the innermost call of vmap, and so obeys the `randomness` of every one. */
function randomOutputs(device: Device, level: Level, opCall: OpCall): readonly Tensor[] {
  const { op, operands, attributes } = opCall;
  rejectRandom(op.name, level);
  const isDifferent = level.randomness === "different";
  const draw = (drawn: readonly Operand[], drawnAttributes = attributes): Tensor =>
    outside(level, () => device.apply(op, drawn, drawnAttributes));
  if (op === (random as Op)) {
    if (!isDifferent) return [draw(operands)];
    const { shape } = attributes as RandomAttributes;
    return members(level, [draw(operands, { ...attributes, shape: [level.size, ...shape] })]);
  }
  const call = new BatchCall(device, level, opCall);
  const isMembers = operands.some((_, index) => call.isBatched(index));
  if (!isDifferent && !isMembers) return [draw(operands)];
  if (op === (dropout as Op)) {
    const [state = 0] = operands.slice(1);
    const whole = call.whole(0);
    if (isDifferent) return members(level, [draw([whole, state])]);
    const ones = noGrad(() => device.apply(functions.fill, [whole.select(0, 0)], { value: 1 }));
    const mask = draw([ones, state]);
    return members(level, [outside(level, () => device.apply(mul, [whole, mask]))]);
  }
  // Attention in one kernel. With the same numbers for all members it is composed of other ops instead.
  if (!isDifferent) throw unsupported(op.name);
  const rank = Math.max(...operands.map((_, index) => call.rankOf(index)));
  return members(level, [draw(operands.map((_, index) => call.aligned(index, rank, index === 0)))]);
}

function asType(operand: Operand) {
  const type = typeOf(operand);
  return typeof type === "number" ? { shape: [], dtype: "f32" as const } : type;
}

function unsupported(op: string): HoldfastError {
  return new HoldfastError(
    "UNSUPPORTED",
    `vmap has no batching rule for ${op}, or not for members that differ in these operands. Loop over the members instead: ` +
      "stack(x.unbind().map(fn)).",
    { numbers: { op } },
  );
}
