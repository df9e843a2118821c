/** The constants of a sample: time scales, features, classes, history and horizon. */

/** The time scales, in bars of a minute; also the horizon of each scale's label. */
export const scales = [1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233] as const;

/** Groups of bars per sample and scale. */
export const groupCount = 32;

export const featuresPerGroup = 6;

/** Features per scale: those of its groups, oldest first, then ln σ. */
export const featureCount = groupCount * featuresPerGroup + 1;

/** Features per sample: one row per scale. */
export const sampleWidth = scales.length * featureCount;

/** The share of σ that a move must exceed to be long or short: about a third each on a random walk. */
export const kappa = 0.43;

/** The class of a future move. */
export const classes = { long: 0, short: 1, flat: 2 } as const;

/** The longest horizon of a label, in bars. */
export const longestHorizon = Math.max(...scales);

/** Bars that a sample needs, its own included: the groups of the longest scale, and one before them. */
export const historyBars = (groupCount + 1) * longestHorizon;
