/** matmul, for vectors, matrices and batches, by PyTorch's rules; and linear, a matrix product with a bias. */

import { HoldfastError } from "../../errors/index.js";
import { type Dtype, dtypes, promote } from "../../ir/index.js";
import { expand, sum, sumReduction } from "../broadcast.js";
import { copyArray } from "../copy.js";
import { contiguousStrides, type DeviceArray, mergeAxes, transposed } from "../device-array.js";
import { mul } from "../elementwise/arithmetic.js";
import { cast } from "../elementwise/cast.js";
import { fitToOperand } from "../gradients.js";
import { permute, reshape } from "../movement/reshape.js";
import {
  arrayAt,
  type GradientRule,
  isType,
  type KernelOp,
  type Lowering,
  typeAt,
  type ValueType,
} from "../op.js";
import { lowerReduction } from "../reduction/reduce.js";
import { badShape, broadcastShapes, formatShape, isSameShape, type Shape, sizeOf } from "../shape.js";
import { castForGemm, lowerGemm, lowerGemmSum } from "./gemm.js";

/** The operands' shapes as matrices: a left vector is a row, a right vector a column. */
function asMatrices(left: Shape, right: Shape): { a: Shape; b: Shape } {
  return { a: left.length === 1 ? [1, ...left] : left, b: right.length === 1 ? [...right, 1] : right };
}

/** `resultDtype`: f32 for a product of half floats that keeps the digits of its sums. Default: the promoted dtype. */
export type MatmulAttributes = { readonly resultDtype?: "f32" };

export const matmul: KernelOp<MatmulAttributes> = {
  kind: "kernel",
  name: "matmul",
  infer(operands, { resultDtype }) {
    const [left, right] = [typeAt("matmul", operands, 0), typeAt("matmul", operands, 1)];
    const promoted = gemmDtype("matmul", left, right);
    const dtype = isHalf(promoted) ? (resultDtype ?? promoted) : promoted;
    if (left.shape.length === 0 || right.shape.length === 0) {
      throw badShape(
        "matmul",
        `${formatShape(left.shape)} and ${formatShape(right.shape)}: a number has no rows; use mul.`,
      );
    }
    const { a, b } = asMatrices(left.shape, right.shape);
    if (a.at(-1) !== b.at(-2)) {
      throw badShape(
        "matmul",
        `${formatShape(left.shape)} · ${formatShape(right.shape)}: the left has rows of ${a.at(-1)} and the right columns of ` +
          `${b.at(-2)}; they must be equal.${a.at(-1) === b.at(-1) ? " The transpose of the right would fit." : ""}`,
      );
    }
    const batch = broadcastShapes("matmul", [a.slice(0, -2), b.slice(0, -2)]);
    const rows = left.shape.length === 1 ? [] : [a.at(-2) ?? 1];
    const columns = right.shape.length === 1 ? [] : [b.at(-1) ?? 1];
    return [{ shape: [...batch, ...rows, ...columns], dtype }];
  },
  saves: ([left, right]) => ({ operands: [...(right ? [0] : []), ...(left ? [1] : [])] }),
  gradient(rule) {
    const { apply } = rule;
    const [left, right] = [rule.typeOf(0).shape, rule.typeOf(1).shape];
    const promoted = promote(rule.typeOf(0).dtype, rule.typeOf(1).dtype);
    const isWide = rule.valueType(rule.upstream).dtype !== promoted;
    // The gradient of a wide result was rounded before it was widened, or is rounded here.
    const ofResult = isWide ? apply(cast, [rule.upstream], { dtype: promoted }) : rule.upstream;
    if (left.length >= 2 && right.length === 2) {
      // One right matrix for all rows, as in a layer: all axes before the last one are rows.
      const upstream = ofResult;
      return [
        rule.needs(0) ? fitToOperand(rule, apply(linear, [upstream, rule.operand(1)], {}), 0) : undefined,
        rule.needs(1) ? fitToOperand(rule, apply(weightGradient, [rule.operand(0), upstream]), 1) : undefined,
      ];
    }
    const { a, b } = asMatrices(left, right);
    const batch = broadcastShapes("matmul", [a.slice(0, -2), b.slice(0, -2)]);
    const upstream = apply(reshape, [ofResult], { shape: [...batch, a.at(-2) ?? 1, b.at(-1) ?? 1] });
    const matrix = (index: number, shape: Shape) => apply(reshape, [rule.operand(index)], { shape });
    return [
      rule.needs(0)
        ? fitMatrixGradient(rule, apply(matmul, [upstream, transpose(rule, matrix(1, b))]), a, 0)
        : undefined,
      rule.needs(1) ? rightGradient() : undefined,
    ];

    function rightGradient() {
      // One right matrix for the whole batch: the batch is further rows to sum over.
      if (sizeOf(b.slice(0, -2)) === 1 && a.length > 2) {
        const [k = 1, n = 1] = b.slice(-2);
        const rowCount = sizeOf(a.slice(0, -1));
        const rows = apply(reshape, [matrix(0, a)], { shape: [rowCount, k] });
        const flat = apply(reshape, [upstream], { shape: [rowCount, n] });
        return fitMatrixGradient(rule, apply(matmul, [transpose(rule, rows), flat]), [k, n], 1);
      }
      return fitMatrixGradient(rule, apply(matmul, [transpose(rule, matrix(0, a)), upstream]), b, 1);
    }
  },
  lower(lowering, operands, [output]) {
    const [left, right] = [arrayAt(operands, 0), arrayAt(operands, 1)];
    const { a, b } = asMatrices(left.shape, right.shape);
    if (!output) return;
    const batch = broadcastShapes("matmul", [a.slice(0, -2), b.slice(0, -2)]);
    const shape = [...batch, a.at(-2) ?? 1, b.at(-1) ?? 1];
    lowerGemm(lowering, vectorAsMatrix(left, a), vectorAsMatrix(right, b), withShape(output, shape));
  },
};

/** A vector as a matrix of one row or one column; a matrix as it is. */
function vectorAsMatrix(array: DeviceArray, shape: Shape): DeviceArray {
  if (array.shape.length !== 1) return array;
  const [step = 1] = array.strides;
  const isRow = shape[0] === 1 && shape[1] === array.shape[0];
  return { ...array, shape, strides: isRow ? [step * (array.shape[0] ?? 1), step] : [step, 1] };
}

function withShape(array: DeviceArray, shape: Shape): DeviceArray {
  return { ...array, shape, strides: contiguousStrides(shape) };
}

function transpose<V, A>({ apply, valueType }: GradientRule<V, A>, value: V): V {
  const rank = valueType(value).shape.length;
  const axes = Array.from({ length: rank }, (_, axis) => axis);
  return apply(permute, [value], { axes: [...axes.slice(0, -2), rank - 1, rank - 2] });
}

/** Sums a matrix gradient over broadcast batches, then gives it the operand's shape and dtype. */
function fitMatrixGradient<V, A>(rule: GradientRule<V, A>, value: V, matrix: Shape, index: number): V {
  const { shape } = rule.typeOf(index);
  if (isSameShape(matrix, shape)) return fitToOperand(rule, value, index);
  const valueShape = rule.valueType(value).shape;
  const batch = valueShape.slice(0, valueShape.length - matrix.length);
  const summed = batch.length > 0 ? rule.apply(sum, [value], { axes: batch.map((_, axis) => axis) }) : value;
  return fitToOperand(rule, rule.apply(reshape, [summed], { shape }), index);
}

/**
 * The gradient of a weight: leftᵀ · right, summed over all rows. Operands: left [rows…, k] and right [rows…, n]. The result
 * is [k, n].
 */
export const weightGradient: KernelOp = {
  kind: "kernel",
  name: "weightGradient",
  saves: ([left, right]) => ({ operands: [...(right ? [0] : []), ...(left ? [1] : [])] }),
  gradient(rule) {
    const { apply, upstream } = rule; // [k, n]
    return [
      rule.needs(0) ? fitToOperand(rule, apply(linear, [rule.operand(1), upstream], {}), 0) : undefined,
      rule.needs(1)
        ? fitToOperand(rule, apply(linear, [rule.operand(0), upstream], { layout: "inOut" }), 1)
        : undefined,
    ];
  },
  infer(operands) {
    const [left, right] = [typeAt("weightGradient", operands, 0), typeAt("weightGradient", operands, 1)];
    const shape = [left.shape.at(-1) ?? 1, right.shape.at(-1) ?? 1];
    return [{ shape, dtype: gemmDtype("weightGradient", left, right) }];
  },
  lower(lowering, operands, [output]) {
    if (!output) return;
    const [left, right] = [arrayAt(operands, 0), arrayAt(operands, 1)];
    lowerGemm(lowering, transposed(asRows(lowering, left)), asRows(lowering, right), output);
  },
};

/**
 * The gradient of a bias: the sum of the upstream gradient over its rows. If GEMMs round their operands to bf16, this op sums the
 * rounded values too, so that only the rounded gradient has to stay in memory.
 */
export const biasGradient: KernelOp = {
  kind: "kernel",
  name: "biasGradient",
  gradient: (rule) => [rule.apply(expand, [rule.upstream], { shape: rule.typeOf(0).shape })],
  infer(operands) {
    const { shape, dtype } = typeAt("biasGradient", operands, 0);
    return [{ shape: shape.slice(-1), dtype }];
  },
  lower(lowering, operands, [output]) {
    if (!output) return;
    const upstream = arrayAt(operands, 0);
    const leading = upstream.shape.slice(0, -1).map((_, axis) => axis);
    const rounded = castForGemm(lowering, upstream);
    if (rounded) lowerReduction(lowering, sumReduction, rounded, [0], output);
    else lowerReduction(lowering, sumReduction, upstream, leading, output);
  },
};

/** [rows…, width] as [rows, width]: a view if one stride leads from row to row, otherwise a copy. */
export function asRows(lowering: Lowering, array: DeviceArray): DeviceArray {
  const { shape, strides } = array;
  const width = shape.at(-1) ?? 1;
  const rows = mergeAxes({ shape: shape.slice(0, -1), strides: strides.slice(0, -1) });
  if (rows) return { ...array, shape: [rows.size, width], strides: [rows.stride, strides.at(-1) ?? 1] };
  const copy = lowering.scratchArray(shape, array.dtype);
  copyArray(lowering, array, copy);
  const flat = [sizeOf(shape.slice(0, -1)), width];
  return { ...copy, shape: flat, strides: contiguousStrides(flat) };
}

/** `layout`: the weight's axes. Default: "outIn", PyTorch's [out, in]. `scale`: of the product; default: 1. */
export type LinearAttributes = { readonly layout?: "outIn" | "inOut"; readonly scale?: number };

/** scale·x·Wᵀ + b, or scale·x·W + b for a weight [in, out]. The bias is optional. */
export const linear: KernelOp<LinearAttributes> = {
  kind: "kernel",
  name: "linear",
  infer(operands, attributes) {
    const [x, weight] = [typeAt("linear", operands, 0), typeAt("linear", operands, 1)];
    const dtype = gemmDtype("linear", x, weight);
    const { width, out } = sizesOf(weight.shape, attributes);
    if (weight.shape.length !== 2 || x.shape.length === 0 || x.shape.at(-1) !== width) {
      const layout = attributes.layout === "inOut" ? "[in, out]" : "[out, in]";
      throw badShape(
        "linear",
        `input ${formatShape(x.shape)} and weight ${formatShape(weight.shape)}: the weight is ${layout}, and the input's last ` +
          `axis must be in = ${width}.`,
      );
    }
    const bias = operands[2];
    if (isType(bias) && (bias.shape.length !== 1 || bias.shape[0] !== out)) {
      throw badShape("linear", `bias ${formatShape(bias.shape)}: it must be [${out}], one for each output.`);
    }
    return [{ shape: [...x.shape.slice(0, -1), out], dtype }];
  },
  saves: ([x, weight]) => ({ operands: [...(weight ? [0] : []), ...(x ? [1] : [])] }),
  gradient(rule) {
    const { apply, upstream } = rule;
    const { layout, scale = 1 } = rule.attributes;
    const isInOut = layout === "inOut";
    const leading = rule
      .typeOf(0)
      .shape.slice(0, -1)
      .map((_, axis) => axis);
    const weightOperands = () => (isInOut ? [rule.operand(0), upstream] : [upstream, rule.operand(0)]);
    const ofBias = () => (leading.length > 0 ? apply(biasGradient, [upstream]) : upstream);
    const ofWeight = () => {
      const gradient = apply(weightGradient, weightOperands());
      return scale === 1 ? gradient : apply(mul, [gradient, scale]);
    };
    const flipped: LinearAttributes = { ...rule.attributes, layout: isInOut ? "outIn" : "inOut" };
    return [
      rule.needs(0) ? fitToOperand(rule, apply(linear, [upstream, rule.operand(1)], flipped), 0) : undefined,
      rule.needs(1) ? fitToOperand(rule, ofWeight(), 1) : undefined,
      rule.needs(2) ? fitToOperand(rule, ofBias(), 2) : undefined,
    ];
  },
  lower(lowering, operands, [output], attributes) {
    const [x, weight, bias] = [arrayAt(operands, 0), arrayAt(operands, 1), operands[2]];
    if (!output) return;
    const { width, out } = sizesOf(weight.shape, attributes);
    const rows = x.shape.length === 1 ? vectorAsMatrix(x, [1, width]) : x;
    const target = x.shape.length === 1 ? withShape(output, [1, out]) : output;
    const right = attributes.layout === "inOut" ? weight : transposed(weight);
    const factors = { left: rows, right, scale: attributes.scale };
    lowerGemmSum(lowering, [factors], target, typeof bias === "object" ? bias : undefined);
  },
};

function sizesOf(weight: Shape, { layout = "outIn" }: LinearAttributes): { width: number; out: number } {
  const [first = 0, second = 0] = weight;
  return layout === "outIn" ? { out: first, width: second } : { width: first, out: second };
}

export const isHalf = (dtype: Dtype): boolean => dtype === "bf16" || dtype === "f16";

export function gemmDtype(op: string, left: ValueType, right: ValueType): Dtype {
  const dtype = promote(left.dtype, right.dtype);
  if (dtypes[dtype].kind === "float") return dtype;
  throw new HoldfastError(
    "BAD_DTYPE",
    `${op} of ${left.dtype} and ${right.dtype}: a matrix product needs floats. Convert with to("f32").`,
    {
      numbers: { op },
    },
  );
}
