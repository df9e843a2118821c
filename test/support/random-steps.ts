/**
 * Artificial training steps as schedules, shaped like real ones: a forward pass that saves values which its
 * backward pass reads in reverse order, temporaries of all sizes, residual sums. The calls compute nothing.
 */

import type { Buffer, BufferSlice, Schedule, ScheduledCall } from "../../src/compile/program/program.js";
import type { Kernel } from "../../src/driver/index.js";
import type { Storage } from "../../src/runtime/index.js";
import { randomFrom } from "./op-cases/arbitraries.js";

const kernel: Kernel = { type: "kernel", id: 0, name: "drawn", parameters: [] };

/** Builds a schedule call by call. */
export class StepScript {
  readonly #calls: ScheduledCall[] = [];
  #buffers = 0;

  get schedule(): Schedule {
    return { calls: this.#calls };
  }

  /** A buffer that no call has used. */
  buffer(label: string, bytes: number, storage?: Storage): Buffer {
    return { id: this.#buffers++, bytes: Math.ceil(bytes), label, ...(storage && { storage }) };
  }

  /** A call that uses the buffers, and its index. */
  touch(op: string, buffers: readonly Buffer[], stream = 0, after: readonly number[] = []): number {
    const slices = buffers.map((buffer): BufferSlice => ({ buffer, offset: 0, size: buffer.bytes }));
    const work = { kind: "launch", kernel, blocks: 1, arguments: slices } as const;
    return this.#calls.push({ call: { op, work }, stream, after }) - 1;
  }

  /** A call of the main stream that reads buffers and writes others; returns the first of those. */
  make(op: string, reads: readonly Buffer[], ...bytes: readonly number[]): Buffer {
    return this.makeAll(op, reads, ...bytes)[0] as Buffer;
  }

  makeAll(op: string, reads: readonly Buffer[], ...bytes: readonly number[]): readonly Buffer[] {
    const outputs = bytes.map((size) => this.buffer(op, size));
    this.touch(op, [...reads, ...outputs]);
    return outputs;
  }
}

const float = 4;

/**
 * Pre-norm transformer blocks; `writesScores` keeps [B, H, S, S] probabilities, which small attention kernels
 * do not store.
 */
export function transformerSchedule(layers: number, writesScores: boolean): Schedule {
  const [B, S, D, H] = [8, 193, 256, 8];
  const [hidden, scores, rows] = [B * S * D * float, B * H * S * S * float, B * S * 2 * float];
  const step = new StepScript();
  let x = step.make("embed", [], hidden);
  const backward: ((gradient: Buffer) => Buffer)[] = [];
  for (let layer = 0; layer < layers; layer++) {
    const input = x;
    const [norm1, rows1] = step.makeAll("layerNorm", [input], hidden, rows) as [Buffer, Buffer];
    const qkv = step.make("linear", [norm1], 3 * hidden);
    const weights = writesScores
      ? step.make("softmax", [step.make("scores", [qkv], scores)], scores)
      : step.make("rowSums", [qkv], B * H * S * float);
    const attended = step.make("attention", [qkv, weights], hidden);
    const middle = step.make("add", [input, step.make("linear", [attended], hidden)], hidden);
    const [norm2, rows2] = step.makeAll("layerNorm", [middle], hidden, rows) as [Buffer, Buffer];
    const wide = step.make("linear", [norm2], 4 * hidden);
    const active = step.make("gelu", [wide], 4 * hidden);
    const [out, mask] = step.makeAll("dropout", [step.make("linear", [active], hidden)], hidden, hidden / 4);
    x = step.make("add", [middle, out as Buffer], hidden);
    backward.push((gradient) => {
      const masked = step.make("dropout'", [gradient, mask as Buffer], hidden);
      const activeGradient = step.make("linear'", [masked], 4 * hidden);
      step.make("weight'", [masked, active], 4 * D * D * float);
      const wideGradient = step.make("gelu'", [activeGradient, wide], 4 * hidden);
      const norm2Gradient = step.make("linear'", [wideGradient], hidden);
      step.make("weight'", [wideGradient, norm2], 4 * D * D * float);
      const partial = step.makeAll("layerNorm'", [norm2Gradient, middle, rows2], hidden, 64 * D * float);
      step.make("sum", [partial[1] as Buffer], D * float);
      const middleGradient = step.make("add", [gradient, partial[0] as Buffer], hidden);
      const attendedGradient = step.make("linear'", [middleGradient], hidden);
      step.make("weight'", [middleGradient, attended], D * D * float);
      const weightsGradient = step.make("softmax'", [attendedGradient, weights, qkv], weights.bytes);
      const read = [attendedGradient, weightsGradient, weights, qkv];
      const qkvGradient = step.make("attention'", read, 3 * hidden);
      const norm1Gradient = step.make("linear'", [qkvGradient], hidden);
      step.make("weight'", [qkvGradient, norm1], 3 * D * D * float);
      const inputGradient = step.make("layerNorm'", [norm1Gradient, input, rows1], hidden);
      return step.make("add", [middleGradient, inputGradient], hidden);
    });
  }
  runBackwards(step, x, backward);
  return step.schedule;
}

/** Residual blocks whose planes shrink and whose channels grow, with unfolded inputs as scratch memory. */
export function convnetSchedule(blocks: number): Schedule {
  const B = 32;
  const step = new StepScript();
  let [channels, side] = [64, 56];
  let x = step.make("stem", [], B * channels * side * side * float);
  const backward: ((gradient: Buffer) => Buffer)[] = [];
  for (let block = 0; block < blocks; block++) {
    const input = x;
    if (block > 0 && block % Math.ceil(blocks / 4) === 0) [channels, side] = [channels * 2, side / 2];
    const plane = B * channels * side * side * float; // [B, C, N, N]
    const unfolded = 9 * plane;
    const statistics = 2 * channels * float;
    const filters = channels * channels * 9 * float;
    const convolve = (from: Buffer): Buffer =>
      step.make("conv", [step.make("unfold", [from], unfolded), from], plane);
    const first = convolve(input);
    const [norm1, rows1] = step.makeAll("batchNorm", [first], plane, statistics) as [Buffer, Buffer];
    const active = step.make("relu", [norm1], plane);
    const second = convolve(active);
    const [norm2, rows2] = step.makeAll("batchNorm", [second], plane, statistics) as [Buffer, Buffer];
    const shortcut = input.bytes === plane ? input : convolve(input);
    const out = step.make("relu", [step.make("add", [norm2, shortcut], plane)], plane);
    x = out;
    backward.push((gradient) => {
      const outGradient = step.make("relu'", [gradient, out], plane);
      const secondGradient = step.make("batchNorm'", [outGradient, second, rows2], plane);
      step.make("filters'", [step.make("unfold", [active], unfolded), secondGradient], filters);
      const activeGradient = step.make("fold", [step.make("conv'", [secondGradient], unfolded)], plane);
      const norm1Gradient = step.make("relu'", [activeGradient, active], plane);
      const firstGradient = step.make("batchNorm'", [norm1Gradient, first, rows1], plane);
      step.make("filters'", [step.make("unfold", [input], unfolded), firstGradient], filters);
      const through = step.make("fold", [step.make("conv'", [firstGradient], unfolded)], input.bytes);
      const around = shortcut === input ? outGradient : step.make("conv'", [outGradient], input.bytes);
      return step.make("add", [through, around], input.bytes);
    });
  }
  runBackwards(step, x, backward);
  return step.schedule;
}

/** Ops of random sizes, each of which saves some of its inputs and outputs, or nothing. */
export function randomSchedule(ops: number, seed: number): Schedule {
  const random = randomFrom(seed);
  const randomBytes = (): number => 256 * 4 ** (7 * random());
  const step = new StepScript();
  const values = [step.make("input", [], randomBytes())];
  const backward: ((gradient: Buffer) => Buffer)[] = [];
  for (let op = 0; op < ops; op++) {
    const earlier = values[Math.max(0, values.length - 1 - Math.floor(8 * random()))] as Buffer;
    const reads = [values.at(-1) as Buffer, earlier];
    const outputs = step.makeAll(
      "op",
      reads,
      ...[randomBytes(), randomBytes(), randomBytes()].slice(2 * random()),
    );
    values.push(outputs[0] as Buffer);
    const saved = [...reads, ...outputs].filter(() => random() < 0.4);
    const sizes = [randomBytes(), randomBytes()].slice(2 * random());
    backward.push((gradient) => {
      step.make("scratch", [gradient, ...saved], randomBytes());
      return step.make("op'", [gradient, ...saved], ...sizes);
    });
  }
  runBackwards(step, values.at(-1) as Buffer, backward);
  return step.schedule;
}

function runBackwards(
  step: StepScript,
  output: Buffer,
  backward: readonly ((gradient: Buffer) => Buffer)[],
): void {
  let gradient = step.make("loss'", [output, step.make("loss", [output], float)], output.bytes);
  for (const run of backward.toReversed()) gradient = run(gradient);
}
