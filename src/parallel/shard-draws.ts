/**
 * Random numbers of shards. Each shard draws from a stream of its own, so its numbers do not depend on the rank that computes it, nor on
 * what that rank has drawn before.
 */

import { noGrad } from "../autograd/index.js";
import { inRankPart } from "../ops/index.js";
import { arange, type Device, type Tensor } from "../tensor/index.js";

/** The words of a device's random state: the seed and the counter of draws, low words first. */
const words = { seedLow: 0, seedHigh: 1, counterLow: 2, counterHigh: 3 } as const;

/** Spreads small numbers over all bits: 2³² divided by the golden ratio. */
const spread = 0x9e3779b9;

/** The stream of a shard of the whole batch. `start`: the random state at the start of the step. */
export function enterShard(device: Device, start: Tensor, shard: number): void {
  const flippedBits = (): Tensor => atWord(device, words.seedHigh).mul(Math.imul(shard, spread));
  setState(device, () => inRankPart(device.runtime, () => start.bitwiseXor(flippedBits())));
}

/** After all shards: the draws of the next step. Every shard may have drawn 2³² times. */
export function leaveShards(device: Device, start: Tensor): void {
  const kept = atWord(device, words.counterLow).neg().add(1);
  setState(device, () => start.mul(kept).add(atWord(device, words.counterHigh)));
}

/** 1 at a word of the state, 0 at the others. */
const atWord = (device: Device, word: number): Tensor => arange(0, 4, 1, { device }).eq(word).to("i32");

/** One kernel: the state is so short that each launch counts. */
function setState({ randomState }: Device, state: () => Tensor): void {
  noGrad(() => void randomState.copy_(state()));
}
