/** gemm/sm90: native GEMMs on Hopper's tensor cores (wgmma, TMA): grouped, batched with unaligned rows, or with a fused epilogue. */

export { type Epilogue, type Sm90Config, sm90Capability } from "./configs.js";
export { colsumRows } from "./epilogue-store.js";
export { maxGroupedConfigs } from "./grouped-configs.js";
export {
  type EpilogueOn,
  isSm90Projection,
  lowerSm90Gemms,
  sm90BatchedConfig,
  sm90Candidates,
  sm90EpilogueConfigs,
  sm90GroupedConfigs,
  sm90OperandToTranspose,
  sm90PrefersFusedEpilogue,
  sm90PrefersSum,
  sm90PrefersTransposedB,
  sm90SumConfigs,
} from "./launch.js";
