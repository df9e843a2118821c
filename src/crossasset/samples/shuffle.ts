/** Samples with shuffled labels: a model that seems to learn from them reveals an information leak. */

import { permutation, type Seed } from "../../kernels/index.js";
import type { Samples } from "./features.js";
import { scales } from "./scales.js";

/** Differs from the random streams of the epochs, whose ids are their numbers. */
const labelStream = 2n ** 63n;

/**
 * The same samples, with the twelve labels of each moved to another sample. Every scale keeps its class frequencies; only the
 * relation between features and labels is lost.
 *
 * ```js
 * shuffleLabels(samples, 42); // shares the features, copies the labels
 * ```
 */
export function shuffleLabels(samples: Samples, seed: Seed): Samples {
  const order = permutation({ seed, id: labelStream }, samples.count);
  const labels = new Int32Array(samples.labels.length);
  const width = scales.length;
  order.forEach((from, to) => {
    labels.set(samples.labels.subarray(from * width, (from + 1) * width), to * width);
  });
  return { ...samples, labels };
}
