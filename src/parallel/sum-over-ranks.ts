/**
 * The sum of tensors of all ranks: each rank gets the sum of its slice, and then the other slices. So all ranks get the same
 * bits, in whatever order the terms are added.
 */

import type { World } from "../distributed/index.js";
import { allGather, allToAll, reduceScatter } from "../ops/index.js";
import { cat, type Tensor, zeros } from "../tensor/index.js";
import { treeSum } from "./tree-sum.js";

/**
 * Who adds the slices: each rank in the order of the shards, which gives the same bits for any number of ranks, or the library of collectives.
 * The library can add while it sends, and in the switches between GPUs.
 */
export type Summation = "in the order of shards" | "by the library";

/** `own`: this rank's terms, vectors of one length. The library adds one float32 term of each rank; other terms keep the order of shards. */
export function sumOverRanks(
  { communicator, size }: World,
  own: readonly Tensor[],
  summation: Summation,
): Tensor {
  const add = (a: Tensor, b: Tensor): Tensor => a.add(b);
  if (!communicator) return treeSum(own, add);
  // The sum of a power of two of neighbours is a node of the tree; other counts are exchanged whole.
  const isNode = Number.isInteger(Math.log2(own.length));
  const terms = isNode ? [treeSum(own, add)] : own;
  const [{ shape: [length = 0] = [] } = {}] = terms;
  const columns = Math.ceil(length / size);
  const padded = terms.map((term) => {
    const rest = zeros([columns * size - length], { dtype: term.dtype, device: term.device });
    return (rest.numel === 0 ? term : cat([term, rest])).reshape([size, 1, columns]);
  });
  const sent = padded.length === 1 ? (padded[0] as Tensor) : cat(padded, 1); // [ranks, terms, columns]
  const { device } = sent;
  const exchange = (): Tensor => {
    const received = device.apply(allToAll, [sent], { communicator });
    const rows = Array.from({ length: size * padded.length }, (_, row) =>
      received.select(0, Math.floor(row / padded.length)).select(0, row % padded.length),
    );
    return treeSum(rows, add);
  };
  const summed =
    summation === "by the library" && padded.length === 1 && sent.dtype === "f32"
      ? device.apply(reduceScatter, [sent.reshape([size, columns])], { communicator })
      : exchange(); // columns of all ranks
  const gathered = device.apply(allGather, [summed], { communicator });
  return gathered.reshape([size * columns]).narrow(0, 0, length);
}
