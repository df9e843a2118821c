/**
 * LBFGS: a quasi-Newton method for small problems and whole batches. Each step evaluates the loss several times. Its vectors are on the
 * host, in f64.
 */

import { checkOptions, HoldfastError } from "../errors/index.js";
import type { LoadableState } from "../nn/index.js";
import { DataParallel } from "../parallel/index.js";
import type { Region, Runtime } from "../runtime/index.js";
import { elementsAs, misfitOf, type Tensor, writeElements } from "../tensor/index.js";
import { requireCount, requireNumber } from "./numbers.js";
import { type GroupOptions, Optimizer } from "./optimizer.js";
import { rejectShards } from "./optimizer-shards.js";
import { placeOrRelease, releaseRegions } from "./parameter-slot.js";
import { type LinePoint, searchStrongWolfe } from "./strong-wolfe.js";
import type { UpdateRule } from "./update-rule.js";

/** Options of `LBFGS`. */
export interface LBFGSOptions {
  /** The step size; with a line search, the first one that it tries. Default: 1. */
  readonly lr?: number;
  /** Maximum number of iterations per step. Default: 20. */
  readonly maxIter?: number;
  /** Maximum number of evaluations of the loss per step. Default: 1.25 · `maxIter`. */
  readonly maxEval?: number;
  /** A step ends when no element of the gradient has a larger magnitude. Default: 1e-7. */
  readonly toleranceGrad?: number;
  /** A step ends when the loss, or every parameter, changes by no more than this. Default: 1e-9. */
  readonly toleranceChange?: number;
  /** The number of changes of parameters and gradients that are remembered. Default: 100. */
  readonly historySize?: number;
  /** Default: none; every step has the size lr. */
  readonly lineSearchFn?: "strong_wolfe";
}

const defaults = { maxIter: 20, toleranceGrad: 1e-7, toleranceChange: 1e-9, historySize: 100 } as const;

const rule: UpdateRule = {
  ...{ name: "LBFGS", moments: [], settings: [], numbers: [], keepsParameter: true },
  stepNumbers: () => [],
  update: () => [],
};

/** What the method keeps between iterations. */
interface Memory {
  iterations: number;
  evaluations: number;
  /** The size of the last step. */
  t: number;
  /** The diagonal of the first estimate of the inverse Hessian. */
  diagonal: number;
  previousLoss: number;
  direction: Float64Array;
  previousGradient: Float64Array;
  /** Changes of the gradient and of the parameters, oldest first. */
  history: { readonly y: Float64Array; readonly s: Float64Array }[];
}

/**
 * LBFGS with PyTorch's algorithm. `step` gets a closure that clears the gradients, computes the loss, calls `backward()` and returns the
 * loss. It runs in eager code only. Outside `device.step()`, each evaluation is a step of its own. All parameters are in one group.
 *
 * @example
 * ```ts
 * import { device, optim, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const w = tensor([4, -2], { requiresGrad: true });
 * const lbfgs = new optim.LBFGS([w], { lineSearchFn: "strong_wolfe" });
 * lbfgs.step(() => {
 *   lbfgs.zeroGrad();
 *   const loss = w.sub(1).square().sum();
 *   loss.backward();
 *   return loss;
 * });
 * console.log(Array.from(w.dataSync(), (value) => value.toFixed(3))); // → [ '1.000', '1.000' ]
 * cpu.close();
 * ```
 */
export class LBFGS extends Optimizer<LBFGSOptions> {
  readonly #options: Required<Omit<LBFGSOptions, "lr" | "lineSearchFn">> & LBFGSOptions;
  readonly #runtime: Runtime;
  #memory: Memory;
  /** The device memory of a saved state. */
  #saved: Region | undefined;

  constructor(parameters: Iterable<Tensor>, options: LBFGSOptions = {}) {
    checkOptions("optim.LBFGS", options, {
      lr: true,
      maxIter: true,
      maxEval: true,
      toleranceGrad: true,
      toleranceChange: true,
      historySize: true,
      lineSearchFn: true,
    });
    if (DataParallel.ranksOfNewOptimizer) rejectShards("LBFGS");
    super(parameters, { lr: 1, ...options }, () => rule);
    const merged = { ...defaults, maxEval: Math.floor(((options.maxIter ?? 20) * 5) / 4), ...options };
    requireCount("LBFGS", "maxIter", merged.maxIter);
    requireCount("LBFGS", "maxEval", merged.maxEval);
    requireCount("LBFGS", "historySize", merged.historySize);
    requireNumber("LBFGS", "toleranceGrad", merged.toleranceGrad, { from: 0 });
    requireNumber("LBFGS", "toleranceChange", merged.toleranceChange, { from: 0 });
    if (merged.lineSearchFn !== undefined && merged.lineSearchFn !== "strong_wolfe") {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `LBFGS: lineSearchFn is ${String(merged.lineSearchFn)}. Use "strong_wolfe", or leave it out.`,
      );
    }
    this.#options = merged;
    this.#runtime = (this.parameters[0] as Tensor).device.runtime;
    const size = this.#size;
    this.#memory = {
      ...{ iterations: 0, evaluations: 0, t: 0, diagonal: 1, previousLoss: 0, history: [] },
      ...{ direction: new Float64Array(size), previousGradient: new Float64Array(size) },
    };
  }

  /**
   * Rejected: the parameters of LBFGS are in one group.
   *
   * @example
   * ```ts
   * import { device, HoldfastError, optim, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const [a, b] = [zeros([1], { requiresGrad: true }), zeros([1], { requiresGrad: true })];
   * try {
   *   new optim.LBFGS([a]).addParamGroup({ params: [b] });
   * } catch (error) {
   *   if (error instanceof HoldfastError) console.log(error.code); // → BAD_ARGUMENT
   * }
   * cpu.close();
   * ```
   */
  override addParamGroup(_group: GroupOptions<LBFGSOptions>): void {
    throw new HoldfastError("BAD_ARGUMENT", "LBFGS has one group of parameters. Create it with all of them.");
  }

  /**
   * Makes up to `maxIter` iterations. Returns the loss before them.
   *
   * @example
   * ```ts
   * import { device, optim, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const w = tensor([3], { requiresGrad: true });
   * const lbfgs = new optim.LBFGS([w], { lr: 0.5 });
   * const closure = () => {
   *   lbfgs.zeroGrad();
   *   const loss = w.square().sum();
   *   loss.backward();
   *   return loss;
   * };
   * console.log(lbfgs.step(closure), lbfgs.step(closure) < 1e-6); // → 9 true
   * cpu.close();
   * ```
   */
  override step(closure?: () => Tensor): number {
    if (!closure) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        "LBFGS.step needs a closure. Pass a function that clears the gradients, computes the loss, calls backward() and returns the loss.",
      );
    }
    this.#runtime.traceSink?.reject("call step() of LBFGS", "LBFGS", "Call it outside compiled steps.");
    for (const group of this.groups) group.requireUnmoved();
    const { maxIter, maxEval, toleranceGrad, toleranceChange, lineSearchFn } = this.#options;
    const memory = this.#memory;
    let { loss, gradient } = this.#evaluate(closure);
    const firstLoss = loss;
    let evaluations = 1;
    for (let iteration = 1; iteration <= maxIter && largest(gradient) > toleranceGrad; iteration++) {
      this.#chooseDirection(gradient);
      const { direction } = memory;
      const previousLoss = loss;
      memory.previousGradient = gradient;
      memory.previousLoss = loss;
      const firstStep =
        memory.iterations === 1 ? Math.min(1, 1 / sumOfMagnitudes(gradient)) * this.lr : this.lr;
      memory.t = firstStep;
      const slope = dot(gradient, direction);
      if (slope > -toleranceChange) break;
      const start = this.#read();
      if (lineSearchFn) {
        const found = searchStrongWolfe({
          start: { t: 0, loss, gradient, slope },
          ...{ firstStep, toleranceChange, directionSize: largest(direction) },
          evaluate: (t): LinePoint => {
            this.#write(start, t);
            const point = this.#evaluate(closure);
            return { t, ...point, slope: dot(point.gradient, direction) };
          },
        });
        this.#write(start, found.point.t);
        memory.t = found.point.t;
        ({ loss, gradient } = found.point);
        evaluations += found.evaluations;
      } else {
        this.#write(start, firstStep);
        if (iteration < maxIter) {
          ({ loss, gradient } = this.#evaluate(closure));
          evaluations += 1;
        }
      }
      if (evaluations >= maxEval) break;
      if (largest(direction) * Math.abs(memory.t) <= toleranceChange) break;
      if (Math.abs(loss - previousLoss) < toleranceChange) break;
    }
    return firstLoss;
  }

  /**
   * The state for resuming: `lbfgs.counters`, `lbfgs.direction`, `lbfgs.previousGradient` and the history, all in f64.
   *
   * @example
   * ```ts
   * import { device, optim, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const lbfgs = new optim.LBFGS([zeros([3], { requiresGrad: true })], { historySize: 5 });
   * console.log(lbfgs.stateDict()["lbfgs.gradientChanges"]?.shape); // → [ 5, 3 ]
   * cpu.close();
   * ```
   */
  override stateDict(): Record<string, Tensor> {
    const shapes = this.#stateShapes();
    this.#saved ??= placeOrRelease(
      this.#runtime,
      [],
      "moments",
      "LBFGS state",
      Object.entries(shapes).map(([name, shape]) => ({ name, size: 8 * sizeOf(shape) })),
    );
    const { storages } = this.#saved;
    const { device } = this.parameters[0] as Tensor;
    const values = this.#values();
    const entries = Object.entries(shapes).map(([name, shape], index): [string, Tensor] => {
      const tensor = device.fromStorage(storages[index], shape, "f64", name);
      writeElements(tensor, storedElements(values[name] ?? new Float64Array(0), shape));
      return [name, tensor];
    });
    return { ...super.stateDict(), ...Object.fromEntries(entries) };
  }

  /**
   * Loads a state. The optimizer must have the same parameters and the same `historySize`.
   *
   * @example
   * ```ts
   * import { device, optim, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const [a, b] = [zeros([3], { requiresGrad: true }), zeros([3], { requiresGrad: true })];
   * const [first, second] = [a, b].map((w) => new optim.LBFGS([w], { lr: w === a ? 0.5 : 1 }));
   * second?.loadStateDict(first?.stateDict() ?? {});
   * console.log(second?.lr); // → 0.5
   * cpu.close();
   * ```
   */
  override loadStateDict(state: LoadableState): void {
    const own = this.stateDict();
    const names = Object.keys(this.#stateShapes());
    const faults = names.flatMap((name) => {
      const [target, value] = [own[name], Object.hasOwn(state, name) ? state[name] : undefined];
      if (!target || !value) return [`${name} is missing`];
      const misfit = misfitOf(target, value, "here");
      return misfit ? [`${name} ${misfit}`] : [];
    });
    if (faults.length > 0) {
      throw new HoldfastError(
        "BAD_STATE",
        `The state does not fit LBFGS: ${faults.join("; ")}. Create it with the same parameters and historySize.`,
      );
    }
    const read = (name: string): Float64Array => {
      const value = state[name];
      const { buffer, byteOffset, byteLength } = value ? elementsAs(value, "f64") : new Uint8Array(0);
      return new Float64Array(buffer.slice(byteOffset, byteOffset + byteLength));
    };
    const rest = Object.entries(state).filter(([name]) => !names.includes(name));
    super.loadStateDict(Object.fromEntries(rest) as LoadableState);
    const [iterations = 0, evaluations = 0, t = 0, diagonal = 1, previousLoss = 0, count = 0] =
      read("lbfgs.counters");
    const size = this.#size;
    const [y, s] = [read("lbfgs.gradientChanges"), read("lbfgs.parameterChanges")];
    const row = (of: Float64Array, index: number): Float64Array => of.slice(index * size, (index + 1) * size);
    this.#memory = {
      ...{ iterations, evaluations, t, diagonal, previousLoss },
      direction: read("lbfgs.direction"),
      previousGradient: read("lbfgs.previousGradient"),
      history: Array.from({ length: count }, (_, index) => ({ y: row(y, index), s: row(s, index) })),
    };
  }

  /**
   * Frees its memory while its device stays open. Idempotent.
   *
   * @example
   * ```ts
   * import { device, optim, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const before = cpu.diagnostics().budget.used;
   * const lbfgs = new optim.LBFGS([zeros([3], { requiresGrad: true })]);
   * lbfgs.release();
   * console.log(cpu.diagnostics().budget.usedByLabel.moments); // → 0
   * cpu.close();
   * ```
   */
  override release(): void {
    super.release();
    if (this.#saved) releaseRegions(this.#runtime, [this.#saved]);
  }

  /** The number of elements of all parameters. */
  get #size(): number {
    return this.parameters.reduce((sum, { numel }) => sum + numel, 0);
  }

  #stateShapes(): Readonly<Record<string, readonly number[]>> {
    const [size, { historySize }] = [this.#size, this.#options];
    return {
      "lbfgs.counters": [6],
      "lbfgs.direction": [size],
      "lbfgs.previousGradient": [size],
      "lbfgs.gradientChanges": [historySize, size],
      "lbfgs.parameterChanges": [historySize, size],
    };
  }

  #values(): Readonly<Record<string, Float64Array>> {
    const { iterations, evaluations, t, diagonal, previousLoss, ...rest } = this.#memory;
    const { direction, previousGradient, history } = rest;
    const size = this.#size;
    const rows = (kind: "y" | "s"): Float64Array => {
      const all = new Float64Array(this.#options.historySize * size);
      for (const [index, change] of history.entries()) all.set(change[kind], index * size);
      return all;
    };
    return {
      "lbfgs.counters": Float64Array.of(iterations, evaluations, t, diagonal, previousLoss, history.length),
      "lbfgs.direction": direction,
      "lbfgs.previousGradient": previousGradient,
      "lbfgs.gradientChanges": rows("y"),
      "lbfgs.parameterChanges": rows("s"),
    };
  }

  /** Runs the closure, as a step of its own if none is open. */
  #evaluate(closure: () => Tensor): { loss: number; gradient: Float64Array } {
    const { device } = this.parameters[0] as Tensor;
    const run = (): { loss: number; gradient: Float64Array } => {
      const loss = closure().item();
      return { loss, gradient: this.#gather(({ grad }) => grad?.dataSync()) };
    };
    this.#memory.evaluations += 1;
    return this.#runtime.hasOpenStep ? run() : device.step(run);
  }

  #read(): Float64Array {
    return this.#gather((tensor) => tensor.dataSync());
  }

  /** Sets the parameters to a point on the line from `start` along the direction. */
  #write(start: Float64Array, t: number): void {
    const { direction } = this.#memory;
    let offset = 0;
    for (const tensor of this.parameters) {
      const values = Float64Array.from(
        { length: tensor.numel },
        (_, index) => (start[offset + index] ?? 0) + t * (direction[offset + index] ?? 0),
      );
      writeElements(tensor, storedElements(values, tensor.shape));
      offset += tensor.numel;
    }
  }

  /** One vector of all parameters; zeros where there is nothing. */
  #gather(read: (tensor: Tensor) => ArrayLike<number> | undefined): Float64Array {
    const all = new Float64Array(this.#size);
    let offset = 0;
    for (const tensor of this.parameters) {
      all.set(read(tensor) ?? [], offset);
      offset += tensor.numel;
    }
    return all;
  }

  /** Sets the direction, an estimate of −H⁻¹g, by the two-loop recursion over the history. */
  #chooseDirection(gradient: Float64Array): void {
    const memory = this.#memory;
    memory.iterations += 1;
    const q = gradient.map((value) => -value);
    memory.direction = memory.iterations === 1 ? q : this.#applyHistory(q, gradient);
  }

  #applyHistory(q: Float64Array, gradient: Float64Array): Float64Array {
    const memory = this.#memory;
    const { history, previousGradient, direction, t } = memory;
    const y = gradient.map((value, index) => value - (previousGradient[index] ?? 0));
    const s = direction.map((value) => value * t);
    const curvature = dot(y, s);
    if (curvature > 1e-10) {
      if (history.length === this.#options.historySize) history.shift();
      history.push({ y, s });
      memory.diagonal = curvature / dot(y, y);
    }
    const factors = history.map((change) => 1 / dot(change.y, change.s));
    const shares = history.map(() => 0);
    for (const [index, change] of [...history.entries()].reverse()) {
      const share = dot(change.s, q) * (factors[index] ?? 0);
      shares[index] = share;
      addScaled(q, change.y, -share);
    }
    const result = q.map((value) => value * memory.diagonal);
    for (const [index, change] of history.entries()) {
      const share = dot(change.y, result) * (factors[index] ?? 0);
      addScaled(result, change.s, (shares[index] ?? 0) - share);
    }
    return result;
  }
}

function storedElements(values: Float64Array, shape: readonly number[]) {
  const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  return { dtype: "f64", shape, bytes } as const;
}

function sizeOf(shape: readonly number[]): number {
  return shape.reduce((product, size) => product * size, 1);
}

function dot(a: Float64Array, b: Float64Array): number {
  return a.reduce((sum, value, index) => sum + value * (b[index] ?? 0), 0);
}

function addScaled(target: Float64Array, values: Float64Array, factor: number): void {
  for (const [index, value] of values.entries()) target[index] = (target[index] ?? 0) + value * factor;
}

function largest(values: Float64Array): number {
  return values.reduce((max, value) => Math.max(max, Math.abs(value)), 0);
}

function sumOfMagnitudes(values: Float64Array): number {
  return values.reduce((sum, value) => sum + Math.abs(value), 0);
}
