/** Methods of a device that run ops of the table on tensors, forward. */

import type { Value } from "../../autograd/index.js";
import { HoldfastError } from "../../errors/index.js";
import type { Attributes, Op } from "../../ops/index.js";
import { castOperands, withoutCasts } from "../autocast.js";
import { defineMethods } from "../define-methods.js";
import { Device } from "../device.js";
import { Tensor } from "../tensor.js";
import type { OpCall } from "../vmap/batch-call.js";
import { applyToMembers, rejectInPlace } from "../vmap/dispatch.js";
import { innermostLevel } from "../vmap/level.js";

type Operands = readonly (Tensor | number)[];

declare module "../device.js" {
  interface Device {
    /**
     * Calls an op of the table and returns its first output; used by Tensor's methods.
     *
     * @internal
     */
    apply<A extends Attributes>(op: Op<A>, operands: Operands, attributes?: A): Tensor;

    /**
     * Calls an op of the table and returns all outputs.
     *
     * @internal
     */
    applyAll<A extends Attributes>(op: Op<A>, operands: Operands, attributes?: A): readonly Tensor[];

    /**
     * Calls an op whose result replaces the target's elements.
     *
     * @internal
     */
    applyInPlace<A extends Attributes, T extends Tensor>(
      op: Op<A>,
      target: T,
      operands: Operands,
      attributes?: A,
    ): T;

    /**
     * A tensor for a value of the graph.
     *
     * @internal
     */
    wrap(value: Value): Tensor;
  }
}

type OpMethods = Pick<Device, "apply" | "applyAll" | "applyInPlace" | "wrap">;

const opMethods: OpMethods & ThisType<Device> = {
  apply<A extends Attributes>(op: Op<A>, operands: Operands, attributes: A = {} as A): Tensor {
    const cast = castOperands(this, op as Op, operands);
    const [member] = membersOf(this, { op: op as Op, operands: cast, attributes, wantsAll: false }) ?? [];
    if (member) return member;
    return this.wrap(this.tape.apply(op, valuesOf(this, op.name, cast), attributes));
  },

  applyAll<A extends Attributes>(op: Op<A>, operands: Operands, attributes: A = {} as A): readonly Tensor[] {
    const cast = castOperands(this, op as Op, operands);
    const members = membersOf(this, { op: op as Op, operands: cast, attributes, wantsAll: true });
    if (members) return members;
    const values = this.tape.run(op, valuesOf(this, op.name, cast), attributes);
    return values.map((value) => this.wrap(value));
  },

  applyInPlace<A extends Attributes, T extends Tensor>(
    op: Op<A>,
    target: T,
    operands: Operands,
    attributes: A = {} as A,
  ): T {
    rejectInPlace(op.name, [target, ...operands]);
    this.requireLive(target, `${op.name} in place`);
    this.tape.applyInPlace(op, target.value, valuesOf(this, op.name, operands), attributes);
    return target;
  },

  wrap(value: Value): Tensor {
    return new Tensor({ device: this, value });
  },
};

defineMethods(Device, opMethods);

/** The outputs of an op inside vmap. A batching rule calls other ops, which cast no more than outside of it. */
function membersOf(device: Device, opCall: OpCall): readonly Tensor[] | undefined {
  if (!innermostLevel()) return undefined;
  return withoutCasts(device, () => applyToMembers(device, opCall));
}

function valuesOf(device: Device, op: string, operands: Operands): (Value | number)[] {
  return operands.map((operand) => {
    if (typeof operand === "number") return operand;
    if (!(operand instanceof Tensor)) throw notAnOperand(op, operand);
    if (operand.device !== device) {
      throw new HoldfastError(
        "OTHER_DEVICE",
        `${op}: "${operand.name}" is on another device than the first operand. Create both on one device.`,
        { numbers: { op } },
      );
    }
    device.requireLive(operand, op);
    return operand.value;
  });
}

/** TypeScript rejects this at compile time; JavaScript does not. */
function notAnOperand(op: string, operand: unknown): HoldfastError {
  const isObject = typeof operand === "object" && operand !== null && !Array.isArray(operand);
  const kind = Array.isArray(operand) ? "an array" : operand === null ? "null" : typeof operand;
  return new HoldfastError(
    "BAD_ARGUMENT",
    isObject
      ? `${op} takes tensors and numbers, but got an object with ${Object.keys(operand).join(", ")}. Options come last: pass null for an ` +
          "optional tensor before them."
      : `${op} takes tensors and numbers, but got ${kind}. Create a tensor from arrays: tensor([1, 2]).`,
    { numbers: { op } },
  );
}
