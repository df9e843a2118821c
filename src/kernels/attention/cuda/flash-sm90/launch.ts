/** Launches flash attention on Hopper's `wgmma`, where the operands allow it. */

import { dtypes } from "../../../../ir/index.js";
import type { LaunchCommand } from "../../../../runtime/index.js";
import { maxVectorBytes } from "../../../cost-model.js";
import { argumentsInOrder } from "../../../launch-arguments.js";
import { cachedSource } from "../../../source-cache.js";
import type { Target } from "../../../target.js";
import {
  type AttentionShape,
  type FlashBackwardProblem,
  type FlashProblem,
  isOfKeys,
  keyShapeOf,
  resultDtypeOf,
} from "../../problem.js";
import { dropoutOf } from "../flash/dropout.js";
import { layOut, layOutResult, type OperandLayout, storagesOf, stridesOf } from "../parameters.js";
import { sm90BackwardKernel, sm90BackwardParameters } from "./backward.js";
import {
  type HalfElement,
  type Side,
  type Sm90BackwardConfig,
  type Sm90FlashConfig,
  tileM,
  widthUnit,
} from "./config.js";
import { sm90ForwardKernel, sm90ForwardParameters } from "./forward.js";
import { maskOf } from "./masks.js";
import { chooseBackwardTile, chooseForwardTile, chooseWholeTile, type Work } from "./tiles.js";
import { type Sm90WholeConfig, sm90WholeKernel, sm90WholeParameters } from "./whole-backward.js";

type Access = "out" | "partial-out";

/** Hopper only: Blackwell replaces wgmma by tcgen05. */
const capability = "9.0";

/** Visited operands of this size stay in the L2 cache, which has 50 MB. */
const sectionBytes = 16 * 2 ** 20;

/** The element type of a problem that has one in all of its memory; undefined if wgmma can't multiply it as it is. */
function elementOf(
  { device }: Target,
  problem: FlashProblem | FlashBackwardProblem,
  inputs: readonly OperandLayout[],
  results: readonly OperandLayout[],
): HalfElement | undefined {
  const { width, valueWidth, scale } = problem;
  const element = resultDtypeOf(problem);
  if (device.computeCapability !== capability || (element !== "bf16" && element !== "f16")) return undefined;
  if (!(scale > 0) || width % widthUnit !== 0 || valueWidth % widthUnit !== 0) return undefined;
  const operands = [...inputs, ...results];
  return operands.every((operand) => operand.dtype === element && isAligned(operand)) ? element : undefined;
}

/** True if TMA can load it, and vectors can store it. */
function isAligned({ storage, dtype, strides }: OperandLayout): boolean {
  const { bytes } = dtypes[dtype];
  const offsets = [storage.span.address / bytes, strides.Batch, strides.Head, strides.Row];
  return offsets.every((count) => (count * bytes) % maxVectorBytes === 0);
}

/** True if neighbouring rows differ, or there is one. */
function hasRows({ strides }: OperandLayout, rows: number): boolean {
  return strides.Row > 0 || rows === 1;
}

/** The arguments of an input's tensor map. */
function mapArguments(
  name: string,
  { width, strides }: OperandLayout,
  { batch, heads }: AttentionShape,
): Readonly<Record<string, number>> {
  return {
    [`${name}Columns`]: (heads - 1) * strides.Head + width,
    // The stride of a single row is arbitrary, but must be valid.
    [`${name}Row`]: strides.Row || width,
    [`${name}Batches`]: strides.Batch === 0 ? 1 : batch,
    [`${name}Batch`]: strides.Batch,
    [`${name}Head`]: strides.Head,
  };
}

/** How kernels read the mask, and the arguments for it; undefined if they can't read it. */
function argumentsOfMask(problem: FlashProblem | FlashBackwardProblem) {
  const { mask: stored, rows, columns } = problem;
  if (!stored) return { mask: "none" as const, maskArguments: {} };
  const mask = layOut(problem, stored, rows, columns);
  const maskColumn = columns > 1 ? stored.columnStride : 1;
  const read = maskOf(mask, maskColumn);
  return read && { mask: read, maskArguments: { mask: mask.storage, maskColumn, ...stridesOf({ mask }) } };
}

/** The launch of the forward pass; undefined if another kernel has to compute it. */
export function lowerSm90Forward(
  target: Target,
  problem: FlashProblem,
  access: Access,
  op: string,
  chooseTile = chooseForwardTile,
): readonly LaunchCommand[] | undefined {
  const { batch, heads, rows, columns, width, valueWidth, scale, isCausal = false } = problem;
  const query = layOut(problem, problem.query, rows, width);
  const keyShape = keyShapeOf(problem);
  const key = layOut(keyShape, problem.key, columns, width);
  const value = layOut(keyShape, problem.value, columns, valueWidth);
  const out = layOutResult(problem, problem.out, rows, valueWidth);
  const element = elementOf(target, problem, [query, key, value], [out]);
  if (!element || !hasRows(query, rows) || !hasRows(key, columns) || !hasRows(value, columns))
    return undefined;
  const pairs = batch * heads;
  const { dropout, dropoutArguments } = dropoutOf(problem);
  const masked = argumentsOfMask(problem);
  if (!masked) return undefined;
  const { mask, maskArguments } = masked;
  const partial = {
    ...{ element, width, valueWidth, isCausal, access, isGrouped: keyShape.heads < heads },
    ...{ dropout, mask },
  };
  const tile = chooseTile(partial, workOf(target, problem, rows, columns));
  if (!tile) return undefined;
  const config: Sm90FlashConfig = { ...partial, tile };
  const tiles = Math.ceil(rows / tileM(tile));
  return [
    {
      ...{ kind: "launch", op, blocks: pairs * tiles },
      source: cachedSource(`flash sm90 forward ${JSON.stringify(config)}`, () => sm90ForwardKernel(config)),
      arguments: argumentsInOrder(sm90ForwardParameters(config), {
        ...{ ...storagesOf({ query, key, value, out }), statistics: problem.statistics },
        ...mapArguments("query", query, problem),
        ...mapArguments("key", key, keyShape),
        ...mapArguments("value", value, keyShape),
        ...{ pairs, sectionPairs: sectionPairsOf(columns * (width + valueWidth), element), heads, tiles },
        ...{ groupHeads: heads / keyShape.heads, rows, columns, scale, ...stridesOf({ out }) },
        ...dropoutArguments,
        ...maskArguments,
      }),
    },
  ];
}

/** The launches of the backward pass; undefined if other kernels have to compute it. */
export function lowerSm90Backward(
  target: Target,
  problem: FlashBackwardProblem,
  access: Access,
  op: string,
  chooseTile = chooseBackwardTile,
  chooseWhole = chooseWholeTile,
): readonly LaunchCommand[] | undefined {
  const { heads, rows, columns, width, valueWidth, scale, isCausal = false } = problem;
  const keyShape = keyShapeOf(problem);
  const groupHeads = heads / keyShape.heads;
  const inputs = {
    query: layOut(problem, problem.query, rows, width),
    key: layOut(keyShape, problem.key, columns, width),
    value: layOut(keyShape, problem.value, columns, valueWidth),
    outGradient: layOut(problem, problem.outGradient, rows, valueWidth),
  };
  const out = layOut(problem, problem.out, rows, valueWidth);
  const results = {
    queryGradient: layOutResult(problem, problem.queryGradient, rows, width),
    keyGradient: layOutResult(keyShape, problem.keyGradient, columns, width),
    valueGradient: layOutResult(keyShape, problem.valueGradient, columns, valueWidth),
  };
  const { query, key, value, outGradient } = inputs;
  const element = elementOf(target, problem, [...Object.values(inputs), out], Object.values(results));
  const areRows = [query, outGradient].every((operand) => hasRows(operand, rows));
  if (!element || !areRows || ![key, value].every((operand) => hasRows(operand, columns))) return undefined;
  const { statistics, deltas, scoreGradient } = problem;
  // The gradient of the mask: these kernels don't store it.
  if (scoreGradient) return undefined;
  const { dropout, dropoutArguments } = dropoutOf(problem);
  const masked = argumentsOfMask(problem);
  if (!masked) return undefined;
  const { mask, maskArguments } = masked;
  const values = {
    ...{ ...storagesOf({ ...inputs, out, ...results }), outGradientRows: outGradient.storage },
    ...Object.assign(
      {},
      ...Object.entries(inputs).map(([name, input]) =>
        mapArguments(name, input, isOfKeys(name) ? keyShape : problem),
      ),
    ),
    ...{ ...stridesOf({ out, ...results }), statistics, deltas, heads, groupHeads, rows, columns, scale },
    ...dropoutArguments,
    ...maskArguments,
  };
  const common = { element, width, valueWidth, isCausal, access, dropout, mask };
  const whole = launchWhole();
  if (whole) return [whole];
  const launchOf = (side: Side): LaunchCommand | undefined => {
    const partial = { ...common, side, isGrouped: groupHeads > 1 };
    const [stays, stayCount, visitCount] =
      side === "rows" ? [problem, rows, columns] : [keyShape, columns, groupHeads * rows];
    const work = workOf(target, stays, stayCount, visitCount);
    const tile = chooseTile(partial, work);
    if (!tile) return undefined;
    const config: Sm90BackwardConfig = { ...partial, tile };
    const tiles = Math.ceil(stayCount / tileM(tile));
    const sectionPairs = sectionPairsOf(visitCount * (width + valueWidth), element);
    return {
      ...{ kind: "launch", op, blocks: work.pairs * tiles },
      source: cachedSource(`flash sm90 backward ${JSON.stringify(config)}`, () => sm90BackwardKernel(config)),
      arguments: argumentsInOrder(sm90BackwardParameters(config), {
        ...values,
        pairs: work.pairs,
        tiles,
        sectionPairs,
      }),
    };
  };
  // Side "rows" stores the deltas that side "columns" reads.
  const [ofRows, ofColumns] = [launchOf("rows"), launchOf("columns")];
  return ofRows && ofColumns && [ofRows, ofColumns];

  function launchWhole(): LaunchCommand | undefined {
    if (groupHeads > 1 || !hasRows(out, rows)) return undefined;
    const partial = { ...common, isGrouped: false } as const;
    const work = workOf(target, problem, rows, columns);
    const tile = chooseWhole(partial, work);
    if (!tile) return undefined;
    const config: Sm90WholeConfig = { ...partial, tile };
    return {
      ...{ kind: "launch", op, blocks: work.pairs },
      source: cachedSource(`flash sm90 backward whole ${JSON.stringify(config)}`, () =>
        sm90WholeKernel(config),
      ),
      arguments: argumentsInOrder(sm90WholeParameters(config), {
        ...{ ...values, ...mapArguments("out", out, problem) },
      }),
    };
  }
}

function workOf(
  { device }: Target,
  { batch, heads, isCausal = false }: FlashProblem | FlashBackwardProblem,
  rows: number,
  visitCount: number,
): Work {
  const visited = isCausal ? visitCount / 2 : visitCount;
  return { pairs: batch * heads, rows, visited, sms: device.parallelism };
}

/** How many (batch, head) pairs with so many visited elements form a section. */
function sectionPairsOf(elements: number, element: HalfElement): number {
  return Math.max(1, Math.floor(sectionBytes / (elements * dtypes[element].bytes)));
}
