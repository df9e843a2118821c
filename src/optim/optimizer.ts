/**
 * The optimizer: groups of parameters and the rule that each is trained by. A step is one launch that counts it and one
 * launch over each run of parameters that lie side by side, however many they are; nothing is copied, nothing moves.
 */

import { HoldfastError } from "../errors/index.js";
import type { LoadableState } from "../nn/index.js";
import type { Region, Runtime } from "../runtime/index.js";
import { Tensor } from "../tensor/index.js";
import { requireNumber } from "./numbers.js";
import { groupPlacements, ParameterGroup } from "./parameter-group.js";
import {
  type Joining,
  placeMoments,
  placeOrRelease,
  releaseRegions,
  requireTrainable,
} from "./parameter-slot.js";
import { loadState, stateOf } from "./state.js";
import type { UpdateRule } from "./update-rule.js";

/** What every optimizer's options have. */
export interface CommonOptions {
  readonly lr?: number;
  readonly weightDecay?: number;
}

/** Parameters with options of their own; what they leave out comes from the optimizer's. */
export type GroupOptions<Options> = Partial<Options> & { readonly params: Iterable<Tensor> };

/** Parameters, all trained alike, or groups of them. */
export type ParameterSource<Options> = Iterable<Tensor> | Iterable<GroupOptions<Options>>;

/**
 * What SGD, Adam and AdamW have in common: parameters, all trained alike or in groups with settings of their own.
 *
 * @example
 * ```ts
 * import { device, optim, zeros } from "holdfast";
 * const cpu = await device("cpu");
 * const [weight, bias] = [zeros([3], { requiresGrad: true }), zeros([1], { requiresGrad: true })];
 * const groups = [{ params: [weight], weightDecay: 0.1 }, { params: [bias], lr: 1 }];
 * const optimizer: optim.Optimizer<optim.SGDOptions> = new optim.SGD(groups, { lr: 0.5 });
 * console.log(optimizer.groups.map(({ lr, weightDecay }) => [lr, weightDecay])); // → [ [ 0.5, 0.1 ], [ 1, 0 ] ]
 * cpu.close();
 * ```
 */
export abstract class Optimizer<Options extends CommonOptions = CommonOptions> {
  readonly groups: readonly ParameterGroup[];
  readonly #runtime: Runtime;
  /** Its moments and scalars. */
  readonly #regions: readonly Region[];

  /** Places the moments: parameters have to be on their device, and stay where they are. */
  protected constructor(
    source: ParameterSource<Options>,
    options: Options,
    ruleOf: (options: Options) => UpdateRule,
  ) {
    const name = this.constructor.name;
    const given = groupsOf(source).map(({ params, ...own }) => {
      const merged = { ...options, ...own } as Options;
      const { lr = Number.NaN, weightDecay = 0 } = merged;
      requireNumber(name, "lr", lr, { from: 0 });
      requireNumber(name, "weightDecay", weightDecay, { from: 0 });
      return { tensors: [...params], first: { lr, weightDecay }, rule: ruleOf(merged) };
    });
    const tensors = given.flatMap((group) => group.tensors);
    requireTrainable(name, tensors);
    const runtime = runtimeOf(tensors);
    const joining = given.map((group) =>
      group.tensors
        .map((tensor): Joining => ({ tensor, index: tensors.indexOf(tensor), rule: group.rule }))
        .toSorted((a, b) => addressOf(a.tensor) - addressOf(b.tensor)),
    );
    const { members, regions } = placeMoments(runtime, name, joining.flat());
    const scalars = placeScalars(runtime, name, given, regions);
    this.#runtime = runtime;
    this.#regions = [...regions, scalars];
    this.groups = given.map(({ first, rule }, place) => {
      const [settings, stepCountGroups] = [scalars.storages[2 * place], scalars.storages[2 * place + 1]];
      const joined = (joining[place] ?? []).flatMap(({ tensor }) => members.get(tensor) ?? []);
      if (!settings || !stepCountGroups)
        throw new HoldfastError("BAD_ARGUMENT", `${name}: group ${place} has no place.`);
      return new ParameterGroup(
        { owner: name, runtime, rule, members: joined, settings, stepCountGroups },
        first,
      );
    });
  }

  /**
   * The learning rate of the first group; set, it becomes that of all.
   *
   * @example
   * ```ts
   * import { device, optim, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const sgd = new optim.SGD([zeros([1], { requiresGrad: true })], { lr: 0.1 });
   * sgd.lr = 0.05;
   * console.log(sgd.lr, sgd.groups[0]?.lr); // → 0.05 0.05
   * cpu.close();
   * ```
   */
  get lr(): number {
    return this.groups[0]?.lr ?? 0;
  }

  /** Sets the learning rate of all groups; eight bytes each are written, where it has changed. */
  set lr(lr: number) {
    for (const group of this.groups) group.lr = lr;
  }

  /**
   * All parameters, in the order in which they were given.
   *
   * @example
   * ```ts
   * import { device, nn, optim } from "holdfast";
   * const cpu = await device("cpu");
   * const model = new nn.Linear(3, 2).to(cpu);
   * const adam = new optim.Adam(model.parameters());
   * console.log(adam.parameters.map(({ name }) => name)); // → [ 'weight', 'bias' ]
   * cpu.close();
   * ```
   */
  get parameters(): readonly Tensor[] {
    const members = this.groups.flatMap((group) => group.members);
    return members.toSorted((a, b) => a.index - b.index).map(({ tensor }) => tensor);
  }

  /**
   * Changes every parameter that has a gradient; the others, and frozen ones, stay as they are.
   *
   * @example
   * ```ts
   * import { device, optim, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const w = tensor([8], { requiresGrad: true });
   * const sgd = new optim.SGD([w], { lr: 0.25 });
   * for (let times = 0; times < 3; times++) {
   *   cpu.step(() => {
   *     sgd.zeroGrad();
   *     w.square().sum().backward();
   *     sgd.step();
   *   });
   * }
   * console.log(w.tolist()); // → [ 1 ]
   * cpu.close();
   * ```
   */
  step(): void {
    for (const group of this.groups) group.requireUnmoved();
    for (const group of this.groups) group.step();
  }

  /**
   * Forgets all gradients. Costs nothing: the next ones overwrite them.
   *
   * @example
   * ```ts
   * import { device, optim, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const w = tensor([1], { requiresGrad: true });
   * const sgd = new optim.SGD([w], { lr: 0.1 });
   * w.sum().backward();
   * sgd.zeroGrad();
   * console.log(w.grad); // → null
   * cpu.close();
   * ```
   */
  zeroGrad(): void {
    for (const tensor of this.parameters) tensor.zeroGrad();
  }

  /**
   * All that training goes on from, by name: `groups.0.lr`, `groups.0.weightDecay`, and for each parameter by its
   * number `0.step` and its moments. These are the optimizer's own memory, not copies. What never changes (betas,
   * eps) is given anew when the optimizer is made.
   *
   * @example
   * ```ts
   * import { device, optim, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const w = tensor([1], { requiresGrad: true });
   * const adam = new optim.Adam([w]);
   * w.sum().backward();
   * adam.step();
   * const state = adam.stateDict();
   * console.log(Object.keys(state).join(), state["0.step"]?.item());
   * // → groups.0.lr,groups.0.weightDecay,0.step,0.firstMoment,0.secondMoment 1
   * cpu.close();
   * ```
   */
  stateDict(): Record<string, Tensor> {
    return stateOf(this.groups);
  }

  /**
   * Takes over a state: tensors, or elements as files hold them. Its names and shapes have to be this optimizer's own;
   * nothing is written unless all fits.
   *
   * @example
   * ```ts
   * import { device, optim, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const [w, copy] = [tensor([1], { requiresGrad: true }), tensor([1], { requiresGrad: true })];
   * const [adam, resumed] = [new optim.Adam([w]), new optim.Adam([copy])];
   * w.sum().backward();
   * adam.step();
   * resumed.loadStateDict(adam.stateDict());
   * console.log(resumed.stateDict()["0.step"]?.item()); // → 1
   * cpu.close();
   * ```
   */
  loadStateDict(state: LoadableState): void {
    loadState(this.constructor.name, this.groups, state);
  }

  /**
   * Rejects what changes learning rates inside a compiled step, where it would happen once, when the step is traced.
   *
   * @internal
   */
  rejectInTrace(call: string): void {
    this.#runtime.reject(
      `call ${call}`,
      this.constructor.name,
      `Rates lie in memory that the step reads at every call: move ${call} out of the step, after its call.`,
    );
  }

  /**
   * Gives its memory back, for an optimizer that is done before its device is; it makes no step after this. Harmless
   * when repeated.
   *
   * @example
   * ```ts
   * import { device, optim, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const w = zeros([1000], { requiresGrad: true });
   * const before = cpu.runtime.budget.used;
   * new optim.Adam([w]).release();
   * console.log(cpu.runtime.budget.used - before); // → 0
   * cpu.close();
   * ```
   */
  release(): void {
    releaseRegions(this.#runtime, this.#regions);
  }
}

function groupsOf<Options>(source: ParameterSource<Options>): readonly GroupOptions<Options>[] {
  const items: readonly (Tensor | GroupOptions<Options>)[] = [...source];
  const tensors = items.filter((item) => item instanceof Tensor);
  const groups = items.flatMap((item) => (item instanceof Tensor ? [] : [item]));
  if (tensors.length === 0) return groups;
  if (groups.length === 0) return [{ params: tensors } as unknown as GroupOptions<Options>];
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `An optimizer was given ${tensors.length} parameters and ${groups.length} groups in one list. Put all in groups.`,
  );
}

function runtimeOf([first]: readonly Tensor[]): Runtime {
  if (first) return first.device.runtime;
  throw new HoldfastError("BAD_ARGUMENT", "An optimizer was given no parameters.");
}

function addressOf({ array }: Tensor): number {
  return array.storage?.span.address ?? 0;
}

/** Learning rates, step counts and what follows from them never lie in the arena: a step must not end them. */
function placeScalars(
  runtime: Runtime,
  name: string,
  groups: readonly { readonly tensors: readonly Tensor[] }[],
  moments: readonly Region[],
): Region {
  const sizes = groups.flatMap(({ tensors }) => groupPlacements(tensors.length));
  const region = placeOrRelease(runtime, moments, "scalars", `${name} scalars`, sizes);
  runtime.fill(region.whole, 0);
  return region;
}
