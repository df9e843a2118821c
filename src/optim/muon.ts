/**
 * Muon: SGD with momentum, whose update of each matrix is made orthogonal, so that a step changes all directions of a weight by the same
 * amount. Other parameters are updated by AdamW.
 */

import { checkOptions, HoldfastError } from "../errors/index.js";
import { term } from "../ir/index.js";
import type { Tensor } from "../tensor/index.js";
import { type AdamOptions, adamRule } from "./adam.js";
import { requireCount, requireNumber } from "./numbers.js";
import { type GroupOptions, Optimizer, type ParameterSource, toGroups } from "./optimizer.js";
import type { DirectionInputs, UpdateRule } from "./update-rule.js";

/** Options of `Muon`. */
export interface MuonOptions {
  /** Learning rate. Default: 0.001. */
  readonly lr?: number;
  /** Decoupled weight decay. Default: 0.1. */
  readonly weightDecay?: number;
  /** Default: 0.95. */
  readonly momentum?: number;
  /** Default: true. */
  readonly nesterov?: boolean;
  /** Steps of the Newton–Schulz iteration. Default: 5. */
  readonly nsSteps?: number;
  /** The coefficients of X, XXᵀX and XXᵀXXᵀX in an iteration. Default: 3.4445, −4.775 and 2.0315. */
  readonly nsCoefficients?: readonly [number, number, number];
  /** The smallest norm by which a matrix is divided. Default: 1e-7. */
  readonly eps?: number;
  /**
   * The factor of the learning rate for a matrix with A rows and B columns. "original": √max(1, A / B). "match_rms_adamw": 0.2 √max(A, B),
   * for the learning rate and the weight decay of AdamW. Default: "original".
   */
  readonly adjustLrFn?: "original" | "match_rms_adamw";
  /** Update a group's matrices by Muon. Default: true. Set false for embeddings and for the last layer. */
  readonly useMuon?: boolean;
  /** The options of AdamW for all other parameters. Default: AdamW's, with the group's learning rate. */
  readonly adamw?: Omit<AdamOptions, "maximize" | "sparse">;
}

const defaults = { lr: 1e-3, weightDecay: 0.1 } as const;

/**
 * Muon with PyTorch's formulas for parameters with two axes, and AdamW for the others. A group with both kinds becomes two groups. Matrix
 * products have the device's precision.
 *
 * @example
 * ```ts
 * import { device, nn, ones, optim } from "holdfast";
 * const cpu = await device("cpu");
 * const model = new nn.Linear(4, 4).to(cpu);
 * const muon = new optim.Muon(model.parameters(), { lr: 0.02, adamw: { lr: 0.001 } });
 * model.forward(ones([2, 4])).square().sum().backward();
 * muon.step();
 * console.log(muon.groups.map(({ lr, parameters }) => [lr, parameters.length])); // → [ [ 0.02, 1 ], [ 0.001, 1 ] ]
 * cpu.close();
 * ```
 */
export class Muon extends Optimizer<MuonOptions> {
  readonly #options: MuonOptions;

  constructor(parameters: ParameterSource<MuonOptions>, options: MuonOptions = {}) {
    checkOptions("optim.Muon", options, {
      lr: true,
      weightDecay: true,
      momentum: true,
      nesterov: true,
      nsSteps: true,
      nsCoefficients: true,
      eps: true,
      adjustLrFn: true,
      useMuon: true,
      adamw: true,
    });
    const merged = { ...defaults, ...options };
    super(
      toGroups(parameters).flatMap((group) => splitGroup(merged, group)),
      merged,
      ruleOf,
    );
    this.#options = merged;
  }

  /**
   * Adds a group of parameters: its matrices to Muon, the others to AdamW.
   *
   * @example
   * ```ts
   * import { device, optim, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const [a, b] = [zeros([2, 2], { requiresGrad: true }), zeros([3, 2], { requiresGrad: true })];
   * const muon = new optim.Muon([a]);
   * muon.addParamGroup({ params: [b], useMuon: false });
   * console.log(muon.groups.map(({ rule }) => rule.name)); // → [ 'Muon', 'AdamW' ]
   * cpu.close();
   * ```
   */
  override addParamGroup(group: GroupOptions<MuonOptions>): void {
    for (const part of splitGroup(this.#options, group)) super.addParamGroup(part);
  }
}

/** A group's matrices, and its other parameters. */
function splitGroup(
  options: MuonOptions,
  { params, ...own }: GroupOptions<MuonOptions>,
): readonly GroupOptions<MuonOptions>[] {
  const merged = { ...options, ...own };
  const { useMuon = true, adamw = {} } = merged;
  const all = [...params];
  const isMatrix = ({ shape }: Tensor): boolean => useMuon && shape.length === 2;
  const others = all.filter((tensor) => !isMatrix(tensor));
  const parts = [
    { ...own, params: all.filter(isMatrix), useMuon: true },
    {
      ...own,
      params: others,
      useMuon: false,
      lr: adamw.lr ?? merged.lr ?? defaults.lr,
      weightDecay: adamw.weightDecay ?? 1e-2,
    },
  ];
  return parts.filter((part) => part.params.length > 0);
}

function ruleOf(options: MuonOptions): UpdateRule {
  return options.useMuon ? muonRule(options) : adamRule("AdamW", options.adamw ?? {});
}

function muonRule(options: MuonOptions): UpdateRule {
  const { momentum = 0.95, nsSteps = 5, nsCoefficients = [3.4445, -4.775, 2.0315], eps = 1e-7 } = options;
  const { adjustLrFn = "original", nesterov = true } = options;
  requireNumber("Muon", "momentum", momentum, { from: 0, below: 1 });
  requireCount("Muon", "nsSteps", nsSteps);
  requireNumber("Muon", "eps", eps, { above: 0 });
  for (const coefficient of nsCoefficients) requireNumber("Muon", "nsCoefficients", coefficient, {});
  if (!["original", "match_rms_adamw"].includes(adjustLrFn)) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `Muon: adjustLrFn is ${adjustLrFn}. Use "original" or "match_rms_adamw".`,
    );
  }
  const factorOf = ([rows = 1, columns = 1]: readonly number[]): number =>
    adjustLrFn === "original"
      ? Math.sqrt(Math.max(1, rows / columns))
      : 0.2 * Math.sqrt(Math.max(rows, columns));
  return {
    name: "Muon",
    moments: ["momentum"],
    settings: [],
    numbers: ["lr", "1 - lr weight decay"],
    stepNumbers: ({ lr, weightDecay }) => [lr, term.sub(1, term.mul(lr, weightDecay))],
    direction({ gradient, momentum: buffer }: DirectionInputs) {
      const share = gradient.to(buffer.dtype).mul(1 - momentum);
      buffer.mul_(momentum).add_(share);
      const update = nesterov ? share.add(buffer.mul(momentum)) : buffer;
      return orthogonalized(update, nsCoefficients, nsSteps, eps).mul(factorOf(gradient.shape));
    },
    update: ({ p, g, number }) => [["p", term.sub(term.mul(p, number(1)), term.mul(number(0), g))]],
  };
}

/** The Newton–Schulz iteration: brings all singular values of a matrix close to 1. */
function orthogonalized(
  matrix: Tensor,
  [a, b, c]: readonly [number, number, number],
  steps: number,
  eps: number,
): Tensor {
  const [rows = 1, columns = 1] = matrix.shape;
  const isTall = rows > columns;
  const wide = isTall ? matrix.t() : matrix; // [n, m], n ≤ m
  let x = wide.div(wide.square().sum().sqrt().clamp(eps));
  for (let step = 0; step < steps; step++) {
    const gram = x.matmul(x.t()); // [n, n]
    const factor = gram.mul(b).add(gram.matmul(gram).mul(c));
    x = x.mul(a).add(factor.matmul(x));
  }
  return isTall ? x.t() : x;
}
