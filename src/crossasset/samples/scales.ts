/** The fixed figures of a sample: its time scales, its features, its classes, and how many bars it looks back and ahead. */

/** The time scales, in bars of a minute; also how far ahead each one's label looks. */
export const scales = [1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233] as const;

/** How many groups of bars a sample looks at on each scale. */
export const groupCount = 32;

export const featuresPerGroup = 6;

/** The features of one scale: those of its groups, oldest first, then ln σ. */
export const featureCount = groupCount * featuresPerGroup + 1;

/** The features of one sample: a row of every scale. */
export const sampleWidth = scales.length * featureCount;

/** The part of σ that a move must exceed to be long or short: about a third each on a random walk. */
export const kappa = 0.43;

/** What a label says of the move ahead. */
export const classes = { long: 0, short: 1, flat: 2 } as const;

/** How many bars ahead the furthest label looks. */
export const longestHorizon = Math.max(...scales);

/** The bars that a sample needs, its own included: on the longest scale the groups and the one before them. */
export const historyBars = (groupCount + 1) * longestHorizon;
