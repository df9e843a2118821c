/**
 * The optimizer: groups of parameters and the rule that each is trained by. A step is one launch that counts it and one
 * launch over each run of parameters that lie side by side, however many they are; nothing is copied, nothing moves.
 */

import { HoldfastError } from "../errors/index.js";
import type { StateDict } from "../nn/index.js";
import type { Region, Runtime } from "../runtime/index.js";
import { Tensor } from "../tensor/index.js";
import { type Joining, placeMoments, requireTrainable } from "./member.js";
import { groupPlacements, ParameterGroup } from "./parameter-group.js";
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

/** What SGD, Adam and AdamW have in common. */
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
      return { tensors: [...params], options: merged, rule: ruleOf(merged) };
    });
    const tensors = given.flatMap((group) => group.tensors);
    requireTrainable(name, tensors);
    const runtime = runtimeOf(tensors);
    const joining = given.map((group) =>
      group.tensors
        .map((tensor): Joining => ({ tensor, index: tensors.indexOf(tensor), rule: group.rule }))
        .toSorted((a, b) => addressOf(a.tensor) - addressOf(b.tensor)),
    );
    const members = placeMoments(runtime, name, joining.flat());
    const scalars = placeScalars(runtime, name, given);
    const moments = [...members.values()].flatMap((member) => member.moments);
    this.#runtime = runtime;
    this.#regions = [...new Set([...moments.map(({ storage }) => storage?.home as Region), scalars])];
    this.groups = given.map(({ options: own, rule }, place) => {
      const { lr = 0, weightDecay = 0 } = own;
      const [settings, cohorts] = [scalars.storages[2 * place], scalars.storages[2 * place + 1]];
      const joined = (joining[place] ?? []).flatMap(({ tensor }) => members.get(tensor) ?? []);
      if (!settings || !cohorts)
        throw new HoldfastError("BAD_ARGUMENT", `${name}: group ${place} has no place.`);
      return new ParameterGroup(
        { owner: name, runtime, rule, members: joined, settings, cohorts },
        { lr, weightDecay },
      );
    });
  }

  /** The learning rate of the first group. */
  get lr(): number {
    return this.groups[0]?.lr ?? 0;
  }

  /** Sets the learning rate of all groups; eight bytes each are written, where it has changed. */
  set lr(lr: number) {
    for (const group of this.groups) group.lr = lr;
  }

  /** All parameters, in the order in which they were given. */
  get parameters(): readonly Tensor[] {
    const members = this.groups.flatMap((group) => group.members);
    return members.toSorted((a, b) => a.index - b.index).map(({ tensor }) => tensor);
  }

  /** Changes every parameter that has a gradient; the others, and frozen ones, stay as they are. */
  step(): void {
    for (const group of this.groups) group.requireUnmoved();
    for (const group of this.groups) group.step();
  }

  /** Forgets all gradients. Costs nothing: the next ones overwrite them. */
  zeroGrad(): void {
    for (const tensor of this.parameters) tensor.zeroGrad();
  }

  /**
   * All that training goes on from, by name: `groups.0.lr`, `groups.0.weightDecay`, and for each parameter by its
   * number `0.step` and its moments. These are the optimizer's own memory, not copies. What never changes (betas, eps) is
   * given anew when the optimizer is made.
   */
  stateDict(): Record<string, Tensor> {
    return stateOf(this.groups);
  }

  /** Takes over a state; its names and shapes have to be this optimizer's own. Nothing is written unless all fits. */
  loadStateDict(state: StateDict): void {
    loadState(this.constructor.name, this.groups, state);
  }

  /** Gives its memory back, for an optimizer that is done before its device is; it makes no step after this. */
  release(): void {
    for (const region of this.#regions) this.#runtime.persistent.release(region);
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
): Region {
  const region = runtime.persistent.place(
    "scalars",
    `${name} scalars`,
    groups.flatMap(({ tensors }) => groupPlacements(tensors.length)),
  );
  runtime.fill(region.whole, 0);
  return region;
}
