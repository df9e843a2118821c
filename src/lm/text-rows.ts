/** Rows of texts as the job uses them: how many tokens each has, and the loss of a batch. */

import type { TensorDataset } from "../data/index.js";
import { HoldfastError } from "../errors/index.js";
import type { LanguageModel } from "../models/index.js";
import type { Tensor } from "../tensor/index.js";
import type { TextColumns } from "../text/index.js";

/** A data set of `loadTextData`. */
export type TextRows = TensorDataset<TextColumns>;

/** The tensors of a batch: ids and labels, and if rows are packed their positions and segments. */
export type TextBatch = readonly [ids: Tensor, labels: Tensor, ...positionsAndSegments: Tensor[]];

/** The loss of a batch. */
export function lossOf(
  model: LanguageModel,
  [ids, labels, positions, segments]: TextBatch,
  reduction: "mean" | "sum" = "mean",
): Tensor {
  return model.loss(ids, labels, { ...(positions && segments && { positions, segments }), reduction });
}

const columns = { ids: 0, labels: 1, segments: 3 } as const;

/** The values of a column, [rows, length]; empty if the rows do not have it. */
function valuesOf(rows: TextRows, name: keyof typeof columns): Int32Array {
  return (rows.columns[columns[name]]?.elements ?? new Int32Array()) as Int32Array;
}

/** Tokens in a row, with padding. */
const lengthOf = (rows: TextRows): number => valuesOf(rows, "ids").length / rows.rows;

/** The tokens of each row that count in the loss. */
export function countLabels(rows: TextRows): Uint32Array {
  const labels = valuesOf(rows, "labels");
  const length = lengthOf(rows);
  return Uint32Array.from({ length: rows.rows }, (_, row) => {
    let count = 0;
    for (let index = row * length; index < (row + 1) * length; index++)
      if ((labels[index] ?? -1) >= 0) count += 1;
    return count;
  });
}

/** The tokens of rows without padding: up to the last one that counts, if each row has one text. */
export function countTokens(rows: TextRows): number {
  const segments = valuesOf(rows, "segments");
  if (segments.length > 0) return segments.reduce((sum, segment) => sum + (segment > 0 ? 1 : 0), 0);
  const labels = valuesOf(rows, "labels");
  const length = lengthOf(rows);
  let sum = 0;
  for (let start = 0; start < labels.length; start += length)
    sum += labels.subarray(start, start + length).findLastIndex((label) => label >= 0) + 1;
  return sum;
}

/** Throws if rows do not fit the model: longer than its positions, or with ids that its vocabulary does not have. */
export function requireFit(what: string, rows: TextRows, model: LanguageModel): void {
  const length = lengthOf(rows);
  if (length > model.maxLength) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `The rows of ${what} have ${length} tokens, and the model has ${model.maxLength} positions. Use rows of at most ${model.maxLength} tokens.`,
      { numbers: { length, maxLength: model.maxLength } },
    );
  }
  let max = 0;
  for (const id of valuesOf(rows, "ids")) if (id > max) max = id;
  if (max < model.vocabularySize) return;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `A text of ${what} has the id ${max}, and the model has the ids 0 to ${model.vocabularySize - 1}. Use the tokenizer of the model.`,
    { numbers: { id: max, vocabularySize: model.vocabularySize } },
  );
}
