/** Runs ops on tensors inside vmap: by their batching rules, once for all members. */

import { noGrad } from "../../autograd/index.js";
import { HoldfastError } from "../../errors/index.js";
import { capabilitiesOf } from "../../kernels/index.js";
import { dropout, functions, mul, type Op } from "../../ops/index.js";
import type { Device } from "../device.js";
import { Tensor } from "../tensor.js";
import { BatchCall, type OpCall, type Operand, typeOf } from "./batch-call.js";
import { BatchedTensor } from "./batched-tensor.js";
import { innermostLevel, type Level, outside } from "./level.js";
import { batchingRuleOf } from "./rules/table.js";

/** The outputs of an op inside vmap; undefined if the op runs as outside, because no operand differs between members. */
export function applyToMembers(device: Device, opCall: OpCall): readonly Tensor[] | undefined {
  const { op, operands, attributes } = opCall;
  const innermost = innermostLevel();
  if (!innermost) return undefined;
  const isRandom = op.kind !== "composite" && operands.some((operand) => isRandomState(device, operand));
  if (isRandom) rejectRandom(op.name, innermost);
  const isDifferent = isRandom && innermost.randomness === "different";
  const level = isDifferent ? innermost : levelOf(operands);
  if (!level) return undefined;
  const call = new BatchCall(device, level, opCall);
  if (isRandom) return members(call, randomOutputs(call));
  const outputs = batchingRuleOf(op)?.(call);
  if (outputs) return members(call, outputs);
  if (op.kind !== "composite") throw unsupported(op.name);
  return op.compose<Tensor>(
    {
      apply: (inner, innerOperands, innerAttributes) => device.apply(inner, innerOperands, innerAttributes),
      capabilities: capabilitiesOf(device.runtime),
      typeOf: (operand) => asType(operand),
    },
    operands,
    attributes,
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

/** Rejects draws of new tensors, which have no members. */
export function rejectDraw(): void {
  const level = innermostLevel();
  rejectRandom("a function that creates a random tensor", level);
  if (level?.randomness !== "different") return;
  throw unsupported("a random tensor with numbers of each member");
}

/** The innermost level that an operand belongs to. */
export function levelOf(operands: readonly Operand[]): Level | undefined {
  let level: Level | undefined;
  for (const operand of operands)
    if (operand instanceof BatchedTensor && operand.level.depth > (level?.depth ?? 0)) level = operand.level;
  return level;
}

function members({ level }: BatchCall, outputs: readonly Tensor[]): readonly Tensor[] {
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

function randomOutputs(call: BatchCall): readonly Tensor[] {
  const { device, level, op, operands, attributes } = call;
  const [x, state = 0] = operands;
  rejectRandom(op.name, level);
  if (op !== (dropout as Op) || typeof x !== "object") throw unsupported(op.name);
  const whole = call.whole(0);
  if (level.randomness === "different")
    return [outside(level, () => device.apply(op, [whole, state], attributes))];
  const ones = noGrad(() => device.apply(functions.fill, [whole.select(0, 0)], { value: 1 }));
  const mask = outside(level, () => device.apply(op, [ones, state], attributes));
  return [call.unwrap(device.apply(mul, [x, mask]))];
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
