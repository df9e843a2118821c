/**
 * autocast: regions in which ops cast their operands. Matrix products, convolutions and attention compute in half floats; ops that need the
 * range or the precision of f32 get f32. The families of ops are PyTorch's, and means and variances are in f32 too.
 */

import { checkOptions, HoldfastError } from "../errors/index.js";
import { type Dtype, promote } from "../ir/index.js";
import { cast, type Op, opTable } from "../ops/index.js";
import { type AutocastDtype, AutocastMode, dtypeOfRegion, inRegion } from "./autocast-mode.js";
import type { Device } from "./device.js";
import type { Tensor } from "./tensor.js";

/** Options of `autocast`. */
export interface AutocastOptions {
  /** Default: bf16. f16 needs a `GradScaler`, because small gradients are 0 in f16. */
  readonly dtype?: AutocastDtype;
  /** False: no casts, also inside another region. Default: true. */
  readonly enabled?: boolean;
}

/**
 * Runs a function whose matrix products, convolutions and attention compute in half floats on a device. Their f32 operands are cast, and so are the
 * operands of losses, norms, sums and exponentials, to f32. Gradients have the dtypes of their tensors: those of f32 weights are f32.
 * Run backward after the region. In a compiled step, put the region inside the step, or around its call.
 *
 * @example
 * ```ts
 * import { autocast, device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * const layer = new nn.Linear(4, 2).to(cpu);
 * const [y, loss] = autocast(cpu, { dtype: "bf16" }, () => {
 *   const y = layer.forward(ones([3, 4]));
 *   return [y, y.sum()];
 * });
 * loss.backward();
 * console.log(y.dtype, loss.dtype, layer.weight.grad?.dtype); // → bf16 f32 f32
 * cpu.close();
 * ```
 */
export function autocast<T>(device: Device, options: AutocastOptions, body: () => T): T {
  const { dtype = "bf16", enabled = true } = checkOptions("autocast", options, {
    dtype: true,
    enabled: true,
  });
  if (!(device?.autocastMode instanceof AutocastMode) || typeof body !== "function") {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      'autocast takes an open device, options and a function: autocast(cpu, { dtype: "bf16" }, () => model.forward(x)).',
    );
  }
  if (dtype !== "bf16" && dtype !== "f16") {
    throw new HoldfastError(
      "BAD_DTYPE",
      `autocast: "${String(dtype)}" is not a half float. Use dtype: "bf16", or "f16" with a GradScaler.`,
    );
  }
  return inRegion(device.autocastMode, enabled ? dtype : undefined, body);
}

/**
 * True inside an `autocast` region of the device.
 *
 * @example
 * ```ts
 * import { autocast, device, isAutocastEnabled } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(isAutocastEnabled(cpu), autocast(cpu, {}, () => isAutocastEnabled(cpu))); // → false true
 * cpu.close();
 * ```
 */
export function isAutocastEnabled(device: Device): boolean {
  return dtypeOfRegion(device.autocastMode) !== undefined;
}

/** half: the region's dtype. f32: f32. widest: the promoted dtype, for ops whose operands must have one dtype. */
type Family = "half" | "f32" | "widest";

const familyNames: Readonly<Record<Family, string>> = {
  half: `matmul linear loraLinear batchedLinear fusedProjections conv1d conv2d
    attention packedAttention scaledDotProductAttention attentionWithDropout recurrent`,
  f32: `exp expm1 log log1p log2 log10 rsqrt reciprocal pow sinh cosh tan acos asin erfinv scaledSoftplus
    softmax logSoftmax layerNorm rmsNorm normalize groupNorm
    sum mean prod cumsum variance std norm logsumexp
    crossEntropy crossEntropyOfProbabilities nllLoss squaredError absoluteError huberError binaryCrossEntropy
    mseLoss l1Loss huberLoss smoothL1Loss bceWithLogits probabilityCrossEntropy klDivergence klDivergenceOfLogs
    poissonOfLog poissonOfRate softMargin hingeEmbedding
    choleskyFactor luFactor qrFactor eighFactor eighValues svdFactor svdValues inverse determinant solve triangularSolve`,
  widest: "cat stack scatterAdd",
};

const families: ReadonlyMap<Op, Family> = new Map(
  (["half", "f32", "widest"] as const).flatMap((family) =>
    familyNames[family].split(/\s+/).flatMap((name): [Op, Family][] => {
      const op = opTable[name];
      return op ? [[op, family]] : [];
    }),
  ),
);

/** The names of families that the op table does not have, for a test. */
export function unknownAutocastNames(): readonly string[] {
  return Object.values(familyNames)
    .flatMap((names) => names.split(/\s+/))
    .filter((name) => opTable[name] === undefined);
}

/** The operands of an op, cast as the region of the device asks. f64 is never cast, and neither is what is computed with it. */
export function castOperands(
  device: Device,
  op: Op,
  operands: readonly (Tensor | number)[],
): readonly (Tensor | number)[] {
  const dtype = dtypeOfRegion(device.autocastMode);
  const family = dtype && families.get(op);
  if (!dtype || !family) return operands;
  const floats = operands.flatMap((operand): Dtype[] =>
    typeof operand === "object" && isFloat(operand.dtype) ? [operand.dtype] : [],
  );
  if (floats.length === 0 || floats.includes("f64")) return operands;
  const target = family === "half" ? dtype : family === "f32" ? "f32" : floats.reduce(promote);
  return operands.map((operand) => {
    if (typeof operand === "number" || !isFloat(operand.dtype) || operand.dtype === target) return operand;
    return device.apply(cast, [operand], { dtype: target });
  });
}

/** Runs a function whose operands are cast already. */
export function withoutCasts<T>(device: Device, body: () => T): T {
  return inRegion(device.autocastMode, undefined, body);
}

const isFloat = (dtype: Dtype): boolean =>
  dtype === "f32" || dtype === "f64" || dtype === "bf16" || dtype === "f16";
