/** Runs a model program eagerly or compiled, and records the results and the state after each call. */

import assert from "node:assert/strict";
import {
  type CompiledStep,
  type Device,
  HoldfastError,
  manualSeed,
  nn,
  noGrad,
  optim,
  type Tensor,
} from "holdfast";
import { randomFrom } from "../op-cases/arbitraries.js";
import type { Elements, ProgramRun, StepRecord } from "../random-programs/run.js";
import { RandomModel } from "./build.js";
import type { ModelCall, ModelDtype, ModelEvent, ModelInput, ModelProgram } from "./program.js";
import { elementsOf } from "./sizes.js";

type Results = Readonly<Record<string, Tensor>>;
type Step = CompiledStep<readonly Tensor[], Record<string, Tensor>>;

export interface ModelRunOptions {
  readonly isCompiled: boolean;
  /** Default: the program's. */
  readonly dtype?: ModelDtype;
  /** Passes to omit besides the program's. */
  readonly without?: readonly string[];
  /** The factor of inputs: near 1, from a random number from 0 to 1. */
  readonly nudge?: (random: number) => number;
}

/** Errors that a program may cause, in eager code and compiled alike. */
const expectedCodes = new Set(["NO_GRADIENT", "NOT_FINITE"]);

export interface ModelRunRecord extends ProgramRun {
  /** The learning rate and the weight decay of each group, for each call. */
  readonly rates: readonly (readonly (readonly [lr: number, weightDecay: number])[])[];
}

export function runModel(device: Device, program: ModelProgram, options: ModelRunOptions): ModelRunRecord {
  const { persistent } = device.runtime;
  const regions = new Set(persistent.regions);
  const run = new ModelRun(device, program, options);
  try {
    return run.makeCalls();
  } finally {
    run.close();
    for (const region of persistent.regions) if (!regions.has(region)) persistent.release(region);
  }
}

export class ModelRun {
  readonly model: RandomModel;
  readonly #device: Device;
  readonly #program: ModelProgram;
  readonly #options: ModelRunOptions;
  readonly #dtype: ModelDtype;
  readonly #parameters: readonly nn.Parameter[];
  readonly #optimizer: optim.Optimizer | undefined;
  readonly #schedule: optim.Schedule | optim.ReduceOnPlateau | undefined;
  readonly #compiled = new Map<string, Step>();
  readonly #rates: (readonly [number, number])[][] = [];
  /** The results of the calls, as long as they live. */
  readonly #given = new Map<string, { readonly tensor: Tensor; readonly elements: Elements }>();
  /** By the index of the call and the result's name. */
  readonly #kept = new Map<string, Tensor>();

  constructor(device: Device, program: ModelProgram, options: ModelRunOptions) {
    this.#device = device;
    this.#program = program;
    this.#options = options;
    this.#dtype = options.dtype ?? program.dtype;
    manualSeed(program.seed);
    device.reseed(BigInt(program.seed));
    this.model = new RandomModel(program.steps).to(device, this.#dtype);
    this.#parameters = this.model.parameters();
    this.#optimizer = this.#parameters.length > 0 ? makeOptimizer(program, this.#parameters) : undefined;
    this.#schedule = this.#optimizer && makeSchedule(program, this.#optimizer);
  }

  /** Until the last one, or until one is rejected. */
  makeCalls(): ModelRunRecord {
    const steps: StepRecord[] = [];
    const rejections: string[] = [];
    for (const [index, call] of this.#program.calls.entries()) {
      try {
        steps.push(this.#call(index, call));
      } catch (error) {
        if (!(error instanceof HoldfastError && expectedCodes.has(error.code))) throw error;
        rejections.push(`call ${index + 1}: ${error.code}`);
        break;
      }
    }
    const late = new Map([...this.#kept].map(([name, tensor]) => [`kept ${name}`, tensor.dataSync()]));
    return { steps: [...steps, late], rejections, rates: this.#rates };
  }

  close(): void {
    for (const step of this.#compiled.values()) step.close();
    this.#release(this.#kept.values(), new Set());
    this.#optimizer?.release();
  }

  /** Each storage once: keeping an input means keeping its own memory. */
  #release(tensors: Iterable<Tensor>, but: Set<Tensor["array"]["storage"]>): void {
    for (const tensor of tensors) {
      const { storage } = tensor.array;
      if (!but.has(storage)) tensor.release();
      but.add(storage);
    }
  }

  #call(index: number, call: ModelCall): StepRecord {
    for (const event of call.events) this.#apply(event);
    this.#rates.push((this.#optimizer?.groups ?? []).map(({ lr, weightDecay }) => [lr, weightDecay]));
    const args = this.#program.inputs.map((input) => this.#argument(input, index, call));
    const record = new Map<string, Elements>();
    const body = (...inputs: readonly Tensor[]) => this.#body(call.step, inputs);
    if (this.#options.isCompiled) {
      this.#keep(index, call, this.#compile(call.step, body)(...args), record);
      this.#requireDeadOrSame();
    } else this.#device.step(() => this.#keep(index, call, body(...args), record));
    this.#release(args, new Set([...this.#kept.values()].map(({ array }) => array.storage)));
    if (call.step === "train") this.#advance(index);
    this.#recordState(record);
    return record;
  }

  #keep(index: number, { keeps }: ModelCall, results: Results, record: Map<string, Elements>): void {
    for (const [name, tensor] of Object.entries(results)) {
      const elements = tensor.dataSync();
      record.set(`result ${name}`, elements);
      this.#given.set(`result ${name} of call ${index + 1}`, { tensor, elements });
    }
    for (const { result, how } of keeps) {
      const tensor = results[result];
      if (!tensor || this.#kept.has(`${index} ${result}`)) continue;
      this.#kept.set(`${index} ${result}`, how === "keep" ? tensor.keep() : tensor.clone().keep());
    }
  }

  /** A result of an earlier call is dead or unchanged: never another call's. */
  #requireDeadOrSame(): void {
    for (const [name, { tensor, elements }] of this.#given) {
      try {
        assert.deepEqual(tensor.dataSync(), elements, `${name} has changed since its call`);
      } catch (error) {
        if ((error as HoldfastError).code !== "DEAD_TENSOR") throw error;
        this.#given.delete(name);
      }
    }
  }

  #compile(name: ModelCall["step"], body: (...inputs: readonly Tensor[]) => Record<string, Tensor>): Step {
    const compiled = this.#compiled.get(name);
    if (compiled) return compiled;
    const without = [...this.#program.without, ...(this.#options.without ?? [])];
    const passes = Object.fromEntries(without.map((pass) => [pass, false]));
    const step = this.#device.compile(body, { name, passes, maxPlans: 32 });
    this.#compiled.set(name, step);
    return step;
  }

  /** The step itself. */
  #body(kind: ModelCall["step"], args: readonly Tensor[]): Record<string, Tensor> {
    const { inputs: specs, results: resultNames, clip } = this.#program;
    const inputs = new Map(specs.map(({ name }, index) => [name, args[index]!]));
    const results: Record<string, Tensor> = {};
    const forward = (): Tensor => {
      const output = this.model.forward(args[0]!, inputs, (input, value) => {
        if (resultNames.includes("joined") && !(`at ${input}` in results)) results[`at ${input}`] = value;
      });
      if (resultNames.includes("output")) results["output"] = output;
      return this.#loss(output, inputs);
    };
    const loss = kind === "evaluate" ? noGrad(forward) : forward();
    results["loss"] = loss;
    if (kind === "evaluate") return results;
    loss.backward();
    if (kind === "accumulate" || !this.#optimizer) return results;
    if (clip?.kind === "value") optim.clipGradValue(this.#parameters, clip.limit);
    if (clip?.kind === "norm") {
      const { maxNorm, normType } = clip;
      const norm = optim.clipGradNorm(this.#parameters, maxNorm, { normType, errorIfNonfinite: false });
      if (resultNames.includes("norm")) results["norm"] = norm;
    }
    this.#optimizer.step();
    this.#optimizer.zeroGrad();
    return results;
  }

  #loss(output: Tensor, inputs: ReadonlyMap<string, Tensor>): Tensor {
    const { loss, options, target, tensors } = this.#program.loss;
    const entries = Object.entries(tensors).map(([name, input]) => [name, inputs.get(input)!]);
    const Loss = (nn as unknown as Readonly<Record<string, new (options: object) => nn.MSELoss>>)[loss]!;
    const value = new Loss({ ...options, ...Object.fromEntries(entries) }).forward(
      output,
      inputs.get(target)!,
    );
    return value.ndim > 0 ? value.mean() : value;
  }

  #advance(index: number): void {
    if (this.#schedule instanceof optim.ReduceOnPlateau) this.#schedule.step(index % 3);
    else this.#schedule?.step();
  }

  #apply(event: ModelEvent): void {
    const parameter = (at: number): nn.Parameter | undefined =>
      this.#parameters[at % this.#parameters.length];
    const module = (at: number): nn.Module => {
      const modules = [...this.model.namedModules()];
      return modules[at % modules.length]![1];
    };
    switch (event.kind) {
      case "mode":
        module(event.module).train(event.isTraining);
        return;
      case "freeze":
        for (const at of event.parameters) {
          const target = parameter(at);
          if (target) target.requiresGrad = event.requiresGrad;
        }
        return;
      case "freeze module":
        module(event.module).requiresGrad_(event.requiresGrad);
        return;
      case "lr":
      case "weightDecay": {
        const groups = this.#optimizer?.groups ?? [];
        const group = groups[event.group % groups.length];
        // Rows without a gradient cannot decay.
        const isRejected = event.kind === "weightDecay" && this.#optimizer instanceof optim.SparseAdam;
        if (group && !isRejected) group[event.kind] = event.value;
        return;
      }
      case "write": {
        const target = parameter(event.parameter);
        if (target) noGrad(() => target.mul_(event.factor));
        return;
      }
      case "zeroGrad":
        this.model.zeroGrad();
    }
  }

  #argument(input: ModelInput, index: number, call: ModelCall): Tensor {
    const feed = call.feeds.find((candidate) => candidate.input === input.name);
    const kept = feed && this.#kept.get(`${feed.call} ${feed.result}`);
    if (kept) return kept;
    const shape = shapeOf(input, call.batch);
    const dtype = input.dtype === "float" ? this.#dtype : input.dtype;
    const values = valuesOf(this.#program, input, index, call.batch);
    const { nudge } = this.#options;
    const moving = randomFrom(this.#program.seed + 31 * index);
    const moved = nudge && input.dtype === "float" ? values.map((value) => value * nudge(moving())) : values;
    return this.#device.fromHost(moved, shape, dtype, input.name);
  }

  #recordState(record: Map<string, Elements>): void {
    for (const parameter of this.#parameters) {
      record.set(parameter.name, parameter.dataSync());
      const gradient = parameter.requiresGrad ? parameter.grad : undefined;
      if (gradient) record.set(`gradient of ${parameter.name}`, gradient.dataSync());
    }
    for (const [name, tensor] of Object.entries(this.#optimizer?.stateDict() ?? {}))
      record.set(`optimizer's ${name}`, tensor.dataSync());
    record.set("random state", this.#device.randomState.dataSync());
  }
}

export function shapeOf({ sizes, hasBatch = true }: ModelInput, batch: number): readonly number[] {
  return hasBatch ? [batch, ...sizes] : sizes;
}

/** Exact in f32, so that all dtypes of f32 and above start with the same numbers. */
export function valuesOf(
  program: ModelProgram,
  input: ModelInput,
  callIndex: number,
  batch: number,
): number[] {
  const { dtype, from, to, sizes } = input;
  const random = randomFrom(program.seed + 7919 * program.inputs.indexOf(input) + 104_729 * callIndex);
  const columns = sizes.at(-1) ?? 1;
  return Array.from({ length: elementsOf(shapeOf(input, batch)) }, (_, index) => {
    const fraction = random();
    if (dtype === "i32") return from + Math.floor((to - from + 1) * fraction);
    // A fully masked row would have no probabilities: every row sees the first column.
    if (dtype === "bool") return index % columns === 0 || fraction < 0.7 ? 1 : 0;
    return Math.fround(from + (to - from) * fraction);
  });
}

type OptimizerClass = new (source: unknown, options: object) => optim.Optimizer;

function makeOptimizer({ optimizer }: ModelProgram, parameters: readonly nn.Parameter[]): optim.Optimizer {
  const { name, options, secondFrom = parameters.length, second = {} } = optimizer;
  const Class = (optim as unknown as Readonly<Record<string, OptimizerClass>>)[name]!;
  const [first, rest] = [parameters.slice(0, secondFrom), parameters.slice(secondFrom)];
  if (rest.length === 0) return new Class(parameters, options);
  return new Class([{ params: first }, { params: rest, ...second }], options);
}

type ScheduleClass = new (
  optimizer: optim.Optimizer,
  options: object,
) => optim.Schedule | optim.ReduceOnPlateau;

function makeSchedule({ schedule }: ModelProgram, optimizer: optim.Optimizer) {
  if (!schedule) return undefined;
  const Class = (optim as unknown as Readonly<Record<string, ScheduleClass>>)[schedule.name]!;
  const lrLambda = (steps: number): number => 1 / (1 + steps);
  return new Class(optimizer, schedule.name === "LambdaSchedule" ? { lrLambda } : schedule.options);
}
