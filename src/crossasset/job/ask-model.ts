/** Runs a model on samples, batch by batch. */

import type { Device } from "../../tensor/index.js";
import { type PredictedBatch, Predictor } from "../../train/index.js";
import type { CrossAsset } from "../model.js";
import { featureCount, sampleWidth, scales } from "../samples/index.js";

/** Places samples on the device, for repeated runs. The features must be normalised. */
export function placeQuestions(
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

/** Runs once: passes on the logits [rows, scales, classes] of each batch and the index of its first sample. */
export function* askModel(
  ...asked: Parameters<typeof placeQuestions>
): Generator<PredictedBatch, void, undefined> {
  const questions = placeQuestions(...asked);
  try {
    yield* questions.batches();
  } finally {
    questions.close();
  }
}
