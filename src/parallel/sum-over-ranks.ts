/** The sum of tensors of all ranks, in the order of the shards: each rank adds its slice of all of them, and gets the other slices. */

import type { World } from "../distributed/index.js";
import { allGather, allToAll } from "../ops/index.js";
import { cat, type Tensor, zeros } from "../tensor/index.js";
import { treeSum } from "./tree-sum.js";

/** `own`: this rank's terms, vectors of one length. */
export function sumOverRanks({ communicator, size }: World, own: readonly Tensor[]): Tensor {
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
  const received = sent.device.apply(allToAll, [sent], { communicator });
  const rows = Array.from({ length: size * padded.length }, (_, row) =>
    received.select(0, Math.floor(row / padded.length)).select(0, row % padded.length),
  );
  const summed = treeSum(rows, add); // columns of all ranks
  const gathered = summed.device.apply(allGather, [summed], { communicator });
  return gathered.reshape([size * columns]).narrow(0, 0, length);
}
