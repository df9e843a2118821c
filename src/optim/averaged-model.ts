/**
 * Averages of a model's weights, with equal shares (SWA) or exponential ones (EMA). They are the moments of an update rule that only reads
 * the weights. So an update is one launch per contiguous span, can be part of a compiled step, and resumes exactly.
 */

import { noGrad } from "../autograd/index.js";
import { checkOptions, HoldfastError } from "../errors/index.js";
import { term } from "../ir/index.js";
import type { LoadableState, Module } from "../nn/index.js";
import { isFloat } from "../ops/index.js";
import type { Region, Runtime } from "../runtime/index.js";
import type { Tensor } from "../tensor/index.js";
import { requireNumber } from "./numbers.js";
import { Optimizer } from "./optimizer.js";
import { placeOrRelease, releaseRegions } from "./parameter-slot.js";
import type { UpdateRule } from "./update-rule.js";

/** The rule of an average. Make it with `getEmaMultiAvgFn` or `getSwaMultiAvgFn`. */
export interface AveragingFunction {
  /** The share of the old average; undefined for the mean of all updates. */
  readonly decay?: number;
}

/** Options of an `AveragedModel`. */
export interface AveragedModelOptions {
  /** Default: `getSwaMultiAvgFn()`, the mean of all updates. */
  readonly multiAvgFn?: AveragingFunction;
  /** Average the model's float buffers too. Default: false. */
  readonly useBuffers?: boolean;
}

/**
 * The mean of all updates, for stochastic weight averaging.
 *
 * @example
 * ```ts
 * import { device, nn, optim } from "holdfast";
 * const cpu = await device("cpu");
 * const model = new nn.Linear(2, 1).to(cpu);
 * const averaged = new optim.swaUtils.AveragedModel(model, { multiAvgFn: optim.swaUtils.getSwaMultiAvgFn() });
 * averaged.updateParameters();
 * console.log(averaged.nAveraged); // → 1
 * cpu.close();
 * ```
 */
export function getSwaMultiAvgFn(): AveragingFunction {
  return {};
}

/**
 * An exponential moving average: each update keeps the share `decay` of the old average.
 *
 * @example
 * ```ts
 * import { device, nn, noGrad, optim } from "holdfast";
 * const cpu = await device("cpu");
 * const model = new nn.Linear(1, 1, { bias: false }).to(cpu);
 * const { AveragedModel, getEmaMultiAvgFn } = optim.swaUtils;
 * const averaged = new AveragedModel(model, { multiAvgFn: getEmaMultiAvgFn(0.75) });
 * for (const value of [4, 8]) {
 *   noGrad(() => model.weight.fill_(value));
 *   averaged.updateParameters();
 * }
 * console.log(averaged.use(() => model.weight.tolist())); // → [ [ 5 ] ]
 * cpu.close();
 * ```
 */
export function getEmaMultiAvgFn(decay = 0.999): AveragingFunction {
  requireNumber("getEmaMultiAvgFn", "decay", decay, { from: 0, upTo: 1 });
  return { decay };
}

/** The optimizer of the averages: its step averages. */
class Averages extends Optimizer {
  constructor(tensors: readonly Tensor[], { decay }: AveragingFunction) {
    super(tensors, { lr: 0 }, () => averagingRule(decay));
  }
}

function averagingRule(decay: number | undefined): UpdateRule {
  return {
    name: decay === undefined ? "mean of weights" : "moving average of weights",
    moments: ["average"],
    settings: decay === undefined ? [] : [1 - decay],
    keepsParameter: true,
    numbers: ["share of the weights"],
    stepNumbers: ({ t, setting }) => [
      decay === undefined ? term.div(1, t) : term.select(term.eq(t, 1), 1, setting(0)),
    ],
    update: ({ p, moment, number }) => [
      [0, term.add(moment(0), term.mul(term.sub(p, moment(0)), number(0)))],
    ],
  };
}

/**
 * Averages of a model's weights. `updateParameters()` belongs after `optimizer.step()`, eager or in the same compiled step. `use`
 * runs a function while the model has the averages. Averages of half floats are f32.
 *
 * @example
 * ```ts
 * import { device, nn, noGrad, optim } from "holdfast";
 * const cpu = await device("cpu");
 * const model = new nn.Linear(1, 1, { bias: false }).to(cpu);
 * const averaged = new optim.swaUtils.AveragedModel(model);
 * for (const value of [1, 2, 6]) {
 *   noGrad(() => model.weight.fill_(value));
 *   averaged.updateParameters();
 * }
 * console.log(averaged.use(() => model.weight.item()), model.weight.item()); // → 3 6
 * cpu.close();
 * ```
 */
export class AveragedModel {
  /** The model whose weights are averaged. */
  readonly module: Module;
  readonly #averages: Averages;
  readonly #runtime: Runtime;
  #isInUse = false;

  constructor(module: Module, options: AveragedModelOptions = {}) {
    const { multiAvgFn = {}, useBuffers = false } = checkOptions("optim.swaUtils.AveragedModel", options, {
      multiAvgFn: true,
      useBuffers: true,
    });
    this.module = module;
    const buffers = useBuffers ? module.buffers().filter(({ dtype }) => isFloat(dtype)) : [];
    const tensors: Tensor[] = [...module.parameters(), ...buffers];
    this.#averages = new Averages(tensors, multiAvgFn);
    this.#runtime = tensors[0]?.device.runtime as Runtime;
  }

  /**
   * How many updates the averages have seen. Reads a number from the device.
   *
   * @example
   * ```ts
   * import { device, nn, optim } from "holdfast";
   * const cpu = await device("cpu");
   * const averaged = new optim.swaUtils.AveragedModel(new nn.Linear(2, 1).to(cpu));
   * console.log(averaged.nAveraged); // → 0
   * cpu.close();
   * ```
   */
  get nAveraged(): number {
    return this.stateDict()["0.step"]?.item() ?? 0;
  }

  /**
   * The tensors of the model that are averaged.
   *
   * @example
   * ```ts
   * import { device, nn, optim } from "holdfast";
   * const cpu = await device("cpu");
   * const averaged = new optim.swaUtils.AveragedModel(new nn.Linear(2, 1).to(cpu));
   * console.log(averaged.parameters.map(({ name }) => name)); // → [ 'weight', 'bias' ]
   * cpu.close();
   * ```
   */
  get parameters(): readonly Tensor[] {
    return this.#averages.parameters;
  }

  /**
   * Adds the model's present weights to the averages. The first update copies them.
   *
   * @example
   * ```ts
   * import { device, nn, ones, optim } from "holdfast";
   * const cpu = await device("cpu");
   * const model = new nn.Linear(2, 1).to(cpu);
   * const sgd = new optim.SGD(model.parameters(), { lr: 0.1 });
   * const averaged = new optim.swaUtils.AveragedModel(model);
   * const step = cpu.compile(() => {
   *   sgd.zeroGrad();
   *   model.forward(ones([1, 2])).sum().backward();
   *   sgd.step();
   *   averaged.updateParameters();
   * });
   * for (let times = 0; times < 3; times++) step();
   * console.log(averaged.nAveraged); // → 3
   * cpu.close();
   * ```
   */
  updateParameters(): void {
    if (this.#isInUse) throw this.#inUse("update the averages");
    this.#averages.step();
  }

  /**
   * Runs a function while the model has the averages as its weights, and restores the weights after it, bit for bit. An asynchronous
   * function has them until its promise settles. The function may call compiled steps, but a compiled step can't call `use`.
   *
   * @example
   * ```ts
   * import { device, nn, noGrad, ones, optim } from "holdfast";
   * const cpu = await device("cpu");
   * const model = new nn.Linear(2, 1, { bias: false }).to(cpu);
   * const averaged = new optim.swaUtils.AveragedModel(model);
   * averaged.updateParameters();
   * noGrad(() => model.weight.zero_());
   * const predict = () => noGrad(() => model.forward(ones([2])).item());
   * console.log(averaged.use(predict) !== 0, predict()); // → true 0
   * cpu.close();
   * ```
   */
  use<T>(body: () => T): T {
    if (this.#isInUse) throw this.#inUse("use them again");
    const backup = this.#backUp();
    this.copyTo();
    this.#isInUse = true;
    const restore = (): void => {
      this.#isInUse = false;
      for (const [index, tensor] of this.parameters.entries()) {
        const copy = backup.storages[index];
        if (!copy) continue;
        noGrad(() => tensor.copy_(tensor.device.fromStorage(copy, tensor.shape, tensor.dtype, tensor.name)));
      }
      releaseRegions(this.#runtime, [backup]);
    };
    let result: T;
    try {
      result = body();
    } catch (error) {
      restore();
      throw error;
    }
    if (result instanceof Promise) return result.finally(restore) as T;
    restore();
    return result;
  }

  /**
   * Overwrites a model's weights with the averages: by default those of the averaged model.
   *
   * @example
   * ```ts
   * import { device, nn, optim } from "holdfast";
   * const cpu = await device("cpu");
   * const [model, best] = [new nn.Linear(2, 1).to(cpu), new nn.Linear(2, 1).to(cpu)];
   * const averaged = new optim.swaUtils.AveragedModel(model);
   * averaged.updateParameters();
   * averaged.copyTo(best);
   * console.log(String(best.weight.tolist()) === String(model.weight.tolist())); // → true
   * cpu.close();
   * ```
   */
  copyTo(module: Module = this.module): void {
    this.#runtime.traceSink?.reject(
      "copy averages into a model",
      "AveragedModel",
      "Call `use` or `copyTo` outside the compiled step.",
    );
    const sources = this.parameters;
    const own = new Map<Tensor, number>(sources.map((tensor, index) => [tensor, index]));
    const targets = new Map<string, Tensor>([...module.namedParameters(), ...module.namedBuffers()]);
    const state = this.stateDict();
    for (const [name, tensor] of [...this.module.namedParameters(), ...this.module.namedBuffers()]) {
      const index = own.get(tensor);
      const average = state[`${index}.average`];
      if (index === undefined || !average) continue;
      const target = targets.get(name);
      if (!target || String(target.shape) !== String(tensor.shape)) {
        throw new HoldfastError(
          "BAD_STATE",
          `The model has no "${name}" of shape [${tensor.shape.join(", ")}]. Pass a model of the same structure.`,
          { numbers: { parameter: name } },
        );
      }
      noGrad(() => target.copy_(average));
    }
  }

  /**
   * The averages and the number of updates, for resuming. A checkpoint takes an averaged model as one of its optimizers.
   *
   * @example
   * ```ts
   * import { device, nn, optim } from "holdfast";
   * const cpu = await device("cpu");
   * const averaged = new optim.swaUtils.AveragedModel(new nn.Linear(2, 1, { bias: false }).to(cpu));
   * console.log(Object.keys(averaged.stateDict()).join()); // → 0.step,0.average
   * cpu.close();
   * ```
   */
  stateDict(): Record<string, Tensor> {
    return withoutSettings(this.#averages.stateDict());
  }

  /**
   * Loads a state. Nothing is written unless everything fits.
   *
   * @example
   * ```ts
   * import { device, nn, optim } from "holdfast";
   * const cpu = await device("cpu");
   * const [first, second] = [1, 2].map(() => new optim.swaUtils.AveragedModel(new nn.Linear(2, 1).to(cpu)));
   * first?.updateParameters();
   * second?.loadStateDict(first?.stateDict() ?? {});
   * console.log(second?.nAveraged); // → 1
   * cpu.close();
   * ```
   */
  loadStateDict(state: LoadableState): void {
    const settings = Object.entries(this.#averages.stateDict()).filter(([name]) => isSetting(name));
    this.#averages.loadStateDict({ ...Object.fromEntries(settings), ...state });
  }

  /**
   * Frees the averages' memory while the device stays open. Idempotent.
   *
   * @example
   * ```ts
   * import { device, nn, optim } from "holdfast";
   * const cpu = await device("cpu");
   * const model = new nn.Linear(200, 100).to(cpu);
   * const before = cpu.diagnostics().budget.used;
   * new optim.swaUtils.AveragedModel(model).release();
   * console.log(cpu.diagnostics().budget.used - before); // → 0
   * cpu.close();
   * ```
   */
  release(): void {
    this.#averages.release();
  }

  /** A copy of the weights. */
  #backUp(): Region {
    const tensors = this.parameters;
    const sizes = tensors.map(({ name, array }) => ({ name, size: array.storage?.span.size ?? 0 }));
    const region = placeOrRelease(this.#runtime, [], "weights", "weights beside their averages", sizes);
    for (const [index, tensor] of tensors.entries()) {
      const copy = region.storages[index];
      if (!copy) continue;
      const target = tensor.device.fromStorage(copy, tensor.shape, tensor.dtype, tensor.name);
      noGrad(() => target.copy_(tensor));
    }
    return region;
  }

  #inUse(what: string): HoldfastError {
    return new HoldfastError(
      "BAD_STATE",
      `The model has its averages as weights, inside use(): it can't ${what}. Do that after use().`,
    );
  }
}

/** The averages have no learning rate. */
function isSetting(name: string): boolean {
  return name.startsWith("groups.");
}

function withoutSettings(state: Record<string, Tensor>): Record<string, Tensor> {
  return Object.fromEntries(Object.entries(state).filter(([name]) => !isSetting(name)));
}
