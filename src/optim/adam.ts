/** Adam, AdamW and SparseAdam: steps scaled by running means of the gradient and of its square. */

import { HoldfastError } from "../errors/index.js";
import { term } from "../ir/index.js";
import { requireNumber } from "./numbers.js";
import { Optimizer, type ParameterSource } from "./optimizer.js";
import { type ElementTerms, requireDecayFits, type UpdateRule } from "./update-rule.js";

/** Options of `Adam` and `AdamW`. */
export interface AdamOptions {
  /** Learning rate. Default: 0.001. */
  readonly lr?: number;
  /** Decay rates of the running means of the gradient and of its square. Default: 0.9 and 0.999. */
  readonly betas?: readonly [number, number];
  /** Added to the divisor. Default: 1e-8. */
  readonly eps?: number;
  readonly weightDecay?: number;
  /** Maximize instead of minimizing. */
  readonly maximize?: boolean;
  /**
   * Update the parameters as `SparseAdam` does: rows without a gradient stay unchanged. It needs a weight decay of 0. Default: false.
   */
  readonly sparse?: boolean;
}

/** Options of `SparseAdam`. */
export type SparseAdamOptions = Omit<AdamOptions, "weightDecay" | "sparse">;

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
    super(parameters, { lr: defaultLr, ...options }, (groupOptions) =>
      sparseAdamRule("SparseAdam", groupOptions),
    );
  }
}

/** The constants of a rule: β₁, 1 − β₁, β₂, 1 − β₂ and eps. */
function adamSettings(name: string, { betas = [0.9, 0.999], eps = 1e-8 }: AdamOptions): readonly number[] {
  const [beta1, beta2] = betas;
  for (const beta of betas) requireNumber(name, "beta", beta, { from: 0, below: 1 });
  // Padding is updated too, and 0 / (√0 + eps) must stay 0.
  if (!(Math.fround(eps) > 0 && Number.isFinite(eps))) {
    throw new HoldfastError("BAD_ARGUMENT", `${name}: eps is ${eps}; it must be above 0 in f32. Use 1e-8.`, {
      numbers: { eps },
    });
  }
  return [beta1, 1 - beta1, beta2, 1 - beta2, eps];
}

function adamRule(name: "Adam" | "AdamW", options: AdamOptions): UpdateRule {
  if (options.sparse) return sparseAdamRule(name, options);
  const { maximize = false } = options;
  const isDecoupled = name === "AdamW";
  const effectiveGradient = ({ p, g, number }: ElementTerms) => {
    const signed = maximize ? term.neg(g) : g;
    return isDecoupled ? signed : term.add(signed, term.mul(number(0), p));
  };
  return {
    name: maximize ? `${name}, maximizing` : name,
    moments: ["firstMoment", "secondMoment"],
    settings: adamSettings(name, options),
    // [decay factor of p, or the decay; lr / (1 - β₁ᵗ); √(1 - β₂ᵗ)]
    stepNumbers: ({ lr, weightDecay, t, setting }) => [
      isDecoupled ? term.sub(1, term.mul(lr, weightDecay)) : weightDecay,
      term.div(lr, term.sub(1, term.pow(setting(0), t))),
      term.sqrt(term.sub(1, term.pow(setting(2), t))),
    ],
    newMoments(terms) {
      const { moment, setting } = terms;
      const g = effectiveGradient(terms);
      return [
        term.add(term.mul(moment(0), setting(0)), term.mul(g, setting(1))),
        term.add(term.mul(moment(1), setting(2)), term.mul(term.mul(setting(3), g), g)),
      ];
    },
    newParameter({ p, moment, number, setting }) {
      const decayed = isDecoupled ? term.mul(p, number(0)) : p;
      const divisor = term.add(term.div(term.sqrt(moment(1)), number(2)), setting(4));
      return term.sub(decayed, term.div(term.mul(number(1), moment(0)), divisor));
    },
  };
}

/** PyTorch adds eps to √v without its bias correction here, other than in Adam. */
function sparseAdamRule(owner: string, options: AdamOptions): UpdateRule {
  const { maximize = false, weightDecay = 0 } = options;
  const rule: UpdateRule = {
    name: maximize ? "SparseAdam, maximizing" : "SparseAdam",
    moments: ["firstMoment", "secondMoment"],
    settings: adamSettings(owner, options),
    isSparse: true,
    // [lr √(1 - β₂ᵗ) / (1 - β₁ᵗ)]; the others are not used.
    stepNumbers: ({ lr, t, setting }) => [
      term.div(
        term.mul(lr, term.sqrt(term.sub(1, term.pow(setting(2), t)))),
        term.sub(1, term.pow(setting(0), t)),
      ),
      term.constant(0, "f64"),
      term.constant(0, "f64"),
    ],
    newMoments({ g, moment, setting }) {
      const signed = maximize ? term.neg(g) : g;
      const [first, second] = [moment(0), moment(1)];
      return [
        term.add(first, term.mul(term.sub(signed, first), setting(1))),
        term.add(second, term.mul(term.sub(term.mul(signed, signed), second), setting(3))),
      ];
    },
    newParameter({ p, moment, number, setting }) {
      const divisor = term.add(term.sqrt(moment(1)), setting(4));
      return term.sub(p, term.mul(number(0), term.div(moment(0), divisor)));
    },
  };
  requireDecayFits(owner, rule, weightDecay);
  return rule;
}
