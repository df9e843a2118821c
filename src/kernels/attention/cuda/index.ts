/** attention/cuda: attention in CUDA C++: one block per (batch, head) for short sequences, tiled for sequences of any length. */

export { cachedScratchBytes, canAttendCached, lowerCachedAttention } from "./cached.js";
export { keepsProbabilities, lowerAttentionBackwardOnCuda, lowerAttentionOnCuda } from "./launch.js";
