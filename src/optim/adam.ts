/** Adam, AdamW and SparseAdam: steps scaled by running means of the gradient and of its square. */

import { checkOptions, HoldfastError, type OptionNames } from "../errors/index.js";
import { term } from "../ir/index.js";
import { adamSettings, lossGradient, runningMoments, variantName } from "./formulas.js";
import { Optimizer, type ParameterSource } from "./optimizer.js";
import { requireDecayFits, type UpdateRule } from "./update-rule.js";

/** Options of `Adam` and `AdamW`. */
export interface AdamOptions {
  /** Learning rate. Default: 0.001. */
  readonly lr?: number;
  /** Decay rates of the running means of the gradient and of its square. Default: 0.9 and 0.999. */
  readonly betas?: readonly [number, number];
  /** Added to the divisor. Default: 1e-8. */
  readonly eps?: number;
  readonly weightDecay?: number;
  /** Divide by the largest running mean of the square so far. Default: false. */
  readonly amsgrad?: boolean;
  /** Maximize instead of minimizing. */
  readonly maximize?: boolean;
  /**
   * Update the parameters as `SparseAdam` does: rows without a gradient stay unchanged. It needs a weight decay of 0. Default: false.
   */
  readonly sparse?: boolean;
}

const adamOptionNames: OptionNames<AdamOptions> = {
  lr: true,
  betas: true,
  eps: true,
  weightDecay: true,
  amsgrad: true,
  maximize: true,
  sparse: true,
};

/** Options of `SparseAdam`. */
export type SparseAdamOptions = Omit<AdamOptions, "weightDecay" | "sparse" | "amsgrad">;

const defaultLr = 1e-3;
const defaultAdamWDecay = 1e-2;

/**
 * Adam with PyTorch's formulas; weight decay is added to the gradient. Moments are f32, or f64 for f64 parameters.
 *
 * @example
 * ```ts
 * import { device, optim, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const w = tensor([4, -2], { requiresGrad: true });
 * const adam = new optim.Adam([w], { lr: 0.5 });
 * w.square().sum().backward();
 * adam.step();
 * console.log(w.tolist()); // → [ 3.5, -1.5 ]
 * cpu.close();
 * ```
 */
export class Adam extends Optimizer<AdamOptions> {
  constructor(parameters: ParameterSource<AdamOptions>, options: AdamOptions = {}) {
    checkOptions("optim.Adam", options, adamOptionNames);
    super(parameters, { lr: defaultLr, ...options }, (groupOptions) => adamRule("Adam", groupOptions));
  }
}

/**
 * AdamW with PyTorch's formulas: decoupled weight decay. Default: 0.01.
 *
 * @example
 * ```ts
 * import { device, optim, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const [w, b] = [tensor([4, -2], { requiresGrad: true }), tensor([1], { requiresGrad: true })];
 * const adamw = new optim.AdamW([{ params: [w] }, { params: [b], weightDecay: 0 }], { lr: 0.5 });
 * w.square().sum().add(b.sum()).backward();
 * adamw.step();
 * console.log(b.item().toFixed(3)); // → 0.500
 * cpu.close();
 * ```
 */
export class AdamW extends Optimizer<AdamOptions> {
  constructor(parameters: ParameterSource<AdamOptions>, options: AdamOptions = {}) {
    checkOptions("optim.AdamW", options, adamOptionNames);
    super(parameters, { lr: defaultLr, weightDecay: defaultAdamWDecay, ...options }, (groupOptions) =>
      adamRule("AdamW", groupOptions),
    );
  }
}

/**
 * SparseAdam with PyTorch's formulas, for embeddings of which a step uses few rows. A row of a parameter is a slice of its first axis. Rows
 * whose gradient is all zeros stay unchanged, and so do their moments, which are not even read. The bias correction counts all steps.
 *
 * @example
 * ```ts
 * import { device, nn, optim, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const words = new nn.Embedding(4, 1).to(cpu);
 * const adam = new optim.SparseAdam(words.parameters(), { lr: 0.5 });
 * const before = words.weight.dataSync();
 * words.forward(tensor([2, 2], { dtype: "i32" })).sum().backward();
 * adam.step();
 * const after = words.weight.dataSync();
 * console.log([0, 1, 2, 3].filter((row) => after[row] !== before[row])); // → [ 2 ]
 * cpu.close();
 * ```
 */
export class SparseAdam extends Optimizer<SparseAdamOptions> {
  constructor(parameters: ParameterSource<SparseAdamOptions>, options: SparseAdamOptions = {}) {
    checkOptions("optim.SparseAdam", options, { eps: true, lr: true, betas: true, maximize: true });
    super(parameters, { lr: defaultLr, ...options }, (groupOptions) =>
      sparseAdamRule("SparseAdam", groupOptions),
    );
  }
}

/** The rule of Adam or AdamW. */
export function adamRule(name: "Adam" | "AdamW", options: AdamOptions): UpdateRule {
  if (options.sparse) return sparseAdamRule(name, options);
  const { maximize = false, amsgrad = false } = options;
  const isDecoupled = name === "AdamW";
  return {
    name: variantName(name, { amsgrad, maximizing: maximize }),
    moments: ["firstMoment", "secondMoment", ...(amsgrad ? ["maxSecondMoment"] : [])],
    settings: adamSettings(name, options),
    numbers: [isDecoupled ? "1 - lr weight decay" : "weight decay", "lr / (1 - β₁ᵗ)", "√(1 - β₂ᵗ)"],
    stepNumbers: ({ lr, weightDecay, t, setting }) => [
      isDecoupled ? term.sub(1, term.mul(lr, weightDecay)) : weightDecay,
      term.div(lr, term.sub(1, term.pow(setting(0), t))),
      term.sqrt(term.sub(1, term.pow(setting(2), t))),
    ],
    update(terms) {
      const { p, moment, number, setting } = terms;
      const g = lossGradient(terms, { maximize, ...(!isDecoupled && { decay: 0 }) });
      const decayed = isDecoupled ? term.mul(p, number(0)) : p;
      const divisor = term.add(term.div(term.sqrt(moment(amsgrad ? 2 : 1)), number(2)), setting(4));
      return [
        ...runningMoments(terms, g),
        ...(amsgrad ? [[2, term.max(moment(2), moment(1))] as const] : []),
        ["p", term.sub(decayed, term.div(term.mul(number(1), moment(0)), divisor))],
      ];
    },
  };
}

/** PyTorch adds eps to √v without its bias correction here, other than in Adam. */
function sparseAdamRule(owner: string, options: AdamOptions): UpdateRule {
  const { maximize = false, weightDecay = 0, amsgrad = false } = options;
  if (amsgrad) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `${owner}: a sparse group has no amsgrad. Leave out amsgrad or sparse for the group.`,
    );
  }
  const rule: UpdateRule = {
    name: maximize ? "SparseAdam, maximizing" : "SparseAdam",
    moments: ["firstMoment", "secondMoment"],
    settings: adamSettings(owner, options),
    isSparse: true,
    numbers: ["lr √(1 - β₂ᵗ) / (1 - β₁ᵗ)"],
    stepNumbers: ({ lr, t, setting }) => [
      term.div(
        term.mul(lr, term.sqrt(term.sub(1, term.pow(setting(2), t)))),
        term.sub(1, term.pow(setting(0), t)),
      ),
    ],
    update(terms) {
      const { p, moment, number, setting } = terms;
      const g = lossGradient(terms, { maximize });
      const divisor = term.add(term.sqrt(moment(1)), setting(4));
      return [
        [0, term.add(moment(0), term.mul(term.sub(g, moment(0)), setting(1)))],
        [1, term.add(moment(1), term.mul(term.sub(term.mul(g, g), moment(1)), setting(3)))],
        ["p", term.sub(p, term.mul(number(0), term.div(moment(0), divisor)))],
      ];
    },
  };
  requireDecayFits(owner, rule, weightDecay);
  return rule;
}
