/** gemm/skinny: GEMMs of a few rows, which take the time of reading the weights. */

export { maxSkinnyRows, type SkinnyConfig } from "./configs.js";
export {
  groupedSkinnyCandidates,
  lowerSkinnyGemms,
  skinnyCandidates,
  skinnyPrologueCandidates,
} from "./launch.js";
export type { Prologue } from "./prologue.js";
