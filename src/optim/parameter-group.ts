/**
 * A group of parameters that are trained alike: their learning rate and weight decay in persistent memory, where the
 * kernels read them, and the launches of one step.
 */

import { noteWrite } from "../autograd/index.js";
import { iterateElements } from "../ir/index.js";
import { rowCalls, submit } from "../kernels/index.js";
import { type DeviceArray, inStepPhase } from "../ops/index.js";
import type { Runtime, Storage } from "../runtime/index.js";
import type { Tensor } from "../tensor/index.js";
import { gradientOf } from "./gradients.js";
import { requireNumber } from "./numbers.js";
import { type Member, requireUnmoved } from "./parameter-slot.js";
import { flattenSpans, type Lane } from "./spans.js";
import { type StepCountGroup, StepCountGroups, stepCountMemoryBytes } from "./step-count-groups.js";
import { stepKernel, type UpdateRule, updateKernel } from "./update-rule.js";

/** The settings of a parameter group. */
export interface GroupSettings {
  readonly lr: number;
  readonly weightDecay: number;
}

/** What a group is made of, and where its numbers lie. */
export interface GroupParts {
  /** The optimizer's name, for messages. */
  readonly owner: string;
  readonly runtime: Runtime;
  readonly rule: UpdateRule;
  readonly members: readonly Member[];
  readonly settings: Storage; // f64 [lr, weightDecay]
  readonly stepCountGroups: Storage;
}

const settingBytes = 8;

export function groupPlacements(parameters: number): readonly { name: string; size: number }[] {
  return [
    { name: "lr, weight decay", size: 2 * settingBytes },
    { name: "steps", size: stepCountMemoryBytes(parameters) },
  ];
}

/** One cohort's step: its runs of parameters with their gradients and moments. */
interface StepCountGroupPlan {
  readonly stepCountGroup: StepCountGroup;
  readonly runs: readonly Lane[];
}

/** Patterns of gradients beyond these are planned anew. */
const plansKept = 16;

/**
 * Parameters that are trained alike, with their learning rate and weight decay.
 *
 * @example
 * ```ts
 * import { device, nn, optim } from "holdfast";
 * const cpu = await device("cpu");
 * const model = new nn.Linear(3, 2).to(cpu);
 * const sgd = new optim.SGD([{ params: [model.weight], weightDecay: 0.1 }], { lr: 0.5 });
 * const [group] = sgd.groups;
 * console.log(group?.lr, group?.weightDecay, group?.parameters.length); // → 0.5 0.1 1
 * cpu.close();
 * ```
 */
export class ParameterGroup {
  readonly rule: UpdateRule;
  readonly members: readonly Member[];
  readonly #owner: string;
  readonly #runtime: Runtime;
  readonly #cells: Readonly<Record<keyof GroupSettings, Storage>>;
  readonly #stepCountGroups: StepCountGroups;
  /** By which members have a gradient. */
  readonly #plans = new Map<string, readonly StepCountGroupPlan[]>();
  readonly #settings = { lr: 0, weightDecay: 0 };
  /** Sets the rate that a new schedule begins with; due before the rate is next used. */
  #beginSchedule: (() => void) | undefined;

  /** Both settings are 0 in fresh memory, and written where they are something else. */
  constructor(
    { owner, runtime, rule, members, settings, stepCountGroups }: GroupParts,
    first: GroupSettings,
  ) {
    this.#owner = owner;
    this.#runtime = runtime;
    this.rule = rule;
    this.members = members;
    const cell = (name: string, place: number): Storage =>
      runtime.view(settings, place * settingBytes, settingBytes, name);
    this.#cells = { lr: cell("lr", 0), weightDecay: cell("weight decay", 1) };
    this.#stepCountGroups = new StepCountGroups(runtime, stepCountGroups, members);
    this.lr = first.lr;
    this.weightDecay = first.weightDecay;
  }

  /**
   * The parameters of the group, as they lie in memory.
   *
   * @example
   * ```ts
   * import { device, nn, optim } from "holdfast";
   * const cpu = await device("cpu");
   * const model = new nn.Linear(3, 2).to(cpu);
   * const sgd = new optim.SGD(model.parameters(), { lr: 0.5 });
   * console.log(sgd.groups[0]?.parameters.map(({ name }) => name)); // → [ 'weight', 'bias' ]
   * cpu.close();
   * ```
   */
  get parameters(): readonly Tensor[] {
    return this.members.map(({ tensor }) => tensor);
  }

  /**
   * The learning rate of the group.
   *
   * @example
   * ```ts
   * import { device, optim, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const [a, b] = [zeros([1], { requiresGrad: true }), zeros([1], { requiresGrad: true })];
   * const sgd = new optim.SGD([{ params: [a] }, { params: [b] }], { lr: 0.5 });
   * for (const group of sgd.groups.slice(1)) group.lr = 0.25;
   * console.log(sgd.groups.map(({ lr }) => lr)); // → [ 0.5, 0.25 ]
   * cpu.close();
   * ```
   */
  get lr(): number {
    this.#settleLr();
    return this.#settings.lr;
  }

  /** Takes effect with the next step, replayed or not: it is written to memory that the kernels read. */
  set lr(lr: number) {
    this.#settleLr();
    this.#set("lr", lr);
  }

  /**
   * Calls a function before the learning rate is next read, written, or used by a step; for schedules, whose formula may
   * need fields that are not there yet while the schedule is made.
   *
   * @internal
   */
  beforeLrIsUsed(begin: () => void): void {
    this.#settleLr();
    this.#beginSchedule = begin;
  }

  /**
   * The weight decay of the group; set, it takes effect with the next step.
   *
   * @example
   * ```ts
   * import { device, optim, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const adamw = new optim.AdamW([zeros([1], { requiresGrad: true })]);
   * console.log(adamw.groups[0]?.weightDecay); // → 0.01
   * cpu.close();
   * ```
   */
  get weightDecay(): number {
    return this.#settings.weightDecay;
  }

  set weightDecay(weightDecay: number) {
    this.#set("weightDecay", weightDecay);
  }

  /**
   * Where a setting lies; for the saved state.
   *
   * @internal
   */
  cellOf(setting: keyof GroupSettings): Storage {
    this.#settleLr();
    return this.#cells[setting];
  }

  /**
   * Where the steps of a member are counted; for the saved state.
   *
   * @internal
   */
  countOf(member: Member): Storage | undefined {
    return this.#stepCountGroups.countOf(member);
  }

  /**
   * Sets how many steps each member has made; for the saved state.
   *
   * @internal
   */
  restoreCounts(counts: ReadonlyMap<Member, number>): void {
    this.#stepCountGroups.restore(counts);
    this.#plans.clear();
  }

  /**
   * Rejects parameters that have moved since the optimizer was made.
   *
   * @internal
   */
  requireUnmoved(): void {
    for (const member of this.members) requireUnmoved(this.#owner, member);
  }

  /**
   * Changes every parameter that has a gradient, in place; `Optimizer.step` does so for all groups.
   *
   * @internal
   */
  step(): void {
    this.#settleLr();
    const { regroupings } = this.#stepCountGroups;
    this.#runtime.assume(() => {
      // A replay does not come by here, and a schedule may have been made since.
      this.#settleLr();
      return this.#stepCountGroups.regroupings === regroupings;
    });
    const gradients = new Map<Member, DeviceArray>();
    for (const member of this.members) {
      const gradient = gradientOf(member.tensor);
      if (gradient?.storage) gradients.set(member, gradient);
    }
    inStepPhase(this.#runtime, "update", () => {
      for (const plan of this.#planFor(gradients)) this.#run(plan);
    });
    for (const { values } of gradients.keys()) noteWrite(values.storage);
  }

  #planFor(gradients: ReadonlyMap<Member, DeviceArray>): readonly StepCountGroupPlan[] {
    const pattern = this.members.map((member) => (gradients.has(member) ? "1" : "0")).join("");
    const known = this.#plans.get(pattern);
    if (known) return known;
    const { stepCountGroups, hasDivided } = this.#stepCountGroups.select(new Set(gradients.keys()));
    // A plan over a cohort that is no longer one would count for all of it.
    if (hasDivided || this.#plans.size >= plansKept) this.#plans.clear();
    const plan = stepCountGroups.map((stepCountGroup) => {
      const lanes = stepCountGroup.members.flatMap((member): Lane[] => {
        const gradient = gradients.get(member);
        return gradient ? [[member.values, gradient, ...member.moments]] : [];
      });
      return { stepCountGroup, runs: flattenSpans(this.#runtime, lanes) };
    });
    this.#plans.set(pattern, plan);
    return plan;
  }

  #run({ stepCountGroup, runs }: StepCountGroupPlan): void {
    const { wide, t, numbers } = stepCountGroup;
    const { lr, weightDecay } = this.#cells;
    const cells = [lr, weightDecay, t, ...numbers, t];
    submit(
      this.#runtime,
      rowCalls({
        kernel: stepKernel(this.rule, wide),
        iteration: iterateElements(
          [1],
          cells.map(() => [0]),
        ),
        operands: cells,
        scalars: this.rule.settings,
      }),
    );
    for (const [values, gradient, ...moments] of runs) {
      if (values && gradient) this.#update(values, gradient, moments, numbers);
    }
  }

  #update(
    values: DeviceArray,
    gradient: DeviceArray,
    moments: readonly DeviceArray[],
    numbers: readonly Storage[],
  ): void {
    const arrays = [values, gradient, ...moments];
    const still = values.shape.map(() => 0);
    const storages = (list: readonly DeviceArray[]): Storage[] =>
      list.flatMap(({ storage }) => (storage ? [storage] : []));
    submit(
      this.#runtime,
      rowCalls({
        kernel: updateKernel(this.rule, values.dtype),
        iteration: iterateElements(values.shape, [
          ...arrays.map(({ strides }) => strides),
          ...numbers.map(() => still),
          ...[...moments, values].map(({ strides }) => strides),
        ]),
        operands: [...storages(arrays), ...numbers, ...storages([...moments, values])],
        scalars: this.rule.settings,
      }),
    );
  }

  #settleLr(): void {
    const begin = this.#beginSchedule;
    if (!begin) return;
    this.#beginSchedule = undefined;
    // Not a part of a step that is being traced: it is due once.
    this.#runtime.outsideTrace(begin);
  }

  #set(name: keyof GroupSettings, value: number): void {
    if (value === this.#settings[name]) return;
    requireNumber(this.#owner, name, value, { from: 0 });
    this.#runtime.upload([{ source: Float64Array.of(value), target: this.#cells[name] }]);
    this.#settings[name] = value;
  }
}
