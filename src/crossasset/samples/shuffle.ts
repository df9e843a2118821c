/** Samples whose labels say nothing: the proof that a model which learns from them learns what isn't there. */

import { permutation, type Seed } from "../../kernels/index.js";
import type { Samples } from "./features.js";
import { scales } from "./scales.js";

/** Apart from the streams of the epochs, whose ids are their numbers. */
const labelStream = 2n ** 63n;

/**
 * The same samples, with each one's twelve labels given to another sample. So every scale keeps its share of every
 * class, and only what the features tell of the labels is gone.
 *
 * ```js
 * shuffleLabels(samples, 42); // the features are shared, the labels new
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
