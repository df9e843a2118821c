/**
 * A group of parameters with the same settings, and the launches of its step. Learning rate and weight decay are in persistent
 * memory, where the kernels read them.
 */

import { noGrad, noteWrite } from "../autograd/index.js";
import { iterateElements, iterateRows, type Strides } from "../ir/index.js";
import { rowCalls, submit } from "../kernels/index.js";
import { type DeviceArray, inStepPhase } from "../ops/index.js";
import type { Runtime, Storage } from "../runtime/index.js";
import type { Tensor } from "../tensor/index.js";
import { arrivedGradient } from "./gradients.js";
import { requireNumber } from "./numbers.js";
import { ownArrays } from "./optimizer-shards.js";
import { type ParameterSlot, requireUnmoved, withoutPadding } from "./parameter-slot.js";
import { flattenSpans, type ParameterArrays } from "./spans.js";
import {
  type StepCountGroup,
  StepCountGroups,
  type StepCounts,
  stepCountMemoryBytes,
} from "./step-count-groups.js";
import { requireDecayFits, stepKernel, type UpdateRule, updateKernel } from "./update-rule.js";

/** The settings of a parameter group. */
export interface GroupSettings {
  readonly lr: number;
  readonly weightDecay: number;
}

/** The contents of a group, and the storages of its numbers. */
export interface GroupInputs {
  /** The optimizer's name, for messages. */
  readonly owner: string;
  readonly runtime: Runtime;
  readonly rule: UpdateRule;
  readonly slots: readonly ParameterSlot[];
  readonly settings: Storage; // f64 [lr, weightDecay]
  readonly stepCountGroups: Storage;
}

const settingBytes = 8;

export function groupPlacements(
  rule: UpdateRule,
  parameters: number,
): readonly { name: string; size: number }[] {
  return [
    { name: "lr, weight decay", size: 2 * settingBytes },
    { name: "steps", size: stepCountMemoryBytes(rule, parameters) },
  ];
}

/** One step-count group's update: its parameter spans with their gradients and moments. */
interface StepCountGroupPlan {
  readonly stepCountGroup: StepCountGroup;
  readonly spans: readonly ParameterArrays[];
}

/** Maximum number of cached plans; other gradient patterns are planned again. */
const maxPlans = 16;

/**
 * Parameters that share their settings, with their learning rate and weight decay.
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
  readonly slots: readonly ParameterSlot[];
  readonly #owner: string;
  readonly #runtime: Runtime;
  readonly #cells: Readonly<Record<keyof GroupSettings, Storage>>;
  readonly #stepCountGroups: StepCountGroups;
  /** Keyed by which parameters have a gradient. */
  readonly #plans = new Map<string, readonly StepCountGroupPlan[]>();
  readonly #settings = { lr: 0, weightDecay: 0 };
  #initialLr: number | undefined;
  /** Sets a new schedule's first learning rate; runs before the rate is next used. */
  #beginSchedule: (() => void) | undefined;

  /** Both settings are 0 in fresh memory, and are written if they differ. */
  constructor({ owner, runtime, rule, slots, settings, stepCountGroups }: GroupInputs, first: GroupSettings) {
    this.#owner = owner;
    this.#runtime = runtime;
    this.rule = rule;
    this.slots = slots;
    const cell = (name: string, index: number): Storage =>
      runtime.view(settings, index * settingBytes, settingBytes, name);
    this.#cells = { lr: cell("lr", 0), weightDecay: cell("weight decay", 1) };
    this.#stepCountGroups = new StepCountGroups(runtime, stepCountGroups, rule, slots);
    this.lr = first.lr;
    this.weightDecay = first.weightDecay;
  }

  /**
   * The parameters of the group, in memory order.
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
    return this.slots.map(({ tensor }) => tensor);
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

  /** Sets the learning rate, from the next step on, replayed or not: the kernels read it from memory. */
  set lr(lr: number) {
    this.#settleLr();
    this.#set("lr", lr);
    this.#initialLr = undefined;
  }

  /**
   * The learning rate that schedules start from: the one that was set last by other means than a schedule.
   *
   * @example
   * ```ts
   * import { device, optim, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const sgd = new optim.SGD([zeros([1], { requiresGrad: true })], { lr: 8 });
   * new optim.lrScheduler.ConstantLR(sgd, { factor: 0.5 });
   * console.log(sgd.lr, sgd.groups[0]?.initialLr); // → 4 8
   * cpu.close();
   * ```
   */
  get initialLr(): number {
    const { lr } = this;
    return this.#initialLr ?? lr;
  }

  /**
   * Sets the learning rate for a schedule: the initial rate stays.
   *
   * @internal
   */
  schedule(lr: number): void {
    const { initialLr } = this;
    this.#set("lr", lr);
    this.#initialLr = initialLr;
  }

  /**
   * Calls a function before the learning rate is next read, written, or used by a step. Schedules need it: their
   * formula may use fields that are not set while the schedule is constructed.
   *
   * @internal
   */
  beforeLrIsUsed(begin: () => void): void {
    this.#settleLr();
    this.#beginSchedule = begin;
  }

  /**
   * The weight decay of the group. A new value takes effect with the next step.
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
   * The storage of a setting, for the saved state.
   *
   * @internal
   */
  settingStorage(setting: keyof GroupSettings): Storage {
    this.#settleLr();
    return this.#cells[setting];
  }

  /**
   * The storages of a slot's step count and of its carried numbers, for the saved state.
   *
   * @internal
   */
  stepCount(slot: ParameterSlot): Pick<StepCountGroup, "t" | "carried"> | undefined {
    return this.#stepCountGroups.find(slot);
  }

  /**
   * Sets the step count and the carried numbers of each slot, for the saved state.
   *
   * @internal
   */
  restoreCounts(counts: ReadonlyMap<ParameterSlot, StepCounts>): void {
    this.#stepCountGroups.restore(counts);
    this.#plans.clear();
  }

  /**
   * Rejects parameters that have moved since the optimizer was created.
   *
   * @internal
   */
  requireUnmoved(): void {
    for (const slot of this.slots) requireUnmoved(this.#owner, slot);
  }

  /**
   * Updates every parameter that has a gradient, in place; called by `Optimizer.step`.
   *
   * @internal
   */
  step(): void {
    this.#settleLr();
    const { regroupings } = this.#stepCountGroups;
    this.#runtime.traceSink?.addGuard(() => {
      // A replay does not run this, and a schedule may have been created since.
      this.#settleLr();
      return this.#stepCountGroups.regroupings === regroupings;
    });
    const gradients = new Map<ParameterSlot, DeviceArray>();
    for (const slot of this.slots) {
      // A rule that keeps its parameters runs for all of them.
      const gradient = this.rule.keepsParameter ? slot.values : arrivedGradient(slot.tensor);
      if (gradient?.storage) gradients.set(slot, gradient);
    }
    const run = (): void => {
      const plans = this.rule.direction ? this.#planDirections(gradients) : this.#selectPlan(gradients);
      inStepPhase(this.#runtime, "update", () => {
        for (const plan of plans) this.#run(plan);
      });
    };
    // The temporary tensors of a direction end with the step.
    if (this.rule.direction && !this.#runtime.hasOpenStep) this.#runtime.step(run);
    else run();
    if (this.rule.keepsParameter) return;
    for (const { values } of gradients.keys()) noteWrite(values.storage);
  }

  #selectPlan(gradients: ReadonlyMap<ParameterSlot, DeviceArray>): readonly StepCountGroupPlan[] {
    const pattern = this.slots.map((slot) => (gradients.has(slot) ? "1" : "0")).join("");
    const cached = this.#plans.get(pattern);
    if (cached) return cached;
    const { stepCountGroups, hasSplit } = this.#stepCountGroups.select(new Set(gradients.keys()));
    // A plan over a step-count group that has since split would count steps for all of it.
    if (hasSplit || this.#plans.size >= maxPlans) this.#plans.clear();
    const plan = stepCountGroups.map((stepCountGroup) => {
      const parameters = stepCountGroup.slots.flatMap((slot): ParameterArrays[] => {
        const gradient = gradients.get(slot);
        const arrays = gradient && ownArrays(this.#runtime, slot, gradient);
        return arrays ? [arrays] : [];
      });
      // A sparse rule needs the rows of each parameter.
      const { isSparse, changesPadding } = this.rule;
      const spans = isSparse || changesPadding ? parameters : flattenSpans(this.#runtime, parameters);
      return { stepCountGroup, spans };
    });
    this.#plans.set(pattern, plan);
    return plan;
  }

  /** Each parameter with its direction in place of its gradient. */
  #planDirections(gradients: ReadonlyMap<ParameterSlot, DeviceArray>): readonly StepCountGroupPlan[] {
    const { stepCountGroups } = this.#stepCountGroups.select(new Set(gradients.keys()));
    return stepCountGroups.map((stepCountGroup) => {
      const spans = stepCountGroup.slots.flatMap((slot): ParameterArrays[] => {
        const gradient = gradients.get(slot);
        const direction = gradient && this.#directionOf(slot, gradient);
        return direction ? [[slot.values, direction]] : [];
      });
      return { stepCountGroup, spans };
    });
  }

  #directionOf({ tensor, moments }: ParameterSlot, gradient: DeviceArray): DeviceArray | undefined {
    const asTensor = ({ storage, shape, dtype }: DeviceArray): Tensor =>
      tensor.device.fromStorage(storage, shape, dtype, tensor.name);
    const [moment] = moments;
    if (!moment) return undefined;
    const momentum = asTensor(withoutPadding(this.#runtime, moment));
    return noGrad(() => {
      const direction = this.rule.direction?.({ gradient: asTensor(gradient), momentum });
      return direction?.to(tensor.dtype).contiguous().array;
    });
  }

  #run({ stepCountGroup, spans }: StepCountGroupPlan): void {
    const { momentDtype, t, carried, numbers } = stepCountGroup;
    const { lr, weightDecay } = this.#cells;
    const cells = [lr, weightDecay, t, ...carried, ...numbers, ...carried, t];
    submit(
      this.#runtime,
      rowCalls({
        kernel: stepKernel(this.rule, momentDtype),
        iteration: iterateElements(
          [1],
          cells.map(() => [0]),
        ),
        operands: cells,
        scalars: this.rule.settings,
      }),
    );
    for (const [values, gradient, ...moments] of spans) {
      if (values && gradient) this.#update(values, gradient, moments, numbers);
    }
  }

  #update(
    values: DeviceArray,
    gradient: DeviceArray,
    moments: readonly DeviceArray[],
    numbers: readonly Storage[],
  ): void {
    const { keepsParameter = false } = this.rule;
    const arrays = [values, ...(keepsParameter ? [] : [gradient]), ...moments];
    const written = keepsParameter ? moments : [...moments, values];
    const scalarStrides = values.shape.map(() => 0);
    // Rows are the slices of the first axis.
    const iterate = (strides: readonly Strides[]) =>
      this.rule.isSparse
        ? iterateRows(values.shape, strides, Math.max(0, values.shape.length - 1))
        : iterateElements(values.shape, strides);
    const storages = (list: readonly DeviceArray[]): Storage[] =>
      list.flatMap(({ storage }) => (storage ? [storage] : []));
    submit(
      this.#runtime,
      rowCalls({
        kernel: updateKernel(this.rule, values.dtype),
        iteration: iterate([
          ...arrays.map(({ strides }) => strides),
          ...numbers.map(() => scalarStrides),
          ...written.map(({ strides }) => strides),
        ]),
        operands: [...storages(arrays), ...numbers, ...storages(written)],
        scalars: this.rule.settings,
      }),
    );
  }

  #settleLr(): void {
    const begin = this.#beginSchedule;
    if (!begin) return;
    this.#beginSchedule = undefined;
    // Not part of a traced step: it runs once.
    this.#runtime.outsideTrace(begin);
  }

  #set(name: keyof GroupSettings, value: number): void {
    if (value === this.#settings[name]) return;
    requireNumber(this.#owner, name, value, { from: 0 });
    if (name === "weightDecay") requireDecayFits(this.#owner, this.rule, value);
    this.#runtime.upload([{ source: Float64Array.of(value), target: this.#cells[name] }]);
    this.#settings[name] = value;
  }
}
