/** The batching rule of each op. Composite ops without a rule are composed of ops that have one. */

import { type Op, opTable } from "../../../ops/index.js";
import type { BatchingRule } from "../batch-call.js";
import * as axes from "./axes.js";
import { embeddingRule, indexSelectRule } from "./indexing.js";
import { batchNormRule, classLoss, convolution, groupNormRule, lastAxesNorm, pool } from "./layers.js";
import { linearRule, loraLinearRule, matmulRule } from "./products.js";
import { recurrentRule } from "./recurrent.js";

const table: readonly (readonly [names: string, rule: BatchingRule])[] = [
  ["cast contiguous attention", axes.broadcasts],
  ["packedAttention", axes.packedAttentionRule],
  ["sum mean amax amin prod variance std norm logsumexp all any flip", axes.overAxes],
  ["softmax logSoftmax normalize cumsum sort gather scatterAdd cat select", axes.alongAxis],
  ["argmax argmin", axes.argExtreme],
  ["permute", axes.permuteRule],
  ["reshape", axes.reshapeRule],
  ["expand", axes.toShape],
  ["slice", axes.sliceRule],
  ["diagonal", axes.diagonalRule],
  ["fold", axes.foldRule],
  ["pad tril triu windows oneHot upsampleNearest", axes.keepsLeadingAxes],
  [
    `choleskyFactor luFactor qrFactor eighFactor eighValues svdFactor svdValues cofactor inverse determinant logAbsDeterminant
     matrixExponential pseudoInverse solve triangularSolve triangularPart`,
    axes.keepsLeadingAxes,
  ],
  ["matmul", matmulRule],
  ["linear", linearRule],
  ["loraLinear", loraLinearRule],
  ["layerNorm rmsNorm", lastAxesNorm],
  ["groupNorm", groupNormRule],
  ["batchNorm normalizeChannels", batchNormRule],
  ["recurrent", recurrentRule],
  ["crossEntropy nllLoss", classLoss],
  ["indexSelect", indexSelectRule],
  ["embedding", embeddingRule],
  ["conv1d convTranspose1d", convolution(1)],
  ["conv2d convTranspose2d", convolution(2)],
  ["conv3d convTranspose3d", convolution(3)],
  ["maxPool1d avgPool1d", pool(1)],
  ["maxPool2d avgPool2d", pool(2)],
  ["maxPool3d avgPool3d", pool(3)],
];

const named = table.flatMap(([names, rule]) => names.split(/\s+/).map((name) => ({ name, rule })));

const rules: ReadonlyMap<Op, BatchingRule> = new Map(
  named.flatMap(({ name, rule }): [Op, BatchingRule][] => {
    const op = opTable[name];
    return op ? [[op, rule]] : [];
  }),
);

/** Names of the table that no op has, for a test. */
export function unknownRuleNames(): readonly string[] {
  return named.flatMap(({ name }) => (opTable[name] ? [] : [name]));
}

/** Undefined: the op has none. An op that may overwrite its first operand, and has no rule of its own, is elementwise. */
export function batchingRuleOf(op: Op): BatchingRule | undefined {
  const rule = rules.get(op);
  if (rule) return rule;
  return op.kind === "kernel" && op.inPlace === 0 ? axes.broadcasts : undefined;
}
