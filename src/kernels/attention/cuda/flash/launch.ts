/** Lowers flash attention to launches: one forward; the rows' deltas, one kernel per side backward. */

import { HoldfastError } from "../../../../errors/index.js";
import { dtypes } from "../../../../ir/index.js";
import type { LaunchCommand } from "../../../../runtime/index.js";
import { maxSharedBytesPerBlock, maxVectorBytes } from "../../../cost-model.js";
import { argumentsInOrder } from "../../../launch-arguments.js";
import { cachedSource } from "../../../source-cache.js";
import type { Target } from "../../../target.js";
import {
  type AttentionMask,
  type AttentionShape,
  type FlashBackwardProblem,
  type FlashProblem,
  halfInputsOf,
  keyShapeOf,
  resultDtypeOf,
} from "../../problem.js";
import { layOut, layOutResult, type OperandLayout, storagesOf, stridesOf } from "../parameters.js";
import {
  type BackwardConfig,
  type BackwardResult,
  flashBackwardBytes,
  flashBackwardColumns,
  flashBackwardKernel,
  flashBackwardParameters,
} from "./backward.js";
import { chooseTile, depthOf, tileM } from "./config.js";
import { chooseDeltaConfig, deltaKernel, deltaParameters, deltaRows } from "./deltas.js";
import { dropoutOf } from "./dropout.js";
import {
  type ForwardConfig,
  flashForwardBytes,
  flashForwardColumns,
  flashForwardKernel,
  flashForwardParameters,
} from "./forward.js";
import type { FlashElement } from "./fragments.js";
import type { TileSource } from "./tiles.js";

type Access = "out" | "partial-out";

/** The widest head: a lane's registers hold a result of this width. */
const maxWidths = { f32: 256, f64: 128 } as const;
/** mma.sync of bf16 and TF32, and cp.async. */
const minCapability = 8;
/** The smallest tile of the widest heads fits in it. Every device of that capability has it. */
const minSharedBytes = 99 * 1024;

/** True if the device has the instructions, and the width fits. */
export function canUseFlash({ device }: Target, { dtype, width, valueWidth }: AttentionShape): boolean {
  const hasInstructions = Number.parseFloat(device.computeCapability ?? "0") >= minCapability;
  const hasMemory = maxSharedBytesPerBlock(device) >= minSharedBytes;
  return hasInstructions && hasMemory && Math.max(width, valueWidth) <= maxWidths[dtype];
}

/** 16-bit inputs decide; otherwise the precision. */
function elementOf({ settings }: Target, problem: FlashProblem | FlashBackwardProblem): FlashElement {
  if (problem.dtype === "f64") return "f64";
  return halfInputsOf(problem).dtype ?? settings.precision;
}

function sourceOf({ storage, dtype, width, strides }: OperandLayout): TileSource {
  const { bytes } = dtypes[dtype];
  const { Batch, Head, Row } = strides;
  const isAligned = [storage.span.address / bytes, width, Batch, Head, Row].every(
    (count) => (count * bytes) % maxVectorBytes === 0,
  );
  return { dtype, isAligned };
}

function layOutInputs(problem: FlashProblem | FlashBackwardProblem) {
  const { query, key, value, rows, columns, width, valueWidth } = problem;
  const keyShape = keyShapeOf(problem);
  return {
    query: layOut(problem, query, rows, width),
    key: layOut(keyShape, key, columns, width),
    value: layOut(keyShape, value, columns, valueWidth),
  };
}

function argumentsOfMask(shape: AttentionShape, storedMask: AttentionMask | undefined) {
  if (!storedMask) return undefined;
  const { rows, columns } = shape;
  const mask = layOut(shape, storedMask, rows, columns);
  const maskColumn = columns > 1 ? storedMask.columnStride : 0;
  return { mask: mask.storage, maskColumn, ...stridesOf({ mask }) };
}

/** The number of heads of queries that share a head of keys and values, if there are several. */
function groupOf(problem: AttentionShape) {
  const { heads } = keyShapeOf(problem);
  return heads === problem.heads ? undefined : { groupHeads: problem.heads / heads };
}

export function lowerFlash(
  target: Target,
  problem: FlashProblem,
  access: Access,
  op: string,
): readonly LaunchCommand[] {
  const { batch, heads, rows, columns, width, valueWidth, scale, isCausal = false } = problem;
  const element = elementOf(target, problem);
  const operands = {
    ...layOutInputs(problem),
    out: layOutResult(problem, problem.out, rows, valueWidth),
  };
  const mask = argumentsOfMask(problem, problem.mask);
  const { dropout, dropoutArguments } = dropoutOf(problem);
  const group = groupOf(problem);
  const { query, key, value } = operands;
  const config: Omit<ForwardConfig, "tile"> = {
    ...{ element, depth: depthOf(width), valueDepth: depthOf(valueWidth), isCausal, access },
    ...{ hasMask: mask !== undefined, resultDtype: resultDtypeOf(problem) },
    ...{ isGrouped: group !== undefined, dropout },
    sources: { query: sourceOf(query), key: sourceOf(key), value: sourceOf(value) },
  };
  const tile = chooseTile(
    element,
    maxSharedBytesPerBlock(target.device),
    (tile) => flashForwardBytes({ ...config, tile }),
    (tile) => flashForwardColumns({ ...config, tile }),
  );
  if (!tile) throw noTile(width);
  const whole = { ...config, tile };
  const tiles = Math.ceil(rows / tileM(tile));
  return [
    {
      ...{ kind: "launch", op, blocks: batch * heads * tiles },
      source: cachedSource(`flash forward ${JSON.stringify(whole)}`, () => flashForwardKernel(whole)),
      arguments: argumentsInOrder(flashForwardParameters(whole), {
        ...{ ...storagesOf(operands), ...stridesOf(operands), statistics: problem.statistics },
        ...{
          heads,
          rows,
          columns,
          width,
          valueWidth,
          tiles,
          scale,
          ...mask,
          ...group,
          ...dropoutArguments,
        },
      }),
    },
  ];
}

export function lowerFlashBackward(
  target: Target,
  problem: FlashBackwardProblem,
  access: Access,
  op: string,
): readonly LaunchCommand[] {
  const { batch, heads, rows, columns, width, valueWidth, scale, isCausal = false } = problem;
  const element = elementOf(target, problem);
  const inputs = {
    ...layOutInputs(problem),
    outGradient: layOut(problem, problem.outGradient, rows, valueWidth),
  };
  const keyShape = keyShapeOf(problem);
  const results = {
    queryGradient: layOutResult(problem, problem.queryGradient, rows, width),
    keyGradient: layOutResult(keyShape, problem.keyGradient, columns, width),
    valueGradient: layOutResult(keyShape, problem.valueGradient, columns, valueWidth),
  };
  const out = layOut(problem, problem.out, rows, valueWidth);
  const mask = argumentsOfMask(problem, problem.mask);
  const { dropout, dropoutArguments } = dropoutOf(problem);
  const group = groupOf(problem);
  const { statistics, deltas, scoreGradient } = problem;
  const values = {
    ...{ ...storagesOf(inputs), ...storagesOf(results), ...stridesOf(inputs), ...stridesOf(results) },
    ...{ statistics, deltas, heads, rows, columns, width, valueWidth, scale },
    ...(scoreGradient && { scoreGradient }),
    ...mask,
    ...group,
    ...dropoutArguments,
  };
  const sources = {
    query: sourceOf(inputs.query),
    key: sourceOf(inputs.key),
    value: sourceOf(inputs.value),
    outGradient: sourceOf(inputs.outGradient),
  };
  const launchOf = (side: BackwardConfig["side"], computed: readonly BackwardResult[]): LaunchCommand[] => {
    const config = {
      ...{ element, depth: depthOf(width), valueDepth: depthOf(valueWidth), isCausal, access, sources },
      ...{ hasMask: mask !== undefined, resultDtype: resultDtypeOf(problem), side, results: computed },
      ...{ isGrouped: group !== undefined, dropout },
      storesScoreGradient: side === "rows" && scoreGradient !== undefined,
    };
    const tile = chooseTile(
      element,
      maxSharedBytesPerBlock(target.device),
      (tile) => flashBackwardBytes({ ...config, tile }),
      (tile) => flashBackwardColumns({ ...config, tile }),
    );
    // Registers may not hold both results of a side.
    if (!tile && computed.length > 1) return computed.flatMap((one) => launchOf(side, [one]));
    if (!tile) throw noTile(width);
    const whole = { ...config, tile };
    const [pairHeads, sideRows] = side === "rows" ? [heads, rows] : [keyShape.heads, columns];
    const tiles = Math.ceil(sideRows / tileM(tile));
    const key = `flash backward ${JSON.stringify(whole)}`;
    return [
      {
        ...{ kind: "launch", op, blocks: batch * pairHeads * tiles },
        source: cachedSource(key, () => flashBackwardKernel(whole)),
        arguments: argumentsInOrder(flashBackwardParameters(whole), { ...values, tiles }),
      },
    ];
  };
  return [
    lowerDeltas(problem, inputs.outGradient, out, op),
    ...launchOf("rows", ["queryGradient"]),
    ...launchOf("columns", ["keyGradient", "valueGradient"]),
  ];
}

function noTile(width: number): HoldfastError {
  return new HoldfastError(
    "BAD_ARGUMENT",
    `attend: no tile of flash attention fits a width of ${width} on this device. Keep probabilities instead of statistics.`,
    { numbers: { width } },
  );
}

function lowerDeltas(
  { batch, heads, rows, valueWidth, deltas }: FlashBackwardProblem,
  outGradient: OperandLayout,
  out: OperandLayout,
  op: string,
): LaunchCommand {
  const config = chooseDeltaConfig(sourceOf(outGradient), sourceOf(out), valueWidth);
  const tiles = Math.ceil(rows / deltaRows(config));
  return {
    ...{ kind: "launch", op, blocks: batch * heads * tiles },
    source: cachedSource(`flash deltas ${JSON.stringify(config)}`, () => deltaKernel(config)),
    arguments: argumentsInOrder(deltaParameters, {
      ...{ outGradient: outGradient.storage, out: out.storage, deltas },
      ...{ heads, rows, valueWidth, tiles },
      ...stridesOf({ outGradient, out }),
    }),
  };
}
