/** Lowers attention to launches on CUDA: one block per (batch, head) if its operands fit into a block, tiled kernels otherwise. */

import type { LaunchCommand } from "../../../runtime/index.js";
import { argumentsInOrder } from "../../launch-arguments.js";
import { cachedSource } from "../../source-cache.js";
import type { Target } from "../../target.js";
import {
  type AttentionShape,
  type BackwardProblem,
  type ForwardProblem,
  halfInputsOf,
  resultDtypeOf,
} from "../problem.js";
import { dtypeKey, type Elements, lanesOf } from "./element.js";
import { canUseFlash, lowerFlash, lowerFlashBackward } from "./flash/launch.js";
import { lowerSm90Backward, lowerSm90Forward } from "./flash-sm90/launch.js";
import { areVectors, layOut, layOutResult, storagesOf, stridesOf } from "./parameters.js";
import { smallBackwardKernel, smallBackwardParameters } from "./small-backward.js";
import { smallForwardKernel, smallForwardParameters } from "./small-forward.js";
import { planSmall, type SmallPlan } from "./small-plan.js";
import {
  tiledColumnsKernel,
  tiledColumnsParameters,
  tiledRowsKernel,
  tiledRowsParameters,
} from "./tiled-backward.js";
import { stripLength } from "./tiled-code.js";
import { tiledForwardKernel, tiledForwardParameters } from "./tiled-forward.js";

type Access = "out" | "partial-out";

/** The cache key of a plan's code, without the dtypes. */
function keyOf(
  { heads, rows, columns, width, valueWidth }: SmallPlan,
  facts: Readonly<Record<string, boolean>>,
  strides: Readonly<Record<string, number>>,
): string {
  const sizes = `${heads}×${rows}×${columns}×${width}×${valueWidth}`;
  return `${sizes} ${Object.values(facts)} ${Object.values(strides)}`;
}

function elementsOf(problem: ForwardProblem | BackwardProblem): Elements {
  return { dtype: problem.dtype, resultDtype: resultDtypeOf(problem), halves: halfInputsOf(problem) };
}

/** Short sequences keep their probabilities: a block has all of them at once. Others keep statistics of their rows. */
export function keepsProbabilities(target: Target, shape: AttentionShape): boolean {
  const isSmall = (["forward", "backward"] as const).every((direction) =>
    planSmall(direction, shape.dtype, shape),
  );
  return isSmall || !canUseFlash(target, shape);
}

export function lowerAttentionOnCuda(
  target: Target,
  problem: ForwardProblem,
  access: Access,
  op: string,
): readonly LaunchCommand[] {
  if ("statistics" in problem) {
    return lowerSm90Forward(target, problem, access, op) ?? lowerFlash(target, problem, access, op);
  }
  const { dtype, batch, heads, rows, columns, width, valueWidth, scale, isCausal = false } = problem;
  const { mask, probabilities } = problem;
  const elements = elementsOf(problem);
  const operands = {
    query: layOut(problem, problem.query, rows, width),
    key: layOut(problem, problem.key, columns, width),
    value: layOut(problem, problem.value, columns, valueWidth),
    out: layOutResult(problem, problem.out, rows, valueWidth),
  };
  const maskOperand = { mask: layOut(problem, mask ?? problem.query, rows, columns) };
  const values = { ...storagesOf(operands), ...storagesOf(maskOperand), probabilities, heads, scale };
  const maskColumn = columns > 1 ? (mask?.columnStride ?? 0) : 0;
  const plan = planSmall("forward", dtype, problem);
  if (plan) {
    const facts = {
      areVectors: areVectors(dtype, Object.values(operands)),
      isCausal,
      hasMask: mask !== undefined,
    };
    const strides = {
      ...stridesOf(operands, facts.areVectors ? lanesOf(dtype) : 1),
      ...stridesOf(maskOperand),
      maskColumn,
    };
    const key = `attention small forward ${dtypeKey(elements)} ${access} ${keyOf(plan, facts, strides)}`;
    return [
      {
        ...{ kind: "launch", op },
        source: cachedSource(key, () => smallForwardKernel(elements, access, plan, facts, strides)),
        blocks: batch * heads,
        arguments: argumentsInOrder(smallForwardParameters(dtype, access), values),
      },
    ];
  }
  const strips = Math.ceil(rows / stripLength);
  const key = `attention tiled forward ${dtypeKey(elements)} ${access}`;
  return [
    {
      ...{ kind: "launch", op },
      source: cachedSource(key, () => tiledForwardKernel(elements, access)),
      blocks: batch * heads * strips,
      arguments: argumentsInOrder(tiledForwardParameters(dtype, access), {
        ...{ ...values, rows, columns, width, valueWidth, strips, maskColumn },
        ...stridesOf({ ...operands, ...maskOperand }),
        isCausal: isCausal ? 1 : 0,
        hasMask: mask ? 1 : 0,
      }),
    },
  ];
}

export function lowerAttentionBackwardOnCuda(
  target: Target,
  problem: BackwardProblem,
  access: Access,
  op: string,
): readonly LaunchCommand[] {
  if ("statistics" in problem) {
    return lowerSm90Backward(target, problem, access, op) ?? lowerFlashBackward(target, problem, access, op);
  }
  const { dtype, batch, heads, rows, columns, width, valueWidth, scale, isCausal = false } = problem;
  const { probabilities, scoreGradient } = problem;
  const elements = elementsOf(problem);
  const operands = {
    query: layOut(problem, problem.query, rows, width),
    key: layOut(problem, problem.key, columns, width),
    value: layOut(problem, problem.value, columns, valueWidth),
    outGradient: layOut(problem, problem.outGradient, rows, valueWidth),
    queryGradient: layOutResult(problem, problem.queryGradient, rows, width),
    keyGradient: layOutResult(problem, problem.keyGradient, columns, width),
    valueGradient: layOutResult(problem, problem.valueGradient, columns, valueWidth),
  };
  const values = { ...storagesOf(operands), probabilities, scoreGradient, heads, scale };
  const plan = planSmall("backward", dtype, problem);
  if (plan) {
    const facts = { areVectors: areVectors(dtype, Object.values(operands)), isCausal };
    const strides = stridesOf(operands, facts.areVectors ? lanesOf(dtype) : 1);
    const key = `attention small backward ${dtypeKey(elements)} ${access} ${keyOf(plan, facts, strides)}`;
    return [
      {
        ...{ kind: "launch", op },
        source: cachedSource(key, () => smallBackwardKernel(elements, access, plan, facts, strides)),
        blocks: batch * heads,
        arguments: argumentsInOrder(smallBackwardParameters(dtype, access), values),
      },
    ];
  }
  const sizes = { rows, columns, width, valueWidth, isCausal: isCausal ? 1 : 0 };
  const all = { ...values, ...sizes, ...stridesOf(operands) };
  const kernelKey = `${dtypeKey(elements)} ${access}`;
  const [rowStrips, columnStrips] = [Math.ceil(rows / stripLength), Math.ceil(columns / stripLength)];
  return [
    {
      ...{ kind: "launch", op },
      source: cachedSource(`attention tiled rows ${kernelKey}`, () => tiledRowsKernel(elements, access)),
      blocks: batch * heads * rowStrips,
      arguments: argumentsInOrder(tiledRowsParameters(dtype, access), { ...all, strips: rowStrips }),
    },
    {
      ...{ kind: "launch", op },
      source: cachedSource(`attention tiled columns ${kernelKey}`, () =>
        tiledColumnsKernel(elements, access),
      ),
      blocks: batch * heads * columnStrips,
      arguments: argumentsInOrder(tiledColumnsParameters(dtype, access), { ...all, strips: columnStrips }),
    },
  ];
}
