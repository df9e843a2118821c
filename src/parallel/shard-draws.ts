/**
 * Random numbers of shards. Each shard draws from a stream of its own, so its numbers do not depend on the rank that computes it, nor on
 * what that rank has drawn before.
 */

import { noGrad } from "../autograd/index.js";
import { inRankPart } from "../ops/index.js";
import { cat, type Device, full, type Tensor } from "../tensor/index.js";

/** The words of a device's random state: the seed and the counter of draws, low words first. */
const words = { seedLow: 0, seedHigh: 1, counterLow: 2, counterHigh: 3 } as const;

/** Spreads small numbers over all bits: 2³² divided by the golden ratio. */
const spread = 0x9e3779b9;

/** The stream of a shard of the whole batch. `start`: the random state at the start of the step. */
export function enterShard(device: Device, start: Tensor, shard: number): void {
  const seedHigh = start.narrow(0, words.seedHigh, 1);
  const high = inRankPart(device.runtime, () => seedHigh.bitwiseXor(Math.imul(shard, spread)));
  setState(device, [start.narrow(0, words.seedLow, 1), high, start.narrow(0, words.counterLow, 2)]);
}

/** After all shards: the draws of the next step. Every shard may have drawn 2³² times. */
export function leaveShards(device: Device, start: Tensor): void {
  const counterLow = full([1], 0, { dtype: "i32", device });
  const counterHigh = start.narrow(0, words.counterHigh, 1).add(1);
  setState(device, [start.narrow(0, words.seedLow, 2), counterLow, counterHigh]);
}

function setState({ randomState }: Device, parts: readonly Tensor[]): void {
  noGrad(() => void randomState.copy_(cat(parts)));
}
