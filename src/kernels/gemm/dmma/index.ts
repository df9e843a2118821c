/** gemm/dmma: f32 GEMMs on the FP64 tensor cores (DMMA). */

export { dmmaCapability } from "./configs.js";
export { dmmaConfigOf, lowerDmmaGemms } from "./launch.js";
export { type DmmaShape, declareDmma, dmmaLoop, tileFloats } from "./mainloop.js";
