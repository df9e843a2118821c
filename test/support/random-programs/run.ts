/** Runs a program for a few steps, eagerly or compiled, and returns the state after every step. */

import { type Device, HoldfastError, nn, noGrad, optim, type Tensor } from "holdfast";
import { opTable, sizeOf } from "../../../src/ops/index.js";
import type { FloatDtype } from "../../tolerances.js";
import { randomFrom } from "../op-cases/arbitraries.js";
import {
  type Input,
  type Instruction,
  type Operand,
  type Program,
  randomState,
  resolveAttributes,
} from "./program.js";

export type Elements = ReturnType<Tensor["dataSync"]>;

/**
 * The state after a step: its results, parameters, gradients, moments, constants and the random state, by
 * name.
 */
export type StepRecord = ReadonlyMap<string, Elements>;

type Values = Readonly<Record<string, Tensor>>;
type Body = (...args: readonly Tensor[]) => Values;

export interface ProgramRun {
  readonly steps: readonly StepRecord[];
  /** The instructions that were rejected, in each call of the function. */
  readonly rejections: readonly string[];
}

export interface RunOptions {
  readonly isCompiled: boolean;
  /** The dtype of floats; default: the program's. */
  readonly float?: FloatDtype;
  /** The factor of inputs: near 1, from a random number from 0 to 1. */
  readonly nudge?: (fraction: number) => number;
}

const stepCount = 3;

/** The error codes that an invalid write may cause. */
const rejectionCodes = new Set(["NO_GRADIENT", "SAVED_CHANGED", "BACKWARD_TWICE"]);

export function runProgram(device: Device, program: Program, options: RunOptions): ProgramRun {
  const { runtime } = device;
  const regions = new Set(runtime.persistent.regions);
  const run = new Run(device, program, options);
  try {
    return run.takeSteps();
  } finally {
    run.close();
    for (const region of runtime.persistent.regions)
      if (!regions.has(region)) runtime.persistent.release(region);
  }
}

class Parameters extends nn.Module {
  readonly list: readonly nn.Parameter[];

  constructor(inputs: readonly Input[], valuesOf: (input: Input) => number[]) {
    super();
    this.list = inputs.map(
      ({ shape, ...rest }) => new nn.Parameter(shape, () => valuesOf({ shape, ...rest })),
    );
  }
}

class Run {
  readonly #device: Device;
  readonly #program: Program;
  readonly #isCompiled: boolean;
  readonly #float: FloatDtype;
  readonly #nudge: (fraction: number) => number;
  readonly #arguments: readonly Input[];
  readonly #states = new Map<string, Tensor>();
  readonly #parameters: readonly Tensor[];
  readonly #optimizer: optim.SGD | optim.AdamW | undefined;
  readonly #rejections: string[] = [];

  constructor(
    device: Device,
    program: Program,
    { isCompiled, float = program.dtype, nudge = () => 1 }: RunOptions,
  ) {
    this.#device = device;
    this.#program = program;
    this.#isCompiled = isCompiled;
    this.#float = float;
    this.#nudge = nudge;
    this.#arguments = program.inputs.filter(({ role }) => role === "argument");
    device.reseed(BigInt(program.seed));
    for (const input of program.inputs)
      if (input.role === "constant") this.#states.set(input.name, this.#place(input, 0));
    this.#parameters = this.#placeParameters();
    this.#optimizer = this.#makeOptimizer();
  }

  takeSteps(): ProgramRun {
    const { instructions, leftOut, without } = this.#program;
    const others = leftOut.map((at) => instructions[at]);
    const bodies: Body[] = [(...args) => this.#compute(args, [])];
    if (others.length > 0) bodies.push((...args) => this.#compute(args, others));
    const passes = Object.fromEntries(without.map((name) => [name, false]));
    const compiled = this.#isCompiled ? bodies.map((body) => this.#device.compile(body, { passes })) : [];
    const steps: StepRecord[] = [];
    /** Of a compiled step: its results stay until it is called again. */
    let left: Values = {};
    for (let step = 0; step < stepCount; step++) {
      const before = steps.at(-1);
      const args = this.#arguments.map((input) => this.#argument(input, step, left, before));
      if (this.#optimizer) this.#optimizer.lr = this.#program.optimizer.lr / (1 + step);
      const body = bodies[step % bodies.length]!;
      const results = left;
      let read: Map<string, Elements>;
      if (this.#isCompiled) {
        left = compiled[step % bodies.length]!(...args);
        read = readAll(left);
      } else read = this.#device.step(() => readAll(body(...args)));
      for (const tensor of args) if (!Object.values(results).includes(tensor)) tensor.release();
      steps.push(this.#record(read));
    }
    for (const step of compiled) step.close();
    return { steps, rejections: this.#rejections };
  }

  /** The step itself. */
  #compute(args: readonly Tensor[], leftOut: readonly unknown[]): Values {
    const values = new Map(this.#states);
    for (const [index, tensor] of args.entries()) values.set(this.#arguments[index]!.name, tensor);
    for (const instruction of this.#program.instructions)
      if (!leftOut.includes(instruction)) this.#follow(instruction, values);
    const results = this.#program.results.flatMap((name) => {
      const value = values.get(name);
      return value ? [[name, value] as const] : [];
    });
    return Object.fromEntries(results);
  }

  /** Random, or the result of the previous step. */
  #argument(input: Input, step: number, left: Values, before: StepRecord | undefined): Tensor {
    const feed = this.#program.feeds.find(({ to }) => to === input.name);
    const elements = feed && before?.get(`result ${feed.from}`);
    if (!feed || !elements) return this.#place(input, step);
    return left[feed.from] ?? this.#device.fromHost(elements, input.shape, this.#float, input.name);
  }

  close(): void {
    this.#optimizer?.release();
    for (const tensor of this.#states.values()) tensor.release();
  }

  #placeParameters(): readonly Tensor[] {
    const inputs = this.#program.inputs.filter(({ role }) => role === "parameter");
    const parameters = this.#program.inModule
      ? new Parameters(inputs, (input) => this.#valuesOf(input, 0)).to(this.#device, this.#float).list
      : inputs.map((input) => this.#place(input, 0));
    for (const [index, { name }] of inputs.entries()) {
      parameters[index]!.requiresGrad = true;
      this.#states.set(name, parameters[index]!);
    }
    return parameters;
  }

  #makeOptimizer(): optim.SGD | optim.AdamW | undefined {
    if (this.#parameters.length === 0) return undefined;
    const { name, ...options } = this.#program.optimizer;
    // With a small eps, a gradient that is 0 up to rounding would change a weight as much as any other.
    return name === "SGD"
      ? new optim.SGD(this.#parameters, options)
      : new optim.AdamW(this.#parameters, { ...options, eps: 0.01 });
  }

  #follow(instruction: Instruction, values: Map<string, Tensor>): void {
    try {
      this.#perform(instruction, values);
    } catch (error) {
      if (!(error instanceof HoldfastError)) throw error;
      // A broadcast tensor can't be written to.
      const isStretched = instruction.kind === "in place" && error.code === "BAD_SHAPE";
      if (!isStretched && !rejectionCodes.has(error.code)) throw error;
      const index = this.#program.instructions.indexOf(instruction);
      this.#rejections.push(`instruction ${index} (${instruction.kind}): ${error.code}`);
    }
  }

  /** Values that depend on a rejected one are omitted. */
  #perform(instruction: Instruction, values: Map<string, Tensor>): void {
    const device = this.#device;
    switch (instruction.kind) {
      case "op":
      case "in place": {
        const operands = instruction.operands.map((operand) => this.#operand(operand, values));
        if (!isComplete(operands)) return;
        const op = opTable[instruction.op]!;
        const attributes = resolveAttributes(instruction.attributes, this.#float);
        const call = (): readonly Tensor[] => {
          if (instruction.kind === "in place")
            return [
              device.applyInPlace(op, operands[0] as Tensor, operandsOf(op.name, operands), attributes),
            ];
          return op.kind === "composite"
            ? device.applyAll(op, operands, attributes)
            : [device.apply(op, operands, attributes)];
        };
        const outputs = instruction.isRecorded ? call() : noGrad(call);
        for (const [index, name] of instruction.gives.entries()) values.set(name, outputs[index]!);
        return;
      }
      case "detach": {
        const value = values.get(instruction.of);
        if (value) values.set(instruction.gives[0]!, value.detach());
        return;
      }
      case "gradient": {
        const gradient = values.get(instruction.of)?.grad;
        if (gradient) values.set(instruction.gives[0]!, gradient);
        return;
      }
      case "backward": {
        const root = values.get(instruction.of);
        const gradient = instruction.gradient === undefined ? undefined : values.get(instruction.gradient);
        root?.backward(gradient, { retainGraph: instruction.retainGraph });
        return;
      }
      case "clip":
        optim.clipGradNorm(this.#parameters, instruction.maxNorm, { errorIfNonfinite: false });
        return;
      case "update":
        this.#optimizer?.step();
        return;
      case "zeroGrad":
        this.#optimizer?.zeroGrad();
    }
  }

  #operand(operand: Operand, values: ReadonlyMap<string, Tensor>): Tensor | number | undefined {
    if (typeof operand === "number") return operand;
    return operand === randomState ? this.#device.randomState : values.get(operand);
  }

  #record(results: ReadonlyMap<string, Elements>): StepRecord {
    const record = new Map<string, Elements>();
    for (const [name, elements] of results) record.set(`result ${name}`, elements);
    for (const [name, tensor] of this.#states) {
      record.set(name, tensor.dataSync());
      const gradient = tensor.requiresGrad ? tensor.grad : undefined;
      if (gradient) record.set(`gradient of ${name}`, gradient.dataSync());
    }
    for (const [name, tensor] of Object.entries(this.#optimizer?.stateDict() ?? {}))
      record.set(`optimizer's ${name}`, tensor.dataSync());
    record.set("random state", this.#device.randomState.dataSync());
    return record;
  }

  #place(input: Input, step: number): Tensor {
    const dtype = input.dtype === "float" ? this.#float : input.dtype;
    return this.#device.fromHost(this.#valuesOf(input, step), input.shape, dtype, input.name);
  }

  /** Exact in f32, so that f32 and f64 start with the same numbers. */
  #valuesOf({ name, shape, dtype, from, to }: Input, step: number): number[] {
    const number = Number(name.slice(1));
    const random = randomFrom(this.#program.seed + 7919 * number + 104_729 * step);
    const moving = randomFrom(this.#program.seed + 31 * number + step);
    const isFloat = dtype === "float";
    return Array.from({ length: sizeOf(shape) }, () => {
      const fraction = random();
      if (!isFloat) return from + Math.floor((to - from + 1) * fraction);
      return Math.fround(from + (to - from) * fraction) * this.#nudge(moving());
    });
  }
}

function readAll(tensors: Values): Map<string, Elements> {
  return new Map(Object.entries(tensors).map(([name, tensor]) => [name, tensor.dataSync()]));
}

function isComplete(operands: readonly (Tensor | number | undefined)[]): operands is (Tensor | number)[] {
  return operands.every((operand) => operand !== undefined);
}

/** An in-place copy reads only its source; every other op also reads its target. */
function operandsOf(op: string, operands: readonly (Tensor | number)[]): readonly (Tensor | number)[] {
  return op === "contiguous" && operands.length > 1 ? operands.slice(1) : operands;
}
