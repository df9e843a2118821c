/** gemm/dmma: f32 GEMMs on the FP64 tensor cores (DMMA). */

export { dmmaConfigOf, lowerDmmaGemms } from "./launch.js";
