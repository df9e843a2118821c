/** Clips gradients in place: all by one factor, or each element by itself. */

import { noteWrite } from "../autograd/index.js";
import { checkOptions, HoldfastError } from "../errors/index.js";
import { type DeviceArray, functions, inStepPhase, mul, runInto, runOp } from "../ops/index.js";
import type { Device, Tensor } from "../tensor/index.js";
import { gradientNorm } from "./gradient-norm.js";
import { type Arrived, arrivedGradients, gradientSpans } from "./gradients.js";
import { requireNumber } from "./numbers.js";

/** Options of `clipGradNorm`. */
export interface ClipNormOptions {
  /** Default: 2, the Euclidean norm. Infinity is the largest magnitude. */
  readonly normType?: number;
  /**
   * Reject an infinite or NaN norm and leave the gradients unchanged. Default: true, which reads the norm back. If
   * false, such gradients are left unchanged too, and the returned norm shows it. A compiled step cannot read the norm,
   * so it skips the update on the device: weights and moments stay unchanged, and `step.skipped` counts.
   */
  readonly errorIfNonfinite?: boolean;
}

/**
 * Scales all gradients by one factor if their total norm exceeds `maxNorm`. Returns the norm before clipping, in f64.
 *
 * @example
 * ```ts
 * import { device, optim, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const w = tensor([0, 0], { requiresGrad: true });
 * w.mul(tensor([3, 4])).sum().backward();
 * const norm = optim.clipGradNorm([w], 1);
 * console.log(norm.item(), w.grad?.square().sum().item().toFixed(3)); // → 5 1.000
 * cpu.close();
 * ```
 */
export function clipGradNorm(
  parameters: Iterable<Tensor>,
  maxNorm: number,
  options: ClipNormOptions = {},
): Tensor {
  const { normType = 2, errorIfNonfinite = true } = checkOptions("optim.clipGradNorm", options, {
    normType: true,
    errorIfNonfinite: true,
  });
  if (normType !== Infinity) requireNumber("clipGradNorm", "normType", normType, { above: 0 });
  requireNumber("clipGradNorm", "maxNorm", maxNorm, { from: 0 });
  const { device, arrived } = arrivedGradients("clipGradNorm", parameters);
  const { runtime } = device;
  const spans = gradientSpans(runtime, arrived);
  return inStepPhase(runtime, "update", () => {
    const [norm, factor64, factor32] = runOp(runtime, gradientNorm, spans, { normType, maxNorm });
    try {
      if (errorIfNonfinite && !runtime.isTracing) requireFinite(device, norm, arrived);
      else if (errorIfNonfinite && norm?.storage) runtime.traceSink?.writeOnlyIfFinite(norm.storage);
      for (const span of spans) {
        const factor = span.dtype === "f64" ? factor64 : factor32;
        if (factor) runInto(runtime, mul, span, [span, factor], {});
      }
      for (const { gradient } of arrived) noteWrite(gradient.storage);
    } finally {
      for (const factor of [factor64, factor32]) if (factor?.storage) runtime.arena.free(factor.storage);
    }
    return device.fromStorage(norm?.storage, [], "f64", "gradient norm");
  });
}

/**
 * Clamps every gradient element to [-`limit`, `limit`].
 *
 * @example
 * ```ts
 * import { device, optim, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const w = tensor([0, 0], { requiresGrad: true });
 * w.mul(tensor([3, -0.25])).sum().backward();
 * optim.clipGradValue([w], 0.5);
 * console.log(w.grad?.tolist()); // → [ 0.5, -0.25 ]
 * cpu.close();
 * ```
 */
export function clipGradValue(parameters: Iterable<Tensor>, limit: number): void {
  requireNumber("clipGradValue", "limit", limit, { from: 0 });
  const { device, arrived } = arrivedGradients("clipGradValue", parameters);
  const { runtime } = device;
  inStepPhase(runtime, "update", () => {
    for (const span of gradientSpans(runtime, arrived))
      runInto(runtime, functions.clamp, span, [span], { min: -limit, max: limit });
  });
  for (const { gradient } of arrived) noteWrite(gradient.storage);
}

function requireFinite(device: Device, norm: DeviceArray | undefined, arrived: readonly Arrived[]): void {
  if (!norm?.storage) return;
  const [total = Number.NaN] = new Float64Array(device.runtime.read(norm.storage).buffer);
  if (Number.isFinite(total)) return;
  device.runtime.arena.free(norm.storage);
  const culprit = arrived.find(({ parameter }) =>
    parameter.grad?.dataSync().some((element) => !Number.isFinite(element)),
  );
  const name = culprit?.parameter.name;
  throw new HoldfastError(
    "NOT_FINITE",
    `The norm of ${arrived.length} gradients is ${total}: ` +
      (name
        ? `the gradient of "${name}" is the first that is not finite. `
        : "every element is finite, but the sum of their powers overflows f64. ") +
      "No gradient was changed. Skip this step, lower the learning rate, or check the loss for a NaN. With a GradScaler, pass " +
      "{ errorIfNonfinite: false }: it skips the update and lowers its scale.",
    { numbers: { norm: total, gradients: arrived.length, ...(name && { parameter: name }) } },
  );
}
