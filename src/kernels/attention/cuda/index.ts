/** attention/cuda: attention in CUDA C++, in a form for short sequences and in one for sequences of any length. */

export { lowerAttentionBackwardOnCuda, lowerAttentionOnCuda } from "./launch.js";
