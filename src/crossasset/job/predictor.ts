/** Runs a model on samples, batch by batch. */

import type { Device } from "../../tensor/index.js";
import { type PredictedBatch, Predictor } from "../../train/index.js";
import type { CrossAsset } from "../model.js";
import { featureCount, sampleWidth, scales } from "../samples/index.js";

/** Places samples on the device, for repeated predictions. The features must be normalised. */
export function makePredictor(
  device: Device,
  model: CrossAsset,
  features: Float32Array<ArrayBuffer>,
  batchSize: number,
): Predictor {
  const shape = [features.length / sampleWidth, scales.length, featureCount];
  return new Predictor({
    ...{ device, model, batchSize, inputs: { values: features, shape } },
    forward: (x) => model.forward(x),
  });
}

/** Predicts once. Yields the logits [rows, scales, classes] of each batch, and the index of its first sample. */
export function* predictOnce(
  ...options: Parameters<typeof makePredictor>
): Generator<PredictedBatch, void, undefined> {
  const predictor = makePredictor(...options);
  try {
    yield* predictor.batches();
  } finally {
    predictor.close();
  }
}
