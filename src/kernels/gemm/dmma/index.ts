/** gemm/dmma: f32 GEMMs on the FP64 tensor cores (DMMA). */

export { dmmaCapability } from "./capability.js";
export { estimateDmmaClocks } from "./configs.js";
export { dmmaConfigOf, dmmaConfigsOf, lowerDmmaGemms } from "./launch.js";
export { type DmmaShape, declareDmma, dmmaLoop } from "./mainloop.js";
export { residentDmmaCtas, stageBytes } from "./occupancy.js";
