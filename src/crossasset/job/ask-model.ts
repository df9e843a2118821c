/** Asks a model about samples, batch by batch. */

import type { Device } from "../../tensor/index.js";
import { type PredictedBatch, Predictor } from "../../train/index.js";
import type { CrossAsset } from "../model.js";
import { featureCount, sampleWidth, scales } from "../samples/index.js";

/** The logits [rows, scales, classes] of each batch, and its first sample's number. The features are normalised. */
export function* askModel(
  device: Device,
  model: CrossAsset,
  features: Float32Array<ArrayBuffer>,
  batchSize: number,
): Generator<PredictedBatch, void, undefined> {
  const shape = [features.length / sampleWidth, scales.length, featureCount];
  const predictor = new Predictor({
    ...{ device, model, batchSize, inputs: { values: features, shape } },
    forward: (x) => model.forward(x),
  });
  try {
    yield* predictor.batches();
  } finally {
    predictor.close();
  }
}
