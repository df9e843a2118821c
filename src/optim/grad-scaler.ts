/**
 * The gradient scaler for f16: gradients that are too small for f16 become 0, so the loss is scaled up before backward, and gradients are scaled
 * down before the update. An update with gradients that are not finite is skipped, and the scale shrinks. The scale is on the device, so
 * that compiled steps read and change it without the host.
 */

import { noGrad, noteWrite } from "../autograd/index.js";
import { checkOptions, HoldfastError } from "../errors/index.js";
import type { LoadableState } from "../nn/index.js";
import { type DeviceArray, div, inStepPhase, mul, runInto, runOp } from "../ops/index.js";
import type { Region } from "../runtime/index.js";
import { type Device, deviceFor, misfitOf, type Tensor, where, writeElements } from "../tensor/index.js";
import { gradientNorm } from "./gradient-norm.js";
import { arrivedGradients, gradientSpans } from "./gradients.js";
import { requireCount, requireNumber } from "./numbers.js";
import type { Optimizer } from "./optimizer.js";
import { releaseRegions } from "./parameter-slot.js";

/** Options of `GradScaler`. */
export interface GradScalerOptions {
  /** Default: 65536. */
  readonly initScale?: number;
  /** The factor of the scale after `growthInterval` updates in a row that were not skipped. Default: 2. */
  readonly growthFactor?: number;
  /** The factor of the scale after an update that was skipped. Default: 0.5. */
  readonly backoffFactor?: number;
  /** Default: 2000. */
  readonly growthInterval?: number;
  /** False: nothing is scaled or skipped. Default: true. */
  readonly enabled?: boolean;
  /** Default: the first device that was opened. */
  readonly device?: Device;
}

/** An optimizer whose gradients are unscaled. */
interface Unscaled {
  /** The largest magnitude among its gradients: infinite or NaN if one of them is. */
  readonly largest: Tensor;
  hasStepped: boolean;
}

/**
 * Scales the loss for training in f16, as PyTorch's `torch.cuda.amp.GradScaler`. In eager code, `step` reads one number back. In a compiled
 * step it reads nothing: the device skips the update, and the compiled step's `skipped` counts the call.
 *
 * @example
 * ```ts
 * import { autocast, device, nn, ones, optim } from "holdfast";
 * const cpu = await device("cpu");
 * const model = new nn.Linear(4, 1).to(cpu);
 * const optimizer = new optim.SGD(model.parameters(), { lr: 0.1 });
 * const scaler = new optim.GradScaler({ growthInterval: 2 });
 * const step = cpu.compile(() => {
 *   optimizer.zeroGrad();
 *   const loss = autocast(cpu, { dtype: "f16" }, () => model.forward(ones([3, 4])).square().mean());
 *   scaler.scale(loss).backward();
 *   scaler.step(optimizer);
 *   scaler.update();
 * });
 * for (let times = 0; times < 3; times++) step();
 * console.log(scaler.getScale()); // → 131072
 * cpu.close();
 * ```
 */
export class GradScaler {
  readonly enabled: boolean;
  readonly #device: Device | undefined;
  readonly #factors: { readonly growth: number; readonly backoff: number; readonly interval: number };
  readonly #region: Region | undefined;
  readonly #scale: Tensor | undefined;
  readonly #growthTracker: Tensor | undefined;
  readonly #unscaled = new Map<Optimizer, Unscaled>();

  constructor(options: GradScalerOptions = {}) {
    const {
      initScale = 65536,
      growthFactor = 2,
      backoffFactor = 0.5,
      growthInterval = 2000,
      enabled = true,
      device,
    } = checkOptions("optim.GradScaler", options, {
      initScale: true,
      growthFactor: true,
      backoffFactor: true,
      growthInterval: true,
      enabled: true,
      device: true,
    });
    requireNumber("GradScaler", "initScale", initScale, { above: 0 });
    requireNumber("GradScaler", "growthFactor", growthFactor, { above: 1 });
    requireNumber("GradScaler", "backoffFactor", backoffFactor, { above: 0, below: 1 });
    requireCount("GradScaler", "growthInterval", growthInterval);
    this.enabled = enabled;
    this.#factors = { growth: growthFactor, backoff: backoffFactor, interval: growthInterval };
    if (!enabled) return;
    this.#device = deviceFor(device);
    const { runtime } = this.#device;
    this.#region = runtime.persistent.place("scalars", "GradScaler", [
      { name: "scale", size: 4 },
      { name: "growth tracker", size: 4 },
    ]);
    const [scale, tracker] = this.#region.storages;
    this.#scale = this.#device.fromStorage(scale, [], "f32", "scale");
    this.#growthTracker = this.#device.fromStorage(tracker, [], "i32", "growth tracker");
    this.#device.write(this.#scale, [initScale]);
    this.#device.write(this.#growthTracker, [0]);
  }

  /**
   * The loss times the scale. Call `backward()` on the result, outside of `autocast`.
   *
   * @example
   * ```ts
   * import { device, optim, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const scaler = new optim.GradScaler({ initScale: 8 });
   * console.log(scaler.scale(tensor(0.5)).item()); // → 4
   * cpu.close();
   * ```
   */
  scale(loss: Tensor): Tensor {
    return this.#scale ? loss.mul(loss.dtype === "f64" ? this.#scale.to("f64") : this.#scale) : loss;
  }

  /**
   * Divides the gradients of an optimizer's parameters by the scale, for example to clip them before `step`, which otherwise does it. With
   * clipGradNorm, set `errorIfNonfinite: false`: gradients that are not finite are this class's matter.
   *
   * @example
   * ```ts
   * import { device, optim, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const w = tensor([3], { requiresGrad: true });
   * const sgd = new optim.SGD([w], { lr: 0.1 });
   * const scaler = new optim.GradScaler({ initScale: 1024 });
   * scaler.scale(w.square().sum()).backward();
   * scaler.unscale_(sgd);
   * console.log(w.grad?.tolist()); // → [ 6 ]
   * cpu.close();
   * ```
   */
  unscale_(optimizer: Optimizer): void {
    if (!this.#scale) return;
    if (this.#unscaled.has(optimizer)) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        "GradScaler: unscale_() or step() has been called for this optimizer since the last update(). Call update() once per iteration.",
      );
    }
    const { device, arrived } = arrivedGradients("GradScaler", optimizer.parameters);
    const { runtime } = device;
    const spans = gradientSpans(runtime, arrived);
    const scale = this.#scale;
    const largest = inStepPhase(runtime, "update", () => {
      const norm = runOp(runtime, gradientNorm, spans, { normType: Infinity, maxNorm: Infinity });
      const inverse = runOp(runtime, div, [1, scale.array], {});
      for (const span of spans) for (const factor of inverse) runInto(runtime, mul, span, [span, factor], {});
      free(device, [...norm.slice(1), ...inverse]);
      return device.fromStorage(norm[0]?.storage, [], "f64", "largest gradient");
    });
    for (const { gradient } of arrived) noteWrite(gradient.storage);
    this.#unscaled.set(optimizer, { largest, hasStepped: false });
  }

  /**
   * Updates the parameters with unscaled gradients, or leaves them and the optimizer's state unchanged if a gradient is not finite.
   *
   * @example
   * ```ts
   * import { device, optim, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const w = tensor([1], { requiresGrad: true });
   * const sgd = new optim.SGD([w], { lr: 0.5 });
   * const scaler = new optim.GradScaler({ initScale: 1024 });
   * for (const factor of [1, Infinity]) {
   *   sgd.zeroGrad();
   *   scaler.scale(w.mul(factor).sum()).backward();
   *   scaler.step(sgd);
   *   scaler.update();
   * }
   * console.log(w.tolist(), scaler.getScale()); // → [ 0.5 ] 512
   * cpu.close();
   * ```
   */
  step(optimizer: Optimizer): void {
    if (!this.enabled) {
      optimizer.step();
      return;
    }
    if (!this.#unscaled.has(optimizer)) this.unscale_(optimizer);
    const unscaled = this.#unscaled.get(optimizer);
    if (!unscaled) return;
    if (unscaled.hasStepped) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        "GradScaler: step() has been called for this optimizer since the last update(). Call update() once per iteration.",
      );
    }
    unscaled.hasStepped = true;
    const { largest } = unscaled;
    const { traceSink } = largest.device.runtime;
    const { storage } = largest.array;
    if (traceSink && storage) traceSink.writeWhileFinite(storage, () => optimizer.step());
    else if (Number.isFinite(largest.item())) optimizer.step();
  }

  /**
   * Changes the scale after the optimizers' steps: it shrinks if an update was skipped, and grows after `growthInterval` updates. `newScale`
   * sets it.
   *
   * @example
   * ```ts
   * import { device, optim } from "holdfast";
   * const cpu = await device("cpu");
   * const scaler = new optim.GradScaler();
   * scaler.update(1024);
   * console.log(scaler.getScale()); // → 1024
   * cpu.close();
   * ```
   */
  update(newScale?: number): void {
    const [scale, tracker, device] = [this.#scale, this.#growthTracker, this.#device];
    if (!scale || !tracker || !device) return;
    const found = [...this.#unscaled.values()].map(({ largest }) => largest);
    this.#unscaled.clear();
    for (const storage of this.#region?.storages ?? []) device.runtime.traceSink?.spareWrites(storage);
    noGrad(() => {
      const { growth, backoff, interval } = this.#factors;
      if (newScale !== undefined) {
        requireNumber("GradScaler", "newScale", newScale, { above: 0 });
        scale.fill_(newScale);
      } else if (found.length > 0) {
        const allFinite = found.map((largest) => largest.isfinite()).reduce((a, b) => a.logicalAnd(b));
        const count = tracker.add(1);
        const isDue = count.ge(interval);
        const grown = scale.mul(growth);
        const next = where(isDue.logicalAnd(grown.isfinite()), grown, scale);
        scale.copy_(where(allFinite, next, scale.mul(backoff)));
        tracker.copy_(where(allFinite.logicalAnd(isDue.logicalNot()), count, 0));
      }
    });
  }

  /**
   * The scale: 1 if it is not enabled. Reads it back.
   *
   * @example
   * ```ts
   * import { device, optim } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(new optim.GradScaler({ initScale: 4 }).getScale()); // → 4
   * cpu.close();
   * ```
   */
  getScale(): number {
    return this.#scale?.item() ?? 1;
  }

  /**
   * The state for an exact resume: the scale, and the updates since it has changed. The tensors are its memory, not copies. The factors are not
   * included; pass them to the constructor again.
   *
   * @example
   * ```ts
   * import { device, optim } from "holdfast";
   * const cpu = await device("cpu");
   * const [scaler, resumed] = [new optim.GradScaler({ initScale: 4 }), new optim.GradScaler()];
   * resumed.loadStateDict(scaler.stateDict());
   * console.log(resumed.getScale()); // → 4
   * cpu.close();
   * ```
   */
  stateDict(): Record<string, Tensor> {
    if (!this.#scale || !this.#growthTracker) return {};
    return { scale: this.#scale, growthTracker: this.#growthTracker };
  }

  /**
   * Loads a state: tensors, or elements in file format.
   *
   * @example
   * ```ts
   * import { device, optim, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const scaler = new optim.GradScaler();
   * scaler.loadStateDict({ scale: tensor(32), growthTracker: tensor(7, { dtype: "i32" }) });
   * console.log(scaler.getScale()); // → 32
   * cpu.close();
   * ```
   */
  loadStateDict(state: LoadableState): void {
    const entries = new Map(Object.entries(state));
    const targets = Object.entries(this.stateDict());
    const problems = targets.flatMap(([name, target]) => {
      const value = entries.get(name);
      const misfit = value ? misfitOf(target, value, "in the scaler") : "is missing";
      return misfit === undefined ? [] : [`"${name}" ${misfit}`];
    });
    const [problem] = problems;
    if (problem !== undefined)
      throw new HoldfastError("BAD_STATE", `GradScaler: ${problem}. Load the state of a GradScaler.`);
    for (const [name, target] of targets) {
      const value = entries.get(name);
      if (value) writeElements(target, value);
    }
  }

  /**
   * Frees its memory while its device stays open. Idempotent.
   *
   * @example
   * ```ts
   * import { device, optim } from "holdfast";
   * const cpu = await device("cpu");
   * const before = cpu.diagnostics().budget.used;
   * new optim.GradScaler().release();
   * console.log(cpu.diagnostics().budget.used - before); // → 0
   * cpu.close();
   * ```
   */
  release(): void {
    if (this.#device && this.#region) releaseRegions(this.#device.runtime, [this.#region]);
  }
}

function free({ runtime }: Device, arrays: readonly DeviceArray[]): void {
  for (const { storage } of arrays) if (storage) runtime.arena.free(storage);
}
