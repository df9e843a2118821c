/** samples: training samples from bars. Features and labels, walk-forward folds, and normalisation. */

export { type CachedSamples, cachedSamples } from "./cache.js";
export { type BarsSummary, checkBars } from "./check-bars.js";
export { defaultStride, makeSamples, type SampleSettings, type Samples } from "./features.js";
export { type Fold, type SampleRange, type WalkForwardOptions, walkForward } from "./folds.js";
export {
  applyNormaliser,
  clipLimit,
  fitNormaliser,
  type Normaliser,
  normaliserFrom,
  normaliserRecord,
} from "./normaliser.js";
export { type OracleAccuracy, oracleAccuracy, type ScaleAccuracy } from "./oracle.js";
export {
  classes,
  featureCount,
  featuresPerGroup,
  groupCount,
  historyBars,
  kappa,
  longestHorizon,
  sampleWidth,
  scales,
} from "./scales.js";
export { shuffleLabels } from "./shuffle.js";
