/**
 * The optimizer: groups of parameters, each with an update rule. A step is one launch that counts it, and one launch
 * per contiguous span of parameters, however many parameters it has. A sparse rule has one launch per parameter. Nothing
 * is copied or moved.
 */

import type { World } from "../distributed/index.js";
import { HoldfastError } from "../errors/index.js";
import type { LoadableState } from "../nn/index.js";
import { inRankPart } from "../ops/index.js";
import { DataParallel } from "../parallel/index.js";
import type { Region, Runtime } from "../runtime/index.js";
import { Tensor } from "../tensor/index.js";
import { requireNumber } from "./numbers.js";
import { OptimizerShards, requireShardable } from "./optimizer-shards.js";
import { type GroupSettings, groupPlacements, ParameterGroup } from "./parameter-group.js";
import {
  placeMoments,
  placeOrRelease,
  releaseRegions,
  requireTrainable,
  type UnplacedParameter,
} from "./parameter-slot.js";
import { collectState, describeWhole, loadState } from "./state.js";
import type { UpdateRule } from "./update-rule.js";

/** Options of every optimizer. */
export interface CommonOptions {
  readonly lr?: number;
  readonly weightDecay?: number;
}

/** Parameters with their own options; missing ones come from the optimizer's. */
export type GroupOptions<Options> = Partial<Options> & { readonly params: Iterable<Tensor> };

/** Parameters that share all settings, or groups of them. */
export type ParameterSource<Options> = Iterable<Tensor> | Iterable<GroupOptions<Options>>;

/**
 * The base of all optimizers: parameters with common settings, or in groups with their own settings.
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
  readonly #runtime: Runtime;
  /** Merges a group's options with the optimizer's, and checks them. */
  readonly #prepare: (group: { readonly params: Iterable<Tensor> }) => PreparedGroup;
  #groups: readonly ParameterGroup[] = [];
  /** Undefined if it is not split over ranks. */
  readonly #shards: OptimizerShards | undefined;
  /** Its moments and scalars. */
  #regions: readonly Region[] = [];

  /** Places the moments. Parameters must be on their device and must not move afterwards. */
  protected constructor(
    source: ParameterSource<Options>,
    options: Options,
    makeRule: (options: Options) => UpdateRule,
  ) {
    const name = this.constructor.name;
    this.#prepare = ({ params, ...groupOptions }) => {
      const merged = { ...options, ...groupOptions } as Options;
      const { lr = Number.NaN, weightDecay = 0 } = merged;
      requireNumber(name, "lr", lr, { from: 0 });
      requireNumber(name, "weightDecay", weightDecay, { from: 0 });
      return { tensors: [...params], first: { lr, weightDecay }, rule: makeRule(merged) };
    };
    const groups = toGroups(source).map(this.#prepare);
    this.#runtime = findRuntime(groups.flatMap(({ tensors }) => tensors));
    const [first] = groups.flatMap(({ tensors }) => tensors);
    const ranks = DataParallel.ranksOfNewOptimizer;
    this.#shards = ranks && first && new OptimizerShards(ranks, first.device);
    this.#addGroups(groups);
  }

  #addGroups(groupInputs: readonly PreparedGroup[]): void {
    const name = this.constructor.name;
    const shards = this.#shards;
    const tensors = [...this.parameters, ...groupInputs.flatMap((group) => group.tensors)];
    requireTrainable(name, tensors);
    if (shards) {
      for (const { rule } of groupInputs) requireShardable(name, rule);
      shards.add(groupInputs.flatMap((group) => group.tensors));
    }
    const runtime = this.#runtime;
    const unplaced = groupInputs.map((group) =>
      group.tensors
        .map(
          (tensor): UnplacedParameter => ({
            ...{ tensor, index: tensors.indexOf(tensor), rule: group.rule },
            own: shards?.ownRange(tensor),
          }),
        )
        .toSorted((a, b) => firstAddress(a.tensor) - firstAddress(b.tensor)),
    );
    const { slots, regions } = placeMoments(runtime, name, unplaced.flat());
    const scalars = placeScalars(runtime, name, groupInputs, regions);
    const groups = groupInputs.map(({ first, rule }, index) => {
      const [settings, stepCountGroups] = [scalars.storages[2 * index], scalars.storages[2 * index + 1]];
      const groupSlots = (unplaced[index] ?? []).flatMap(({ tensor }) => slots.get(tensor) ?? []);
      if (!settings || !stepCountGroups)
        throw new HoldfastError("BAD_ARGUMENT", `${name}: group ${index} has no scalars.`);
      return new ParameterGroup(
        { owner: name, runtime, rule, slots: groupSlots, settings, stepCountGroups },
        first,
      );
    });
    this.#regions = [...this.#regions, ...regions, scalars];
    this.#groups = [...this.#groups, ...groups];
  }

  /**
   * The groups of parameters, each with its own settings.
   *
   * @example
   * ```ts
   * import { device, optim, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const sgd = new optim.SGD([zeros([3], { requiresGrad: true })], { lr: 0.1 });
   * console.log(sgd.groups.map(({ parameters }) => parameters.length)); // → [ 1 ]
   * cpu.close();
   * ```
   */
  get groups(): readonly ParameterGroup[] {
    return this.#groups;
  }

  /**
   * Adds a group of parameters, for example layers that train from now on. Missing options come from the optimizer's. Schedules
   * that exist already do not change its learning rate. Compiled steps are traced again.
   *
   * @example
   * ```ts
   * import { device, optim, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const [head, body] = [zeros([3], { requiresGrad: true }), zeros([5], { requiresGrad: true })];
   * const adamw = new optim.AdamW([head], { lr: 0.01 });
   * adamw.addParamGroup({ params: [body], lr: 0.001 });
   * console.log(adamw.groups.map(({ lr }) => lr)); // → [ 0.01, 0.001 ]
   * cpu.close();
   * ```
   */
  addParamGroup(group: GroupOptions<Options>): void {
    this.#runtime.traceSink?.reject(
      "call addParamGroup()",
      this.constructor.name,
      "Call it before the compiled step, which is then traced again.",
    );
    this.#addGroups([this.#prepare(group)]);
  }

  /**
   * The learning rate of the first group. Setting it sets that of all groups.
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

  /** Sets the learning rate of all groups; writes eight bytes per group if it has changed. */
  set lr(lr: number) {
    for (const group of this.groups) group.lr = lr;
  }

  /**
   * All parameters, in the order in which they were passed.
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
    const slots = this.groups.flatMap((group) => group.slots);
    return slots.toSorted((a, b) => a.index - b.index).map(({ tensor }) => tensor);
  }

  /**
   * Updates every parameter that has a gradient; the others, and frozen ones, stay unchanged.
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
    const { groups } = this;
    this.#runtime.traceSink?.addGuard(() => this.groups === groups);
    for (const group of groups) group.requireUnmoved();
    const shards = this.#shards;
    const update = (): void => {
      for (const group of groups) group.step();
      shards?.gather();
    };
    if (shards) inRankPart(this.#runtime, update);
    else update();
  }

  /**
   * Clears all gradients at no cost: the next ones overwrite them.
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
   * The full state for resuming, by name: `groups.0.lr`, `groups.0.weightDecay`, and per parameter `0.step` and its
   * moments. The tensors are the optimizer's memory, not copies. Constants (betas, eps) are not included; pass them to
   * the constructor again. If it is split over ranks, the moments are those of this rank's elements, such as
   * `0.firstMoment[0:128]`.
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
    return collectState(this.groups);
  }

  /**
   * Loads a state: tensors, or elements in file format. Its names and shapes must match this optimizer; nothing is
   * written unless everything matches.
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
   * The ranks over which it is split; undefined if it is not.
   *
   * @internal
   */
  get ranks(): World | undefined {
    return this.#shards?.world;
  }

  /**
   * The dtypes and shapes of the whole state: the same on every rank.
   *
   * @internal
   */
  describeState(): Record<string, Pick<Tensor, "dtype" | "shape">> {
    return this.#shards ? describeWhole(this.groups) : this.stateDict();
  }

  /**
   * Rejects changes of learning rates inside a compiled step, where they would happen only once, during the trace.
   *
   * @internal
   */
  rejectInTrace(call: string): void {
    this.#runtime.traceSink?.reject(
      `call ${call}`,
      this.constructor.name,
      `The step reads learning rates from memory at every call: call ${call} outside the step, after it.`,
    );
  }

  /**
   * Frees its memory while its device stays open. It cannot step afterwards. Idempotent.
   *
   * @example
   * ```ts
   * import { device, optim, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const w = zeros([1000], { requiresGrad: true });
   * const before = cpu.diagnostics().budget.used;
   * new optim.Adam([w]).release();
   * console.log(cpu.diagnostics().budget.used - before); // → 0
   * cpu.close();
   * ```
   */
  release(): void {
    releaseRegions(this.#runtime, this.#regions);
  }
}

/** A group before its memory is placed. */
interface PreparedGroup {
  readonly tensors: readonly Tensor[];
  readonly first: GroupSettings;
  readonly rule: UpdateRule;
}

/** The groups of a source; a list of tensors is one group. */
export function toGroups<Options>(source: ParameterSource<Options>): readonly GroupOptions<Options>[] {
  const items: readonly (Tensor | GroupOptions<Options>)[] = [...source];
  const tensors = items.filter((item) => item instanceof Tensor);
  const groups = items.flatMap((item) => (item instanceof Tensor ? [] : [item]));
  if (tensors.length === 0) return groups;
  if (groups.length === 0) return [{ params: tensors } as unknown as GroupOptions<Options>];
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `An optimizer got ${tensors.length} parameters and ${groups.length} groups in one list. Put all parameters in groups.`,
  );
}

function findRuntime([first]: readonly Tensor[]): Runtime {
  if (first) return first.device.runtime;
  throw new HoldfastError("BAD_ARGUMENT", "An optimizer got no parameters. Pass at least one.");
}

function firstAddress({ array }: Tensor): number {
  return array.storage?.span.address ?? 0;
}

/** Learning rates, step counts and derived scalars are never in the arena: a step must not end them. */
function placeScalars(
  runtime: Runtime,
  name: string,
  groups: readonly PreparedGroup[],
  moments: readonly Region[],
): Region {
  const sizes = groups.flatMap(({ tensors, rule }) => groupPlacements(rule, tensors.length));
  const region = placeOrRelease(runtime, moments, "scalars", `${name} scalars`, sizes);
  runtime.fill(region.whole, 0);
  return region;
}
