/** Asks a model about samples, batch by batch. */

import type { Device } from "../../tensor/index.js";
import { Predictor } from "../../train/index.js";
import type { CrossAsset } from "../model.js";
import { featureCount, sampleWidth, scales } from "../samples/index.js";

/** Calls `take` with the logits [rows, scales, classes] of each batch, and its first sample's number. The features are normalised. */
export function askModel(
  device: Device,
  model: CrossAsset,
  features: Float32Array<ArrayBuffer>,
  batchSize: number,
  take: (logits: ArrayLike<number>, first: number) => void,
): void {
  const shape = [features.length / sampleWidth, scales.length, featureCount];
  const predictor = new Predictor({
    ...{ device, model, batchSize, inputs: { values: features, shape } },
    forward: (x) => model.forward(x),
  });
  try {
    predictor.run(take);
  } finally {
    predictor.close();
  }
}
