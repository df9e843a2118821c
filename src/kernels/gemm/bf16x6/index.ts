/** gemm/bf16x6: f32 GEMMs on Hopper's bf16 tensor cores. A float is the sum of three bf16 terms, and a product takes six of theirs. */

export { areEqualConfigs } from "./configs.js";
export { bf16x6ConfigOf, lowerBf16x6Gemms } from "./launch.js";
