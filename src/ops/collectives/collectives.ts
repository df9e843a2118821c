/**
 * allGather, allToAll, reduceScatter and broadcast: the ranks of a distributed run exchange arrays. Each is one kernel of the communicator,
 * so a compiled step plans and verifies its memory like that of other calls. All ranks must run the same collectives in the same order.
 */

import type { Communicator } from "../../distributed/index.js";
import type { KernelSource } from "../../driver/index.js";
import { HoldfastError } from "../../errors/index.js";
import { dtypes } from "../../ir/index.js";
import { sum } from "../broadcast.js";
import { copyArray } from "../copy.js";
import { type DeviceArray, isContiguous } from "../device-array.js";
import { arrayAt, type KernelOp, type Lowering, typeAt } from "../op.js";
import { badShape, formatShape, sizeOf } from "../shape.js";

export type CollectiveAttributes = { readonly communicator: Communicator };

/** [shape…] → [ranks, shape…]: the array of every rank. */
export const allGather: KernelOp<CollectiveAttributes> = {
  kind: "kernel",
  name: "allGather",
  infer(operands, { communicator }) {
    const { shape, dtype } = typeAt("allGather", operands, 0);
    return [{ shape: [communicator.size, ...shape], dtype }];
  },
  // Every rank's loss depends on this rank's array.
  gradient: ({ apply, upstream, attributes }) => [
    apply(sum, [apply(allToAll, [upstream], attributes)], { axes: 0 }),
  ],
  lower(lowering, operands, [output], { communicator }) {
    const input = arrayAt(operands, 0);
    launch(lowering, input, output, communicator.allGather(bytesOf(input)));
  },
};

/** [ranks, shape…] → [ranks, shape…]: row i goes to rank i, and row i of the result is from rank i. */
export const allToAll: KernelOp<CollectiveAttributes> = {
  kind: "kernel",
  name: "allToAll",
  infer(operands, { communicator: { size } }) {
    const { shape, dtype } = typeAt("allToAll", operands, 0);
    if (shape[0] !== size)
      throw badShape(
        "allToAll",
        `${formatShape(shape)} among ${size} ranks: the first axis has a row for each rank.`,
      );
    return [{ shape, dtype }];
  },
  gradient: ({ apply, upstream, attributes }) => [apply(allToAll, [upstream], attributes)],
  lower(lowering, operands, [output], { communicator }) {
    const input = arrayAt(operands, 0);
    launch(lowering, input, output, communicator.allToAll(bytesOf(input) / communicator.size));
  },
};

/** [ranks, shape…] → [shape…] in float32: the sum over all ranks of their rows of this rank. */
export const reduceScatter: KernelOp<CollectiveAttributes> = {
  kind: "kernel",
  name: "reduceScatter",
  infer(operands, { communicator: { size } }) {
    const { shape, dtype } = typeAt("reduceScatter", operands, 0);
    if (shape[0] !== size)
      throw badShape(
        "reduceScatter",
        `${formatShape(shape)} among ${size} ranks: the first axis has a row for each rank.`,
      );
    if (dtype !== "f32")
      throw new HoldfastError(
        "BAD_DTYPE",
        `reduceScatter of ${dtype}: it adds only float32. Convert with to("f32").`,
      );
    return [{ shape: shape.slice(1), dtype }];
  },
  noGradient: "it sums gradients, after backward",
  lower(lowering, operands, [output], { communicator }) {
    const input = arrayAt(operands, 0);
    launch(lowering, input, output, communicator.reduceScatter(bytesOf(input) / communicator.size));
  },
};

export type BroadcastAttributes = CollectiveAttributes & { readonly root: number };

/** The array of the rank `root`, on every rank. */
export const broadcast: KernelOp<BroadcastAttributes> = {
  kind: "kernel",
  name: "broadcast",
  noGradient: "it sends values such as initial weights, which depend on nothing",
  infer(operands) {
    const { shape, dtype } = typeAt("broadcast", operands, 0);
    return [{ shape, dtype }];
  },
  lower(lowering, operands, [output], { communicator, root }) {
    const input = arrayAt(operands, 0);
    if (!output?.storage) return;
    copyArray(lowering, input, output);
    const source = communicator.broadcast(bytesOf(output), root);
    lowering.launch({ op: lowering.op, source, blocks: 1, arguments: [output.storage] });
  },
};

function bytesOf({ shape, dtype }: DeviceArray): number {
  return sizeOf(shape) * dtypes[dtype].bytes;
}

function launch(
  lowering: Lowering,
  input: DeviceArray,
  output: DeviceArray | undefined,
  source: KernelSource,
): void {
  if (!input.storage || !output?.storage) return;
  const dense = isContiguous(input) ? input : lowering.scratchArray(input.shape, input.dtype);
  if (dense !== input) copyArray(lowering, input, dense);
  if (!dense.storage) return;
  const op = lowering.op;
  lowering.launch({ op, source, blocks: 1, arguments: [dense.storage, output.storage] });
}
